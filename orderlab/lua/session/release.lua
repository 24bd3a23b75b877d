-- release: PUBREC; the PUBLISH becomes a PUBREL under the same identifier, in the same place, with the same deadline.
-- KEYS  1 index (sorted set)  2 body (hash)
-- ARGV  1 epoch  2 packet id  3 sequence: the token that came with the message
-- Reply 1, or 0 when that message is no longer live. The payload has been delivered and is dropped.
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
local deadline = string.sub(record, 2, 14)
if tonumber(deadline) <= time[1] * 1000 + math.floor(time[2] / 1000) then
  return 0
end
if string.sub(record, 1, 1) == 'P' then
  call('HSET', body, id, 'R' .. deadline)
end
return 1
