-- What comes after a marker: the next marker, 1 if that is the end, and the name and content of each message.
-- KEYS: entries, order
-- ARGV: marker ('' for the start), messages at most
local marker, count = ARGV[1], tonumber(ARGV[2])
if marker == '' then marker = '0' end
if not string.find(marker, '^%d+$') then
  return redis.error_reply('ERR no marker of this feed')
end
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)

local page, is_end = {}, 0
for _ = 1, 10 do  -- so many that have lapsed are passed over in one call; the reader asks on from where it ended
  local line = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. marker, '+inf', 'WITHSCORES', 'LIMIT', 0, 100)
  if #line == 0 then
    is_end = 1
    break
  end
  local names = {}
  for at = 1, #line, 2 do names[#names + 1] = line[at] end
  for index, held in ipairs(redis.call('HMGET', KEYS[1], unpack(names))) do
    local entry = held and cmsgpack.unpack(held)
    if entry and entry[2] >= now_ms then
      if #page == count then
        return { marker, 0, unpack(page) }
      end
      page[#page + 1] = { names[index], entry[3] }
    end
    marker = line[2 * index]
  end
  if #line < 200 then
    is_end = 1
    break
  end
  if #page > 0 then break end
end
return { marker, is_end, unpack(page) }
