-- KEYS: refs, deadlines   ARGV: packet id, sequence
local member = KEYS[1] .. '_' .. ARGV[1]
local score = redis.call('ZSCORE', KEYS[1], member)
local epoch = redis.call('HGET', KEYS[3], 'epoch')
if not score or tonumber(score) ~= tonumber(ARGV[2]) or tonumber(epoch) ~= tonumber(ARGV[3]) then
  return 0
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local deadline = redis.call('ZSCORE', KEYS[2], member)
if now >= tonumber(deadline) then
  return 0
end
local body = cjson.decode(redis.call('GET', member))
if body.packetType == 'PUBREL' then
  return 1
end
body.packetType = 'PUBREL'
redis.call('SET', member, cjson.encode(body), 'KEEPTTL')
return 1
