-- KEYS: refs, counter, session, deadlines   ARGV: epoch
local stored = redis.call('HGET', KEYS[3], 'epoch')
local members = redis.call('ZRANGE', KEYS[1], 0, -1)
redis.call('ZCARD', KEYS[4])
redis.call('EXISTS', KEYS[2])
if not stored or tonumber(stored) ~= tonumber(ARGV[1]) then
  return 0
end
for i = 1, #members, 500 do
  redis.call('EXISTS', unpack(members, i, math.min(i + 499, #members)))
end
for i = 1, #members, 500 do
  redis.call('DEL', unpack(members, i, math.min(i + 499, #members)))
end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
return 1
