-- save: number each message of a JSON array, store it under a key of its own, refer to it from the queue, then trim.
-- KEYS  1 queue (sorted set of payload keys)  2 last packet id (string)
-- ARGV  1 messages as a JSON array  2 limit  3 default time to live in s
-- Reply: the packet id that was the last one before this batch.
local queue, counter = KEYS[1], KEYS[2]
local messages = cjson.decode(ARGV[1])
local limit = tonumber(ARGV[2])
local default_ttl = tonumber(ARGV[3])

local previous = tonumber(redis.call('GET', counter)) or 0
local packet_id = previous
local score = 0
local newest = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')
if #newest > 0 then
  score = tonumber(newest[2])
end

for _, message in ipairs(messages) do
  packet_id = packet_id % 65535 + 1
  score = math.max(score + 1, packet_id)
  message.packetId = packet_id
  local key = queue .. '_' .. packet_id
  redis.call('SET', key, cjson.encode(message), 'EX', message.msgExpiryInterval or default_ttl)
  redis.call('ZADD', queue, score, key)
end
redis.call('SET', counter, packet_id)

local surplus = redis.call('ZCARD', queue) - limit
if surplus > 0 then
  for _, key in ipairs(redis.call('ZRANGE', queue, 0, surplus - 1)) do
    redis.call('DEL', key)
    redis.call('ZREM', queue, key)
  end
end
return previous
