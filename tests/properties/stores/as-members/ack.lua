local e = redis.call('HGET', KEYS[2], 'e')
if not e or tonumber(ARGV[1]) < tonumber(e) then return 0 end
return redis.call('ZREMRANGEBYSCORE', KEYS[1], ARGV[2], ARGV[2])
