local epoch = redis.call('HGET', KEYS[2], 'epoch')
redis.call('LLEN', KEYS[1])
if ARGV[2] == '1' or not epoch then
  -- A key that is not there is an error in a slot that migrates: the hash is never without a field.
  local fields = redis.call('HKEYS', KEYS[2])
  redis.call('HSET', KEYS[2], 'epoch', ARGV[1])
  for _, field in ipairs(fields) do
    if field ~= 'epoch' then
      redis.call('HDEL', KEYS[2], field)
    end
  end
  redis.call('DEL', KEYS[1])
end
return redis.status_reply('OK')
