-- clear: the session ends; nothing of it remains.
-- KEYS  1 pending (sorted set)  2 deadlines (sorted set)  3 sequence (string)  4 session (hash)
-- ARGV  1 epoch: of the session that ends, or of the later CONNECT that ends it
-- Reply 1, or 0 when there is no session, or a later CONNECT began it.
local epoch = tonumber(ARGV[1])
if not epoch then
  return redis.error_reply('ERR epoch must be a number')
end
local begun = redis.call('HGET', KEYS[4], 'epoch')
if begun and epoch < tonumber(begun) then
  return 0
end
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
return begun and 1 or 0
