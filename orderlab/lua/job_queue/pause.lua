-- Hands out no jobs any more (ARGV[1] = '1'), or does again. Jobs are added and settled all the same.
-- KEYS: state
redis.call('HLEN', KEYS[1])
if ARGV[1] == '1' then
  redis.call('HSET', KEYS[1], 'paused', '1')
else
  redis.call('HDEL', KEYS[1], 'paused')
end
return 1
