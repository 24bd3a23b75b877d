-- KEYS: refs, counter, session, deadlines   ARGV: count, after
local refs, deadlines = KEYS[1], KEYS[4]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local count = tonumber(ARGV[1])
local gone = redis.call('ZRANGEBYSCORE', deadlines, '-inf', now)
local rows, reply = redis.call('ZRANGEBYSCORE', refs, '(' .. ARGV[2], '+inf', 'WITHSCORES'), {}
for i = 1, #rows, 2 do
  local deadline = tonumber(redis.call('ZSCORE', deadlines, rows[i]))
  if deadline > now and #reply < count then
    reply[#reply + 1] = {tonumber(rows[i + 1]), deadline - now, redis.call('GET', rows[i])}
  end
end
for i = 1, #gone, 500 do
  redis.call('EXISTS', unpack(gone, i, math.min(i + 499, #gone)))
end
for i = 1, #gone, 500 do
  local last = math.min(i + 499, #gone)
  redis.call('DEL', unpack(gone, i, last))
  redis.call('ZREM', refs, unpack(gone, i, last))
  redis.call('ZREM', deadlines, unpack(gone, i, last))
end
return reply
