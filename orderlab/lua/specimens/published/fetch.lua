-- fetch: every message of the queue in order; references whose payload has expired are dropped.
-- KEYS  1 queue (sorted set of payload keys)
-- Reply: the messages as JSON texts.
local queue = KEYS[1]
local found = {}
for _, key in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
  local message = redis.call('GET', key)
  if message then
    found[#found + 1] = message
  else
    redis.call('ZREM', queue, key)
  end
end
return found
