local log, meta, e = KEYS[1], KEYS[2], tonumber(ARGV[1])
local old = redis.call('HGET', meta, 'e')
redis.call('ZCARD', log)
if old and e < tonumber(old) then return -1 end
if old and e == tonumber(old) then return 0 end
if old and ARGV[2] ~= '1' then return 1 end
redis.call('HSET', meta, 'e', e, 'l', 0, 's', 0)
redis.call('DEL', log)
for _, field in ipairs(redis.call('HKEYS', meta)) do
  if #field > 1 then redis.call('HDEL', meta, field) end
end
return 0
