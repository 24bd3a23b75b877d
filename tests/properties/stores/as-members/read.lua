local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local page = {}
for _, text in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. ARGV[2], '+inf')) do
  if #page >= tonumber(ARGV[1]) then break end
  if cjson.decode(text).d > now then page[#page + 1] = text end
end
return page
