"""`tbmq-p2p`: the cluster of the published measurement, each publisher with a subscriber of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from orderlab.sim.mqtt.ports import Persistence
from orderlab.sim.systems.devices import DeviceSystem
from orderlab.sim.systems.redis_sessions import PipelinedRedis
from orderlab.sim.systems.settings import RATE_MIN, PipelinedSettings

ROWS: Mapping[str, Mapping[str, Any]] = {
    name: {
        "publishers": publishers, "brokers": brokers, "redis_nodes": redis_nodes, "kafka_brokers": kafka_brokers,
        "partitions": partitions, "lettuce_batch": batch, "rate": 1.0,
    }
    for name, publishers, brokers, redis_nodes, kafka_brokers, partitions, batch in (
        ("200k", 100_000, 1, 3, 3, 12, 150),
        ("400k", 200_000, 2, 5, 3, 12, 250),
        ("600k", 300_000, 3, 7, 3, 12, 300),
        ("800k", 400_000, 4, 9, 3, 16, 400),
        ("1m", 500_000, 5, 11, 5, 20, 500),
    )
}  # fmt: skip
"""The published rows: msg/s in and out."""


class P2PSettings(PipelinedSettings):
    """The knobs of the measurement, by the names of the published tables. By default the load of the row 200k comes of
    fewer publishers, who publish more than once in a short run: else it would test no order."""

    publishers: int = Field(default=10_000, ge=1, le=2_000_000)
    rate: float = Field(default=10.0, ge=RATE_MIN, le=1000, allow_inf_nan=False)


class P2PSystem(DeviceSystem[P2PSettings]):
    """The cluster: Redis through one pipeline per broker and node."""

    def _persistence(self, lengths: tuple[int, int]) -> Persistence:
        return PipelinedRedis.assemble(self.env, self.settings, self.costs, lengths)
