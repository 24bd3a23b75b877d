-- The first job whose delay is over, its priority, and its place in line.
local now = redis.call('TIME')
local name = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now[1] * 1000 + math.floor(now[2] / 1000), 'LIMIT', 0, 1)[1]
if not name then return {} end
local job = cmsgpack.unpack(redis.call('HGET', KEYS[1], name))
return { name, job[2], job[1] .. name }
