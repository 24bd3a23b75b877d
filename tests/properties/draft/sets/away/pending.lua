--- @include "lib/keys"
-- All that the client has not acknowledged, in order: {id, payload}, ...
local out = {}
for _, id in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
  out[#out + 1] = { tonumber(id), redis.call('HGET', bodies, id) }
end
return out
