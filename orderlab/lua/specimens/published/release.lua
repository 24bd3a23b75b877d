-- release: PUBREC; the stored PUBLISH becomes a PUBREL and keeps the time that it has left.
-- KEYS  1 queue (sorted set of payload keys)
-- ARGV  1 packet id
local key = KEYS[1] .. '_' .. ARGV[1]
local stored = redis.call('GET', key)
if not stored then
  return 0
end
local message = cjson.decode(stored)
message.packetType = 'PUBREL'
redis.call('SET', key, cjson.encode(message), 'KEEPTTL')
return 1
