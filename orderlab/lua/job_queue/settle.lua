-- What the holder of a lease does with its job: renews it, completes it, or fails it.
-- Returns 'lost' where the token is not that of a lease that lives.
-- KEYS: jobs, waiting, delayed, leased, dead, doubles, state
-- ARGV: heartbeat | complete | fail, job, token, lease in ms, attempts at most, back-off in ms
local what, name, token = ARGV[1], ARGV[2], ARGV[3]
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)

local packed = redis.call('HGET', KEYS[1], name)
local until_ms = redis.call('ZSCORE', KEYS[4], name)
redis.call('ZCARD', KEYS[2])
redis.call('ZCARD', KEYS[3])
redis.call('ZCARD', KEYS[5])
redis.call('HLEN', KEYS[6])
if not packed or not until_ms or tonumber(until_ms) < now_ms then
  return 'lost'
end
local job = cmsgpack.unpack(packed)
if job[4] ~= token then
  return 'lost'
end

if what == 'heartbeat' then
  redis.call('ZADD', KEYS[4], now_ms + tonumber(ARGV[4]), name)
  return 'ok'
end
redis.call('ZREM', KEYS[4], name)
if what == 'complete' then
  redis.call('HDEL', KEYS[1], name)
  if job[5] ~= '' then redis.call('HDEL', KEYS[6], job[5]) end
  return 'ok'
end
local attempts_max, backoff_ms = tonumber(ARGV[5]), tonumber(ARGV[6])
if attempts_max > 0 and job[3] >= attempts_max then
  redis.call('ZADD', KEYS[5], now_ms, name)
  if job[5] ~= '' then redis.call('HDEL', KEYS[6], job[5]) end
  return 'dead'
end
redis.call('ZADD', KEYS[3], now_ms + backoff_ms * 2 ^ (job[3] - 1), name)
return 'retried'
