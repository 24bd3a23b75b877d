"""The rows of a sweep: one per run and attempt, and what they come to by point.

Runs: all under one Arrow schema that depends only on the varied parameters. Points: which replications each still
wants, means with intervals, and the tables that a report shows.

A point begins with ``first`` replications. When all of them are done, the half-width of the mean's interval is compared
with the target, and if it is too wide the point gets half as many again, up to ``replications.count``. The decision
depends on nothing but the rows of the point itself, so that engine, chunks, order and interruptions do not change which
runs there are. Looking several times chooses among as many intervals as there can be looks, so the error is divided
among them (`confidence_of`): however a point came to its end, its interval holds the mean as often as it says.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orderlab.model.errors import InputError, did_you_mean
from orderlab.sim.engine.statistics import Interval, interval_of
from orderlab.spark_sweeps.results.folder import ResultFolder
from orderlab.spark_sweeps.runs.isolation import Ended
from orderlab.spark_sweeps.runs.subject import Observed
from orderlab.spark_sweeps.sweep_file.plan import Plan, Run
from orderlab.spark_sweeps.sweep_file.specification import SweepFile, Until

MEASURED = ("wall_s", "cpu_s", "peak_memory_mib")
"""Columns that differ from machine to machine and run to run; every other column is a function of file, code and
seed."""
LEFT_OUT = (*MEASURED, "attempt", "replay")
"""Of the digest of a row: a command may name the folder, and says nothing that the other columns do not."""
PREFIX = "parameter."
DERIVED_LOOKED_AT = 100
"""So many values of a derived parameter decide on the type of its column."""

SCHEMA_HEAD = [
    pa.field("run", pa.int64(), nullable=False),
    pa.field("point", pa.int64(), nullable=False),
    pa.field("replication", pa.int32(), nullable=False),
    pa.field("attempt", pa.int32(), nullable=False),
    pa.field("seed", pa.int64(), nullable=False),
]
SCHEMA_TAIL = [
    pa.field("status", pa.string(), nullable=False),  # ok, error, timeout, memory, killed
    pa.field("error", pa.string()),
    pa.field("outcome", pa.string()),  # holds, violated, unknown; null where nothing was judged
    pa.field("vacuous", pa.bool_()),  # no law was tested, and nothing else is unknown
    pa.field("settled", pa.bool_()),  # whether its warm-up had ended when measurement began; null where nobody knows
    pa.field("verdicts", pa.map_(pa.string(), pa.string())),
    pa.field("witnesses", pa.string()),  # JSON by law
    pa.field("metrics", pa.map_(pa.string(), pa.float64())),
    pa.field("history_digest", pa.string()),
    pa.field("history_rows", pa.int64()),
    pa.field("history_file", pa.string()),
    pa.field("code_digest", pa.string(), nullable=False),
    pa.field("scripts_digest", pa.string(), nullable=False),
    pa.field("subject_digest", pa.string(), nullable=False),  # of the user's module or cost model
    pa.field("sweep_digest", pa.string(), nullable=False),  # of the manifest: to which sweep the row belongs
    pa.field("replay", pa.string(), nullable=False),
    pa.field("row_digest", pa.string(), nullable=False),  # of all columns but LEFT_OUT
    pa.field("wall_s", pa.float64()),
    pa.field("cpu_s", pa.float64()),
    pa.field("peak_memory_mib", pa.float64()),
]


def schema_of(plan: Plan) -> pa.Schema:
    """The schema of a sweep: a column for each varied parameter, of the type that all its values have in common."""
    varied = []
    rows = plan.sweep.design.rows
    for name in plan.parameter_names:
        if rows is not None and name not in plan.sweep.derived:
            values: Iterable[Any] = [row[name] for row in rows if name in row]
        elif name in plan.sweep.axes:
            axis = plan.sweep.axes[name]
            values = axis.listed() if axis.has_list else (axis.at(0.5),)
            if name in plan.sweep.base:
                values = (*values, plan.sweep.base[name])
        else:
            values = _some_derived(plan, name)
        varied.append(pa.field(PREFIX + name, _common_type(values)))
    return pa.schema([*SCHEMA_HEAD, *varied, *SCHEMA_TAIL])


def _some_derived(plan: Plan, name: str) -> Iterator[Any]:
    for number in range(0, len(plan), max(1, len(plan) // DERIVED_LOOKED_AT)):
        with contextlib.suppress(InputError):  # such a run becomes a row with its error
            yield plan.run(number).parameters[name]


def _common_type(values: Iterable[Any]) -> pa.DataType:
    """bool, int64 or float64; text where there is any, or a whole number that 64 bits do not hold."""
    values = list(values)
    kinds = {type(value) for value in values}
    if any(type(value) is int and not -(2**63) <= value < 2**63 for value in values):
        return pa.string()  # exactly as it was given, which no number of 64 bits is
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64()
    return pa.float64() if kinds and kinds <= {int, float} else pa.string()


def row_of(
    plan: Plan, run: Run, ended: Ended[Observed], attempt: int, digests: Mapping[str, str], replay: str
) -> dict[str, Any]:
    """The row of a run, by column."""
    observed = ended.result or Observed({})
    metrics = {
        storable(name): value
        for name, value in sorted(observed.metrics.items())
        if any(fnmatchcase(name, pattern) for pattern in plan.sweep.record.metrics)
    }
    row = {
        "run": run.number,
        "point": run.point,
        "replication": run.replication,
        "attempt": attempt,
        "seed": run.seed,
        "status": ended.status,
        "error": None if ended.error is None else storable(ended.error),
        "outcome": observed.outcome if observed.verdicts else None,
        "vacuous": observed.vacuous if ended.status == "ok" else None,
        "settled": observed.settled,
        "verdicts": sorted((storable(law), verdict) for law, verdict in observed.verdicts.items()),
        "metrics": list(metrics.items()),
        "witnesses": json.dumps(observed.witnesses, sort_keys=True) if observed.witnesses else None,
        "history_digest": observed.history_digest,
        "history_rows": observed.history_rows,
        "history_file": observed.history_file,
        **digests,
        "replay": storable(replay),
        **{name: getattr(ended.usage, name) for name in MEASURED},
    }
    for name in plan.parameter_names:
        row[PREFIX + name] = run.parameters.get(name)
    return {**row, "row_digest": _digest_of_row(row)}


def kind_of_failure(status: str, error: str | None) -> str:
    """What failures are counted by: the exception's type, or how the process ended."""
    return (error or status).partition(": ")[0][:80] if status in ("error", "killed", "memory") else status


def counted_kinds(kinds: Mapping[str, int]) -> str:
    """Failures by kind, the most frequent first."""
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items(), key=lambda one: (-one[1], one[0])))


def storable(text: str) -> str:
    """Text of a run's, as UTF-8 can hold it: Python has strings that no file takes."""
    return text.encode("utf-8", "backslashreplace").decode()


def table_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows as an Arrow table under the schema; values take the type of their column."""
    columns = []
    for column in schema:
        values = [row[column.name] for row in rows]
        if pa.types.is_string(column.type):
            values = [None if value is None else str(value) for value in values]
        try:
            columns.append(pa.array(values, column.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise InputError(f"{column.name}: not {column.type} in every run ({error}); give it one type") from None
    return pa.Table.from_arrays(columns, schema=schema)


def _digest_of_row(row: Mapping[str, Any]) -> str:
    """Of all columns but `LEFT_OUT`."""
    told = {name: value for name, value in row.items() if name not in LEFT_OUT}
    content = json.dumps(told, sort_keys=True, separators=(",", ":"), default=list)
    return blake2b(content.encode(), digest_size=16).hexdigest()


def combined(digests: Iterable[str], so_far: int = 0) -> int:
    """The digest of a set of rows, whatever their order: the sum of theirs modulo 2^128."""
    return sum((int(digest, 16) for digest in digests), so_far) % 2**128


PARAMETER, METRIC = "parameter", "metric"
"""What a column is of that cannot be called as its parameter or metric is."""


def columns_beside(taken: Collection[str], names: Iterable[str], kind: str) -> dict[str, str]:
    """Name -> its column in a table that has the columns ``taken``: the name itself, or ``parameter.NAME`` where
    another column is called so. Users name parameters and metrics as they like, and no column may hide another.
    """
    names = list(dict.fromkeys(names))
    used = {*taken, *names}
    found = {}
    for name in names:
        column = name
        while column in taken or (column != name and column in used):
            column = f"{kind}.{column}"
        used.add(column)
        found[name] = column
    return found


def wanted_runs(plan: Plan, folder: ResultFolder) -> np.ndarray:
    """Whether each run of the plan is to be done, as far as is known now. Raises InputError for a metric that runs
    do not have.
    """
    until, count = plan.sweep.replications.until, plan.sweep.replications.count
    if until is None:
        return np.ones(len(plan), np.bool_)
    done, values = _values(plan, folder, until.metric)
    wanted = np.zeros((plan.points, count), np.bool_)
    sizes, confidence = _sizes(until.first, count), confidence_of(plan.sweep, until.confidence)
    for point in range(plan.points):
        for size in sizes:
            if not done[point, :size].all() or size == count or _is_precise(values[point, :size], until, confidence):
                wanted[point, :size] = True
                break
    return wanted.reshape(-1)


def _sizes(first: int, count: int) -> list[int]:
    sizes = [min(first, count)]
    while sizes[-1] < count:
        sizes.append(min(count, -(-3 * sizes[-1] // 2)))
    return sizes


def confidence_of(sweep: SweepFile, confidence: float = 0.95) -> float:
    """The confidence of each interval of a sweep so that they hold with ``confidence`` at whatever look its points came
    to their end."""
    until = sweep.replications.until
    looks = 1 if until is None else len(_sizes(until.first, sweep.replications.count))
    return 1 - (1 - confidence) / looks


def _is_precise(values: np.ndarray, until: Until, confidence: float) -> bool:
    """Failed runs have no value; where fewer than two have one, nothing is known."""
    known = values[~np.isnan(values)]
    if len(known) < 2:
        return False
    found = interval_of(known, confidence)
    if not math.isfinite(found.half_width):
        return False  # of an infinite mean any half-width is a small share
    return (found.high - found.low) / 2 <= until.half_width * abs(found.estimate)


def _values(plan: Plan, folder: ResultFolder, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """(is done, value of the metric or nan) by point and replication."""
    done, values = np.zeros(len(plan), np.bool_), np.full(len(plan), np.nan)
    for table in folder.tables(len(plan), ["status", "metrics"]):
        runs = table.column("run").to_numpy()
        done[runs] = True
        ok = pc.equal(table.column("status"), "ok")
        ended = table.filter(ok)
        found = pc.map_lookup(ended.column("metrics"), metric, "first")
        if found.null_count:
            names = tuple(name for name, _ in ended.filter(pc.is_null(found)).column("metrics")[0].as_py())
            raise InputError(
                f'{plan.place}: replications.until.metric: no metric "{metric}"; {did_you_mean(metric, names)}'
            )
        told = found.to_numpy()
        values[runs[ok.to_numpy()]] = np.where(np.isnan(told), np.inf, told)  # no number: no mean is known with it
    shape = (plan.points, plan.sweep.replications.count)
    return done.reshape(shape), values.reshape(shape)


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
    """All points in order; memory grows with points and metrics, not with what else a row holds. Values lie in the
    order of replications: sums of floating point differ with theirs, and files come in any.
    """
    found: dict[int, PointRows] = {}
    told: dict[int, dict[str, list[tuple[int, float]]]] = {}
    for table in folder.tables(runs):
        names = [name for name in table.column_names if name.startswith(PREFIX)]
        for row in table.select(["point", "replication", "status", "outcome", "metrics", *names]).to_pylist():
            mine = found.get(row["point"])
            if mine is None:
                given = {name.removeprefix(PREFIX): row[name] for name in names}
                mine = found[row["point"]] = PointRows(row["point"], given, confidence=confidence)
            mine.runs += 1
            mine.failed += row["status"] != "ok"
            mine.violated += row["outcome"] == "violated"
            for name, value in row["metrics"] or ():
                if name in metrics and row["status"] == "ok":
                    told.setdefault(row["point"], {}).setdefault(name, []).append((row["replication"], value))
    for point, metrics_there in told.items():
        found[point].metrics = {name: [value for _, value in sorted(values)] for name, values in metrics_there.items()}
    return [found[point] for point in sorted(found)]


METRICS_SHOWN = 6
"""Of a report, unless it names them."""


def chosen_metrics(folder: ResultFolder, runs: int) -> list[str]:
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
    return sorted(many, key=lambda name: (not low.get(name, 0) < high.get(name, 0), rank_of(name), -many[name], name))[
        :METRICS_SHOWN
    ]


def varies(points: Sequence[PointRows], metric: str) -> bool:
    """Whether there is anything to draw."""
    return len({value for one in points for value in one.metrics.get(metric, ()) if math.isfinite(value)}) > 1


def rank_of(name: str) -> int:
    """Where a metric stands among those that are shown first: less is sooner."""
    wanted = (
        "publish_to_delivery.mean_ms",
        "publish_to_delivery.p99_ms",
        "throughput_per_s.out",
        "publish_to_puback.mean_ms",
        "utilisation.broker.mean",
        "utilisation.redis.max",
    )
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
        rows.append(
            {
                **{columns[name]: value for name, value in others},
                "last_below": below[-1][0].parameters[axis] if below else None,
                "ms_there": below[-1][1].estimate if below else None,
                "first_beyond": beyond[0].parameters[axis] if beyond else None,
            }
        )
    crossed = any(row["last_below"] is not None for row in rows) and any(
        row["first_beyond"] is not None for row in rows
    )
    return rows if crossed else []


COUNTED = ("point", "runs", "failed", "violated")


@dataclass(frozen=True)
class PointColumns:
    """What parameters and metrics are called in a table of points, where both may be called anything. ``ends``: of each
    metric the columns of its number of runs and of both ends of its interval.
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
        metric: (beside[f"{column}.runs"], beside[f"{column}.low"], beside[f"{column}.high"])
        for metric, column in means.items()
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
