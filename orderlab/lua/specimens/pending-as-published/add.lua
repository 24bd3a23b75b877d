-- add: count the message, put it into the pending set under the time, trim to the maximum, renew the time to live.
-- KEYS  1 pending (sorted set: member = payload, score = timestamp)  2 sequence (string)
-- ARGV  1 payload  2 maximum size  3 time to live in s
-- Reply {sequence, size}.
local time = redis.call('TIME')
local sequence = redis.call('INCR', KEYS[2])
redis.call('ZADD', KEYS[1], time[1] * 1000 + math.floor(time[2] / 1000), ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -tonumber(ARGV[2]) - 1)
redis.call('EXPIRE', KEYS[1], ARGV[3])
redis.call('EXPIRE', KEYS[2], ARGV[3])
return {sequence, redis.call('ZCARD', KEYS[1])}
