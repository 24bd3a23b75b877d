"""The page of a sweep: ``report/index.html`` in the folder of its results, self-contained, and its tables beside it."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from orderlab.model.errors import InputError
from orderlab.model.files import write_whole
from orderlab.model.verdict import Outcome
from orderlab.report.charts import (
    LABEL_MAX,
    LINES_MAX,
    ChartAxis,
    Curve,
    Mark,
    Row,
    is_drawn,
    panel,
    rows_of_intervals,
    scale_of,
)
from orderlab.report.report import versions
from orderlab.report.report_page import template
from orderlab.report.sweep import unit_of, with_unit
from orderlab.report.words import cell, counted, harmless
from orderlab.sim.engine.few_runs import NOMINAL, Evidence, mean_at
from orderlab.sim.engine.statistics import Interval
from orderlab.spark_sweeps.questions.asking import unsettled_line
from orderlab.spark_sweeps.results.committed import Counts
from orderlab.spark_sweeps.results.folder import ResultFolder
from orderlab.spark_sweeps.results.rows import (
    TWO_DIGITS,
    PointColumns,
    PointRows,
    by_point,
    chosen_metrics,
    cliff,
    confidence_of,
    counted_kinds,
    kind_of_failure,
    point_columns,
    points_table,
    varies,
    wanted_runs,
)
from orderlab.spark_sweeps.sweep_file.plan import Plan
from orderlab.spark_sweeps.sweep_file.specification import SweepFile, sweep_of


def held_fixed(sweep: SweepFile, varied: Collection[str]) -> list[dict[str, Any]]:
    """Base, defaults of the system, seed, replications."""
    held: dict[str, Any] = {name: value for name, value in sweep.base.items() if name not in varied}
    held |= {
        "seed": sweep.seed, "replications": sweep.replications.count,
        "common random numbers": sweep.replications.common_random_numbers,
    }  # fmt: skip
    if ":" not in sweep.system:
        from orderlab.sim.systems.catalogue import entry

        for name, field in entry(sweep.system).settings.model_fields.items():
            if name not in held and name not in varied:
                held[f"{name} (default)"] = field.default
    return [{"parameter": name, "value": str(value)} for name, value in held.items()]


POINTS_SHOWN = 1000
BAD_SHOWN = 50
PANELS_MAX = 24
HEAT_MAX = 6
CELLS_MAX = 400
ROWS_MAX = 40
"""Points that are drawn as rows of intervals, where no axis is one of numbers."""


class RunsOfPoint(NamedTuple):
    """The runs of one point: the command of the first, or of the first that failed or broke a law."""

    replay: str
    told: str


@dataclass
class Runs:
    """What is told of single runs: of each point those behind it; what is bad, by number; how many were judged, and
    not."""

    behind: dict[int, RunsOfPoint]
    bad: list[dict[str, Any]]
    held: int = 0
    undecided: int = 0
    unjudged: int = 0
    laws: tuple[str, ...] = ()
    """Those that are violated."""
    unsettled: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    """By what runs failed of."""


def write_report(path: Path) -> Path:
    """Write the report of the results in PATH; its file. Raises InputError where there are none."""
    folder = ResultFolder(path)
    manifest = folder.manifest()
    sweep = sweep_of({**manifest["sweep"], "output": str(path)}, str(path))
    plan = Plan(sweep, str(path))
    counts = folder.standing(len(plan)).counts
    if counts.rows == 0:
        raise InputError(f"{path}: no runs are done; there is nothing to report")
    wanted = wanted_runs(plan, folder)
    metrics = chosen_metrics(folder, len(plan))
    points = by_point(folder, len(plan), metrics, confidence_of(sweep))
    numeric = [name for name in plan.parameter_names if _is_numeric_axis(points, name)]
    latency = next((name for name in metrics if name.endswith("mean_ms")), None)
    along = next((name for name in ("rate", "publishers", *numeric) if name in numeric), None)
    cliffs = cliff(points, along, latency) if along is not None and latency is not None else []
    runs = _runs(folder, len(plan))
    axes = [name for name in dict.fromkeys((along, *numeric)) if name is not None and name not in sweep.derived][:3]
    own = [name for name in plan.parameter_names if name not in sweep.derived]
    panels, undrawn = drawings(points, axes, metrics, runs.behind)
    table, columns = points_table(points, metrics), point_columns(points, metrics)
    planned, evidence = int(wanted.sum()), _evidence(points, metrics)
    page = harmless(
        template("sweep.html.j2").render(
            title=f"Sweep of {sweep.system}",
            description=manifest.get("description", ""),
            outcome=_outcome(counts, planned, runs),
            sentence=_sentence(counts, planned, runs, points, metrics, cliffs, along),
            runs=planned,
            counts=counts,
            spared=int((~wanted).sum()),
            until=sweep.replications.until,
            seed=sweep.seed,
            versions=versions(),
            warnings=[unsettled_line(runs.unsettled, counts.rows - counts.failed)] * bool(runs.unsettled)
            + evidence.warnings,
            nominal=NOMINAL,
            cliffs=cliffs[:POINTS_SHOWN],
            cliff_axis=along,
            cliff_metric=latency,
            panels=panels,
            undrawn=undrawn,
            heats=heat_maps(points, own, metrics),
            varied=list(plan.parameter_names),
            replications=sweep.replications.count,
            shown=runs.bad[:BAD_SHOWN],
            hidden=max(0, len(runs.bad) - BAD_SHOWN),
            points=[_shown_point(one, metrics, columns) for one in points[:POINTS_SHOWN]],
            behind=runs.behind,
            points_hidden=max(0, len(points) - POINTS_SHOWN),
            left_out=_left_out(counts, planned, runs, sweep, evidence),
            fixed=held_fixed(sweep, plan.parameter_names),
            digests=_digests(manifest, sweep),
        )
    )
    out = Path(path) / "report"
    out.mkdir(exist_ok=True)
    for name, content in (
        ("points.csv", _csv(table)),
        ("points.parquet", _parquet(table)),
        ("index.html", page.encode()),
    ):
        write_whole(out / name, content)
    return out / "index.html"


def _evidence(points: Sequence[PointRows], metrics: Sequence[str]) -> Evidence:
    """What is known of the runs behind the means that the page shows."""
    evidence = Evidence()
    for one in points:
        for metric in metrics:
            if values := one.metrics.get(metric):
                evidence.take(mean_at(metric, one.parameters), values, one.confidence)
    return evidence


def _runs(folder: ResultFolder, planned: int) -> Runs:
    """One pass over the rows."""
    bad: dict[int, dict[str, Any]] = {}
    of_point: dict[int, list[tuple[bool, int, str]]] = {}
    outcomes: Counter[str | None] = Counter()
    laws: set[str] = set()
    unsettled, failures = 0, Counter[str]()
    for table in folder.tables(planned, ["point", "status", "outcome", "error", "verdicts", "replay", "settled"]):
        for row in table.to_pylist():
            broken = [law for law, verdict in row["verdicts"] or () if verdict == "violated"]
            is_bad = row["status"] != "ok" or row["outcome"] == "violated"
            of_point.setdefault(row["point"], []).append((not is_bad, row["run"], row["replay"]))
            outcomes[row["outcome"] if row["status"] == "ok" else "failed"] += 1
            laws.update(broken)
            unsettled += row["settled"] is False
            if row["status"] != "ok":
                failures[kind_of_failure(row["status"], row["error"])] += 1
            if is_bad:
                told = f"{row['status']}: {row['error']}" if row["status"] != "ok" else f"violates {', '.join(broken)}"
                bad[row["run"]] = {"run": row["run"], "point": row["point"], "told": told, "replay": row["replay"]}
    behind = {}
    for point, mine in of_point.items():
        numbers = sorted(number for _, number, _ in mine)
        _, number, replay = min(mine)
        others = f" of {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else ""
        behind[point] = RunsOfPoint(replay, f"run {number}{others}")
    return Runs(
        behind,
        [bad[number] for number in sorted(bad)],
        outcomes["holds"],
        outcomes["unknown"],
        outcomes[None],
        tuple(sorted(laws)),
        unsettled,
        failures,
    )


def _outcome(counts: Counts, planned: int, runs: Runs) -> Outcome:
    if counts.violated:
        return Outcome.VIOLATED
    return Outcome.HOLDS if runs.held == counts.rows == planned else Outcome.UNKNOWN


def _sentence(
    counts: Counts,
    planned: int,
    runs: Runs,
    points: Sequence[PointRows],
    metrics: Sequence[str],
    cliffs: Sequence[Mapping[str, Any]],
    along: str | None,
) -> str:
    """The answer: what became of the runs, and where latency leaves two digits, or between what the first metric
    lies."""
    total = counted(planned, "run")
    if counts.violated:
        done = (
            f"{counts.violated:,} of {total} {'breaks' if counts.violated == 1 else 'break'} "
            f"{_listed(runs.laws)}{f', {counts.failed:,} failed' if counts.failed else ''}"
        )
    elif counts.failed:
        done = f"all {total} failed" if counts.failed == planned > 1 else f"{counts.failed:,} of {total} failed"
    elif counts.rows < planned:
        done = f"unfinished: {counts.rows:,} of {total} are done"
    elif runs.held == counts.rows:
        done = f"all {total} kept every law" if planned > 1 else "the run kept every law"
    elif runs.unjudged == counts.rows:
        done = f"{total} done, and none judged a law"
    else:
        done = f"{runs.held:,} of {total} kept every law, {runs.undecided + runs.unjudged:,} decided nothing"
    crossed = [row for row in cliffs if row["last_below"] is not None and row["first_beyond"] is not None]
    if crossed:
        first = crossed[0]
        where = (
            f"the mean latency leaves two digits between {along} {cell(first['last_below'])} and "
            f"{cell(first['first_beyond'])}"
        )
        more = f" in the first of {len(cliffs)} settings" if len(cliffs) > 1 else ""
        return f"{done}; {where}{more}"
    for metric in (metric for metric in metrics if varies(points, metric)):
        means = [
            (i.estimate, one) for one in points if (i := one.interval(metric)) is not None and is_drawn(i.estimate)
        ]
        if len({mean for mean, _ in means}) > 1:
            low, high = min(means, key=lambda pair: pair[0]), max(means, key=lambda pair: pair[0])
            unit = f" {unit_of(metric)}" if unit_of(metric) else ""
            return (
                f"{done}; {metric} is {cell(low[0])} to {cell(high[0])}{unit}, the most at {_named(high[1].parameters)}"
            )
    return done


def _listed(laws: Sequence[str]) -> str:
    return laws[0] if len(laws) == 1 else f"{len(laws)} laws ({', '.join(laws)})"


def _left_out(counts: Counts, planned: int, runs: Runs, sweep: SweepFile, evidence: Evidence) -> list[str]:
    """What these runs do not show, in words."""
    told = [f"{planned - counts.rows:,} runs are not done; the same command goes on"] if counts.rows < planned else []
    if counts.failed:
        told.append(f"{counts.failed:,} runs failed ({counted_kinds(runs.failures)}): their figures are in no mean")
    told += [f"{runs.undecided:,} runs left laws undecided"] if runs.undecided else []
    told += [f"{runs.unjudged:,} runs judged no law"] if runs.unjudged else []
    told += [evidence.unseen] if evidence.unseen else []
    if sweep.replications.count == 1:
        told.append("each point is one run: no interval is known; more replications tell one")
    return [*told, "values of the axes between those that were run, and every setting that was held fixed"]


def _is_numeric_axis(points: list[PointRows], name: str) -> bool:
    values = {one.parameters.get(name) for one in points}
    return len(values) > 1 and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _named(parameters: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {cell(value) if isinstance(value, float) else value}" for name, value in parameters.items()
    )


def drawings(
    points: Sequence[PointRows],
    axes: Sequence[str],
    metrics: Sequence[str],
    behind: Mapping[int, RunsOfPoint],
) -> tuple[list[dict[str, Any]], int]:
    """Small multiples, and how many more there would be: each metric along each axis of numbers; without one, a row of
    intervals for each point."""
    drawn = [metric for metric in metrics if varies(points, metric)]
    found: list[dict[str, Any]] = []
    for axis in axes:
        for metric in drawn:
            found += panels(points, axis, metric, behind)
    if not axes and 1 < len(points) <= ROWS_MAX:
        found += [_rows(points, metric, behind) for metric in drawn]
    return found[:PANELS_MAX], max(0, len(found) - PANELS_MAX)


def panels(
    points: Sequence[PointRows], axis: str, metric: str, behind: Mapping[int, RunsOfPoint] | None = None
) -> list[dict[str, Any]]:
    """The metric along a numeric axis: a chart for each setting of what the curves do not tell apart, all on one scale.
    Each curve is named by what differs between curves."""
    groups: dict[tuple[tuple[str, Any], ...], list[PointRows]] = {}
    for one in points:
        groups.setdefault(tuple((name, value) for name, value in one.parameters.items() if name != axis), []).append(
            one
        )
    told = [i for one in points if (i := one.interval(metric)) is not None]
    limits = [(TWO_DIGITS, "100 ms")] if metric.endswith("_ms") and any(i.estimate >= TWO_DIGITS for i in told) else []
    y = ChartAxis(
        with_unit(metric), scale_of([end for i in told for end in _reach(i)] + [value for value, _ in limits])
    )
    values = sorted({one.parameters[axis] for one in points})
    x = ChartAxis(
        with_unit(axis),
        scale_of(values, room=0.04, from_zero=False),
        tuple(value for value in values if is_drawn(value)),
    )
    names = [name for name, _ in next(iter(groups), ())]
    differing = [name for name in names if len({repr(dict(key).get(name)) for key in groups}) > 1]
    among = _among(groups, differing)
    faceted: dict[str, list[tuple[str, list[PointRows]]]] = {}
    for key, mine in groups.items():
        curve = _named({name: value for name, value in key if name in differing and name in among})
        facet = _named({name: value for name, value in key if name in differing and name not in among})
        faceted.setdefault(facet, []).append((curve, mine))
    found = []
    for facet, curves in faceted.items():
        for begin in range(0, len(curves), LINES_MAX):
            part = curves[begin : begin + LINES_MAX]
            marked = [Curve(name, _marks(mine, axis, metric, behind or {})) for name, mine in part]
            which = f"curves {begin + 1} to {begin + len(part)} of {len(curves)}" if len(curves) > LINES_MAX else ""
            under = "; ".join(
                filter(None, (facet, which, _runs_behind([one for _, mine in part for one in mine], metric)))
            )
            found.append(
                {
                    "caption": f"{with_unit(metric)} along {axis}",
                    "under": under,
                    "kind": "",
                    "svg": panel(f"{metric} along {axis}{f', {facet}' if facet else ''}", marked, x, y, limits),
                }
            )
    return found


def _among(groups: Iterable[tuple[tuple[str, Any], ...]], differing: Sequence[str]) -> tuple[str, ...]:
    """What the curves of one chart differ in: the parameter with the most values that one chart holds; all, where few
    differ."""
    keys = list(groups)
    if len(keys) <= LINES_MAX and all(
        len(_named({name: dict(key).get(name) for name in differing})) <= LABEL_MAX for key in keys
    ):
        return tuple(differing)
    many = {name: len({repr(dict(key).get(name)) for key in keys}) for name in differing}
    fitting = [name for name in differing if many[name] <= LINES_MAX] or list(differing)
    return (max(fitting, key=lambda name: many[name]),)


def _reach(found: Interval) -> list[float]:
    return [found.estimate] if math.isinf(found.low) else [found.low, found.estimate, found.high]


def _marks(points: Iterable[PointRows], axis: str, metric: str, behind: Mapping[int, RunsOfPoint]) -> list[Mark]:
    found = [_mark(one, one.parameters[axis], metric, behind, upright=True) for one in points]
    return sorted((one for one in found if one is not None), key=lambda one: one.x)


def _mark(one: PointRows, at: float, metric: str, behind: Mapping[int, RunsOfPoint], upright: bool) -> Mark | None:
    """The mean of a point with its interval, and what hovering tells of it."""
    found = one.interval(metric)
    if found is None:
        return None
    runs = behind.get(one.point)
    told = f"{_named(one.parameters)}\n{with_unit(metric)}: {_mean(found)}, {counted(found.count, 'run')}"
    told += f"\nreplay {runs.told}: {runs.replay}" if runs else ""
    low, high = (None, None) if math.isinf(found.low) else (found.low, found.high)
    link = f"point-{one.point}" if runs else ""
    x, y = (at, found.estimate) if upright else (found.estimate, at)
    return Mark(x, y, low, high, told, link, is_bad=bool(one.failed or one.violated))


def _mean(found: Interval) -> str:
    if math.isinf(found.low):
        return cell(found.estimate)
    if abs((found.high - found.estimate) - (found.estimate - found.low)) > 1e-6 * found.half_width:
        return f"{cell(found.estimate)} ({cell(found.low)} to {cell(found.high)})"
    return f"{cell(found.estimate)} ± {cell(found.half_width)}"


def _runs_behind(points: Sequence[PointRows], metric: str) -> str:
    """How many runs the points rest on."""
    many = sorted({len(one.metrics[metric]) for one in points if one.metrics.get(metric)})
    if not many:
        return "no runs"
    if len(many) > 1:
        return f"each point is the mean of {many[0]} to {many[-1]} runs"
    return "each point is one run" if many == [1] else f"each point is the mean of {many[0]} runs"


def _rows(points: Sequence[PointRows], metric: str, behind: Mapping[int, RunsOfPoint]) -> dict[str, Any]:
    marks = [(one, _mark(one, 0.0, metric, behind, upright=False)) for one in points]
    told = [i for one in points if (i := one.interval(metric)) is not None]
    rows = [
        Row(_named(one.parameters), _mean(i), [mark])
        for one, mark in marks
        if mark is not None and (i := one.interval(metric)) is not None
    ]
    x = ChartAxis(with_unit(metric), scale_of(end for i in told for end in _reach(i)))
    return {
        "caption": with_unit(metric),
        "under": _runs_behind(points, metric),
        "kind": "",
        "svg": rows_of_intervals(metric, rows, x),
    }


def heat_maps(points: Sequence[PointRows], varied: Sequence[str], metrics: Sequence[str]) -> list[dict[str, Any]]:
    """Tables of each metric over the first pairs of parameters, where they have cells that a page can show."""
    pairs = [(x, y) for place, x in enumerate(varied) for y in varied[place + 1 :]]
    found = []
    for metric in (metric for metric in metrics if varies(points, metric)):
        for x, y in pairs[:2]:
            cells = len({one.parameters.get(x) for one in points}) * len({one.parameters.get(y) for one in points})
            if 4 <= cells <= CELLS_MAX and cells <= 2 * len(points):
                found.append(heat_map(points, x, y, metric))
    return found[:HEAT_MAX]


def heat_map(points: Sequence[PointRows], axis_x: str, axis_y: str, metric: str) -> dict[str, Any]:
    """The metric over two parameters, mean over the others: darker is more, and a cross stands where a run failed."""
    columns, rows = (sorted({one.parameters[axis] for one in points}, key=_order) for axis in (axis_x, axis_y))
    there: dict[tuple[Any, Any], list[PointRows]] = {}
    for one in points:
        there.setdefault((one.parameters[axis_y], one.parameters[axis_x]), []).append(one)
    means = {}
    for place, mine in there.items():
        found = [i.estimate for one in mine if (i := one.interval(metric)) is not None and is_drawn(i.estimate)]
        means[place] = sum(found) / len(found) if found else None
    scale = scale_of((mean for mean in means.values() if mean is not None), from_zero=False)
    drawn = []
    for row in rows:
        line = []
        for column in columns:
            mine, mean = there.get((row, column), []), means.get((row, column))
            grey = 255 if mean is None else round(245 - 165 * scale.place(mean))
            failed = "x " if any(one.failed for one in mine) else ""
            line.append(
                {
                    "text": failed + ("" if mean is None else cell(mean)),
                    "grey": grey,
                    "ink": "#000" if grey > 140 else "#fff",
                    "link": f"point-{mine[0].point}" if len(mine) == 1 else "",
                    "tip": _over(row, column, axis_x, axis_y, mine),
                }
            )
        drawn.append({"name": _value(row), "cells": line})
    return {
        "metric": with_unit(metric),
        "x": axis_x,
        "y": axis_y,
        "columns": [_value(column) for column in columns],
        "rows": drawn,
    }


def _over(row: Any, column: Any, axis_x: str, axis_y: str, mine: Sequence[PointRows]) -> str:
    runs = counted(sum(one.runs for one in mine), "run")
    return f"{axis_y} {row}, {axis_x} {column}: mean over {counted(len(mine), 'point')}, {runs}" if mine else ""


def _value(value: Any) -> str:
    return "" if value is None else str(value)


def _order(value: Any) -> tuple[int, Any]:
    """Numbers, then texts, then nothing: rows of a table design need not name the same parameters."""
    return (2, "") if value is None else (int(isinstance(value, str)), value)


def _digests(manifest: dict[str, Any], sweep: Any) -> list[dict[str, Any]]:
    told = {
        "system": sweep.system,
        "code": manifest["code"],
        "scripts": manifest["scripts"],
        "subject": manifest.get("subject", ""),
    }
    return [{"": name, "digest": value} for name, value in told.items()]


def _shown_point(one: PointRows, metrics: list[str], columns: PointColumns) -> dict[str, Any]:
    """A row of the page by column: what is shown, and the number by which it is sorted. A mean and its interval share a
    cell."""
    row: dict[str, Any] = {"point": (one.point, one.point)}
    row |= {columns.parameters[name]: (cell(value), _number(value)) for name, value in one.parameters.items()}
    row |= {"runs": (one.runs, one.runs), "failed": (one.failed, one.failed), "violated": (one.violated, one.violated)}
    for name in metrics:
        found = one.interval(name)
        shown = "" if found is None else _mean(found)
        if found is not None and found.count != one.runs:
            shown += f" of {found.count}"
        row[columns.metrics[name]] = (shown, None if found is None else _number(found.estimate))
    return row


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) else None


def _csv(table: Any) -> bytes:
    out = io.BytesIO()
    pa_csv.write_csv(table, out)
    return out.getvalue()


def _parquet(table: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()
