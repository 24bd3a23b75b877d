--- @include "lib/keys"
return redis.call('DEL', queue, bodies, meta)
