redis.call('LLEN', KEYS[1])
if redis.call('HSETNX', KEYS[2], ARGV[1], ARGV[2]) == 0 then return 0 end
redis.call('RPUSH', KEYS[1], ARGV[1])
return 1
