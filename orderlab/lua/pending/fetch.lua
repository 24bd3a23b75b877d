-- fetch: one page of the live messages, oldest first. Reads only; nothing goes before it is acknowledged.
-- KEYS  1 pending (sorted set: score = sequence, member = sequence:deadline:payload)
-- ARGV  1 page size  2 sequence of the last message of the previous page, 0 for the first page
-- Reply sequence, interval left in ms ('' = none), payload; and so on.
local call = redis.call
local count, after = tonumber(ARGV[1]), tonumber(ARGV[2])
if not count or count < 1 or not after or after < 0 then
  return redis.error_reply('ERR page size and cursor must be numbers, the page size at least 1')
end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local page, filled, size = {}, 0, math.min(count, 1000)
repeat
  local found = call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%d', after), '+inf', 'LIMIT', 0, size)
  for _, member in ipairs(found) do
    local sequence, deadline, payload = string.match(member, '^(%d+):(%d+):(.*)$')
    after, deadline = tonumber(sequence), tonumber(deadline)
    if deadline > now and filled < 3 * count then
      page[filled + 1], page[filled + 3] = after, payload
      page[filled + 2] = deadline < 9999999999999 and deadline - now or ''
      filled = filled + 3
    end
  end
  local more = #found == size and filled < 3 * count
  size = math.min(2 * size, 1000)
until not more
return page
