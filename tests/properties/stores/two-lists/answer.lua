local epoch = redis.call('HGET', KEYS[3], 'epoch')
if not epoch or tonumber(ARGV[1]) < tonumber(epoch) then return 0 end
redis.call('LLEN', KEYS[1])
redis.call('LLEN', KEYS[2])
for k = 2, 1, -1 do
  for i, text in ipairs(redis.call('LRANGE', KEYS[k], 1, -1)) do
    local one = cjson.decode(text)
    if one.id == tonumber(ARGV[2]) and one.seq == tonumber(ARGV[3]) then
      if ARGV[4] == 'del' then return redis.call('LREM', KEYS[k], 1, text) end
      if one.qos ~= '2' or one.kind == 'PUBREL' then return 0 end
      one.kind = 'PUBREL'
      redis.call('LSET', KEYS[k], i, cjson.encode(one))
      return 1
    end
  end
end
return 0
