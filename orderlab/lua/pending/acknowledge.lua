-- acknowledge: PUBACK; remove the message with this sequence.
-- KEYS  1 pending (sorted set)  2 deadlines (sorted set)  3 session (hash)
-- ARGV  1 epoch  2 sequence
-- Reply 1, or 0 when that message is no longer live.
local call = redis.call
local epoch, sequence = tonumber(ARGV[1]), tonumber(ARGV[2])
if not epoch or not sequence then
  return redis.error_reply('ERR epoch and sequence must be numbers')
end
local begun = call('HGET', KEYS[3], 'epoch')
local member = call('ZRANGEBYSCORE', KEYS[1], sequence, sequence)[1]
call('ZCARD', KEYS[2])
if not begun or epoch < tonumber(begun) or sequence < 1 or not member then
  return 0
end
local time = call('TIME')
local live = tonumber(string.match(member, '^%d+:(%d+)')) > time[1] * 1000 + math.floor(time[2] / 1000)
call('ZREM', KEYS[1], member)
call('ZREM', KEYS[2], string.format('%d', sequence))
return live and 1 or 0
