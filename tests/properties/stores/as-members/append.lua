local log, meta = KEYS[1], KEYS[2]
local limit, default = tonumber(ARGV[2]), tonumber(ARGV[3])
local producer, batch = string.match(ARGV[4], '^(.*):(%d+)$')
local h = redis.call('HMGET', meta, 'e', 'l', 's', 'p/' .. producer)
if not h[1] or tonumber(ARGV[1]) < tonumber(h[1]) then return redis.status_reply('CLOSED') end
if h[4] and tonumber(batch) <= tonumber(h[4]) then return redis.status_reply('DONE') end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local live, gone, used = {}, {}, {}
for _, text in ipairs(redis.call('ZRANGE', log, 0, -1)) do
  local one = cjson.decode(text)
  if one.d > now then live[#live + 1] = one used[one.i] = true else gone[#gone + 1] = one.s end
end
local kept, last, seq, adds = 1, tonumber(h[2]), tonumber(h[3]), {}
local count, from = 0, 1
for _, m in ipairs(cjson.decode(ARGV[5])) do
  local ttl = m.x or (default > 0 and default or nil)
  if not ttl or ttl > 0 then
    while #live - kept + 1 + #adds - from + 1 >= limit do
      if live[kept] then
        gone[#gone + 1] = live[kept].s
        used[live[kept].i] = nil
        kept = kept + 1
      else
        used[adds[from].i] = nil
        from = from + 1
      end
    end
    repeat last = last % 65535 + 1 until not used[last]
    used[last] = true
    seq = seq + 1
    adds[#adds + 1] = {i = last, s = seq, d = ttl and now + math.floor(ttl * 1000) or 9e13, x = m.x, at = now, k = 'PUBLISH', m = {t = m.t, q = m.q, b = m.b}}
    count = count + 1
  end
end
while #live - kept + 1 + #adds - from + 1 > limit and live[kept] do
  gone[#gone + 1] = live[kept].s
  kept = kept + 1
end
redis.call('HSET', meta, 'l', last, 's', seq, 'p/' .. producer, batch)
for i = from, #adds do redis.call('ZADD', log, adds[i].s, cjson.encode(adds[i])) end
for _, s in ipairs(gone) do redis.call('ZREMRANGEBYSCORE', log, s, s) end
return count
