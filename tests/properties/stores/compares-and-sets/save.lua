-- ARGV: version, epoch, producer, batch, limit, default, messages
local q, m = KEYS[1], KEYS[2]
local head = redis.call('HMGET', m, 'e', 'v', 's', 'b' .. ARGV[3])
if not head[1] or tonumber(ARGV[2]) < tonumber(head[1]) then
  return redis.status_reply('CLOSED')
end
if head[4] then
  local number, reply = string.match(head[4], '^(%-?%d+) (.*)$')
  if tonumber(ARGV[4]) < tonumber(number) then
    return redis.status_reply('OLD')
  elseif ARGV[4] == number then
    return reply
  end
end
if head[2] ~= ARGV[1] then
  return redis.status_reply('BUSY')
end
local limit = tonumber(ARGV[5])
if limit <= 0 or limit > 65535 then
  return redis.error_reply('LIMIT must be from 1 to the number of identifiers')
end
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local old = redis.call('LRANGE', q, 0, -1)
local gone, live, used = {}, {}, {}
for at, text in ipairs(old) do
  local one = cjson.decode(text)
  if one['until'] <= now then
    gone[#gone + 1] = at - 1
  else
    live[#live + 1] = {at - 1, one.id}
    used[one.id] = true
  end
end
local last = tonumber(head[3])
local new, reply = {}, {}
for i, one in ipairs(cjson.decode(ARGV[7])) do
  local ms = one.ttl and one.ttl * 1000 or tonumber(ARGV[6]) > 0 and tonumber(ARGV[6]) or 1e15
  reply[i] = {id = 0, seq = 0}
  if ms > 0 then
    new[#new + 1] = {i, one, math.min(now + math.ceil(ms - 1e-6), 1e15)}
  end
end
local surplus = #live + #new - limit
for i = 1, math.min(surplus, #live) do
  gone[#gone + 1] = live[i][1]
  used[live[i][2]] = nil
end
-- the surplus of the batch itself takes its numbers and goes at once
local kept, cut = {}, math.max(surplus - #live, 0)
for n, entry in ipairs(new) do
  repeat
    last = last + 1
  until not used[(last - 1) % 65535 + 1]
  local id = (last - 1) % 65535 + 1
  reply[entry[1]] = {id = id, seq = last}
  if n > cut then
    used[id] = true
    local one = entry[2]
    one.ttl = nil
    one.id, one.seq, one['until'], one.kind = id, last, entry[3], 'PUBLISH'
    kept[#kept + 1] = cjson.encode(one)
  end
end
local text = cjson.encode(reply)
redis.call('HSET', m, 's', string.format('%d', last), 'v', string.format('%d', tonumber(head[2]) + 1), 'b' .. ARGV[3], ARGV[4] .. ' ' .. text)
for i = 1, #kept, 1000 do
  redis.call('RPUSH', q, unpack(kept, i, math.min(i + 999, #kept)))
end
if #gone > 0 then
  table.sort(gone)
  local run = 0
  while gone[run + 1] == run do
    run = run + 1
  end
  for i = run + 1, #gone do
    redis.call('LSET', q, gone[i], '')
  end
  if #gone > run then
    redis.call('LREM', q, 0, '')
  end
  if run > 0 then
    redis.call('LTRIM', q, run, -1)
  end
end
return text
