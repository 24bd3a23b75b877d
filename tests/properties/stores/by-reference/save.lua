-- KEYS: refs, counter, session, deadlines
-- ARGV: epoch, producer, batch, limit, default expiry (ms), modulus, JSON array
local refs, counter, session, deadlines = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local limit, modulus = tonumber(ARGV[4]), tonumber(ARGV[6])
if not limit or limit < 1 or limit > modulus then
  return redis.error_reply('ERR limit must be from 1 to the number of identifiers')
end
local stored = redis.call('HGET', session, 'epoch')
if not stored or tonumber(stored) ~= tonumber(ARGV[1]) then
  return 'CLOSED'
end
local mark = redis.call('HGET', session, 'p:' .. ARGV[2])
if mark then
  local seen = cjson.decode(mark)
  if tonumber(ARGV[3]) < seen[1] then
    return 'OLD'
  elseif tonumber(ARGV[3]) == seen[1] then
    return seen[2]
  end
end
local score = tonumber(redis.call('GET', counter))
if not score then
  return redis.error_reply('ERR the counter of a live session is gone')
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
-- what is there, what is over
local gone, live, used = {}, {}, {}
local over = {}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', deadlines, '-inf', now)) do
  over[member] = true
  gone[#gone + 1] = member
end
for _, member in ipairs(redis.call('ZRANGE', refs, 0, -1)) do
  if not over[member] then
    live[#live + 1] = member
  end
end
-- which of the new ones are kept
local messages, fresh = cjson.decode(ARGV[7]), {}
local default = tonumber(ARGV[5])
for i, message in ipairs(messages) do
  local interval = message.expiry or default
  if interval > 0 then
    fresh[#fresh + 1] = i
    message.deadline = math.min(now + math.ceil(interval), 2 ^ 52)
  end
end
local surplus = #live + #fresh - limit
local trimmed = math.min(math.max(surplus, 0), #live)
for i = 1, trimmed do
  gone[#gone + 1] = live[i]
end
for i = trimmed + 1, #live do
  used[live[i]] = true
end
local first = math.max(surplus - #live, 0) + 1
local reply = {}
for i = 1, 2 * #messages do
  reply[i] = 0
end
local kept, members = {}, {}
for n = first, #fresh do
  local message = messages[fresh[n]]
  local id, member
  repeat
    score = score + 1
    id = (score - 1) % modulus + 1
    member = refs .. '_' .. string.format('%d', id)
  until not used[member]
  used[member] = true
  reply[2 * fresh[n] - 1], reply[2 * fresh[n]] = id, score
  message.expiry = nil
  message.packetId, message.packetType = id, 'PUBLISH'
  local deadline = message.deadline
  message.deadline = nil
  kept[#kept + 1] = {member, score, deadline, cjson.encode(message)}
  members[#members + 1] = member
end
-- every key is touched before anything is written: an error comes now or never
for i = 1, #gone, 500 do
  redis.call('EXISTS', unpack(gone, i, math.min(i + 499, #gone)))
end
for i = 1, #members, 500 do
  redis.call('EXISTS', unpack(members, i, math.min(i + 499, #members)))
end
local removed = {}
for _, member in ipairs(gone) do
  if not used[member] then
    removed[#removed + 1] = member
  end
end
gone = removed
redis.call('SET', counter, string.format('%d', score))
redis.call('HSET', session, 'p:' .. ARGV[2], cjson.encode({tonumber(ARGV[3]), reply}))
for _, k in ipairs(kept) do
  redis.call('SET', k[1], k[4], 'PXAT', string.format('%d', k[3]))
  redis.call('ZADD', refs, k[2], k[1])
  redis.call('ZADD', deadlines, k[3], k[1])
end
for i = 1, #gone, 500 do
  local last = math.min(i + 499, #gone)
  redis.call('DEL', unpack(gone, i, last))
  redis.call('ZREM', refs, unpack(gone, i, last))
  redis.call('ZREM', deadlines, unpack(gone, i, last))
end
return reply
