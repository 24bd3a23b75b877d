local queue, meta = KEYS[1], KEYS[2]
local epoch, limit, default = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if limit < 1 or limit > 65535 then
  return redis.error_reply('ERR limit')
end
local known = redis.call('HMGET', meta, 'epoch', 'last', 'seq', 'p' .. ARGV[4])
if not known[1] or epoch < tonumber(known[1]) then
  return redis.status_reply('STALE')
end
if known[4] and tonumber(ARGV[5]) <= tonumber(known[4]) then
  return redis.status_reply('KNOWN')
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local records, head, taken = {}, 1, {}
local old = redis.call('LRANGE', queue, 0, -1)
for _, record in ipairs(old) do
  local id, deadline = string.match(record, '^%d+ (%d+) (%d+)')
  if tonumber(deadline) > now then
    records[#records + 1] = record
    taken[id] = true
  end
end
local last, seq = tonumber(known[2] or 0), tonumber(known[3] or 0)
local reply = {}
for i = 6, #ARGV, 4 do
  local told = ARGV[i] ~= ''
  local interval = told and tonumber(ARGV[i]) or (default > 0 and default or 1e14)
  local deadline = now + math.floor(math.max(0, math.min(interval, 1e14)))
  if deadline > now then
    while #records - head + 1 >= limit do
      taken[string.match(records[head], '^%d+ (%d+)')] = nil
      head = head + 1
    end
    repeat
      last = last % 65535 + 1
    until not taken[tostring(last)]
    taken[tostring(last)] = true
    seq = seq + 1
    records[#records + 1] = string.format('%d %d %.0f %s %s PUBLISH %s.%s', seq, last, deadline, told and '+' or '-',
      ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
    reply[#reply + 1] = tostring(last)
  else
    reply[#reply + 1] = false
  end
end
head = math.max(head, #records - limit + 1)
redis.call('HSET', meta, 'last', last, 'seq', seq, 'p' .. ARGV[4], ARGV[5])
-- The new list goes behind the old one first: a key that is deleted cannot be made again while its slot migrates.
for i = head, #records, 1000 do
  redis.call('RPUSH', queue, unpack(records, i, math.min(i + 999, #records)))
end
redis.call('LTRIM', queue, #old, -1)
return reply
