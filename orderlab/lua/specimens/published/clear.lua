-- clear: the session ends; payloads, queue and counter go.
-- KEYS  1 queue (sorted set of payload keys)  2 last packet id (string)
for _, key in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  redis.call('DEL', key)
end
return redis.call('DEL', KEYS[1], KEYS[2])
