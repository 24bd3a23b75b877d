-- ARGV: ack or rel, id, seq, epoch
local epoch = redis.call('HGET', KEYS[2], 'e')
if not epoch or tonumber(ARGV[4]) < tonumber(epoch) then
  return 0
end
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
for at, text in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  local one = cjson.decode(text)
  if one.id == tonumber(ARGV[2]) and one.seq == tonumber(ARGV[3]) then
    if one['until'] <= now then
      return 0
    end
    if ARGV[1] == 'ack' then
      return redis.call('LREM', KEYS[1], 1, text)
    end
    if one.kind ~= 'PUBREL' then
      one.kind, one.data = 'PUBREL', ''
      redis.call('LSET', KEYS[1], at - 1, cjson.encode(one))
    end
    return 1
  end
end
return 0
