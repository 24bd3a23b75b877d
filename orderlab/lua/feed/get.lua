-- The content of a message, or nil.
-- KEYS: entries
local packed = redis.call('HGET', KEYS[1], ARGV[1])
local entry = packed and cmsgpack.unpack(packed)
local now = redis.call('TIME')
if not entry or entry[2] < now[1] * 1000 + math.floor(now[2] / 1000) then
  return false
end
return entry[3]
