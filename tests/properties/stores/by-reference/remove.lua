-- KEYS: refs, deadlines   ARGV: packet id, sequence
local member = KEYS[1] .. '_' .. ARGV[1]
local score = redis.call('ZSCORE', KEYS[1], member)
local deadline = redis.call('ZSCORE', KEYS[2], member)
local epoch = redis.call('HGET', KEYS[3], 'epoch')
if not score or tonumber(score) ~= tonumber(ARGV[2]) or tonumber(epoch) ~= tonumber(ARGV[3]) then
  return 0
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('EXISTS', member)
redis.call('DEL', member)
redis.call('ZREM', KEYS[1], member)
redis.call('ZREM', KEYS[2], member)
return now < tonumber(deadline) and 1 or 0
