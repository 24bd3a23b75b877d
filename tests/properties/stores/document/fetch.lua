local now, count, after = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local raw = redis.call('GET', KEYS[1])
local doc = raw and cjson.decode(raw) or {queue = {}}
local page, live = {}, {}
for _, m in ipairs(doc.queue) do
  if m.deadline == 0 or m.deadline > now then
    live[#live + 1] = m
    if m.seq > after and #page < count * 7 then
      page[#page + 1] = m.id
      page[#page + 1] = m.seq
      page[#page + 1] = m.kind
      page[#page + 1] = m.told and string.format('%.0f', m.deadline) or false
      page[#page + 1] = m.qos
      page[#page + 1] = m.topic
      page[#page + 1] = m.payload
    end
  end
end
if raw and #live < #doc.queue then
  doc.queue = live
  redis.call('SET', KEYS[1], cjson.encode(doc))
end
return page
