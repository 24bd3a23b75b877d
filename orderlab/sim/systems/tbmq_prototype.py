"""`tbmq-jedis`, `tbmq-lettuce`, `tbmq-postgres`: the one-node prototype with three kinds of session store. Broker,
Kafka, store and the clients of the test are on the cores of one machine.

The published figures of the prototype name one node and no other, so by default everything shares its cores;
``shared_host=false`` gives the broker all of them and every server a machine of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from pydantic import Field

from orderlab.model.errors import InputError
from orderlab.model.history.events import EventKind
from orderlab.sim.costs.cost_model import Costs, HostCosts, load_costs
from orderlab.sim.drivers.blocking import PoolSettings
from orderlab.sim.drivers.jdbc import ConnectionPool, JdbcDriver
from orderlab.sim.engine.clock import Station, Tenant
from orderlab.sim.engine.packs import NUMBER_BYTES
from orderlab.sim.mqtt.ports import Persistence
from orderlab.sim.mqtt.sessions import EPOCH_MS
from orderlab.sim.mqtt.world import World
from orderlab.sim.servers.postgres import CleanUp, PostgresServer, PostgresSessions
from orderlab.sim.servers.postgres_rows import MessageRow
from orderlab.sim.servers.redis import RedisNode
from orderlab.sim.systems.devices import DeviceSystem
from orderlab.sim.systems.progress import SimulationProgress
from orderlab.sim.systems.redis_sessions import BlockingRedis, PipelinedRedis, RedisSessions
from orderlab.sim.systems.settings import RATE_MIN, DeviceSettings, PipelinedSettings, RedisSettings


class PrototypeSettings(DeviceSettings):
    """What the prototype has otherwise than the cluster."""

    publishers: int = Field(default=2_000, ge=1, le=2_000_000)
    rate: float = Field(default=10.0, ge=RATE_MIN, le=1000, allow_inf_nan=False)
    broker_cores: int = Field(default=12, ge=1, le=1024)
    kafka_brokers: int = Field(default=1, ge=1, le=100)
    linger_ms: float = Field(default=5.0, ge=0, le=10_000)
    costs: str = "prototype"
    shared_host: bool = True
    """Whether all processes share the cores of the broker's machine."""
    warm_up_s: float = Field(default=0.3, ge=0, le=3600)
    duration_s: float = Field(default=0.8, ge=0.001, le=86_400)


P = TypeVar("P", bound=PrototypeSettings)


class PrototypeSystem(DeviceSystem[P]):
    """A system on one machine."""

    def _costs(self) -> Costs:
        costs = load_costs(self.settings.costs)
        if costs.host is None:
            raise InputError(f"costs {self.settings.costs}: this system needs a table [host]; see prototype.toml")
        self.host_costs: HostCosts = costs.host
        self.machine = Station(self.settings.broker_cores)
        other_us = costs.host.other_us / 2 if self.settings.shared_host else 0.0
        broker = costs.broker.model_copy(
            update={"ingest_us": costs.broker.ingest_us + other_us, "deliver_us": costs.broker.deliver_us + other_us}
        )
        return costs.model_copy(update={"broker": broker})

    def _station(self, kind: str, cores: int) -> Station:
        return Tenant(self.machine) if self.settings.shared_host else Station(cores)

    def _start(self, world: World, persistence: Persistence) -> None:
        if self.settings.shared_host:
            world.kafka.cluster.stations = [Tenant(self.machine) for _ in world.kafka.cluster.stations]
            for node in world.storage.nodes:
                node.cpu = Tenant(self.machine)
            world.measured.other_stations["machine"] = self.machine
        super()._start(world, persistence)


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


class LettuceSettings(PrototypeSettings, PipelinedSettings):
    """Batching is optional; ``lettuce_batch=1`` is none."""


class LettuceSystem(PrototypeSystem[LettuceSettings]):
    """The prototype with a pipeline."""

    def _persistence(self, lengths: tuple[int, int]) -> Persistence:
        return PipelinedRedis.assemble(self.env, self.settings, self.costs, lengths)


class PostgresSettings(PrototypeSettings):
    """The pool and the server."""

    maximum_pool_size: int = Field(default=64, ge=1, le=10_000)
    connection_timeout_s: float = Field(default=30.0, ge=0.001, le=3600)
    saves_per_transaction: int = Field(default=1, ge=1, le=10_000)
    """Calls that are submitted together and share a transaction."""
    postgres_cores: int = Field(default=12, ge=1, le=1024)
    """Of its own machine, with ``shared_host=false``."""
    synchronous_commit: bool = True
    clean_up_s: float = Field(default=1.0, ge=0.001, le=86_400)
    """Between two passes of the clean-up."""
    message_expiry_s: int = Field(default=604_800, ge=1)


@dataclass(frozen=True)
class PostgresPersistence:
    """Store, server, pool."""

    store: PostgresSessions
    server: PostgresServer
    settings: ConnectionPool
    call_us: float
    nodes: list[RedisNode] = field(default_factory=list)

    def driver(self, cpu: Station, one_way_us: Callable[[], int]) -> JdbcDriver:
        """``cpu`` works for every round trip."""
        return JdbcDriver(self.server.env, self.server, self.settings, one_way_us, cpu, self.call_us)


class PostgresSystem(PrototypeSystem[PostgresSettings]):
    """The prototype with PostgreSQL."""

    def _persistence(self, lengths: tuple[int, int]) -> Persistence:
        settings = self.settings
        if self.costs.postgres is None:
            raise InputError(f"costs {settings.costs}: this system needs a table [postgres]; see prototype.toml")
        self.server = PostgresServer(
            self.env, self.costs.postgres, self._station("postgres", settings.postgres_cores), EPOCH_MS,
            settings.synchronous_commit,
        )  # fmt: skip
        self.store = PostgresSessions(settings.limit, settings.qos, settings.payload_bytes, settings.message_expiry_s)
        pool = ConnectionPool(
            settings.maximum_pool_size, round(settings.connection_timeout_s * 1e6), settings.saves_per_transaction
        )
        return PostgresPersistence(self.store, self.server, pool, self.host_costs.blocking_call_us)

    def _start(self, world: World, persistence: Persistence) -> None:
        world.storage.databases.append(self.server)
        world.measured.other_stations["postgres"] = self.server.cpu
        self._subscriber_of = {
            world.traffic.subscribers.name(number): number for number in range(len(world.traffic.subscribers))
        }
        self.clean_up = CleanUp(self.server, self.store, round(self.settings.clean_up_s * 1e6), self._removed)
        self.env.process(self.clean_up.run())
        super()._start(world, persistence)

    def _removed(self, row: MessageRow, has_expired: bool) -> None:
        """Tell the history that clean-up has taken a message out of a queue, or it would look lost."""
        world = self.world
        message = int(row.payload[:NUMBER_BYTES] or -1)
        if message < 0:
            return  # a PUBREL: the message itself has been received
        world.measured.count("expired" if has_expired else "trimmed")
        rows = np.array([(message, self._subscriber_of[row.client_id], row.packet_id, 0)], np.int64)
        kind = EventKind.EXPIRE if has_expired else EventKind.TRIM
        self.brokers[0].delivery.record(kind, rows, np.array([int(self.env.now)]), -1)

    def run(self, on_progress: Callable[[SimulationProgress], None] | None = None) -> dict[str, Any]:
        """The report, with what the server did in the measured interval."""
        report = super().run(on_progress)
        assert self.measured is not None, "a run that is over was measured"
        seconds, (rows, transactions, flushes, log_us) = self.measured.at_us / 1e6, self.measured.databases
        return {
            **report,
            "postgres": {
                "rows_inserted_per_s": round(rows / seconds),
                "transactions_per_s": round(transactions / seconds),
                "log_flushes_per_s": round(flushes / seconds),
                "transactions_per_flush": round(transactions / max(flushes, 1), 2),
                "log_busy": round(min(log_us / self.measured.at_us, 1.0), 4),
                "clean_up_passes": self.clean_up.passes,
            },
        }
