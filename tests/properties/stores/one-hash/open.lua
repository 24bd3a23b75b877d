local h, e = KEYS[1], tonumber(ARGV[1])
local old = tonumber(redis.call('HGET', h, 'epoch') or -1)
if e < old then return -1 end
if e == old then return tonumber(redis.call('HGET', h, 'present')) end
if old > 0 and ARGV[2] == '0' then
  redis.call('HSET', h, 'epoch', e, 'present', 1)
  return 1
end
local fields = redis.call('HKEYS', h)
redis.call('HSET', h, 'epoch', e, 'began', e, 'seq', 0, 'present', 0)
for _, name in ipairs(fields) do
  if string.find(name, '^#') or string.find(name, '^by ') then redis.call('HDEL', h, name) end
end
return 0
