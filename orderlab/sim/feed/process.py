"""A Redis process of a feed: one thread that runs commands when they arrive, and what each round trip costs it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from orderlab.sim.costs.cost_model import Costs
from orderlab.sim.engine.clock import Waits
from orderlab.sim.mqtt.sessions import EPOCH_MS
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.replies import Reply
from orderlab.sim.redis.shard import Shard

Argv = Sequence[bytes]
POST = b"""-- Gives hashes that are there their ranks. KEYS: counter, feed; ARGV: their names
local rank = tonumber(redis.call('GET', KEYS[1]) or 0)
for first = 1, #ARGV, 1000 do  -- unpack has a limit
  local ranked = {}
  for at = first, math.min(first + 999, #ARGV) do
    ranked[#ranked + 1] = rank
    ranked[#ranked + 1] = ARGV[at]
    rank = rank + 1
  end
  redis.call('ZADD', KEYS[2], unpack(ranked))
end
redis.call('SET', KEYS[1], rank)
return rank
"""
POST_SHA = hashlib.sha1(POST).hexdigest().encode()


@dataclass(slots=True)
class RedisProcess:
    """A Redis process: one thread. ``generation`` changes when its connections are lost."""

    shard: Shard
    speed: float
    busy_until_us: float = 0.0
    busy_us: float = 0.0
    down_until_us: float = 0.0
    generation: int = 0
    requests: int = 0
    commands: int = 0
    waits: Waits = field(default_factory=Waits)

    def run(
        self, now_us: float, client: Client | None, calls: Sequence[Argv], work_us: float, inner: int = 0
    ) -> list[Reply]:
        """The replies to ``calls``, that leave at ``busy_until_us``. They run when they arrive: what came before them
        is served before."""
        begun = self.busy_until_us
        if begun > now_us:
            self.waits.add(now_us, begun)
        else:
            begun = now_us
        work_us /= self.speed
        self.busy_until_us = begun + work_us
        self.busy_us += work_us
        self.requests += 1
        self.commands += len(calls) + inner
        shard = self.shard
        shard.now_ms, shard.now_us = divmod(EPOCH_MS * 1000 + int(begun), 1000)
        execute = shard.execute
        return [execute(argv, client) for argv in calls]

    def lose_connections(self) -> None:
        """Whoever waits for a reply gets none."""
        self.generation += 1


@dataclass(frozen=True)
class Work:
    """Microseconds of a Redis process for each round trip, from the cost model."""

    read: float
    post: float
    refused: float
    hashes: float
    script: float
    page: float
    entry: float

    @classmethod
    def of(cls, costs: Costs, messages: int) -> Work:
        """``messages`` in a request."""
        redis = costs.redis

        def us(*names: str) -> float:
            return sum(redis.commands_us.get(name, redis.unknown_command_us) for name in names)

        def trip(count: int, inner_us: float) -> float:
            return redis.syscall_us + count * redis.io_us + inner_us

        hashes = messages * us("hset", "expire")
        ranked = messages * us("zadd") + us("incrby")
        queued = 2 + 3 * messages + 1
        return cls(
            2 * redis.syscall_us + 2 * redis.io_us + us("watch", "get"),
            trip(queued, hashes + ranked + us("multi", "exec")),
            trip(queued, us("multi", "exec")),
            trip(2 + 2 * messages, hashes + us("multi", "exec")),
            trip(1, redis.evalsha_us + us("get", "set") + ranked - us("incrby")),
            trip(2, us("zrank", "zrange")),
            redis.io_us + us("hget"),
        )
