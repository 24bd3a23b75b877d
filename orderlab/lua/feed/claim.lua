-- Claims the first messages that no claim holds. Returns nil, or the claim's token and the name and content of each message.
-- KEYS: entries, order, deadlines, free, claimed, holders, claims, state
-- ARGV: messages at most, time of the claim in ms, grace in ms
local count, ttl_ms, grace_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)

-- Every key is read before the first write, so that a value of a foreign type stops the script while nothing has happened.
local token = tonumber(redis.call('HGET', KEYS[8], 'token') or 0) + 1
local lapsed = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', '(' .. now_ms, 'LIMIT', 0, 100)
redis.call('ZCARD', KEYS[3])
redis.call('HLEN', KEYS[6])
redis.call('HLEN', KEYS[7])
redis.call('ZCARD', KEYS[2])
local free, old, back = {}, {}, {}
local function hold(name, serial, packed)
  local entry = packed and cmsgpack.unpack(packed)
  if not entry or entry[2] < now_ms then return false end
  free[#free + 1] = { tonumber(serial), name, entry }
  return true
end
-- The first that live; what has lapsed stands in line before them until it is cleared.
local over, alive, first = {}, 0, 0
repeat
  local line = redis.call('ZRANGE', KEYS[4], first, first + math.min(count, 900) + 99, 'WITHSCORES')
  local found = {}
  for at = 1, #line, 2 do found[#found + 1] = line[at] end
  local entries = #found > 0 and redis.call('HMGET', KEYS[1], unpack(found)) or {}
  for index, name in ipairs(found) do
    if hold(name, line[2 * index], entries[index]) then
      alive = alive + 1
    else
      over[#over + 1] = name
    end
  end
  first = first + #found
until alive >= count or #found == 0
if #lapsed > 0 then
  local entries, serials = redis.call('HMGET', KEYS[1], unpack(lapsed)), redis.call('ZMSCORE', KEYS[2], unpack(lapsed))
  for index, name in ipairs(lapsed) do
    if serials[index] and hold(name, serials[index], entries[index]) then
      back[#back + 1] = serials[index]
      back[#back + 1] = name
    end
  end
  for _, one in ipairs(redis.call('HMGET', KEYS[6], unpack(lapsed))) do
    if one then old[#old + 1] = one end
  end
end
table.sort(free, function(one, other) return one[1] < other[1] end)

if #lapsed > 0 then
  redis.call('ZREM', KEYS[5], unpack(lapsed))
  redis.call('HDEL', KEYS[6], unpack(lapsed))
end
if #back > 0 then
  redis.call('ZADD', KEYS[4], unpack(back))
end
if #old > 0 then
  redis.call('HDEL', KEYS[7], unpack(old))
end
for from = 1, #over, 1000 do
  redis.call('ZREM', KEYS[4], unpack(over, from, math.min(from + 999, #over)))
end
local until_ms = now_ms + ttl_ms
local claimed, reply = {}, { tostring(token) }
for index = 1, math.min(count, #free) do
  local name, entry = free[index][2], free[index][3]
  claimed[#claimed + 1] = name
  reply[#reply + 1] = { name, entry[3] }
  entry[2] = math.max(entry[2], until_ms + grace_ms)
  redis.call('HSET', KEYS[1], name, cmsgpack.pack(entry))
  redis.call('ZADD', KEYS[3], entry[2], name)
  redis.call('ZREM', KEYS[4], name)
  redis.call('ZADD', KEYS[5], until_ms, name)
  redis.call('HSET', KEYS[6], name, token)
end
if #claimed == 0 then
  return false
end
redis.call('HSET', KEYS[8], 'token', token)
redis.call('HSET', KEYS[7], token, cmsgpack.pack(claimed))
return reply
