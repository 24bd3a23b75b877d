-- Removes so many of the dead jobs, the oldest first, and returns how many.
-- KEYS: jobs, dead
local count = tonumber(ARGV[1])
local names = redis.call('ZRANGE', KEYS[2], 0, count - 1)
redis.call('HLEN', KEYS[1])
for from = 1, #names, 1000 do
  local last = math.min(from + 999, #names)
  redis.call('ZREM', KEYS[2], unpack(names, from, last))
  redis.call('HDEL', KEYS[1], unpack(names, from, last))
end
return #names
