-- Everything is read before anything goes: in a slot that migrates a missing key is an error.
local index, meta = KEYS[1], KEYS[2]
local prefix = string.sub(index, 1, -6) .. 'm:'
local there = {}
for _, ref in ipairs(redis.call('ZRANGE', index, 0, -1)) do
  if redis.call('GET', prefix .. ref) then
    there[#there + 1] = prefix .. ref
  end
end
local fields = redis.call('HKEYS', meta)
redis.call('HSET', meta, 'epoch', ARGV[1])
for _, field in ipairs(fields) do
  if field ~= 'epoch' then
    redis.call('HDEL', meta, field)
  end
end
for _, key in ipairs(there) do
  redis.call('DEL', key)
end
redis.call('DEL', index)
return 1
