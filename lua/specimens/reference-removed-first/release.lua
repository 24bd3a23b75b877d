-- release: PUBREC; the PUBLISH becomes a PUBREL in its place, which it leaves while it is rewritten.
-- KEYS  1 index (sorted set)  2 body (hash)
-- ARGV  1 epoch  2 packet id  3 sequence: the token that came with the message
-- Reply 1, or 0 when that message is no longer live.
local index, body, id = KEYS[1], KEYS[2], ARGV[2]
local score = redis.call('ZSCORE', index, id)
if not score or tonumber(score) ~= tonumber(ARGV[3]) then
  return 0
end
redis.call('ZREM', index, id)
local record = redis.call('HGET', body, id)
redis.call('HSET', body, id, 'R' .. string.sub(record, 2, 14))
redis.call('ZADD', index, score, id)
return 1
