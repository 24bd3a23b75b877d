local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local page, gone = {}, {}
for at, text in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  local one = cjson.decode(text)
  if one['until'] <= now then
    gone[#gone + 1] = at - 1
  elseif one.seq > tonumber(ARGV[2]) and #page < tonumber(ARGV[1]) then
    page[#page + 1] = text
  end
end
for _, at in ipairs(gone) do
  redis.call('LSET', KEYS[1], at, '')
end
if #gone > 0 then
  redis.call('LREM', KEYS[1], 0, '')
end
return page
