"""`tbmq-postgres`: the prototype with sessions in two tables of PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic import Field

from orderlab.model.errors import InputError
from orderlab.model.history.events import EventKind
from orderlab.sim.drivers.jdbc import ConnectionPool, JdbcDriver
from orderlab.sim.engine.stations import Station
from orderlab.sim.mqtt.broker.persistence import Persistence
from orderlab.sim.mqtt.sessions import EPOCH_MS, NUMBER_BYTES
from orderlab.sim.mqtt.world import Fabric
from orderlab.sim.servers.postgres.server import PostgresServer
from orderlab.sim.servers.postgres.session_store import CleanUp, PostgresSessions
from orderlab.sim.servers.postgres.tables import MessageRow
from orderlab.sim.servers.redis import RedisNode
from orderlab.sim.systems.progress import Progress
from orderlab.sim.systems.prototype import PrototypeSettings, PrototypeSystem


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

    def _start(self, fabric: Fabric, persistence: Persistence) -> None:
        fabric.databases.append(self.server)
        fabric.other_stations["postgres"] = self.server.cpu
        self._subscriber_of = {fabric.subscribers.name(number): number for number in range(len(fabric.subscribers))}
        self.clean_up = CleanUp(self.server, self.store, round(self.settings.clean_up_s * 1e6), self._removed)
        self.env.process(self.clean_up.run())
        super()._start(fabric, persistence)

    def _removed(self, row: MessageRow, has_expired: bool) -> None:
        """Clean-up has taken a message out of a queue: the history says so, or it would look lost."""
        fabric = self.fabric
        message = int(row.payload[:NUMBER_BYTES] or -1)
        if message < 0:
            return  # a PUBREL: the message itself has been received
        fabric.count("expired" if has_expired else "trimmed")
        rows = np.array([(message, self._subscriber_of[row.client_id], row.packet_id, 0)], np.int64)
        kind = EventKind.EXPIRE if has_expired else EventKind.TRIM
        fabric.brokers[0].delivery.record(kind, rows, np.array([int(self.env.now)]), -1)

    def run(self, on_progress: Callable[[Progress], None] | None = None) -> dict[str, Any]:
        """The report, with what the server has done since the start."""
        report = super().run(on_progress)
        server, seconds = self.server, self.env.now / 1e6
        flushes = max(server.log.flushes, 1)
        return {
            **report,
            "postgres": {
                "rows_inserted_per_s": round(server.rows_inserted / seconds),
                "transactions_per_s": round(server.transactions / seconds),
                "log_flushes_per_s": round(server.log.flushes / seconds),
                "transactions_per_flush": round(server.transactions / flushes, 2),
                "log_busy": round(server.log.busy_us / self.env.now, 4),
                "clean_up_passes": self.clean_up.passes,
            },
        }
