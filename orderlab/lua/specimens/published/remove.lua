-- remove: PUBACK or PUBCOMP; the message with this packet id goes.
-- KEYS  1 queue (sorted set of payload keys)
-- ARGV  1 packet id
local key = KEYS[1] .. '_' .. ARGV[1]
redis.call('ZREM', KEYS[1], key)
return redis.call('DEL', key)
