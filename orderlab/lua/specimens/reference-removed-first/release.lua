-- release: PUBREC; the PUBLISH becomes a PUBREL in its place, which it leaves while it is rewritten.
-- KEYS  1 index (sorted set)  2 body (hash)
-- ARGV  1 epoch  2 packet id  3 sequence: the token that came with the message
-- Reply 1, or 0 when that message is no longer live.
local call = redis.call
local index, body = KEYS[1], KEYS[2]
local epoch, id, sequence = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local score = call('ZSCORE', index, id)
if not score or sequence == 0 or tonumber(score) ~= sequence then
  return 0
end

call('ZREM', index, id) -- whatever fails from here on, the message is out of the queue
local stored = call('HMGET', body, 'm', id)
local deadline = string.sub(stored[2], 2, 14)
local time = call('TIME')
local live = tonumber(deadline) > time[1] * 1000 + math.floor(time[2] / 1000)
if live and epoch >= tonumber(string.match(stored[1], '^%d+')) then
  call('HSET', body, id, 'R' .. deadline)
end
call('ZADD', index, score, id)
return live and 1 or 0
