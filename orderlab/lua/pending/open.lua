-- open: begin a session, or find the one that waits.
-- KEYS  1 pending (sorted set)  2 deadlines (sorted set)  3 sequence (string)  4 session (hash)
-- ARGV  1 epoch: number of this CONNECT, ever growing per client  2 clean start: 1 or 0
-- Reply {session present: 0 or 1, epoch of the session}, or the status STALE when a later CONNECT began the session.
local call = redis.call
local epoch = tonumber(ARGV[1])
if not epoch then
  return redis.error_reply('ERR epoch must be a number')
end

local begun = tonumber(call('HGET', KEYS[4], 'epoch'))
call('GET', KEYS[3])
call('ZCARD', KEYS[2])
call('ZCARD', KEYS[1])
if begun and epoch < begun then
  return redis.status_reply('STALE')
elseif begun and (epoch == begun or ARGV[2] ~= '1') then
  return {epoch > begun and 1 or 0, begun}
end
local marks = call('HKEYS', KEYS[4])

-- Each key keeps something to the end of the session: in a slot that is migrating, a missing key is an error.
call('HSET', KEYS[4], 'epoch', epoch)
call('SET', KEYS[3], 0)
call('ZADD', KEYS[1], 0, 'open')
call('ZADD', KEYS[2], '+inf', 'open')
call('ZREMRANGEBYSCORE', KEYS[1], '(0', '+inf')
call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(+inf')
for _, name in ipairs(marks) do
  if name ~= 'epoch' then
    call('HDEL', KEYS[4], name)
  end
end
return {0, epoch}
