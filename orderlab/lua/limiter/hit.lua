-- KEYS: hits (a sorted set), sequence. ARGV: limit, window in ms. 1 accepted, 0 refused.
local time = redis.call('TIME')  -- the server's clock: clients' clocks differ
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then
  return 0
end
-- A member of its own for each hit: two hits of one millisecond are two.
local member = redis.call('INCR', KEYS[2])
redis.call('ZADD', KEYS[1], now, member)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1
