local h, epoch, limit, default, batch = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5])
if not limit or limit < 1 or limit > 65535 then return redis.error_reply('ERR limit') end
local all = redis.call('HGETALL', h)
local s = {}
for i = 1, #all, 2 do s[all[i]] = all[i + 1] end
if not s.began or epoch < tonumber(s.began) then return redis.status_reply('CLOSED') end
local mark = s['by ' .. ARGV[4]]
if mark then
  local no, told = string.match(mark, '^(%d+) ?(.*)$')
  if batch < tonumber(no) then return redis.status_reply('OLD') end
  if batch == tonumber(no) then
    local again = {}
    for one in string.gmatch(told, '%d+') do again[#again + 1] = one end
    return again
  end
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local live, gone, used = {}, {}, {}
for name, value in pairs(s) do
  local seq = string.match(name, '^#(%d+)$')
  if seq then
    if tonumber(string.sub(value, 2, 14)) <= now then
      gone[#gone + 1] = name
    else
      live[#live + 1] = tonumber(seq)
      used[tonumber(seq) % 65535] = true
    end
  end
end
table.sort(live)
local first, seq, told, fresh = 1, tonumber(s.seq), {}, {}
for i = 6, #ARGV, 2 do
  local ms = tonumber(ARGV[i])
  if ARGV[i] == '' and default > 0 then ms = default end
  if ms and ms <= 0 then
    told[#told + 1] = 0
  else
    while #live - first + 1 >= limit do
      used[live[first] % 65535] = nil
      if fresh[live[first]] then fresh[live[first]] = nil else gone[#gone + 1] = '#' .. live[first] end
      first = first + 1
    end
    repeat seq = seq + 1 until not used[seq % 65535]
    used[seq % 65535] = true
    live[#live + 1] = seq
    fresh[seq] = string.format('P%013.0f%d', ms and math.min(now + math.floor(ms), 9999999999999) or 9999999999999, ARGV[i] ~= '' and 1 or 0) .. ARGV[i + 1]
    told[#told + 1] = seq
  end
end
while #live - first + 1 > limit do
  gone[#gone + 1] = '#' .. live[first]
  first = first + 1
end
redis.call('HSET', h, 'seq', seq, 'by ' .. ARGV[4], batch .. ' ' .. table.concat(told, ' '))
for n, value in pairs(fresh) do redis.call('HSET', h, '#' .. n, value) end
for _, name in ipairs(gone) do redis.call('HDEL', h, name) end
for i = 1, #told do told[i] = tostring(told[i]) end
return told
