"""Independent replications of a run: their seeds, and means with intervals over their reports.

A number of a report is one observation of each replication; replications share no random stream, so the observations are
independent and the interval holds whatever the autocorrelation within a run (Law, Simulation Modeling and Analysis, 9.4).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from orderlab.model.verdict import Outcome, Verdict, overall
from orderlab.sim.engine.intervals import interval_of


def replication_seed(seed: int, number: int) -> int:
    """The seed of replication ``number``. The first one is the run that ``seed`` alone gives."""
    if number == 0:
        return seed
    digest = blake2b(f"{seed}\0replication\0{number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 11  # 53 bits: exact in JSON, whoever reads it


def means(reports: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """For every number that all reports have, by its path: mean, both ends of its 95 % interval (`orderlab.sim.engine.intervals`) and its
    longer half (None for one report), least, greatest."""
    observed = [dict(_numbers(report)) for report in reports]
    shared = [path for path in observed[0] if all(path in other for other in observed)]
    found = {}
    for path in shared:
        values = np.array([other[path] for other in observed])
        interval = interval_of(values.tolist()) if len(values) > 1 else None
        is_told = interval is not None and math.isfinite(interval.half_width)
        ends = (interval.low, interval.high, interval.half_width) if interval is not None and is_told else (None, None, None)
        low, high, half = (None if end is None else _round(end) for end in ends)
        found[path] = {
            "mean": _round(values.mean()), "half_width": half, "low": low, "high": high,
            "min": float(values.min()), "max": float(values.max()),
        }  # fmt: skip
    return found


def _numbers(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _numbers(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for place, inner in enumerate(value):
            yield from _numbers(inner, f"{path}[{place}]")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, float(value)


def joint_verdicts(runs: Sequence[tuple[int, Sequence[Verdict]]]) -> list[dict[str, Any]]:
    """Per law the worst outcome over the runs that put it to the test, how often each came ("vacuous" where it was not),
    and the first run that has that outcome, unless it holds, by its seed. A law that no run tests is unknown, vacuous.
    """
    by_law: dict[str, list[tuple[int, Verdict]]] = {}
    for seed, verdicts in runs:
        for verdict in verdicts:
            by_law.setdefault(verdict.law, []).append((seed, verdict))
    joint = []
    for law, told in by_law.items():
        outcome = overall(verdict for _, verdict in told)
        vacuous = all(verdict.vacuous for _, verdict in told)
        first = next((seed for seed, verdict in told if verdict.outcome is outcome and verdict.vacuous == vacuous), None)
        joint.append({
            "law": law, "outcome": str(outcome), "vacuous": vacuous,
            "runs": dict(Counter("vacuous" if verdict.vacuous else str(verdict.outcome) for _, verdict in told)),
            "seed": None if outcome is Outcome.HOLDS else first,
        })  # fmt: skip
    return joint


def _round(value: float) -> float:
    return float(f"{value:.4g}")
