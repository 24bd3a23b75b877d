-- How many jobs wait, are delayed, leased, dead.
-- KEYS: waiting, delayed, leased, dead
return {
  redis.call('ZCARD', KEYS[1]),
  redis.call('ZCARD', KEYS[2]),
  redis.call('ZCARD', KEYS[3]),
  redis.call('ZCARD', KEYS[4]),
}
