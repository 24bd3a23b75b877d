--- @include "lib/keys"
--- @include "lib/next_id"
-- Keeps one message for a client that is away; the oldest goes when there are more than ARGV[2].
local limit = tonumber(ARGV[2])
local order = redis.call('HINCRBY', meta, 'order', 1)
local id = next_id()
redis.call('HSET', bodies, id, ARGV[1])
redis.call('ZADD', queue, order, id)
local extra = redis.call('ZCARD', queue) - limit
if extra > 0 then
  local old = redis.call('ZRANGE', queue, 0, extra - 1)
  for _, packet in ipairs(old) do
    redis.call('ZREM', queue, packet)
    redis.call('HDEL', bodies, packet)
  end
end
for i = 1, 3 do
  redis.call('EXPIRE', KEYS[i], ARGV[3])
end
return id
