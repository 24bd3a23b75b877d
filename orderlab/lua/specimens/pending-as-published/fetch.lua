-- fetch: the first of the pending set by rank; those that are young enough are returned and removed.
-- KEYS  1 pending (sorted set: member = payload, score = timestamp)
-- ARGV  1 page size  2 time to live in s
local time = redis.call('TIME')
local oldest = time[1] * 1000 + math.floor(time[2] / 1000) - ARGV[2] * 1000
local found = redis.call('ZRANGE', KEYS[1], 0, ARGV[1] - 1, 'WITHSCORES')
local young = {}
for i = 1, #found, 2 do
  if tonumber(found[i + 1]) > oldest then
    young[#young + 1] = found[i]
    redis.call('ZREM', KEYS[1], found[i])
  end
end
return young
