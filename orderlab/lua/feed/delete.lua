-- Deletes a message: one that is claimed only for its holder. Returns 'lost' where there is none, or it is another's.
-- KEYS: entries, order, deadlines, free, claimed, holders, claims, state
-- ARGV: name, token ('' without a claim)
local name, token = ARGV[1], ARGV[2]
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)

local packed = redis.call('HGET', KEYS[1], name)
local claimed_until_ms = redis.call('ZSCORE', KEYS[5], name)
local holder = redis.call('HGET', KEYS[6], name)
redis.call('ZCARD', KEYS[2])
redis.call('ZCARD', KEYS[3])
redis.call('ZCARD', KEYS[4])
local claim = holder and redis.call('HGET', KEYS[7], holder)
if not packed or cmsgpack.unpack(packed)[2] < now_ms then
  return 'lost'
end
local is_held = claimed_until_ms and tonumber(claimed_until_ms) >= now_ms
if is_held and holder ~= token or not is_held and token ~= '' and holder ~= token then
  return 'lost'
end
redis.call('HDEL', KEYS[1], name)
for key = 2, 5 do
  redis.call('ZREM', KEYS[key], name)
end
redis.call('HDEL', KEYS[6], name)
if claim then
  local rest = {}
  for _, one in ipairs(cmsgpack.unpack(claim)) do
    if one ~= name then rest[#rest + 1] = one end
  end
  if #rest > 0 then
    redis.call('HSET', KEYS[7], holder, cmsgpack.pack(rest))
  else
    redis.call('HDEL', KEYS[7], holder)
  end
end
return 'ok'
