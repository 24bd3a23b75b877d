local raw = redis.call('GET', KEYS[1])
if not raw then return redis.status_reply('GONE') end
local s = cmsgpack.unpack(raw)
local epoch, limit, default, batch = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5])
if epoch < s.e then return redis.status_reply('GONE') end
if not limit or limit < 1 or limit > 65535 then return redis.error_reply('ERR bad limit') end
local seen = s.p[ARGV[4]]
if seen then
  if batch < seen[1] then return redis.status_reply('OLD') end
  if batch == seen[1] then return seen[2] end
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local q, used = {}, {}
for _, m in ipairs(s.q) do
  if m[3] == 0 or m[3] > now then
    q[#q + 1] = m
    used[m[1]] = true
  end
end
local answer = {}
local head = 1
for i = 6, #ARGV, 4 do
  local interval = tonumber(ARGV[i])
  if ARGV[i] ~= '' and not interval then return redis.error_reply('ERR bad interval') end
  local told = interval and 1 or 0
  if not interval and default > 0 then interval = default end
  local deadline = 0
  if interval then deadline = math.min(now + math.floor(interval), 9e15) end
  if interval and deadline <= now then
    answer[#answer + 1] = 0
    answer[#answer + 1] = 0
  else
    while #q - head + 1 >= limit do
      used[q[head][1]] = nil
      head = head + 1
    end
    repeat
      s.l = s.l % 65535 + 1
    until not used[s.l]
    s.s = s.s + 1
    used[s.l] = true
    q[#q + 1] = {s.l, s.s, deadline, 'PUBLISH', tonumber(ARGV[i + 1]), told, ARGV[i + 2], ARGV[i + 3]}
    answer[#answer + 1] = s.l
    answer[#answer + 1] = s.s
  end
end
s.q = {}
for i = math.max(head, #q - limit + 1), #q do s.q[#s.q + 1] = q[i] end
s.p[ARGV[4]] = {batch, answer}
redis.call('SET', KEYS[1], cmsgpack.pack(s))
return answer
