"""Whole configurations of the simulated broker and schedules of faults: small enough to run in a fraction of a second.

A schedule shrinks to no fault at all, then to the fewest, the earliest and the first target.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from sim.faults import FAULTS

BEGIN_MS, END_MS = 5, 80
"""Within which faults strike: the run publishes for so long."""
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

configurations = st.fixed_dictionaries(
    {
        "publishers": st.integers(1, 8),
        "brokers": st.integers(2, 3),
        "partitions": st.integers(1, 4),
        "redis_nodes": st.integers(2, 3),
        "acks": st.sampled_from(["all", "1"]),
        "idempotent": st.booleans(),
        "lettuce_batch": st.sampled_from([1, 10, 150]),
        "offline_share": st.sampled_from([0.0, 0.5]),
        "scripts": st.sampled_from(["session", "published"]),
    }
).map(lambda drawn: {**SMALLEST, **drawn})
"""Settings for ``sim.systems``; every one is valid."""


class Strike(NamedTuple):
    """One fault of a schedule."""

    at_ms: int
    name: str
    target: int = 0

    def __str__(self) -> str:
        return f"{self.name}@{self.at_ms / 1000:g}:{self.target}"


ANYWHERE = tuple(sorted(name for name, kind in FAULTS.items() if not kind.needs and kind.among != "postgres"))
"""Faults that any configuration can be struck by."""


def strikes(names: Sequence[str] = ANYWHERE) -> st.SearchStrategy[Strike]:
    """A fault of one of these names, against target 0 or 1."""
    return st.builds(Strike, st.integers(BEGIN_MS, END_MS), st.sampled_from(names), st.integers(0, 1))


def schedules(names: Sequence[str] = ANYWHERE, most: int = 3) -> st.SearchStrategy[tuple[Strike, ...]]:
    """Up to ``most`` faults, in order of time."""
    return st.lists(strikes(names), max_size=most).map(lambda found: tuple(sorted(found)))


def written(schedule: Sequence[Strike]) -> str:
    """As ``--set faults=`` takes them."""
    return " ".join(map(str, sorted(schedule)))
