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

local function number(text)
  local value = tonumber(text)
  return value == value and value -- nan is none
end

local function whole(text, low, high)
  local value = tonumber(text)
  return value and value >= low and value <= high and value % 1 == 0 and value
end

local epoch = whole(ARGV[1], 0, 9007199254740991)
local limit = whole(ARGV[2], 1, LAST_ID)
local default = number(ARGV[3])
local producer = ARGV[4]
local batch = whole(ARGV[5], 0, 9007199254740991)
local count = (#ARGV - 5) / 2
if not epoch then
  return redis.error_reply('ERR epoch must be a whole number of at least 0')
elseif not limit then
  return redis.error_reply('ERR limit must be a whole number from 1 to ' .. LAST_ID)
elseif not default then
  return redis.error_reply('ERR default interval must be a number of milliseconds, 0 for none')
elseif not batch then
  return redis.error_reply('ERR batch must be a whole number of at least 0')
elseif count % 1 ~= 0 then
  return redis.error_reply('ERR give each message with an interval and a content')
end

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local usual = default > 0 and math.min(math.floor(now + default), NEVER) or NEVER
local deadlines, alive = {}, 0 -- deadline of each message, false for one that expired on arrival
for i = 1, count do
  local interval, deadline = ARGV[4 + 2 * i], usual
  if interval ~= '' then
    interval = number(interval)
    if not interval then
      return redis.error_reply('ERR interval of message ' .. i .. ' must be a number of milliseconds')
    end
    deadline = math.min(math.floor(now + interval), NEVER)
  end
  deadlines[i] = deadline > now and deadline
  alive = alive + (deadlines[i] and 1 or 0)
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
  local saved = tonumber(string.match(mark, '^%d+'))
  if batch < saved then
    return redis.status_reply('STALE')
  elseif batch == saved then -- the reply was lost: give it again
    for first, final in string.gmatch(mark, ' (%d+) (%d+)') do
      for sequence = tonumber(first), tonumber(final) do
        reply[#reply + 1] = sequence > 0 and (sequence - 1) % LAST_ID + 1 or 0
        reply[#reply + 1] = sequence
      end
    end
    return reply
  end
end

-- 3. Who has to go: the expired, and then the oldest ----------------------------------------------------------------

if size == 1 then -- only the sentinel: the queue is empty
  soonest, latest = NEVER, 0
end
local kept = math.min(alive, limit) -- of this batch, the last ones
local excess = size - 1 + kept - limit
if excess > 0 then -- the index holds early deadlines, too
  excess = call('ZCOUNT', index, '(0', '+inf') + kept - limit
end
local gone, dropped = {}, {}
local sweeps = now >= soonest
local meets = last + alive - LAST_ID >= floor -- an identifier to come may be that of a message which waits
local budget = meets and size or math.max(excess, SWEEP) -- an expired message must not be in the way of an identifier
if sweeps then
  local due = call('ZREVRANGEBYSCORE', index, '(0', -now, 'LIMIT', 0, budget)
  for i = 1, #due do
    dropped[i] = string.sub(due[i], 2)
    gone[dropped[i]] = true
  end
  local early = call('ZREVRANGEBYSCORE', index, '(0', '-inf', 'WITHSCORES', 'LIMIT', #due, 1)
  soonest = early[2] and -early[2] or NEVER
end
if sweeps or meets or excess > 0 then
  -- From the oldest on: what has expired, and what there is no room for. All behind the first that stays, but for
  -- early ones, live at least as long; none of them has a lower sequence.
  local behind, step, stays = '(0', math.max(math.min(excess, CHUNK), 0) + 1, nil
  repeat
    local ids = call('ZRANGEBYSCORE', index, behind, '+inf', 'LIMIT', 0, step)
    local records = sweeps and #ids > 0 and call('HMGET', body, unpack(ids)) or {}
    for i = 1, #ids do
      if not gone[ids[i]] then
        local deadline = sweeps and tonumber(string.sub(records[i], 2, 14)) or NEVER
        if #dropped >= (deadline > now and excess or budget) then
          soonest, stays = math.min(soonest, deadline), ids[i]
          break
        end
        gone[ids[i]], dropped[#dropped + 1] = true, ids[i]
      end
    end
    if not stays and #ids > 0 then
      behind, step = '(' .. call('ZSCORE', index, ids[#ids]), math.min(2 * step, 128)
    end
  until stays or #ids == 0
  if meets then
    floor = stays and tonumber(call('ZSCORE', index, stays)) or last + 1
  end
end

-- 4. Sequences: the packet id is (sequence - 1) % 65535 + 1; a sequence whose id is still live is passed over --------

local free -- sequences to take, when some must be passed over
if last + alive - LAST_ID >= floor then
  free = {} -- at most `limit` stay, kept ones included, so there are enough of them within one round of identifiers
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

local fields, entries, position = {'m', false}, {}, 0
local runs = {batch} -- what the reply tells, for the case that it is lost: first and last sequence of each run
for i = 1, count do
  local deadline, sequence, number = deadlines[i], 0, 0
  if deadline then
    position = position + 1
    sequence = free and free[position] or last + 1
    last, number = sequence, (sequence - 1) % LAST_ID + 1
    if position > alive - kept then
      local id = string.format('%d', number)
      fields[#fields + 1] = id
      fields[#fields + 1] = string.format('P%013d', deadline) .. ARGV[5 + 2 * i]
      entries[#entries + 1] = sequence == number and id or sequence -- a text spares the server a conversion
      entries[#entries + 1] = id
      if deadline < latest then -- an older message lives longer: the front of the queue will not show this one's end
        entries[#entries + 1] = -deadline
        entries[#entries + 1] = '-' .. id
      else
        latest = deadline
      end
      if deadline < soonest then
        soonest = deadline
      end
      gone[id] = nil
    end
  end
  reply[2 * i - 1], reply[2 * i] = number, sequence
  if i == 1 or sequence ~= runs[#runs] + 1 then
    runs[#runs + 1] = sequence
    runs[#runs + 1] = sequence
  else
    runs[#runs] = sequence
  end
end
fields[2] = string.format('%s %d %d %d %d', begun, last, floor, soonest, latest)
if producer ~= '' then
  for i = 1, #runs do
    runs[i] = string.format('%d', runs[i])
  end
  fields[#fields + 1] = 'p' .. producer
  fields[#fields + 1] = table.concat(runs, ' ')
end

-- 6. Writes: nothing can fail from here on. The first is refused when memory is short; what goes makes room for what comes

local function send(command, key, values)
  for i = 1, #values, CHUNK do
    call(command, key, unpack(values, i, math.min(i + CHUNK - 1, #values)))
  end
end

local members, ids = {}, {}
for i = 1, #dropped do
  members[2 * i - 1], members[2 * i] = dropped[i], '-' .. dropped[i]
  if gone[dropped[i]] then -- and not the identifier of a new message
    ids[#ids + 1] = dropped[i]
  end
end
-- HSET first: if memory refuses it, nothing has changed; a body without its entry shows nothing. ZREM before ZADD: a new message may
-- bear the identifier, and so the member, of one that goes. HDEL last, and of identifiers that no new message bears: its body is there.
send('HSET', body, fields)
send('ZREM', index, members)
send('ZADD', index, entries)
send('HDEL', body, ids)
return reply
