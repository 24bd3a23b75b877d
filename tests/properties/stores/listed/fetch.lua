local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local page = {}
for _, record in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  local seq, id, deadline, told, qos, kind, topic, payload =
    string.match(record, '^(%d+) (%d+) (%d+) (.) (%d) (%u+) (%x*)%.(%x*)$')
  if tonumber(deadline) > now and #page < tonumber(ARGV[1]) then
    local left = told == '+' and math.ceil((deadline - now) / 1000) * 1000 or false
    page[#page + 1] = {seq, id, left, qos, kind, topic, payload}
  end
end
return page
