local epoch = redis.call('HGET', KEYS[3], 'epoch')
if not epoch or tonumber(ARGV[1]) < tonumber(epoch) then return 0 end
return redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
