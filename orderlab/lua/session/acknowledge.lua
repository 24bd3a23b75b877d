-- acknowledge: PUBACK or PUBCOMP; remove the very message that was sent under this identifier.
-- KEYS  1 index (sorted set)  2 body (hash)
-- ARGV  1 epoch  2 packet id  3 sequence: the token that came with the message
-- Reply 1, or 0 when that message is no longer live (acknowledged before, expired, trimmed, another session's).
local call = redis.call
local index, body = KEYS[1], KEYS[2]

local epoch, id, sequence = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
if not (epoch and sequence and string.find(id, '^%d+$')) then
  return redis.error_reply('ERR give epoch, packet id and sequence as whole numbers')
end

local stored = call('HMGET', body, 'm', id)
local meta, record = stored[1], stored[2]
local score = call('ZSCORE', index, id)
if not meta or epoch < tonumber(string.match(meta, '^%d+')) then
  return 0
end
if not record or not score or tonumber(score) ~= sequence then
  return 0
end
local time = call('TIME')
local live = tonumber(string.sub(record, 2, 14)) > time[1] * 1000 + math.floor(time[2] / 1000)
call('ZREM', index, id, '-' .. id)
call('HDEL', body, id)
return live and 1 or 0
