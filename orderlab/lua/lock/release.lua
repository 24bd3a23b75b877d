-- KEYS: lease. ARGV: token. 1, or 0 if the lease is another's or has lapsed.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
