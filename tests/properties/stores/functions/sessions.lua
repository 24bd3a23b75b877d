#!lua name=sessions
local MAX = 65535
local FAR = 99999999999999

local function open_(keys, args)
  local z, h = keys[1], keys[2]
  local begun = redis.call('HGET', h, 'begun')
  redis.call('ZCARD', z)
  if begun and tonumber(args[1]) < tonumber(begun) then return redis.status_reply('STALE') end
  if begun and (args[2] == '0' or tonumber(begun) == tonumber(args[1])) then return redis.status_reply('OK') end
  local old = begun and redis.call('HKEYS', h) or {}
  redis.call('HMSET', h, 'begun', args[1], 'seq', 0, 'guard', 1)
  redis.call('ZADD', z, '-inf', 'guard')
  redis.call('ZREMRANGEBYSCORE', z, 0, '+inf')
  for _, field in ipairs(old) do
    if field ~= 'begun' and field ~= 'seq' and field ~= 'guard' then redis.call('HDEL', h, field) end
  end
  return redis.status_reply('OK')
end

local function save(keys, args)
  local z, h = keys[1], keys[2]
  local now, epoch, limit, default = tonumber(args[1]), tonumber(args[2]), tonumber(args[3]), tonumber(args[4])
  local state = redis.call('HMGET', h, 'begun', 'seq', '@' .. args[5])
  redis.call('ZCARD', z)
  if not state[1] or epoch < tonumber(state[1]) then return redis.status_reply('CLOSED') end
  if limit < 1 or limit > MAX then return redis.error_reply('ERR limit') end
  if state[3] then
    local batch, ids = string.match(state[3], '^(%d+):(.*)$')
    if tonumber(args[6]) < tonumber(batch) then return redis.status_reply('CLOSED') end
    if tonumber(args[6]) == tonumber(batch) then
      local again = {}
      for id in string.gmatch(ids, '%d+') do again[#again + 1] = id end
      return again
    end
  end
  local members = redis.call('ZRANGEBYSCORE', z, 0, '+inf', 'WITHSCORES')
  local live, busy, drop = {}, {}, {}
  for i = 1, #members, 2 do
    local one = cjson.decode(redis.call('HGET', h, members[i]))
    if one.d > now then
      live[#live + 1] = members[i]
      busy[one.i] = members[i]
    else
      drop[#drop + 1] = members[i]
    end
  end
  local seq, from, ids, new = tonumber(state[2]), 1, {}, {}
  for _, message in ipairs(cjson.decode(args[7])) do
    local ms = message.ttl
    if ms == nil then ms = default > 0 and default or FAR end
    local deadline = math.min(now + math.floor(ms), FAR)
    if deadline <= now then
      ids[#ids + 1] = '0'
    else
      while #live - from + 1 >= limit do
        local gone = live[from]
        for id, member in pairs(busy) do
          if member == gone then busy[id] = nil break end
        end
        if new[gone] then new[gone] = nil else drop[#drop + 1] = gone end
        from = from + 1
      end
      local id
      repeat
        seq = seq + 1
        id = (seq - 1) % MAX + 1
      until not busy[id]
      local member = string.format('%d', seq)
      busy[id] = member
      live[#live + 1] = member
      new[member] = cjson.encode({i = id, d = deadline, k = 'PUBLISH', p = message.p, t = message.t, q = message.q})
      ids[#ids + 1] = string.format('%d', id)
    end
  end
  while #live - from + 1 > limit do
    drop[#drop + 1] = live[from]
    from = from + 1
  end
  redis.call('HSET', h, 'seq', string.format('%d', seq), '@' .. args[5], args[6] .. ':' .. table.concat(ids, ','))
  for i = from, #live do
    if new[live[i]] then
      redis.call('HSET', h, live[i], new[live[i]])
      redis.call('ZADD', z, live[i], live[i])
    end
  end
  for _, member in ipairs(drop) do
    redis.call('ZREM', z, member)
    redis.call('HDEL', h, member)
  end
  return ids
end

local function fetch(keys, args)
  local z, h = keys[1], keys[2]
  local now, count = tonumber(args[1]), tonumber(args[3])
  local page = {}
  redis.call('HLEN', h)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', z, '(' .. args[2], '+inf')) do
    if #page >= count then break end
    local one = cjson.decode(redis.call('HGET', h, member))
    if one.d > now then
      page[#page + 1] = {i = one.i, s = tonumber(member), k = one.k, p = one.p, t = one.t, q = one.q, left = one.d < FAR and one.d - now or nil}
    end
  end
  if #page == 0 then return '[]' end
  return cjson.encode(page)
end

local function ack(keys, args)
  local z, h = keys[1], keys[2]
  local begun = redis.call('HGET', h, 'begun')
  if not begun or tonumber(args[1]) < tonumber(begun) then return 0 end
  if not redis.call('ZSCORE', z, args[3]) then return 0 end
  local text = redis.call('HGET', h, args[3])
  local one = text and cjson.decode(text)
  if type(one) ~= 'table' or one.i ~= tonumber(args[2]) then return 0 end
  if args[4] == '1' then
    if one.q ~= 2 or one.k == 'PUBREL' then return 0 end
    one.k = 'PUBREL'
    redis.call('HSET', h, args[3], cjson.encode(one))
    return 1
  end
  redis.call('ZREM', z, args[3])
  redis.call('HDEL', h, args[3])
  return 1
end

local function clear(keys, args)
  local begun = redis.call('HGET', keys[2], 'begun')
  if not begun or tonumber(args[1]) < tonumber(begun) then return 0 end
  return redis.call('DEL', keys[1], keys[2])
end

redis.register_function{function_name = 's_open', callback = open_}
redis.register_function('s_save', save)
redis.register_function{function_name = 's_fetch', callback = fetch, flags = {'no-writes'}}
redis.register_function('s_ack', ack)
redis.register_function{function_name = 's_clear', callback = clear}
