local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('HLEN', KEYS[2]) redis.call('HLEN', KEYS[3]) redis.call('ZCARD', KEYS[4]) redis.call('HLEN', KEYS[5])
if redis.call('LLEN', KEYS[1]) == 0 then return false end
local id = redis.call('LPOP', KEYS[1])
redis.call('ZADD', KEYS[4], now + ARGV[2], id)
redis.call('HSET', KEYS[3], id, ARGV[1])
redis.call('HINCRBY', KEYS[5], id, 1)
return { id, redis.call('HGET', KEYS[2], id) }
