-- Where a job is, or nil.
-- KEYS: jobs, waiting, delayed, leased, dead
local packed = redis.call('HGET', KEYS[1], ARGV[1])
local place = packed and cmsgpack.unpack(packed)[1] or ''
if redis.call('ZSCORE', KEYS[2], place .. ARGV[1]) then return 'waiting' end
if redis.call('ZSCORE', KEYS[3], ARGV[1]) then return 'delayed' end
if redis.call('ZSCORE', KEYS[4], ARGV[1]) then return 'leased' end
if redis.call('ZSCORE', KEYS[5], ARGV[1]) then return 'dead' end
return false
