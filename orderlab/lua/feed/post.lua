-- Posts messages that are not there yet, all or none of them, and returns how many are new.
-- KEYS: entries, order, deadlines, free, claimed, holders, claims, state
-- ARGV: retention in ms, then the name and the content of each message
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)

-- Every key is read before the first write, so that a value of a foreign type stops the script while nothing has happened.
local new, seen = {}, {}
for first = 2, #ARGV, 1000 do  -- more values than unpack can take come in pieces
  local names = {}
  for at = first, math.min(first + 998, #ARGV), 2 do
    names[#names + 1] = ARGV[at]
  end
  for index, held in ipairs(redis.call('HMGET', KEYS[1], unpack(names))) do
    local name = names[index]
    if not seen[name] and (not held or cmsgpack.unpack(held)[2] < now_ms) then
      seen[name] = true
      new[#new + 1] = { name, ARGV[first + 2 * index - 1] }
    end
  end
end
local serial = tonumber(redis.call('HGET', KEYS[8], 'serial') or 0)
redis.call('ZCARD', KEYS[2])
redis.call('ZCARD', KEYS[3])
redis.call('ZCARD', KEYS[4])
redis.call('ZCARD', KEYS[5])
redis.call('HLEN', KEYS[7])
local over = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '(' .. now_ms, 'LIMIT', 0, 100)
local claims = {}
for _, holder in ipairs(redis.call('HMGET', KEYS[6], '', unpack(over))) do
  if holder then claims[#claims + 1] = holder end
end
if #over > 0 then
  redis.call('HDEL', KEYS[1], unpack(over))
  redis.call('ZREM', KEYS[2], unpack(over))
  redis.call('ZREM', KEYS[3], unpack(over))
  redis.call('ZREM', KEYS[4], unpack(over))
  redis.call('ZREM', KEYS[5], unpack(over))
  redis.call('HDEL', KEYS[6], unpack(over))
  if #claims > 0 then redis.call('HDEL', KEYS[7], unpack(claims)) end
end
if #new == 0 then
  return 0
end

-- The serial is taken where the messages are stored, so that none appears behind a marker that was told.
redis.call('HSET', KEYS[8], 'serial', serial + #new)
local until_ms = now_ms + tonumber(ARGV[1])
for first = 1, #new, 500 do
  local entries, order, deadlines, names = {}, {}, {}, {}
  for index = first, math.min(first + 499, #new) do
    local name = new[index][1]
    names[#names + 1] = name
    for list, value in pairs({ [order] = serial + index, [deadlines] = until_ms }) do
      list[#list + 1] = value
      list[#list + 1] = name
    end
    entries[#entries + 1] = name
    entries[#entries + 1] = cmsgpack.pack({ serial + index, until_ms, new[index][2] })
  end
  redis.call('ZREM', KEYS[5], unpack(names))
  redis.call('HDEL', KEYS[6], unpack(names))
  redis.call('HSET', KEYS[1], unpack(entries))
  redis.call('ZADD', KEYS[2], unpack(order))
  redis.call('ZADD', KEYS[3], unpack(deadlines))
  redis.call('ZADD', KEYS[4], unpack(order))
end
return #new
