"""The systems that can be simulated, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from orderlab.model.errors import InputError, did_you_mean
from orderlab.model.history.events import EventBatch
from orderlab.sim.feed.settings import LuaSettings, RaceSettings, ZaqarSettings
from orderlab.sim.feed.system import ZaqarSystem
from orderlab.sim.streams.settings import StreamsSettings
from orderlab.sim.streams.system import StreamsSystem
from orderlab.sim.systems import tbmq_application, tbmq_fan_out, tbmq_p2p, tbmq_prototype
from orderlab.sim.systems.settings import Settings, make_settings
from orderlab.sim.systems.system import AssembledSystem

Sink = Callable[[EventBatch], None]


@dataclass(frozen=True)
class SystemEntry:
    """A system: what it is, its settings, how to assemble it."""

    summary: str
    settings: type[Settings]
    rows: Mapping[str, Mapping[str, Any]]
    assemble: Callable[[Any, int, list[Sink]], AssembledSystem[Any]]
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
        ZaqarSettings,
        {},
        ZaqarSystem,
        is_feed=True,
        has_rate=False,
    ),
    "zaqar-lua": SystemEntry(
        "the same feed: hashes first, then a script takes ranks and counter",
        LuaSettings,
        {},
        ZaqarSystem,
        is_feed=True,
        has_rate=False,
    ),
    "zaqar-race": SystemEntry(
        "the same feed without a cure: what is posted can appear behind a marker",
        RaceSettings,
        {},
        ZaqarSystem,
        is_feed=True,
        has_rate=False,
    ),
    "emqx-streams": SystemEntry(
        "durable streams: replicated shards of an ordered store, wildcard readers that follow by iterators",
        StreamsSettings,
        {},
        StreamsSystem,
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
