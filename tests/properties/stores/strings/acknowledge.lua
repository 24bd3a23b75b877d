local index, meta = KEYS[1], KEYS[2]
local ref = ARGV[2] .. ':' .. ARGV[3]
local epoch = redis.call('HGET', meta, 'epoch')
if not epoch or tonumber(ARGV[1]) < tonumber(epoch) or redis.call('ZREM', index, ref) == 0 then
  return 0
end
return redis.call('DEL', string.sub(index, 1, -6) .. 'm:' .. ref)
