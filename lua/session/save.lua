-- save: append a batch to the session's queue, all of it or nothing.
-- KEYS  1 index (sorted set)  2 body (hash)
-- ARGV  1 epoch  2 limit  3 default interval ms (0 = none)  4 producer ('' = no repetition to detect)  5 batch number
--       then for each message: interval ms ('' = default), message
-- Reply packet id, sequence, and so on, 0 0 for a message that had expired on arrival; or a status:
--       CLOSED (no such session any more), STALE (a later batch of this producer was saved).
local call = redis.call
local index, body = KEYS[1], KEYS[2]
local LAST_ID, NEVER, CHUNK, SWEEP = 65535, 9999999999999, 6000, 512

-- 1. Arguments ------------------------------------------------------------------------------------------------------

local function whole(text, low, high)
  local value = tonumber(text)
  return value and value >= low and value <= high and value % 1 == 0 and value or nil
end

local epoch = whole(ARGV[1], 0, 9007199254740991)
local limit = whole(ARGV[2], 1, LAST_ID)
local default = tonumber(ARGV[3])
local producer = ARGV[4]
local batch = whole(ARGV[5], 0, 9007199254740991)
local count = (#ARGV - 5) / 2
if not epoch then
  return redis.error_reply('ERR epoch must be a whole number of at least 0')
elseif not limit then
  return redis.error_reply('ERR limit must be a whole number from 1 to ' .. LAST_ID)
elseif not default or default ~= default then
  return redis.error_reply('ERR default interval must be a number of milliseconds, 0 for none')
elseif not batch then
  return redis.error_reply('ERR batch must be a whole number of at least 0')
elseif count < 1 or count % 1 ~= 0 then
  return redis.error_reply('ERR give one message or more, each with an interval and a content')
end

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local usual = default > 0 and math.min(math.floor(now + default), NEVER) or NEVER
local deadlines, alive = {}, 0 -- deadline of each message, false for one that expired on arrival
for i = 1, count do
  local interval, deadline = ARGV[4 + 2 * i], usual
  if interval ~= '' then
    interval = tonumber(interval)
    if not interval or interval ~= interval then
      return redis.error_reply('ERR interval of message ' .. i .. ' must be a number of milliseconds')
    end
    deadline = math.min(math.floor(now + interval), NEVER)
  end
  deadlines[i] = deadline > now and deadline
  alive = alive + (deadline > now and 1 or 0)
end

-- 2. State: read everything before anything is written --------------------------------------------------------------

local stored = call('HMGET', body, 'm', 'p' .. producer)
local size = call('ZCARD', index)
local meta, mark = stored[1], stored[2]
if not meta then
  return redis.status_reply('CLOSED')
elseif size == 0 then
  return redis.error_reply('ERR the session is damaged: its index is gone (evicted?); open it with clean start')
end
local begun, last, floor, soonest, latest = string.match(meta, '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
last, floor, soonest, latest = tonumber(last), tonumber(floor), tonumber(soonest), tonumber(latest)
if epoch < tonumber(begun) then
  return redis.status_reply('CLOSED')
end

local reply = {}
if mark and producer ~= '' then
  local saved, runs = string.match(mark, '^(%d+) (.*)$')
  if batch < tonumber(saved) then
    return redis.status_reply('STALE')
  elseif batch == tonumber(saved) then -- the reply was lost: give it again
    for first, length in string.gmatch(runs, '(%d+)%+(%d+)') do
      for i = 0, length - 1 do
        reply[#reply + 1] = first == '0' and 0 or (first + i - 1) % LAST_ID + 1
        reply[#reply + 1] = first == '0' and 0 or first + i
      end
    end
    return reply
  end
end

-- 3. Who has to go: the expired, and only then the oldest -----------------------------------------------------------

if size == 1 then -- only the sentinel: the queue is empty
  floor, soonest, latest = last + 1, NEVER, 0
end
local kept = math.min(alive, limit) -- of this batch, the last ones
local waiting = size - 1 -- messages in the queue; at most, for the index may hold early deadlines too
if waiting + kept > limit then
  waiting = call('ZCOUNT', index, '(0', '+inf')
end
local excess = waiting + kept - limit
local gone, dropped = {}, {}

if now >= soonest then
  local budget, done = math.max(excess, SWEEP), false
  if last + alive - LAST_ID >= floor then
    budget = size -- an expired message must not be in the way of an identifier
  end
  local due = call('ZRANGEBYSCORE', index, -now, '(0', 'LIMIT', 0, budget)
  for i = 1, #due do
    local id = string.sub(due[i], 2)
    gone[id], dropped[i] = true, id
  end
  local from, step = '(0', 1
  while #dropped < budget and not done do
    local front = call('ZRANGEBYSCORE', index, from, '+inf', 'WITHSCORES', 'LIMIT', 0, step)
    local ids = {}
    for i = 1, #front, 2 do
      ids[#ids + 1] = front[i]
    end
    local records = #ids > 0 and call('HMGET', body, unpack(ids)) or {}
    done, soonest = #ids < step, #ids < step and NEVER or soonest
    for i = 1, #ids do
      if not gone[ids[i]] then
        local deadline = records[i] and tonumber(string.sub(records[i], 2, 14)) or 0
        if deadline > now then -- all behind it that are not early live at least as long
          done, soonest, floor = true, deadline, tonumber(front[2 * i])
          break
        elseif #dropped == budget then
          done = false
          break
        end
        gone[ids[i]], dropped[#dropped + 1] = true, ids[i]
      end
    end
    from, step = '(' .. (front[#front] or '0'), math.min(2 * step, 128)
  end
  if done then
    local early = call('ZREVRANGEBYSCORE', index, '(' .. -now, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
    soonest = math.min(soonest, early[2] and -early[2] or NEVER)
  else
    soonest = now
  end
end

waiting, excess = waiting - #dropped, excess - #dropped
if excess > 0 then
  local oldest = call('ZRANGEBYSCORE', index, '(0', '+inf', 'LIMIT', 0, excess + #dropped)
  waiting = waiting - excess
  for i = 1, #oldest do
    if excess > 0 and not gone[oldest[i]] then
      gone[oldest[i]], dropped[#dropped + 1] = true, oldest[i]
      excess = excess - 1
    end
  end
end

-- 4. Sequences: the packet id is (sequence - 1) % 65535 + 1; a sequence whose id is still live is passed over --------

local next_sequence = last
local free, position = nil, 0 -- sequences to take, when some must be passed over
if waiting > 0 and last + alive - LAST_ID >= floor then
  local front = call('ZRANGEBYSCORE', index, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  floor = tonumber(front[2] or last + 1)
end
if waiting > 0 and last + alive - LAST_ID >= floor then
  free = {} -- kept + waiting <= limit, so there are enough of them within one round of identifiers
  local candidate, step = last, alive
  while #free < alive do
    local ids = {}
    for i = 1, math.min(step, CHUNK) do
      ids[i] = string.format('%d', (candidate + i - 1) % LAST_ID + 1)
    end
    local scores = call('ZMSCORE', index, unpack(ids))
    for i = 1, #ids do
      if not scores[i] or gone[ids[i]] then
        free[#free + 1] = candidate + i
      end
    end
    candidate, step = candidate + #ids, 2 * step
  end
end

-- 5. What will be written -------------------------------------------------------------------------------------------

local fields, entries = {'m', false}, {}
local runs, first, length = {}, nil, 0
local skip, early = alive - kept, {}
for i = 1, count do
  local deadline, sequence, number = deadlines[i], 0, 0
  if deadline then
    position = position + 1
    sequence = free and free[position] or next_sequence + 1
    next_sequence, number = sequence, (sequence - 1) % LAST_ID + 1
    if position > skip then
      local id = string.format('%d', number)
      fields[#fields + 1] = id
      fields[#fields + 1] = string.format('P%013d', deadline) .. ARGV[5 + 2 * i]
      entries[#entries + 1] = sequence == number and id or sequence
      entries[#entries + 1] = id
      if deadline < latest then -- an older message lives longer: the front of the queue will not show this one's end
        entries[#entries + 1] = -deadline
        entries[#entries + 1] = '-' .. id
        early[id] = true
      else
        latest = deadline
      end
      if deadline < soonest then
        soonest = deadline
      end
      if gone[id] then
        gone[id] = 'reused'
      end
    end
  end
  reply[2 * i - 1], reply[2 * i] = number, sequence
  if first and sequence == (first > 0 and first + length or 0) then
    length = length + 1
  else
    if first then
      runs[#runs + 1] = string.format('%d+%d', first, length)
    end
    first, length = sequence, 1
  end
end
fields[2] = string.format('%s %d %d %d %d', begun, next_sequence, floor, soonest, latest)
if producer ~= '' then
  runs[#runs + 1] = string.format('%d+%d', first, length)
  fields[#fields + 1] = 'p' .. producer
  fields[#fields + 1] = string.format('%d ', batch) .. table.concat(runs, ',')
end

-- 6. Writes: nothing can fail from here on; what comes is added before anything goes --------------------------------

local function send(command, key, values)
  for i = 1, #values, CHUNK do
    call(command, key, unpack(values, i, math.min(i + CHUNK - 1, #values)))
  end
end

send('HSET', body, fields)
send('ZADD', index, entries)
if #dropped > 0 then
  local members, ids = {}, {}
  for i = 1, #dropped do
    local id = dropped[i]
    if gone[id] ~= 'reused' then
      members[#members + 1] = id
      ids[#ids + 1] = id
    end
    if not early[id] then
      members[#members + 1] = '-' .. id
    end
  end
  send('ZREM', index, members)
  send('HDEL', body, ids)
end
return reply
