local h, name = KEYS[1], '#' .. ARGV[2]
local s = redis.call('HMGET', h, 'began', name)
if not s[1] or tonumber(ARGV[1]) < tonumber(s[1]) or not s[2] then return 0 end
local t = redis.call('TIME')
if tonumber(string.sub(s[2], 2, 14)) <= t[1] * 1000 + math.floor(t[2] / 1000) then return 0 end
if ARGV[3] == 'A' then return redis.call('HDEL', h, name) end
local topic = string.byte(s[2], 16) * 256 + string.byte(s[2], 17)
if string.byte(s[2], 18 + topic) ~= 2 then return 0 end
redis.call('HSET', h, name, 'R' .. string.sub(s[2], 2))
return 1
