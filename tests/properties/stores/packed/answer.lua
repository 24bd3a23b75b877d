local raw = redis.call('GET', KEYS[1])
if not raw then return 0 end
local s = cmsgpack.unpack(raw)
if tonumber(ARGV[1]) < s.e then return 0 end
local id, seq = tonumber(ARGV[2]), tonumber(ARGV[3])
for i, m in ipairs(s.q) do
  if m[1] == id and m[2] == seq then
    if ARGV[4] == 'ack' then
      table.remove(s.q, i)
    elseif m[4] == 'PUBREL' or m[5] ~= 2 then
      return 0
    else
      m[4] = 'PUBREL'
    end
    redis.call('SET', KEYS[1], cmsgpack.pack(s))
    return 1
  end
end
return 0
