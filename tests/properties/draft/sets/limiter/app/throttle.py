"""Sliding-window throttling for the public API."""

import time
import uuid

import redis

_HIT = """
-- KEYS[1]  sorted set of the requests of one client
-- ARGV     now (ms), window (ms), limit, id of the request
local now = tonumber(ARGV[1])
local window = tonumber(ARGV[2])
local limit = tonumber(ARGV[3])

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)

local used = redis.call('ZCARD', KEYS[1])
if used >= limit then
    local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
    return {0, 0, oldest[2] + window - now}
end

redis.call('ZADD', KEYS[1], now, ARGV[4])
redis.call('PEXPIRE', KEYS[1], window)
return {1, limit - used - 1, 0}
"""

_RESET = "return redis.call('DEL', KEYS[1])"


class SlidingWindow:
    """At most `limit` requests in any `window` seconds."""

    def __init__(self, client: redis.Redis, limit: int = 3, window: float = 1.0, prefix: str = "throttle"):
        self.client = client
        self.limit = limit
        self.window = int(window * 1000)
        self.prefix = prefix
        self._hit = client.register_script(_HIT)
        self._reset = client.register_script(_RESET)

    def _key(self, user: str) -> str:
        return f"{self.prefix}:{{{user}}}"

    def allow(self, user: str) -> bool:
        now = int(time.time() * 1000)
        allowed, *_ = self._hit(
            keys=[self._key(user)],
            args=[now, self.window, self.limit, uuid.uuid4().hex],
        )
        return allowed == 1

    def reset(self, user: str) -> None:
        self._reset(keys=[self._key(user)])
