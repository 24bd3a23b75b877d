local e = redis.call('HMGET', KEYS[2], 'e', 'top', 'present')
local n = redis.call('LLEN', KEYS[1])
local epoch = tonumber(ARGV[1])
if e[1] and epoch < tonumber(e[2]) then
  return -1
end
if e[1] and epoch == tonumber(e[2]) then
  return tonumber(e[3])
end
if e[1] and ARGV[2] == '0' then
  redis.call('HSET', KEYS[2], 'top', ARGV[1], 'present', 1)
  return 1
end
local fields = redis.call('HKEYS', KEYS[2])
redis.call('HSET', KEYS[2], 'e', ARGV[1], 'top', ARGV[1], 'present', 0, 'v', 1, 's', 0)
for _, f in ipairs(fields) do
  if string.sub(f, 1, 1) == 'b' then
    redis.call('HDEL', KEYS[2], f)
  end
end
if n > 0 then
  redis.call('DEL', KEYS[1])
end
return 0
