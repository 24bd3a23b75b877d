-- KEYS[1] semaphore
local now, ttl, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('zremrangebyscore', KEYS[1], '-inf', now)
if redis.call('zcard', KEYS[1]) < limit then
  redis.call('zadd', KEYS[1], now + ttl, ARGV[4])
  return 1
end
return 0
