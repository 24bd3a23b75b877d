local now, epoch, limit, default = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local producer, batch = ARGV[5], tonumber(ARGV[6])
if not limit or limit < 1 or limit > 65535 then
  return redis.error_reply('ERR limit')
end
local raw = redis.call('GET', KEYS[1])
local doc = raw and cjson.decode(raw) or {epoch = 0, last = 0, seq = 0, marks = {}, queue = {}}
if epoch < doc.epoch then
  return redis.status_reply('STALE')
end
local mark = doc.marks[producer]
if mark and batch <= mark then
  return {}
end
local queue, head, taken = {}, 1, {}
for _, m in ipairs(doc.queue) do
  if m.deadline == 0 or m.deadline > now then
    queue[#queue + 1] = m
    taken[m.id] = true
  end
end
local function trim(most)
  while #queue - head + 1 > most do
    taken[queue[head].id] = nil
    head = head + 1
  end
end
local reply = {}
for i = 7, #ARGV, 4 do
  local interval = ARGV[i] == '' and default or tonumber(ARGV[i])
  local deadline = 0
  if ARGV[i] ~= '' or default > 0 then
    deadline = now + math.floor(math.max(0, math.min(interval, 1e14)))
  end
  if ARGV[i] ~= '' and deadline <= now then
    reply[#reply + 1] = 0
    reply[#reply + 1] = 0
  else
    trim(limit - 1)
    local id = doc.last
    repeat
      id = id % 65535 + 1
    until not taken[id]
    taken[id] = true
    doc.last, doc.seq = id, doc.seq + 1
    queue[#queue + 1] = {id = id, seq = doc.seq, deadline = deadline, told = ARGV[i] ~= '', qos = ARGV[i + 1],
                         topic = ARGV[i + 2], payload = ARGV[i + 3], kind = 'PUBLISH'}
    reply[#reply + 1] = id
    reply[#reply + 1] = doc.seq
  end
end
trim(limit)
doc.queue = {}
for i = head, #queue do
  doc.queue[#doc.queue + 1] = queue[i]
end
doc.marks[producer] = batch
redis.call('SET', KEYS[1], cjson.encode(doc))
return reply
