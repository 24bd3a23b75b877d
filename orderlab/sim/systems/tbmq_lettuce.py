"""`tbmq-lettuce`: the prototype with sessions in Redis behind Lettuce: one shared connection per node."""

from __future__ import annotations

from pydantic import Field

from orderlab.sim.drivers.pipelined import PipelineSettings
from orderlab.sim.mqtt.broker.persistence import Persistence
from orderlab.sim.systems.device_settings import RedisSettings
from orderlab.sim.systems.prototype import PrototypeSettings, PrototypeSystem
from orderlab.sim.systems.redis_sessions import PipelinedRedis, RedisSessions


class LettuceSettings(PrototypeSettings, RedisSettings):
    """Batching is optional; ``lettuce_batch=1`` is none."""

    lettuce_batch: int = Field(default=150, ge=1, le=100_000)
    flush_ms: float = Field(default=3.0, ge=0.001, le=10_000)
    command_timeout_s: float = Field(default=30.0, ge=0.001, le=3600)


class LettuceSystem(PrototypeSystem[LettuceSettings]):
    """The prototype with a pipeline."""

    def _persistence(self, lengths: tuple[int, int]) -> Persistence:
        settings = self.settings
        return PipelinedRedis(
            RedisSessions.assemble(self.env, settings, self.costs, lengths),
            PipelineSettings(
                settings.lettuce_batch, round(settings.flush_ms * 1000), command_timeout_us=round(settings.command_timeout_s * 1e6)
            ),
        )
