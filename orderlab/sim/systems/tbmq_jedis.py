"""`tbmq-jedis`: the prototype with sessions in Redis behind Jedis: a thread and a connection for each command."""

from __future__ import annotations

from pydantic import Field

from orderlab.sim.drivers.blocking import PoolSettings
from orderlab.sim.mqtt.broker.persistence import Persistence
from orderlab.sim.systems.device_settings import RedisSettings
from orderlab.sim.systems.prototype import PrototypeSettings, PrototypeSystem
from orderlab.sim.systems.redis_sessions import BlockingRedis, RedisSessions


class JedisSettings(PrototypeSettings, RedisSettings):
    """The pool, by the names of its configuration."""

    threads: int = Field(default=64, ge=1, le=10_000)
    """That call Redis, of the whole broker."""
    max_total: int = Field(default=32, ge=1, le=10_000)
    """Connections per node."""
    command_timeout_s: float = Field(default=30.0, ge=0.001, le=3600)
    max_attempts: int = Field(default=5, ge=1, le=1000)


class JedisSystem(PrototypeSystem[JedisSettings]):
    """The prototype with blocking connections."""

    def _persistence(self, lengths: tuple[int, int]) -> Persistence:
        settings = self.settings
        return BlockingRedis(
            RedisSessions.assemble(self.env, settings, self.costs, lengths),
            PoolSettings(
                settings.threads, settings.max_total, round(settings.command_timeout_s * 1e6),
                attempts=settings.max_attempts,
            ),
            self.host_costs.blocking_call_us,
        )  # fmt: skip
