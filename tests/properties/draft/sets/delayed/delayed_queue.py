"""A queue of jobs that are due later, with leases, on redis-py."""

import time

import redis

_PUT = """
-- KEYS: scheduled, payloads   ARGV: job id, body, due (ms)
if redis.call('HSETNX', KEYS[2], ARGV[1], ARGV[2]) == 0 then
  return 0
end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
return 1
"""

_RESERVE = """
-- KEYS: scheduled, payloads, reserved   ARGV: now (ms), lease (ms)
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, 1)
if #ids == 0 then
  return false
end
local id = ids[1]
local body = redis.call('HGET', KEYS[2], id)
redis.call('ZADD', KEYS[3], tonumber(ARGV[1]) + tonumber(ARGV[2]), id)
redis.call('ZREM', KEYS[1], id)
return {id, body}
"""

_DONE = """
-- KEYS: reserved, payloads   ARGV: job id
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('HDEL', KEYS[2], ARGV[1])
return 1
"""

_REQUEUE_EXPIRED = """
-- KEYS: reserved, scheduled   ARGV: now (ms), how many at most
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
for _, id in ipairs(ids) do
  redis.call('ZADD', KEYS[2], ARGV[1], id)
  redis.call('ZREM', KEYS[1], id)
end
return #ids
"""


class DelayedQueue:
    def __init__(self, client: redis.Redis, name: str, lease_ms: int = 30_000) -> None:
        self._scheduled = f"dq:{{{name}}}:scheduled"
        self._payloads = f"dq:{{{name}}}:payloads"
        self._reserved = f"dq:{{{name}}}:reserved"
        self._lease_ms = lease_ms
        self._put = client.register_script(_PUT)
        self._reserve = client.register_script(_RESERVE)
        self._done = client.register_script(_DONE)
        self._requeue_expired = client.register_script(_REQUEUE_EXPIRED)

    def put(self, job_id: str, body: str, delay_ms: int = 0) -> bool:
        due = int(time.time() * 1000) + delay_ms
        return bool(self._put(keys=[self._scheduled, self._payloads], args=[job_id, body, due]))

    def reserve(self):
        now = int(time.time() * 1000)
        return self._reserve(keys=[self._scheduled, self._payloads, self._reserved], args=[now, self._lease_ms])

    def done(self, job_id: str) -> bool:
        return bool(self._done(keys=[self._reserved, self._payloads], args=[job_id]))

    def requeue_expired(self, limit: int = 100) -> int:
        now = int(time.time() * 1000)
        return self._requeue_expired(keys=[self._reserved, self._scheduled], args=[now, limit])
