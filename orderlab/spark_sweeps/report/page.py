"""The reports: ``report/index.html`` in the folder of a sweep or of an answer, self-contained; of a sweep also its tables."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Collection
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from markupsafe import Markup, escape

from orderlab.model.errors import InputError
from orderlab.model.files import write_whole
from orderlab.spark_sweeps.questions.answer import Answer
from orderlab.spark_sweeps.questions.asking import COMMANDS, cell
from orderlab.spark_sweeps.report.drawings import curves, drawn, heat_map
from orderlab.spark_sweeps.results.folder import ResultFolder
from orderlab.spark_sweeps.results.rows import (
    PointColumns,
    PointRows,
    by_point,
    chosen_metrics,
    cliff,
    confidence_of,
    point_columns,
    points_table,
    varies,
    wanted_runs,
)
from orderlab.spark_sweeps.runs.digests import code_digest, scripts_digest
from orderlab.spark_sweeps.sweep_file.plan import Plan
from orderlab.spark_sweeps.sweep_file.specification import SweepFile, sweep_of


def template(name: str) -> jinja2.Template:
    """One of the ``.html.j2`` files beside this one."""
    here = files("orderlab.spark_sweeps.report")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        loader=jinja2.FunctionLoader(lambda name: here.joinpath(name).read_text()),
    )  # fmt: skip
    environment.globals["cell"] = cell
    environment.globals["breakable"] = _breakable
    return environment.get_template(name)


def _breakable(name: str) -> Markup:
    """A dotted name that a narrow column may break after a dot or an underscore."""
    return Markup("").join(
        escape(part) if part not in "._" else Markup(f"{part}<wbr>") for part in re.split("([._])", name) if part
    )


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


POINTS_SHOWN = 200
BAD_SHOWN = 50
DRAWINGS_MAX = 12
CELLS_MAX = 400


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
    drawings, undrawn = _drawings(
        points, numeric, [name for name in plan.parameter_names if name not in sweep.derived], metrics
    )
    shown, hidden = _bad(folder, len(plan))
    table, columns = points_table(points, metrics), point_columns(points, metrics)
    page = template("page.html.j2").render(
        title=f"Sweep of {sweep.system}", description=manifest.get("description", ""), counts=counts, runs=int(wanted.sum()), spared=int((~wanted).sum()), until=sweep.replications.until,
        cliffs=cliffs[:POINTS_SHOWN], cliff_axis=along, cliff_metric=latency,
        drawings=drawings, undrawn=undrawn, varied=list(plan.parameter_names), replications=sweep.replications.count,
        shown=shown, hidden=hidden, points=[_shown_point(one, metrics, columns) for one in points[:POINTS_SHOWN]],
        points_hidden=max(0, len(points) - POINTS_SHOWN),
        fixed=held_fixed(sweep, plan.parameter_names), digests=_digests(manifest, sweep),
    )  # fmt: skip
    out = Path(path) / "report"
    out.mkdir(exist_ok=True)
    for name, content in (
        ("points.csv", _csv(table)),
        ("points.parquet", _parquet(table)),
        ("index.html", page.encode()),
    ):
        write_whole(out / name, content)
    return out / "index.html"


def _is_numeric_axis(points: list[PointRows], name: str) -> bool:
    values = {one.parameters.get(name) for one in points}
    return len(values) > 1 and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _drawings(
    points: list[PointRows], numeric: list[str], varied: list[str], metrics: list[str]
) -> tuple[list[dict[str, Any]], int]:
    """Drawings, and how many more there would be."""
    found: list[dict[str, Any]] = []
    for metric in (metric for metric in metrics if varies(points, metric)):
        for axis in [name for name in numeric if name in varied][:3]:
            found += [{"caption": told, "svg": drawing} for told, drawing in curves(points, axis, metric)]
        pairs = [(x, y) for place, x in enumerate(varied) for y in varied[place + 1 :]]
        for x, y in pairs[:2]:
            cells = len({one.parameters.get(x) for one in points}) * len({one.parameters.get(y) for one in points})
            if 4 <= cells <= CELLS_MAX and cells <= 2 * len(points):
                told = f"{metric} over {x} and {y}; each cell is the mean over all its runs, x: a run failed there"
                found.append({"caption": told, "svg": heat_map(points, x, y, metric), "scrolls": True})
    return found[:DRAWINGS_MAX], max(0, len(found) - DRAWINGS_MAX)


def _bad(folder: ResultFolder, runs: int) -> tuple[list[dict[str, Any]], int]:
    """Failed and violating runs, the first by number, and how many more there are."""
    found: list[dict[str, Any]] = []
    for table in folder.tables(runs, ["status", "outcome", "error", "verdicts", "replay"]):
        for row in table.to_pylist():
            if row["status"] != "ok" or row["outcome"] == "violated":
                laws = ", ".join(law for law, verdict in row["verdicts"] or () if verdict == "violated")
                told = f"{row['status']}: {row['error']}" if row["status"] != "ok" else f"violates {laws}"
                found.append({"run": row["run"], "told": told, "replay": row["replay"]})
    found.sort(key=lambda row: row["run"])
    return found[:BAD_SHOWN], max(0, len(found) - BAD_SHOWN)


def _digests(manifest: dict[str, Any], sweep: Any) -> list[dict[str, Any]]:
    told = {"system": sweep.system, "code": manifest["code"], "scripts": manifest["scripts"], "subject": manifest.get("subject", "")}
    return [{"": name, "digest": value} for name, value in told.items()]


def _shown_point(one: PointRows, metrics: list[str], columns: PointColumns) -> dict[str, Any]:
    """A row of the page: a mean and its interval share a cell, so that a printed page holds six metrics."""
    row: dict[str, Any] = {"point": one.point, **{columns.parameters[name]: value for name, value in one.parameters.items()}}
    row |= {"runs": one.runs, "failed": one.failed, "violated": one.violated}
    for name in metrics:
        found, metric = one.interval(name), columns.metrics[name]
        if found is None:
            row[metric] = None
        elif math.isinf(found.low):
            row[metric] = found.estimate
        elif abs((found.high - found.estimate) - (found.estimate - found.low)) > 1e-6 * found.half_width:
            row[metric] = f"{cell(found.estimate)} ({cell(found.low)} to {cell(found.high)})"
        else:
            row[metric] = f"{cell(found.estimate)} ± {cell(found.half_width)}"
        if found is not None and found.count != one.runs:
            row[metric] = f"{cell(row[metric])} of {found.count}"
    return row


def _csv(table: Any) -> bytes:
    out = io.BytesIO()
    pa_csv.write_csv(table, out)
    return out.getvalue()


def _parquet(table: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


ADAPTIVE = ("capacity", "risk", "rare-event")
"""Questions that decide themselves how often, and under which seeds, points are run."""
DECIDED = ("replications", "common random numbers")


def write_answer_page(answer: Answer, sweep: SweepFile) -> Path:
    """Write the report of an answer; its file. Raises InputError where it cannot be written."""
    rows = [dict(row) for row in answer.rows]
    commands = [(name.replace("_", " "), row.pop(name)) for row in rows for name in COMMANDS if name in row]
    if len(rows) == 1:
        rows = [{"": name, "value": value} for name, value in rows[0].items()]
    page = template("answer.html.j2").render(
        title=f"{answer.kind}: {sweep.system}", description=sweep.description, outcome=str(answer.outcome), rows=rows,
        notes=answer.notes, commands=[(name, command) for name, command in commands if command],
        drawing=drawn(answer, sweep), asked=[{"": f"question.{name}", "value": _plain(value)} for name, value in
                                             (sweep.question or {}).items()],
        axes=[{"axis": name, "values": _plain(axis.model_dump(mode="json", by_alias=True, exclude_defaults=True))}
              for name, axis in sweep.axes.items()],
        fixed=[row for row in held_fixed(sweep, list(sweep.axes)) if answer.kind not in ADAPTIVE or row["parameter"] not in DECIDED],
        digests=[{"": "code", "digest": code_digest()}, {"": "scripts", "digest": scripts_digest()}],
    )  # fmt: skip
    folder = Path(answer.folder) / "report"
    folder.mkdir(exist_ok=True)
    write_whole(folder / "index.html", page.encode())
    return folder / "index.html"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return _plain(value["values"]) if "values" in value else ", ".join(f"{k} {v}" for k, v in value.items())
    return ", ".join(str(one) for one in value) if isinstance(value, (list, tuple)) else str(value)
