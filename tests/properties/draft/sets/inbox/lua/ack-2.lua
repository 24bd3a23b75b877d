--[[
  Forget all entries up to and with an id.
    KEYS[1] inbox
    KEYS[2] entries
    ARGV[1] id
]]
local ids = redis.call("ZRANGEBYSCORE", KEYS[1], "-inf", ARGV[1])
for _, id in ipairs(ids) do
  redis.call("HDEL", KEYS[2], id)
end
return redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", ARGV[1])
