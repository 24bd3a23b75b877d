local e = redis.call('HGET', KEYS[2], 'e')
if not e or tonumber(ARGV[1]) < tonumber(e) then return 0 end
redis.call('DEL', KEYS[1], KEYS[2])
return 1
