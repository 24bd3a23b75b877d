local function next_id()
  local id = tonumber(redis.call('HGET', meta, 'last') or '0') + 1
  if id > 65535 then
    id = 1
  end
  redis.call('HSET', meta, 'last', id)
  return id
end
