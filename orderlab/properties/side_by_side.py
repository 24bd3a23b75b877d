"""Stores and systems side by side on one workload: what `orderlab compare` puts into its table.

A store's laws are those of its own contract, from a validation at the effort that is named; its costs come from one
workload of its kind, counted on the kernel and priced by the cost model. A system is run in virtual time with a light
load, once without and once with each fault that it can have, and its history is judged. Nothing is timed on this
machine: the same seed and effort give the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.errors import InputError, did_you_mean
from orderlab.model.history.events import EventBatch
from orderlab.model.verdict import Outcome, Verdict
from orderlab.sim.faults import FAULTS
from orderlab.sim.redis.backends import Backend
from orderlab.sim.redis.replies import ErrorReply, Status
from orderlab.sim.systems.catalogue import SYSTEMS, entry, settings_of

KEPT = "kept"
MESSAGES = 100
PAYLOAD = 62
PAGE = 10
LIMIT = 10_000
WAITING = 1_000
"""Messages in whose share of the memory one is measured."""
CALLS_MAX = 8
"""Before each of so many calls of an operation its script is killed, or its node crashes, or its client dies."""
CONDITIONS = ("out-of-memory", "read-only", "too-few-replicas", "disk-error", "slot-migrates")
SCHEMA = 1
LOAD: Mapping[str, Any] = {"publishers": 10_000, "rate": 1.0, "duration_s": 0.4, "warm_up_s": 0.2, "subscribers": 50}
"""What latency and busy nodes are of: much of what the one-node systems can carry, little for the cluster."""
STRUCK: Mapping[str, Any] = {
    "publishers": 60,
    "rate": 20.0,
    "brokers": 2,
    "kafka_brokers": 3,
    "redis_nodes": 3,
    "redis_replica_lag_ms": 100.0,
    "warm_up_s": 0.1,
    "duration_s": 0.9,
    "drain_s": 3.0,
    "offline_share": 0.4,
    "offline_s": 0.3,
    "session_timeout_s": 0.2,
    "request_timeout_s": 0.2,
    "command_timeout_s": 0.2,
    "pack_pause_s": 0.1,
    "expiry_s": 30.0,
    "subscribers": 20,
}
"""What faults strike, as far as a system has the setting: the small system of ``notes/guarantees.md``, whose timeouts
are so short that faults outlast them."""
STRIKES_AT = "0.5"
DRAIN_BOUND_MS = 500
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Cost:
    """Of one message on its way through, and of a queue at the limit; None where nothing can be said."""

    commands: float | None
    """Redis commands, in scripts too; of PostgreSQL statements."""
    bytes: float | None
    """Of commands and replies between client and server, before packets."""
    latency_ms: float | None
    """A store: of one save (of a feed a post, of a job queue an add) on an idle node. A system: mean, from publish to
    delivery; of a feed, of a request."""
    per_s: float | None
    """Messages per second that a node's processor can carry; of PostgreSQL one core's; of a system its busiest node's,
    linearly."""
    blocking_ms: float | None = None
    blocking_by: str = ""
    memory_bytes: float | None = None


@dataclass(frozen=True)
class Row:
    """A store, or a system."""

    name: str
    kind: str
    laws: Mapping[str, str]
    cost: Cost | None
    faults: Mapping[str, str]
    """``kept``, or the laws that fall. A fault that it cannot have is not there."""

    @property
    def broken(self) -> list[str]:
        """The laws that are violated."""
        return [law for law, outcome in self.laws.items() if outcome == Outcome.VIOLATED]

    @property
    def open(self) -> list[str]:
        """The laws of which nothing is known at this effort."""
        return [law for law, outcome in self.laws.items() if outcome == Outcome.UNKNOWN]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Row:
        """What ``asdict`` made of one."""
        cost = data["cost"]
        return cls(data["name"], data["kind"], data["laws"], None if cost is None else Cost(**cost), data["faults"])


@dataclass(frozen=True)
class Table:
    """All of them, and what they rest on."""

    stores: tuple[Row, ...]
    systems: tuple[Row, ...]
    seed: int
    effort: str

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "schema": SCHEMA,
            **asdict(self),
            "stores": [asdict(one) for one in self.stores],
            "systems": [asdict(one) for one in self.systems],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Table:
        """What ``to_json`` made of one."""
        stores, systems = (tuple(map(Row.from_json, data[name])) for name in ("stores", "systems"))
        return cls(stores, systems, data["seed"], data["effort"])


def bytes_of(argv: Sequence[bytes], reply: Any) -> int:
    """Bytes of a command and its reply in RESP2."""
    return len(b"*%d\r\n" % len(argv)) + sum(map(_framed, argv)) + _size(reply)


def _framed(part: bytes) -> int:
    return len(b"$%d\r\n" % len(part)) + len(part) + 2


def _size(reply: Any) -> int:
    match reply:
        case ErrorReply():
            return len(reply.message) + 3
        case Status():
            return len(reply) + 3
        case bytes():
            return _framed(reply)
        case list():
            return len(b"*%d\r\n" % len(reply)) + sum(map(_size, reply))
        case int():
            return len(b":%d\r\n" % reply)
    return 5


def memory_of(backend: Backend) -> int:
    """What MEMORY USAGE says of all keys of a kernel together."""
    told = [
        backend.execute(b"MEMORY", b"USAGE", place if isinstance(place, bytes) else bytes(place[1]), b"SAMPLES", b"0")
        for place in backend.keyspace()
    ]
    return sum(one for one in told if isinstance(one, int))


def system_row(name: str, seed: int, progress: Progress) -> Row:
    """The row of one system."""
    progress("no fault")
    fields = entry(name).settings.model_fields
    report, verdicts = _run(name, {key: value for key, value in LOAD.items() if key in fields}, seed)
    struck_by = {key: value for key, value in STRUCK.items() if key in fields}
    _, small = _run(name, struck_by, seed)
    laws = {verdict.law: str(verdict.outcome) for verdict in (*verdicts, *small) if not verdict.vacuous}
    laws |= {verdict.law: str(verdict.outcome) for verdict in verdicts if verdict.outcome is Outcome.VIOLATED}
    faults = {}
    for fault in FAULTS:
        progress(fault)
        try:
            _, struck = _run(name, {**struck_by, "faults": f"{fault}@{STRIKES_AT}:0"}, seed)
        except InputError:
            continue  # a fault that this system cannot have
        faults[fault] = ", ".join(one.law for one in struck if one.outcome is Outcome.VIOLATED) or KEPT
    busy = max(share for shares in report["utilisation"].values() for share in shares)
    out = report["throughput_per_s"]["out"]
    commands = report["redis_commands_per_s"]["all"]
    latency = report["latency"].get("publish_to_delivery") or report["latency"]["request"]
    cost = Cost(
        commands=commands / out if commands else None, bytes=None,
        latency_ms=latency["mean_ms"], per_s=out / busy,
    )  # fmt: skip
    return Row(name, "system", laws, cost, faults)


def _run(name: str, given: Mapping[str, Any], seed: int) -> tuple[dict[str, Any], Sequence[Verdict]]:
    known = entry(name)
    batches: list[EventBatch] = []
    system = known.assemble(settings_of(name, given), seed, [batches.append])
    report = system.run()
    bound_us = None if known.is_feed else DRAIN_BOUND_MS * 1000  # producers in closed loops leave no queue empty
    verdicts, _ = judge(
        in_memory("run", batches, system.names()), Question(drain_bound_us=bound_us, is_feed=known.is_feed)
    )
    return report, verdicts


def check_systems(names: Sequence[str]) -> None:
    """Raises InputError for a name that no system has."""
    for name in names:
        if name not in SYSTEMS:
            raise InputError(f"--systems {name}: no such system; {did_you_mean(name, tuple(SYSTEMS))}")
