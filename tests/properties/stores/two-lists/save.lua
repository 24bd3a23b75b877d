local w, f, m = KEYS[1], KEYS[2], KEYS[3]
local known = redis.call('HMGET', m, 'epoch', 'last', 'seq', 'p' .. ARGV[4])
if not known[1] or tonumber(ARGV[1]) < tonumber(known[1]) then return redis.status_reply('LATE') end
local limit, default, batch = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5])
if limit < 1 or limit > 65535 then return redis.error_reply('limit must be 1 to 65535') end
if known[4] then
  local before = cjson.decode(known[4])
  if batch < before.batch then return redis.status_reply('LATE') end
  if batch == before.batch then return before.ids end
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local flight, waiting = redis.call('LRANGE', f, 1, -1), redis.call('LRANGE', w, 1, -1)
local live, ids = {}, {}
for at = 1, #flight + #waiting do
  local text = flight[at] or waiting[at - #flight]
  local one = cjson.decode(text)
  if one.till > now then
    live[#live + 1] = {text = text, id = one.id, flight = at <= #flight}
    ids[one.id] = true
  end
end
local last, seq, first, answer, fresh = tonumber(known[2]), tonumber(known[3]), 1, {}, {}
for i = 6, #ARGV, 3 do
  local ms = tonumber(ARGV[i])
  local told = ms ~= nil
  if not told then ms = default > 0 and default or 9e14 end
  local till = math.floor(math.min(now + ms, 9e14))
  if till > now then
    while #live - first + 1 >= limit do
      ids[live[first].id] = nil
      first = first + 1
    end
    repeat last = last % 65535 + 1 until not ids[last]
    ids[last], seq = true, seq + 1
    local text = cjson.encode({id = last, seq = seq, till = till, told = told, qos = ARGV[i + 1], body = ARGV[i + 2], kind = 'PUBLISH'})
    live[#live + 1] = {text = text, id = last, new = true}
    answer[#answer + 1] = tostring(last)
  else
    answer[#answer + 1] = '0'
  end
end
first = math.max(first, #live - limit + 1)
local newf, neww = {}, {}
for i = first, #live do
  local into = live[i].flight and newf or neww
  into[#into + 1] = live[i].text
end
redis.call('HSET', m, 'last', last, 'seq', seq, 'p' .. ARGV[4], cjson.encode({batch = batch, ids = answer}))
local function put(key, had, rows)
  redis.call('RPUSH', key, '-')
  for i = 1, #rows, 4000 do redis.call('RPUSH', key, unpack(rows, i, math.min(i + 3999, #rows))) end
  redis.call('LTRIM', key, had + 1, -1)
end
if #newf ~= #flight then put(f, #flight, newf) end
put(w, #waiting, neww)
return answer
