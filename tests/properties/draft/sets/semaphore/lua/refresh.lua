local now, ttl = tonumber(ARGV[1]), tonumber(ARGV[2])
local until_ = redis.call('zscore', KEYS[1], ARGV[3])
if not until_ or tonumber(until_) <= now then return 0 end
redis.call('zadd', KEYS[1], now + ttl, ARGV[3])
return 1
