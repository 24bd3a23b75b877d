-- open: begin a session, or find the one that waits.
-- KEYS  1 index (sorted set)  2 body (hash)
-- ARGV  1 epoch: number of this CONNECT, ever growing per client  2 clean start: 1 or 0
-- Reply {session present: 0 or 1, epoch of the session}, or the status STALE when a later CONNECT began the session.
local call = redis.call
local index, body = KEYS[1], KEYS[2]
local NEVER, CHUNK = 9999999999999, 6000

local epoch = tonumber(ARGV[1])
if not (epoch and epoch >= 0 and epoch <= 9007199254740991 and epoch % 1 == 0) then
  return redis.error_reply('ERR epoch must be a whole number of at least 0')
end
local clean = ARGV[2]
if clean ~= '0' and clean ~= '1' then
  return redis.error_reply('ERR clean start must be 0 or 1')
end

local meta = call('HGET', body, 'm')
local size = call('ZCARD', index)
if meta then
  local begun = tonumber(string.match(meta, '^%d+'))
  if epoch < begun then
    return redis.status_reply('STALE')
  end
  if size > 0 and (epoch == begun or clean == '0') then
    return {epoch > begun and 1 or 0, begun} -- the same CONNECT again (its reply was lost) gets its first answer
  end
end
local fields = call('HKEYS', body)

-- From here on nothing can fail. Neither key is ever empty: in a slot that is migrating, a missing key is an error.
call('HSET', body, 'm', string.format('%d 0 1 %d 0', epoch, NEVER))
call('ZADD', index, 0, '0')
call('ZREMRANGEBYSCORE', index, '-inf', '(0')
call('ZREMRANGEBYSCORE', index, '(0', '+inf')
local old = {}
for i = 1, #fields do
  if fields[i] ~= 'm' then
    old[#old + 1] = fields[i]
  end
end
for i = 1, #old, CHUNK do
  call('HDEL', body, unpack(old, i, math.min(i + CHUNK - 1, #old)))
end
return {0, epoch}
