-- KEYS: lease, token. ARGV: ttl in ms. The new token, or nil while the lease lives.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return false
end
-- The token first: if SET fails, a number is skipped, and the next one is greater all the same.
local token = redis.call('INCR', KEYS[2])
redis.call('SET', KEYS[1], token, 'PX', ARGV[1])
return token
