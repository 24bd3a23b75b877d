-- clear: the session ends; nothing of it remains.
-- KEYS  1 index (sorted set)  2 body (hash)
-- ARGV  1 epoch: of the session that ends, or of the later CONNECT that ends it
-- Reply 1, or 0 when there is no session, or a later CONNECT began it.
local call = redis.call
local index, body = KEYS[1], KEYS[2]

local epoch = tonumber(ARGV[1])
if not epoch then
  return redis.error_reply('ERR epoch must be a whole number of at least 0')
end

local meta = call('HGET', body, 'm')
call('ZCARD', index)
if meta and epoch < tonumber(string.match(meta, '^%d+')) then
  return 0
end
call('UNLINK', index, body)
return meta and 1 or 0
