"""The systems that can be simulated, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from orderlab.model.errors import InputError, did_you_mean
from orderlab.model.history.events import EventBatch, Names
from orderlab.sim.systems import emqx_streams, tbmq_application, tbmq_fan_out, tbmq_p2p, tbmq_prototype, zaqar
from orderlab.sim.systems.running import SimulationProgress
from orderlab.sim.systems.series import Series, Slices
from orderlab.sim.systems.settings import Settings, make_settings

Sink = Callable[[EventBatch], None]


class System(Protocol):
    """An assembled system that runs once."""

    def names(self) -> Names:
        """The names behind the codes of the history."""

    def run(self, on_progress: Callable[[SimulationProgress], None] | None = None) -> dict[str, Any]:
        """Run to the end; the report."""

    @property
    def digest(self) -> str:
        """Digest of the bytes of the history."""

    @property
    def series(self) -> Series | Slices:
        """The run over time."""

    @property
    def world(self) -> Any:
        """The parts of the system, with what they have measured."""

    def is_quiet(self) -> bool:
        """Whether all that was published has been delivered and acknowledged."""

    def is_drained(self) -> bool:
        """Whether nothing is under way, and nothing was lost for want of room; what nobody is owed is not missed."""


@dataclass(frozen=True)
class SystemEntry:
    """A system: what it is, its settings, how to assemble it."""

    summary: str
    settings: type[Settings]
    rows: Mapping[str, Mapping[str, Any]]
    assemble: Callable[[Any, int, list[Sink]], System]
    is_feed: bool = False
    """Producers post to feeds, in closed loops, and readers follow a marker."""
    has_rate: bool = True
    """Messages are due at a rate, whoever waits, and a run can be traced."""


SYSTEMS: dict[str, SystemEntry] = {
    "tbmq-p2p": SystemEntry(
        "the cluster measurement: each publisher to its own subscriber, QoS 1, Redis through one pipeline per node",
        tbmq_p2p.P2PSettings,
        tbmq_p2p.ROWS,
        tbmq_p2p.P2PSystem,
    ),
    "tbmq-postgres": SystemEntry(
        "the one-node prototype with two tables of PostgreSQL behind a pool of connections",
        tbmq_prototype.PostgresSettings,
        {},
        tbmq_prototype.PostgresSystem,
    ),
    "tbmq-jedis": SystemEntry(
        "the one-node prototype with Redis behind blocking connections",
        tbmq_prototype.JedisSettings,
        {},
        tbmq_prototype.JedisSystem,
    ),
    "tbmq-lettuce": SystemEntry(
        "the one-node prototype with Redis behind one pipeline per node",
        tbmq_prototype.LettuceSettings,
        {},
        tbmq_prototype.LettuceSystem,
    ),
    "tbmq-application": SystemEntry(
        "fan-in: many devices, a few persistent applications and groups that share a subscription, each on a "
        "Kafka topic",
        tbmq_application.ApplicationSettings,
        {},
        tbmq_application.ApplicationSystem,
    ),
    "tbmq-fan-out": SystemEntry(
        "fan-out: a few publishers, thousands of subscribers with a wildcard that takes all, QoS 0, no store",
        tbmq_fan_out.FanOutSettings,
        {},
        tbmq_fan_out.FanOutSystem,
    ),
    "zaqar-watch": SystemEntry(
        "a feed in Redis behind a web head: posts watch the counter of ranks and begin again on a conflict",
        zaqar.ZaqarSettings,
        {},
        zaqar.ZaqarSystem,
        is_feed=True,
        has_rate=False,
    ),
    "zaqar-lua": SystemEntry(
        "the same feed: hashes first, then a script takes ranks and counter",
        zaqar.LuaSettings,
        {},
        zaqar.ZaqarSystem,
        is_feed=True,
        has_rate=False,
    ),
    "zaqar-race": SystemEntry(
        "the same feed without a cure: what is posted can appear behind a marker",
        zaqar.RaceSettings,
        {},
        zaqar.ZaqarSystem,
        is_feed=True,
        has_rate=False,
    ),
    "emqx-streams": SystemEntry(
        "durable streams: replicated shards of an ordered store, wildcard readers that follow by iterators",
        emqx_streams.StreamsSettings,
        {},
        emqx_streams.StreamsSystem,
        is_feed=True,
    ),
}


def entry(name: str) -> SystemEntry:
    """The system of that name. Raises InputError."""
    if name not in SYSTEMS:
        raise InputError(f"simulate {name}: no such system; {did_you_mean(name, tuple(SYSTEMS))}")
    return SYSTEMS[name]


def settings_of(name: str, given: Mapping[str, Any]) -> Settings:
    """Checked settings of a system. Raises InputError."""
    found = entry(name)
    return make_settings(found.settings, given, found.rows, name)
