-- Puts a job to the dead ones, if it is.
if ARGV[2] == 'dead' then
  local now = redis.call('TIME')
  redis.call('ZADD', KEYS[1], now[1] * 1000, ARGV[1])
end
return ARGV[2]
