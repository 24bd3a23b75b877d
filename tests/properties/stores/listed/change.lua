local queue, meta = KEYS[1], KEYS[2]
local epoch = redis.call('HGET', meta, 'epoch')
if not epoch or tonumber(ARGV[1]) < tonumber(epoch) then
  return 0
end
for i, record in ipairs(redis.call('LRANGE', queue, 0, -1)) do
  if string.match(record, '^%d+') == ARGV[2] then
    if ARGV[3] == 'remove' then
      return redis.call('LREM', queue, 1, record)
    end
    if string.match(record, '^%d+ %d+ %d+ . 2 PUBLISH') then
      redis.call('LSET', queue, i - 1, (string.gsub(record, 'PUBLISH', 'PUBREL', 1)))
      return 1
    end
  end
end
return 0
