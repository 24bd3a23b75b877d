-- Cut the inbox to its newest entries; returns how many were dropped.
local function trimInbox(inboxKey, max)
  local surplus = redis.call("ZCARD", inboxKey) - max
  if surplus > 0 then
    redis.call("ZREMRANGEBYRANK", inboxKey, 0, surplus - 1)
    return surplus
  end
  return 0
end
