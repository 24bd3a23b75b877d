--[[
  Read a user's inbox after a cursor.
    KEYS[1] inbox
    KEYS[2] entries
    ARGV[1] cursor (exclusive)
    ARGV[2] limit
]]
local ids = redis.call("ZRANGEBYSCORE", KEYS[1], "(" .. ARGV[1], "+inf", "LIMIT", 0, ARGV[2])
local result = {}
for _, id in ipairs(ids) do
  result[#result + 1] = { tonumber(id), redis.call("HGET", KEYS[2], id) }
end
return result
