"""A run over time as a page and as a table, and two runs beside each other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orderlab.model.errors import InputError
from orderlab.model.files import write_whole
from orderlab.report.charts import Axis, Curve, Mark, panel, scale_of
from orderlab.report.output import checked_file
from orderlab.report.page import template

FORMS = (".html", ".parquet")
POINTS_MAX = 600
"""In one curve; of longer runs every so-manieth slice is drawn, and Parquet has them all."""
PANELS = (
    ("messages per second", {"in": "in_per_s", "out": "out_per_s", "conflicts": "conflicts_per_s"}),
    ("mean latency of what arrived, ms", {"latency": "latency_ms", "post to reader": "delivery_ms"}),
    ("records that nobody has committed", "uncommitted_"),
    ("entries that readers have not been handed", "unread_"),
    ("waiting for a processor", "waiting_"),
)


def checked_place(path: Path) -> Path:
    """The file, if a timeline can be written there. Raises InputError."""
    if path.suffix not in FORMS:
        raise InputError(f"--timeline {path}: which form? name it {' or '.join('FILE' + form for form in FORMS)}")
    return checked_file(f"--timeline {path}", path)


def write_timeline(
    path: Path, title: str, seed: int, rows: Sequence[Mapping[str, float | None]], faults: Sequence[Mapping[str, Any]], replications: int = 1
) -> None:
    """Write the slices of a run, or of the mean of some, to ``path``; ``faults`` as the report tells their recovery."""
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        struck = [[f"{one['fault']} {one['node']}".rstrip() for one in faults if one["at_s"] is not None and last < one["at_s"] <= row["at_s"]]
                  for last, row in zip([0.0, *(row["at_s"] for row in rows)], rows, strict=False)]  # fmt: skip
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist([{**row, "faults": names} for row, names in zip(rows, struck, strict=True)]), sink)
        write_whole(path, sink.getvalue().to_pybytes())
        return
    slice_ms = round(1000 * (rows[0]["at_s"] or 0.0)) if rows else 0
    page = template("timeline.html.j2").render(
        title=title, seed=seed, panels=list(panels(rows, faults)), faults=list(faults), slices=len(rows), slice_ms=slice_ms, replications=replications
    )
    write_whole(path, page.encode())


def panels(rows: Sequence[Mapping[str, float | None]], faults: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """A chart for each kind of figure. Faults are upright lines."""
    every = -(-len(rows) // POINTS_MAX)
    drawn = rows[::every] if every else rows
    x = Axis("simulated seconds", scale_of([row["at_s"] or 0.0 for row in drawn], is_log=False))
    for caption, wanted in PANELS:
        names = wanted if isinstance(wanted, dict) else {
            key.removeprefix(wanted): key for key in (rows[0] if rows else {}) if key.startswith(wanted) and not key.endswith(("_low", "_high"))
        }  # fmt: skip
        curves = [Curve(name, marks) for name, key in names.items() if (marks := [mark for row in drawn if (mark := _mark(name, key, row)) is not None])]
        if not curves:
            continue  # not every system has all
        means = [mark.y for curve in curves for mark in curve.marks]
        ends = [mark.high for curve in curves for mark in curve.marks if mark.high is not None]
        room = 2 * max(means, default=0.0)  # intervals of two or three runs may reach far beyond: they are cut, and told by hovering
        y = Axis(caption, scale_of([0.0, *means, *(min(end, room) for end in ends)], is_log=False))
        struck = [
            Curve(one["fault"], [Mark(one["at_s"], y.scale.low), Mark(one["at_s"], y.scale.high, told=f"{one['fault']} on {one['node']}")])
            for one in faults
            if one["at_s"] is not None
        ]
        yield {"caption": caption, "under": "", "is_alone": False, "svg": panel(caption, [*curves, *struck][:8], x, y)}


def _mark(name: str, key: str, row: Mapping[str, float | None]) -> Mark | None:
    value, at_s, low, high = row.get(key), row["at_s"] or 0.0, row.get(f"{key}_low"), row.get(f"{key}_high")
    if value is None:
        return None
    ends = "" if low is None or high is None else f" ({low:,g} to {high:,g})"
    return Mark(at_s, value, low, high, told=f"{name} {value:,g}{ends} at {at_s:g} s")


def compared(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[tuple[str, float | None, float | None]]:
    """(figure, before, now) for the figures that two runs have and that differ, settings first."""
    found: list[tuple[str, float | None, float | None]] = []
    then = dict(numbers(before))
    for name, value in numbers(now):
        old = then.pop(name, None)
        if old != value:
            found.append((name, old, value))
    return found + [(name, old, None) for name, old in then.items()]


COMPARED = ("throughput_per_s", "latency", "stages_ms", "packs", "batches", "utilisation", "contention", "streams", "counts", "recovery")
"""Parts of a report."""


def numbers(report: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The figures of a report that are compared: throughput, latencies, stages, packs, batches, utilisation, contention, streams, recovery, counts. Of nodes and consumers, the mean."""
    for part in COMPARED:
        yield from _numbers(part, report.get(part) or {})


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _numbers(f"{name}.{key}", each)
    elif isinstance(value, list) and value and all(isinstance(each, int | float) for each in value):
        yield f"{name} (mean)", float(f"{sum(value) / len(value):.4g}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            if isinstance(each, Mapping) and each.get("recovered_s") is not None:
                yield f"{name}.{number}.{each['fault']}", each["recovered_s"]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, value


def run_to_compare(path: Path, system: str) -> dict[str, Any]:
    """The run that ``orderlab simulate --json`` has told before. Raises InputError."""
    try:
        told = json.loads(path.read_text())
    except OSError as error:
        raise InputError(f"--against {path}: cannot be read ({error.strerror}); keep a run with: orderlab simulate {system} --json > {path}") from None
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict) or not isinstance(told.get("latency"), dict) or not isinstance(told.get("settings"), dict):
        raise InputError(f"--against {path}: not one run; keep one with: orderlab simulate {system} --json > FILE")
    return told
