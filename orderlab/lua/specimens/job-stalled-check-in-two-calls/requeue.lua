-- Puts the jobs back into the line.
for at = 1, #ARGV, 2 do
  local name, job = ARGV[at], cmsgpack.unpack(ARGV[at + 1])
  redis.call('ZREM', KEYS[3], name)
  redis.call('HSET', KEYS[1], name, ARGV[at + 1])
  redis.call('ZADD', KEYS[2], job[2], job[1] .. name)
end
return #ARGV / 2
