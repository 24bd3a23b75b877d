-- The name and the record of each job whose lease has lapsed.
local now = redis.call('TIME')
local found = {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '(' .. now[1] * 1000 + math.floor(now[2] / 1000), 'LIMIT', 0, 100)) do
  found[#found + 1] = name
  found[#found + 1] = redis.call('HGET', KEYS[1], name)
end
return found
