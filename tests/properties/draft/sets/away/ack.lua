--- @include "lib/keys"
redis.call('HDEL', bodies, ARGV[1])
return redis.call('ZREM', queue, ARGV[1])
