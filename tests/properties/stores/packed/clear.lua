local raw = redis.call('GET', KEYS[1])
if not raw then return 0 end
local s = cmsgpack.unpack(raw)
if tonumber(ARGV[1]) < s.e then return 0 end
return redis.call('UNLINK', KEYS[1])
