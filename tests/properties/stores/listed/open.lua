local epoch = redis.call('HGET', KEYS[2], 'epoch')
redis.call('LLEN', KEYS[1])
if ARGV[2] == '1' or not epoch then
  redis.call('DEL', KEYS[1], KEYS[2])
  redis.call('HSET', KEYS[2], 'epoch', ARGV[1])
end
return redis.status_reply('OK')
