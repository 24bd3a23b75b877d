local index, meta = KEYS[1], KEYS[2]
local epoch = redis.call('HGET', meta, 'epoch')
if not epoch or tonumber(ARGV[1]) < tonumber(epoch) then
  return 0
end
local ref = redis.call('ZRANGEBYSCORE', index, ARGV[2], ARGV[2])[1]
local key = ref and string.sub(index, 1, -6) .. 'm:' .. ref
local value = ref and redis.call('GET', key)
if not value or string.match(value, '^%u+ [+-] (%d)') ~= '2' then
  return 0
end
redis.call('SET', key, (string.gsub(value, '^%u+', 'PUBREL')), 'KEEPTTL')
return 1
