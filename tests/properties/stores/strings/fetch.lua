local index = KEYS[1]
local prefix = string.sub(index, 1, -6) .. 'm:'
local count, after = tonumber(ARGV[1]), ARGV[2]
local refs = redis.call('ZRANGEBYSCORE', index, '(' .. after, '+inf')
local page, dead = {}, {}
for _, ref in ipairs(refs) do
  if #page == 7 * count then
    break
  end
  local value = redis.call('GET', prefix .. ref)
  if value then
    local id, seq = string.match(ref, '^(%d+):(%d+)$')
    local kind, told, qos, topic, payload = string.match(value, '^(%u+) ([+-]) (%d) (%x*) (%x*)$')
    page[#page + 1] = id
    page[#page + 1] = seq
    page[#page + 1] = kind
    page[#page + 1] = told == '+' and redis.call('PTTL', prefix .. ref) or false
    page[#page + 1] = qos
    page[#page + 1] = topic
    page[#page + 1] = payload
  else
    dead[#dead + 1] = ref
  end
end
for _, ref in ipairs(dead) do
  redis.call('ZREM', index, ref)
end
return page
