-- What is left is the fence: a record of the old session that comes now is refused.
redis.call('SET', KEYS[1], cjson.encode({epoch = tonumber(ARGV[1]), last = 0, seq = 0, marks = {}, queue = {}}))
return 1
