local w, f = KEYS[1], KEYS[2]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local want, page = tonumber(ARGV[1]), {}
local function take(text)
  local one = cjson.decode(text)
  if one.till > now then
    page[#page + 1] = cjson.encode({id = one.id, seq = one.seq, kind = one.kind, body = one.body, left = one.till < 9e14 and one.till - now or nil})
  end
end
redis.call('LLEN', w)
for _, text in ipairs(redis.call('LRANGE', f, 1, -1)) do
  if #page < want then take(text) end
end
while #page < want do
  local text = redis.call('LINDEX', w, 1)
  if not text then break end
  redis.call('RPUSH', f, text)
  redis.call('LREM', w, 1, text)
  take(text)
end
return page
