-- Brings back jobs whose lease has lapsed, lets those join the line whose delay is over, and leases the first of the line.
-- Returns nil, or the job's name, its token, the number of this attempt and its payload.
-- KEYS: jobs, waiting, delayed, leased, dead, doubles, state
-- ARGV: lease in ms (0: move jobs only, and return how many), jobs moved at most, attempts at most
local lease_ms, batch, attempts_max = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local now = redis.call('TIME')  -- the server's clock: workers' clocks differ
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)

-- Every key is read before the first write, so that a value of a foreign type stops the script while nothing has happened.
local lapsed = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', '(' .. now_ms, 'LIMIT', 0, batch)
local due = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now_ms, 'LIMIT', 0, batch)
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
local state = redis.call('HMGET', KEYS[7], 'token', 'paused')
redis.call('ZCARD', KEYS[5])
redis.call('HLEN', KEYS[6])
local names = {}
for _, name in ipairs(lapsed) do names[#names + 1] = name end
for _, name in ipairs(due) do names[#names + 1] = name end
if first[1] then names[#names + 1] = string.sub(first[1], 17) end
local jobs = {}
for from = 1, #names, 1000 do
  local packed = redis.call('HMGET', KEYS[1], unpack(names, from, math.min(from + 999, #names)))
  for index, value in ipairs(packed) do
    jobs[names[from + index - 1]] = cmsgpack.unpack(value)
  end
end

local best = first[1] and { tonumber(first[2]), first[1] }
local function join(name)
  local job = jobs[name]
  local member = job[1] .. name
  redis.call('ZADD', KEYS[2], job[2], member)
  if not best or job[2] < best[1] or (job[2] == best[1] and member < best[2]) then
    best = { job[2], member }
  end
end
for _, name in ipairs(lapsed) do
  redis.call('ZREM', KEYS[4], name)
  if attempts_max > 0 and jobs[name][3] >= attempts_max then
    redis.call('ZADD', KEYS[5], now_ms, name)
    if jobs[name][5] ~= '' then redis.call('HDEL', KEYS[6], jobs[name][5]) end
  else
    join(name)
  end
end
for _, name in ipairs(due) do
  redis.call('ZREM', KEYS[3], name)
  join(name)
end
if lease_ms == 0 then
  return #lapsed + #due
end
if state[2] or not best then
  return false
end

local name = string.sub(best[2], 17)
local job, token = jobs[name], tonumber(state[1] or 0) + 1
job[3], job[4] = job[3] + 1, tostring(token)
redis.call('HSET', KEYS[7], 'token', token)
redis.call('ZREM', KEYS[2], best[2])
redis.call('ZADD', KEYS[4], now_ms + lease_ms, name)
redis.call('HSET', KEYS[1], name, cmsgpack.pack(job))
return { name, job[4], job[3], job[6] }
