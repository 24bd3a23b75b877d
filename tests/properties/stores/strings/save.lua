local index, meta = KEYS[1], KEYS[2]
local prefix = string.sub(index, 1, -6) .. 'm:'
local now, epoch, limit, default = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if not limit or limit < 1 or limit > 65535 then
  return redis.error_reply('ERR limit')
end
local known = redis.call('HMGET', meta, 'epoch', 'last', 'seq', 'p' .. ARGV[5])
if known[1] and epoch < tonumber(known[1]) then
  return redis.status_reply('STALE')
end
if known[4] and tonumber(ARGV[6]) <= tonumber(known[4]) then
  return redis.status_reply('KNOWN')
end
local refs = redis.call('ZRANGE', index, 0, -1)
local live, taken, dead = {}, {}, {}
for _, ref in ipairs(refs) do
  if redis.call('GET', prefix .. ref) then
    live[#live + 1] = ref
    taken[string.match(ref, '^%d+')] = true
  else
    dead[#dead + 1] = ref
  end
end
local fresh = {} -- live messages from `kept` on, fresh ones from `first` on
local kept, first = 1, 1
local last, seq = tonumber(known[2] or 0), tonumber(known[3] or 0)
for i = 7, #ARGV, 4 do
  local interval = tonumber(ARGV[i])
  if ARGV[i] == '' then
    interval = default > 0 and default or 1e14
  end
  local deadline = now + math.floor(math.min(interval, 1e14))
  if deadline > now then
    while #live - kept + #fresh - first + 2 >= limit do
      local oldest = live[kept]
      if oldest then
        dead[#dead + 1] = oldest
        kept = kept + 1
      else
        oldest = fresh[first].ref
        first = first + 1
      end
      taken[string.match(oldest, '^%d+')] = nil
    end
    repeat
      last = last % 65535 + 1
    until not taken[tostring(last)]
    taken[tostring(last)] = true
    seq = seq + 1
    fresh[#fresh + 1] = {ref = last .. ':' .. seq, seq = seq, deadline = string.format('%.0f', deadline),
      value = table.concat({'PUBLISH', ARGV[i] == '' and '-' or '+', ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]}, ' ')}
  end
end
while #live - kept + #fresh - first + 2 > limit and live[kept] do
  dead[#dead + 1] = live[kept]
  kept = kept + 1
end
for i = first, #fresh do
  local m = fresh[i]
  redis.call('SET', prefix .. m.ref, m.value, 'PXAT', m.deadline)
  redis.call('ZADD', index, m.seq, m.ref)
end
redis.call('HSET', meta, 'epoch', epoch, 'last', last, 'seq', seq, 'p' .. ARGV[5], ARGV[6])
for _, ref in ipairs(dead) do
  redis.call('ZREM', index, ref)
  redis.call('DEL', prefix .. ref)
end
return redis.status_reply('OK')
