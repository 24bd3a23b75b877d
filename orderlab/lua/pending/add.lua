-- add: append one message to the pending set, then trim the oldest beyond the limit.
-- KEYS  1 pending (sorted set: score = sequence, member = sequence:deadline:payload)
--       2 deadlines (sorted set: score = deadline in ms, member = sequence)  3 sequence (string)  4 session (hash)
-- ARGV  1 epoch  2 limit  3 default interval ms (0 = none)  4 producer ('' = none)  5 number of the message  6 interval ms  7 payload
-- Reply {sequence, messages pending}; sequence 0 when the message had expired on arrival; or the status CLOSED or STALE.
local call = redis.call
local pending, deadlines, counter, session = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local limit, number = tonumber(ARGV[2]), tonumber(ARGV[5])
local interval = tonumber(ARGV[6] == '' and ARGV[3] or ARGV[6])
if not limit or limit < 1 or limit > 65535 or limit % 1 ~= 0 then
  return redis.error_reply('ERR limit must be a whole number from 1 to 65535')
elseif not interval or interval ~= interval or not number or not tonumber(ARGV[1]) then
  return redis.error_reply('ERR epoch, number and interval must be numbers')
end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local deadline = math.floor(now + interval)
local mark = 'done:' .. ARGV[4]
local endless = deadline > 9999999999999 or (ARGV[6] == '' and interval <= 0)
local arriving = (endless or deadline > now) and 1 or 0 -- 0: it has expired on arrival

-- Read everything first: whatever can fail, fails here.
local state = call('HMGET', session, 'epoch', mark)
local sequence = tonumber(call('GET', counter) or 0)
local size = call('ZCARD', pending) - 1
local first = call('ZRANGEBYSCORE', pending, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local wraps = arriving == 1 and first[2] and tonumber(first[2]) <= sequence + 1 - 65535
local portion = wraps and size or math.max(100, size + arriving - limit)
local due = call('ZRANGEBYSCORE', deadlines, '-inf', now, 'LIMIT', 0, portion)
if not state[1] or tonumber(ARGV[1]) < tonumber(state[1]) then
  return redis.status_reply('CLOSED')
end
if state[2] and ARGV[4] ~= '' then
  local done, given = string.match(state[2], '^(%d+) (%d+)$')
  if number < tonumber(done) then
    return redis.status_reply('STALE')
  elseif number == tonumber(done) then
    return {tonumber(given), size} -- the reply was lost: the same sequence again
  end
end

local going, gone = {}, {}
for i = 1, #due do
  going[i], gone[due[i]] = due[i], true
end
local surplus = size - #due + arriving - limit
if surplus > 0 then
  local oldest = call('ZRANGEBYSCORE', pending, '(0', '+inf', 'LIMIT', 0, surplus + #due)
  for i = 1, #oldest do
    local old = string.match(oldest[i], '^%d+')
    if surplus > 0 and not gone[old] then
      going[#going + 1], gone[old], surplus = old, true, surplus - 1
    end
  end
end

-- The packet id is (sequence - 1) % 65535 + 1: a sequence whose id a live message has is passed over.
sequence = sequence + 1
if wraps then
  local taken = {} -- at most limit - 1 of them stay, so there is one to be had
  for _, member in ipairs(call('ZRANGEBYSCORE', pending, '(0', '+inf')) do
    local old = string.match(member, '^%d+')
    taken[tonumber(old) % 65535] = not gone[old] or nil
  end
  while taken[sequence % 65535] do
    sequence = sequence + 1
  end
end

-- Nothing can fail from here on.
if arriving == 0 then
  call('HSET', session, mark, string.format('%d 0', number))
else
  local member = string.format('%d:%d:', sequence, endless and 9999999999999 or deadline) .. ARGV[7]
  call('HSET', session, mark, string.format('%d %d', number, sequence))
  call('SET', counter, sequence)
  call('ZADD', pending, sequence, member)
  if not endless then
    call('ZADD', deadlines, deadline, string.format('%d', sequence))
  end
end
for _, old in ipairs(going) do
  call('ZREMRANGEBYSCORE', pending, old, old)
  call('ZREM', deadlines, old)
end
return {arriving * sequence, size + arriving - #going}
