-- Adds jobs that are not there yet, all or none of them, and returns how many were added.
-- KEYS: jobs, waiting, delayed, leased, dead, doubles, state
-- ARGV: priority, delay in ms, key that tells doubles ("" none), then the name and the payload of each job
local priority, delay_ms, double = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]

-- Every key is read before the first write, so that a value of a foreign type stops the script while nothing has happened.
local added, seen = {}, {}
for first = 4, #ARGV, 1000 do  -- more values than unpack can take come in pieces
  local names = {}
  for at = first, math.min(first + 998, #ARGV), 2 do
    names[#names + 1] = ARGV[at]
  end
  for index, held in ipairs(redis.call('HMGET', KEYS[1], unpack(names))) do
    if not held and not seen[names[index]] then
      seen[names[index]] = true
      added[#added + 1] = { names[index], ARGV[first + 2 * index - 1] }
    end
  end
end
local sequence = tonumber(redis.call('HGET', KEYS[7], 'sequence') or 0)
redis.call('ZCARD', KEYS[2])
redis.call('ZCARD', KEYS[3])
if #added == 0 or (double ~= '' and redis.call('HEXISTS', KEYS[6], double) == 1) then
  return 0
end

redis.call('HSET', KEYS[7], 'sequence', sequence + #added)
if double ~= '' then
  redis.call('HSET', KEYS[6], double, added[1][1])
end
local due_ms = 0
if delay_ms > 0 then
  local now = redis.call('TIME')
  due_ms = now[1] * 1000 + math.floor(now[2] / 1000) + delay_ms
end
for first = 1, #added, 500 do
  local fields, line = {}, {}
  for index = first, math.min(first + 499, #added) do
    local name, payload = added[index][1], added[index][2]
    -- The place in line is text and not part of the score: a score holds no priority and sequence beyond 2^53.
    local place = string.format('%016d', sequence + index)
    fields[#fields + 1] = name
    fields[#fields + 1] = cmsgpack.pack({ place, priority, 0, '', double, payload })
    line[#line + 1] = delay_ms > 0 and due_ms or priority
    line[#line + 1] = delay_ms > 0 and name or place .. name
  end
  redis.call('HSET', KEYS[1], unpack(fields))
  redis.call('ZADD', delay_ms > 0 and KEYS[3] or KEYS[2], unpack(line))
end
return #added
