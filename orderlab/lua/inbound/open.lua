-- open: a connection takes its publisher's queue over; from now on the queue refuses what an older connection brings.
-- KEYS  1 index (sorted set)  2 body (hash)
-- ARGV  1 epoch: number of this CONNECT, ever growing per client  2 clean start: 1 or 0
-- Reply {queue present: 0 or 1, epoch}, or the status STALE when a later connection has the queue. The same CONNECT again, as its
-- reply was lost, changes nothing. A queue that is not there begins to count above whatever an earlier one, were it lost, has given
-- out in 2^24 messages a connection: whoever knows messages by their numbers would take lower ones for repetitions.
local call = redis.call
local index, body = KEYS[1], KEYS[2]
local NEVER, CHUNK, EACH = 9999999999999, 6000, 16777216

local epoch = tonumber(ARGV[1])
if not (epoch and epoch >= 0 and epoch < 9007199254740991 / EACH - 1 and epoch % 1 == 0) then
  return redis.error_reply('ERR epoch must be a whole number from 0 to 536870910')
end
local clean = ARGV[2]
if clean ~= '0' and clean ~= '1' then
  return redis.error_reply('ERR clean start must be 0 or 1')
end

local meta = call('HGET', body, 'm')
local size = call('ZCARD', index)
if meta then
  local begun, rest = string.match(meta, '^(%d+)( .*)$')
  begun = tonumber(begun)
  if epoch < begun then
    return redis.status_reply('STALE')
  end
  if size > 0 and (epoch == begun or clean == '0') then
    if epoch > begun then
      call('HSET', body, 'm', string.format('%d', epoch) .. rest) -- one write: with the number, all that save.lua and acknowledge.lua compare
    end
    return {1, epoch}
  end
end
local fields = call('HKEYS', body)

-- From here on nothing can fail. Neither key is ever empty: in a slot that is migrating, a missing key is an error.
call('HSET', body, 'm', string.format('%d %d %d %d 0', epoch, epoch * EACH, epoch * EACH + 1, NEVER))
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
