local raw = redis.call('GET', KEYS[1])
local s = raw and cmsgpack.unpack(raw)
local e = tonumber(ARGV[1])
if s and e < s.top then return redis.status_reply('OLD') end
local present = 0
if s and e == s.top then
  return {s.present, s.e}
end
if s and ARGV[2] == '0' then
  s.top = e
  s.present = 1
  present = 1
else
  s = {e = e, top = e, l = 0, s = 0, p = {}, q = {}, present = 0}
end
redis.call('SET', KEYS[1], cmsgpack.pack(s))
return {present, s.e}
