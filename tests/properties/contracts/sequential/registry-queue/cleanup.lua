local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('LLEN', KEYS[1]) redis.call('HLEN', KEYS[2]) redis.call('ZCARD', KEYS[4])
local ids = redis.call('ZRANGE', KEYS[3], '-inf', '(' .. now, 'BYSCORE', 'LIMIT', 0, ARGV[1])
local tries = {}
for i, id in ipairs(ids) do tries[i] = tonumber(redis.call('HGET', KEYS[5], id)) end
for i, id in ipairs(ids) do
  redis.call('ZREM', KEYS[3], id)
  redis.call('HDEL', KEYS[2], id)
  if tries[i] >= 2 then redis.call('ZADD', KEYS[4], now, id) else redis.call('RPUSH', KEYS[1], id) end
end
return #ids
