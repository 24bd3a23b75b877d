local w, f, m = KEYS[1], KEYS[2], KEYS[3]
local epoch = redis.call('HGET', m, 'epoch')
redis.call('LLEN', w) redis.call('LLEN', f)
if epoch and tonumber(ARGV[1]) < tonumber(epoch) then return redis.status_reply('LATE') end
if epoch and (ARGV[2] == '0' or epoch == ARGV[1]) then return redis.status_reply('OK') end
local old = redis.call('HKEYS', m)
redis.call('HSET', m, 'epoch', ARGV[1], 'last', 0, 'seq', 0)
redis.call('RPUSH', w, '-') redis.call('LTRIM', w, -1, -1) -- '-': never empty
redis.call('RPUSH', f, '-') redis.call('LTRIM', f, -1, -1)
for _, name in ipairs(old) do
  if string.sub(name, 1, 1) == 'p' then redis.call('HDEL', m, name) end
end
return redis.status_reply('OK')
