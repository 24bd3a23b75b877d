-- KEYS: refs, counter, session, deadlines   ARGV: epoch, clean start
local epoch = tonumber(ARGV[1])
local stored = tonumber(redis.call('HGET', KEYS[3], 'epoch'))
local members = redis.call('ZRANGE', KEYS[1], 0, -1)
redis.call('ZCARD', KEYS[4])
redis.call('EXISTS', KEYS[2])
local fields = redis.call('HKEYS', KEYS[3])
if stored and epoch < stored then
  return 'STALE'
end
if stored and epoch == stored then
  return {0, stored}
end
if stored and ARGV[2] ~= '1' then
  return {1, stored}
end
for i = 1, #members, 500 do
  redis.call('EXISTS', unpack(members, i, math.min(i + 499, #members)))
end
redis.call('SET', KEYS[2], '0')
redis.call('HSET', KEYS[3], 'epoch', ARGV[1])
for _, field in ipairs(fields) do
  if field ~= 'epoch' then
    redis.call('HDEL', KEYS[3], field)
  end
end
for i = 1, #members, 500 do
  redis.call('DEL', unpack(members, i, math.min(i + 499, #members)))
end
redis.call('DEL', KEYS[1])
redis.call('DEL', KEYS[4])
return {0, epoch}
