"""Whole configurations of the simulated broker and schedules of faults: small enough to run in a fraction of a second.

A schedule shrinks to no fault at all, then to the fewest, the earliest and the first target.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from sim.faults import FAULTS, NEEDS_TWO_BROKERS, Fault

BEGIN_MS, END_MS = 5, 80
"""Within which faults strike: the run publishes for so long."""
SMALLEST: dict[str, Any] = {
    "publishers": 4,
    "rate": 100,
    "redis_nodes": 1,
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
        "redis_nodes": st.integers(1, 3),
        "acks": st.sampled_from(["all", "1"]),
        "idempotent": st.booleans(),
        "lettuce_batch": st.sampled_from([1, 10, 150]),
        "offline_share": st.sampled_from([0.0, 0.5]),
        "scripts": st.sampled_from(["session", "published"]),
    }
).map(lambda drawn: {**SMALLEST, **drawn})
"""Settings for ``sim.systems``; every one is valid."""


def schedules(names: Sequence[str] = tuple(sorted(FAULTS)), most: int = 3) -> st.SearchStrategy[tuple[Fault, ...]]:
    """Up to ``most`` faults of these names, in order of time, against target 0 or 1."""
    fault = st.builds(
        Fault, st.sampled_from(names), st.integers(BEGIN_MS, END_MS).map(lambda ms: ms * 1000), st.integers(0, 1)
    )
    return st.lists(fault, max_size=most).map(lambda faults: tuple(sorted(faults, key=lambda one: (one.at_us, str(one)))))


def written(faults: Sequence[Fault]) -> str:
    """As ``--set faults=`` takes them."""
    return " ".join(map(str, faults))


ONE_BROKER_IS_ENOUGH = tuple(sorted(set(FAULTS) - NEEDS_TWO_BROKERS))
