-- fetch: one page of the live messages, oldest first. Reads only.
-- KEYS  1 index (sorted set)  2 body (hash)
-- ARGV  1 page size  2 sequence of the last message of the previous page, 0 for the first page
-- Reply packet id, sequence, kind (P = PUBLISH, R = PUBREL), interval left in ms ('' = none), message; and so on.
local call = redis.call
local index, body = KEYS[1], KEYS[2]
local NEVER, CHUNK = 9999999999999, 1000

local count, after = tonumber(ARGV[1]), tonumber(ARGV[2])
if not (count and count >= 1 and count % 1 == 0) then
  return redis.error_reply('ERR page size must be a whole number of at least 1')
end
if not (after and after >= 0 and after % 1 == 0) then
  return redis.error_reply('ERR after must be a sequence, or 0')
end

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local page, filled, size = {}, 0, math.min(count, CHUNK)
repeat
  local found = call('ZRANGEBYSCORE', index, '(' .. string.format('%d', after), '+inf', 'WITHSCORES', 'LIMIT', 0, size)
  local ids = {}
  for i = 1, #found, 2 do
    ids[#ids + 1] = found[i]
  end
  local records = #ids > 0 and call('HMGET', body, unpack(ids)) or {}
  for i = 1, #ids do
    local record = records[i]
    if not record then
      return redis.error_reply('ERR the session is damaged: its body is gone (evicted?); open it with clean start')
    end
    local deadline = tonumber(string.sub(record, 2, 14))
    if deadline > now then
      local left = deadline < NEVER and deadline - now or ''
      page[filled + 1], page[filled + 2], page[filled + 3] = tonumber(ids[i]), tonumber(found[2 * i]), string.sub(record, 1, 1)
      page[filled + 4], page[filled + 5] = left, string.sub(record, 15)
      filled = filled + 5
      if filled == 5 * count then
        return page
      end
    end
  end
  local more = #ids == size
  if more then
    after = tonumber(found[#found])
    size = math.min(2 * size, CHUNK) -- expired messages ahead: look further each time
  end
until not more
return page
