-- Claims the first messages that no claim holds. Returns nil, or the claim's token and the name and content of each message.
-- KEYS: entries, order, deadlines, free, claimed, holders, claims, state
-- ARGV: messages at most, time of the claim in ms, grace in ms
local count, ttl_ms, grace_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)

-- Every key is read before the first write, so that a value of a foreign type stops the script while nothing has happened.
local token = tonumber(redis.call('HGET', KEYS[8], 'token') or 0) + 1
local lapsed = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', '(' .. now_ms, 'LIMIT', 0, 100)
local line = redis.call('ZRANGE', KEYS[4], 0, count + 99, 'WITHSCORES')
redis.call('ZCARD', KEYS[3])
redis.call('HLEN', KEYS[6])
redis.call('HLEN', KEYS[7])
local free = {}
for at = 1, #line, 2 do
  free[#free + 1] = { tonumber(line[at + 1]), line[at] }
end
local old, back = {}, {}
if #lapsed > 0 then
  for index, serial in ipairs(redis.call('ZMSCORE', KEYS[2], unpack(lapsed))) do
    if serial then
      free[#free + 1] = { tonumber(serial), lapsed[index] }
      back[#back + 1] = serial
      back[#back + 1] = lapsed[index]
    end
  end
  for _, one in ipairs(redis.call('HMGET', KEYS[6], unpack(lapsed))) do
    if one then old[#old + 1] = one end
  end
end
table.sort(free, function(one, other) return one[1] < other[1] end)
local names = {}
for index, one in ipairs(free) do names[index] = one[2] end
local entries = #names > 0 and redis.call('HMGET', KEYS[1], unpack(names)) or {}

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
local until_ms = now_ms + ttl_ms
local claimed, reply = {}, { tostring(token) }
for index, name in ipairs(names) do
  local entry = entries[index] and cmsgpack.unpack(entries[index])
  if entry and entry[2] >= now_ms and #claimed < count then
    claimed[#claimed + 1] = name
    reply[#reply + 1] = { name, entry[3] }
    entry[2] = math.max(entry[2], until_ms + grace_ms)
    redis.call('HSET', KEYS[1], name, cmsgpack.pack(entry))
    redis.call('ZADD', KEYS[3], entry[2], name)
    redis.call('ZREM', KEYS[4], name)
    redis.call('ZADD', KEYS[5], until_ms, name)
    redis.call('HSET', KEYS[6], name, token)
  end
end
if #claimed == 0 then
  return false
end
redis.call('HSET', KEYS[8], 'token', token)
redis.call('HSET', KEYS[7], token, cmsgpack.pack(claimed))
return reply
