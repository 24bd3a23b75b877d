"""Whole configurations of the simulated broker and schedules of faults: small enough to run in a fraction of a second.

A schedule shrinks to no fault at all, then to the fewest, the earliest and the first target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from orderlab.sim.faults import FAULTS
from orderlab.sim.systems.catalogue import settings_of
from orderlab.sim.systems.tbmq_p2p import P2PSettings

ROUND_MS = 10
"""Moments shrink to multiples of it: nobody would write 237 ms where 240 does as well."""
TICKS_MS = (10, 3)
"""Those of the settings below (``ticks_ms``), which leave the buffers of the system as they are."""
SMALLEST: dict[str, Any] = {
    "publishers": 4,
    "rate": 100,
    "brokers": 2,
    "redis_nodes": 2,
    "kafka_brokers": 2,
    "partitions": 2,
    "warm_up_s": 0.02,
    "duration_s": 0.06,
    "redis_replica_lag_ms": 5,
}
"""Settings of `tbmq-p2p` for a run of about 200 rows of history."""

WAITING: dict[str, Any] = {
    **{
        name: SMALLEST[name]
        for name in ("brokers", "redis_nodes", "kafka_brokers", "partitions", "redis_replica_lag_ms")
    },
    "publishers": 12,
    "rate": 20.0,
    "warm_up_s": 0.1,
    "duration_s": 0.5,
    "drain_s": 2.0,
    "offline_share": 0.8,
    "offline_s": 0.4,
}
"""Most subscribers are away while messages come, so that Redis alone has them: what it loses is lost. About 0.4 s a
run."""


def _of_producer(acks: str, idempotent: bool) -> dict[str, Any]:
    return {"acks": acks, "idempotent": idempotent}


def _flat(drawn: dict[str, Any]) -> dict[str, Any]:
    producer: dict[str, Any] = drawn.pop("producer")
    # Fewer are refused.
    return {**SMALLEST, **producer, **drawn, "partitions": max(drawn["partitions"], drawn["brokers"])}


configurations = st.fixed_dictionaries(
    {
        "publishers": st.integers(1, 8),
        "brokers": st.integers(2, 3),
        "partitions": st.integers(1, 4),
        "redis_nodes": st.integers(2, 3),
        "producer": st.sampled_from([_of_producer("all", False), _of_producer("all", True), _of_producer("1", False)]),
        "lettuce_batch": st.sampled_from([1, 10, 150]),
        "offline_share": st.sampled_from([0.0, 0.5]),
        "scripts": st.sampled_from(["session", "published"]),
    }
).map(_flat)
"""Settings for ``orderlab.sim.systems``; every one is valid."""


class Strike(NamedTuple):
    """One fault of a schedule."""

    at_ms: int
    name: str
    target: int = 0

    def __str__(self) -> str:
        return f"{self.name}@{self.at_ms / 1000:g}:{self.target}"


ANYWHERE = tuple(
    sorted(
        name for name, kind in FAULTS.items() if kind.needs in ("", "two Kafka brokers") and kind.among != "postgres"
    )
)
"""Faults that any of these configurations can be struck by."""


def publishing_ms(settings: Mapping[str, Any]) -> int:
    """For how long a run with these settings publishes: when faults matter."""
    seconds: float = settings["warm_up_s"] + settings["duration_s"]
    return round(1000 * seconds)


def ticks_ms(settings: Mapping[str, Any]) -> tuple[int, ...]:
    """After how long each buffer is flushed in a run with these settings: of Kafka's producers, of the driver of
    Redis."""
    chosen = settings_of("tbmq-p2p", dict(settings))
    assert isinstance(chosen, P2PSettings), chosen
    return tuple(max(round(ms), 1) for ms in (chosen.linger_ms, chosen.flush_ms))


def moments_ms(end_ms: int, ticks: Sequence[int] = TICKS_MS) -> st.SearchStrategy[int]:
    """Moments from 1 to ``end_ms``: round ones, and multiples of a tick; or 1 ms beside these."""

    def moment(unit: int, beside: int, near: int) -> int:
        return min(max(near // unit * unit, unit) + beside, end_ms)

    units = st.sampled_from(list(dict.fromkeys([ROUND_MS, *ticks])))
    return st.builds(moment, units, st.sampled_from([0, -1, 1]), st.integers(1, end_ms))


def strikes(
    names: Sequence[str] = ANYWHERE, end_ms: int = 80, ticks: Sequence[int] = TICKS_MS
) -> st.SearchStrategy[Strike]:
    """A fault of one of these names, against target 0 or 1, before ``end_ms``."""
    return st.builds(Strike, moments_ms(end_ms, ticks), st.sampled_from(names), st.integers(0, 1))


def schedules(
    names: Sequence[str] = ANYWHERE, most: int = 3, end_ms: int = 80, ticks: Sequence[int] = TICKS_MS
) -> st.SearchStrategy[tuple[Strike, ...]]:
    """Up to ``most`` faults, in order of time."""
    return st.lists(strikes(names, end_ms, ticks), max_size=most).map(lambda found: tuple(sorted(found)))


def written(schedule: Sequence[Strike]) -> str:
    """As ``--set faults=`` takes them."""
    return " ".join(map(str, sorted(schedule)))
