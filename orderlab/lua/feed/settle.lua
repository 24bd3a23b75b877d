-- Renews or releases a claim. Returns 'lost' where it holds nothing any more.
-- KEYS: entries, order, deadlines, free, claimed, holders, claims, state
-- ARGV: renew | release, token, time of the claim in ms, grace in ms
local what, token = ARGV[1], ARGV[2]
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)

local packed = redis.call('HGET', KEYS[7], token)
redis.call('ZCARD', KEYS[3])
redis.call('ZCARD', KEYS[4])
if not packed then
  return 'lost'
end
local names = cmsgpack.unpack(packed)
local held = {}
for from = 1, #names, 1000 do  -- unpack has a limit
  local some = { unpack(names, from, math.min(from + 999, #names)) }
  local holders, ends = redis.call('HMGET', KEYS[6], unpack(some)), redis.call('ZMSCORE', KEYS[5], unpack(some))
  local serials, entries = redis.call('ZMSCORE', KEYS[2], unpack(some)), redis.call('HMGET', KEYS[1], unpack(some))
  for index, name in ipairs(some) do
    if holders[index] == token and ends[index] and tonumber(ends[index]) >= now_ms and serials[index] and entries[index] then
      held[#held + 1] = { name, serials[index], cmsgpack.unpack(entries[index]) }
    end
  end
end
if #held == 0 then
  return 'lost'
end

local until_ms = now_ms + tonumber(ARGV[3])
for _, one in ipairs(held) do
  local name, serial, entry = one[1], one[2], one[3]
  if what == 'renew' then
    entry[2] = math.max(entry[2], until_ms + tonumber(ARGV[4]))
    redis.call('HSET', KEYS[1], name, cmsgpack.pack(entry))
    redis.call('ZADD', KEYS[3], entry[2], name)
    redis.call('ZADD', KEYS[5], until_ms, name)
  else
    redis.call('ZREM', KEYS[5], name)
    redis.call('HDEL', KEYS[6], name)
    redis.call('ZADD', KEYS[4], serial, name)
  end
end
if what == 'release' then
  redis.call('HDEL', KEYS[7], token)
end
return 'ok'
