local what, id = ARGV[1], ARGV[2]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('LLEN', KEYS[1]) redis.call('HLEN', KEYS[2]) redis.call('ZCARD', KEYS[5])
local tries = tonumber(redis.call('HGET', KEYS[6], id) or 0)
local till = tonumber(redis.call('ZSCORE', KEYS[4], id) or 0)
if redis.call('HGET', KEYS[3], id) ~= ARGV[3] or till < now then return 'lost' end
if what == 'heartbeat' then
  redis.call('ZADD', KEYS[4], now + ARGV[4], id)
  return 'ok'
end
redis.call('ZREM', KEYS[4], id)
redis.call('HDEL', KEYS[3], id)
if what == 'complete' then
  redis.call('HDEL', KEYS[2], id)
  redis.call('HDEL', KEYS[6], id)
  return 'ok'
end
if tries >= 2 then
  redis.call('ZADD', KEYS[5], now, id)
  return 'dead'
end
redis.call('RPUSH', KEYS[1], id)
return 'retried'
