local raw = redis.call('GET', KEYS[1])
if not raw then return {} end
local s = cmsgpack.unpack(raw)
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local page, count, after = {}, tonumber(ARGV[1]), tonumber(ARGV[2])
for _, m in ipairs(s.q) do
  if #page < count and m[2] > after and (m[3] == 0 or m[3] > now) then
    page[#page + 1] = {m[1], m[2], m[4], m[5], m[7], m[8], m[3] > 0 and m[3] - now or ''}
  end
end
return page
