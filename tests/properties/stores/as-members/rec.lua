local e = redis.call('HGET', KEYS[2], 'e')
if not e or tonumber(ARGV[1]) < tonumber(e) then return 0 end
local text = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[2], ARGV[2])[1]
if not text then return 0 end
local one = cjson.decode(text)
if one.m.q ~= 2 then return 0 end
one.k = 'PUBREL'
local released = cjson.encode(one)
if released ~= text then
  redis.call('ZADD', KEYS[1], ARGV[2], released)
  redis.call('ZREM', KEYS[1], text)
end
return 1
