local e = redis.call('HGET', KEYS[1], 'began')
if not e or tonumber(ARGV[1]) < tonumber(e) then return 0 end
return redis.call('DEL', KEYS[1])
