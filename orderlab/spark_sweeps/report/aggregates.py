"""The rows of a sweep by point: means with intervals, violations, failures; the tables that a report shows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from orderlab.sim.engine.intervals import Interval, interval_of
from orderlab.spark_sweeps.questions.tables import METRIC, PARAMETER, columns_beside
from orderlab.spark_sweeps.result_folder import ResultFolder
from orderlab.spark_sweeps.rows import PREFIX

TWO_DIGITS = 100.0
"""Milliseconds from which a latency has more than two digits."""


@dataclass
class PointRows:
    """What the replications of one point showed."""

    point: int
    parameters: dict[str, Any]
    metrics: dict[str, list[float]] = field(default_factory=dict)
    runs: int = 0
    failed: int = 0
    violated: int = 0
    confidence: float = 0.95

    def interval(self, metric: str) -> Interval | None:
        """The mean of a metric over the runs that came to their end."""
        values = self.metrics.get(metric)
        return interval_of(values, self.confidence) if values else None


def by_point(folder: ResultFolder, runs: int, metrics: Sequence[str], confidence: float = 0.95) -> list[PointRows]:
    """All points in order; memory grows with points, not with what a row holds."""
    found: dict[int, PointRows] = {}
    for table in folder.tables(runs):
        names = [name for name in table.column_names if name.startswith(PREFIX)]
        for row in table.select(["point", "status", "outcome", "metrics", *names]).to_pylist():
            mine = found.get(row["point"])
            if mine is None:
                given = {name.removeprefix(PREFIX): row[name] for name in names}
                mine = found[row["point"]] = PointRows(row["point"], given, confidence=confidence)
            mine.runs += 1
            mine.failed += row["status"] != "ok"
            mine.violated += row["outcome"] == "violated"
            for name, value in row["metrics"] or ():
                if name in metrics and row["status"] == "ok":
                    mine.metrics.setdefault(name, []).append(value)
    return [found[point] for point in sorted(found)]


def chosen_metrics(folder: ResultFolder, runs: int, most: int = 6) -> list[str]:
    """Metrics worth showing: those that vary before those that do not, latencies and throughput first, then those that
    most runs have.
    """
    low: dict[str, float] = {}
    high: dict[str, float] = {}
    many: Counter[str] = Counter()
    for table in folder.tables(runs, ["metrics"]):
        for metrics in table.column("metrics").to_pylist():
            for name, value in metrics or ():
                many[name] += 1
                if math.isfinite(value):
                    low[name], high[name] = min(low.get(name, value), value), max(high.get(name, value), value)
    return sorted(many, key=lambda name: (not low.get(name, 0) < high.get(name, 0), _rank(name), -many[name], name))[:most]


def varies(points: Sequence[PointRows], metric: str) -> bool:
    """Whether there is anything to draw."""
    return len({value for one in points for value in one.metrics.get(metric, ()) if math.isfinite(value)}) > 1


def _rank(name: str) -> int:
    wanted = ("publish_to_delivery.mean_ms", "publish_to_delivery.p99_ms", "throughput_per_s.out", "publish_to_puback.mean_ms",
              "utilisation.broker.mean", "utilisation.redis.max")  # fmt: skip
    for rank, ending in enumerate(wanted):
        if name.endswith(ending):
            return rank
    return len(wanted) + (0 if "mean_ms" in name else 1)


CLIFF = ("last_below", "ms_there", "first_beyond")


def cliff(points: Sequence[PointRows], axis: str, metric: str) -> list[dict[str, Any]]:
    """Along a numeric axis, for each setting of the others: the last value below TWO_DIGITS ms and the first beyond (a
    failed point is beyond). Nothing, where no point lies beyond, or none below: then there is no such place.
    """
    groups: dict[tuple[Any, ...], list[PointRows]] = {}
    for one in points:
        groups.setdefault(tuple((k, v) for k, v in one.parameters.items() if k != axis), []).append(one)
    rows = []
    for others, mine in groups.items():
        mine = sorted(mine, key=lambda one: one.parameters[axis])
        below = [
            (one, i)
            for one in mine
            if (i := one.interval(metric)) is not None and i.estimate < TWO_DIGITS and not one.failed
        ]
        beyond = [
            one for one in mine if one.failed or ((i := one.interval(metric)) is not None and i.estimate >= TWO_DIGITS)
        ]
        if not below and not beyond:
            continue  # nothing here has that metric
        columns = columns_beside(CLIFF, (name for name, _ in others), PARAMETER)
        rows.append({
            **{columns[name]: value for name, value in others}, "last_below": below[-1][0].parameters[axis] if below else None,
            "ms_there": below[-1][1].estimate if below else None,
            "first_beyond": beyond[0].parameters[axis] if beyond else None,
        })  # fmt: skip
    crossed = any(row["last_below"] is not None for row in rows) and any(row["first_beyond"] is not None for row in rows)
    return rows if crossed else []


COUNTED = ("point", "runs", "failed", "violated")


@dataclass(frozen=True)
class PointColumns:
    """What parameters and metrics are called in a table of points, where both may be called anything. ``ends``: of each metric
    the columns of its number of runs and of both ends of its interval.
    """

    parameters: dict[str, str]
    metrics: dict[str, str]
    ends: dict[str, tuple[str, str, str]]


def point_columns(points: Sequence[PointRows], metrics: Sequence[str]) -> PointColumns:
    """Each name once, whatever users call their own."""
    means = columns_beside(COUNTED, metrics, METRIC)
    ends = [f"{column}.{end}" for column in means.values() for end in ("runs", "low", "high")]
    beside = columns_beside((*COUNTED, *means.values()), ends, "interval")
    names = (name for one in points for name in one.parameters)
    given = columns_beside((*COUNTED, *means.values(), *beside.values()), names, PARAMETER)
    of_metric = {
        metric: (beside[f"{column}.runs"], beside[f"{column}.low"], beside[f"{column}.high"]) for metric, column in means.items()
    }
    return PointColumns(given, means, of_metric)


def points_table(points: Sequence[PointRows], metrics: Sequence[str]) -> pa.Table:
    """One row a point: parameters, runs, failed, violated, and for each metric mean and interval."""
    columns = point_columns(points, metrics)
    rows = []
    for one in points:
        row: dict[str, Any] = {"point": one.point}
        row |= {columns.parameters[name]: value for name, value in one.parameters.items()}
        row |= {"runs": one.runs, "failed": one.failed, "violated": one.violated}
        for metric in metrics:
            found = one.interval(metric)
            runs, low, high = columns.ends[metric]
            row[columns.metrics[metric]] = None if found is None else found.estimate
            row[runs] = 0 if found is None else found.count
            row[low] = None if found is None or math.isinf(found.low) else found.low
            row[high] = None if found is None or math.isinf(found.high) else found.high
        rows.append(row)
    return pa.Table.from_pylist(rows)
