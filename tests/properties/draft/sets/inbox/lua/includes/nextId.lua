local function nextId(counterKey)
  return redis.call("INCR", counterKey)
end
