--[[
  Put a notification into a user's inbox.
    KEYS[1] inbox
    KEYS[2] counter
    KEYS[3] entries
    ARGV[1] body
    ARGV[2] max entries
]]
--- @include "includes/nextId"
--- @include "includes/trim"

local id = nextId(KEYS[2])
redis.call("ZADD", KEYS[1], id, id)
redis.call("HSET", KEYS[3], id, ARGV[1])
local max = tonumber(ARGV[2])
local first = redis.call("ZRANGE", KEYS[1], 0, -1)
local dropped = trimInbox(KEYS[1], max)
for i = 1, dropped do
  redis.call("HDEL", KEYS[3], first[i])
end
return id
