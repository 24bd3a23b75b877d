local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local all, found = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #all, 2 do
  local seq = tonumber(string.match(all[i], '^#(%d+)$'))
  if seq and seq > tonumber(ARGV[2]) then
    local kind, till, told, rest = string.match(all[i + 1], '^(%u)(%d%d%d%d%d%d%d%d%d%d%d%d%d)(%d)(.*)$')
    if tonumber(till) > now then
      found[#found + 1] = {seq, kind == 'P' and 'PUBLISH' or 'PUBREL', told == '1' and tonumber(till) - now or 'x', rest}
    end
  end
end
table.sort(found, function(a, b) return a[1] < b[1] end)
local page = {}
for i = 1, math.min(#found, tonumber(ARGV[1])) do
  for k = 1, 4 do page[#page + 1] = found[i][k] end
end
return page
