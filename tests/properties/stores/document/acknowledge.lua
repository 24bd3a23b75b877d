local epoch, seq = tonumber(ARGV[1]), tonumber(ARGV[2])
local raw = redis.call('GET', KEYS[1])
if not raw then
  return 0
end
local doc = cjson.decode(raw)
if epoch < doc.epoch then
  return 0
end
for i, m in ipairs(doc.queue) do
  if m.seq == seq then
    table.remove(doc.queue, i)
    redis.call('SET', KEYS[1], cjson.encode(doc))
    return 1
  end
end
return 0
