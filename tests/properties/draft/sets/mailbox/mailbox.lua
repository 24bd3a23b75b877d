#!lua name=mailbox
local function send(keys, args)
  local seq = redis.call('INCR', keys[2])
  redis.call('ZADD', keys[1], seq, args[1])
  return seq
end

local function fetch(keys, args)
  return redis.call('ZRANGEBYSCORE', keys[1], '(' .. args[1], '+inf', 'LIMIT', 0, args[2])
end

redis.register_function('mailbox_send', send)
redis.register_function{function_name='mailbox_fetch', callback=fetch, flags={'no-writes'}}
