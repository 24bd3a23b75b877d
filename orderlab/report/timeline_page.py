"""A run over time as a page and as a table, and two runs beside each other."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orderlab.exit_codes import printable
from orderlab.extras import find
from orderlab.model.errors import InputError
from orderlab.model.files import checked_place, json_of, write_whole
from orderlab.model.verdict import Outcome, Verdict, to_plain
from orderlab.report.charts import LINES_MAX, WIDE, ChartAxis, Curve, Mark, Scale, panel, scale_of
from orderlab.report.report import Subject
from orderlab.report.report_page import template
from orderlab.sim.engine.few_runs import NOMINAL

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


@dataclass(frozen=True)
class VerdictsShown:
    """What the laws say of the run, or of all: the outcome, the answer in a sentence, a row for each tested law."""

    outcome: str
    answer: str
    laws: Sequence[Mapping[str, Any]]

    @classmethod
    def once(cls, subject: Subject, verdicts: Sequence[Verdict]) -> VerdictsShown:
        """The verdicts of one run."""
        return cls(str(subject.outcome), subject.answer, [_law_row(one) for one in verdicts if not one.vacuous])


def _law_row(verdict: Verdict) -> dict[str, Any]:
    witness = to_plain(verdict.witness) or {}
    broken = [one["time_us"] for one in witness.get("events", ()) if one["event_id"] == witness.get("event_id")]
    return {
        "law": verdict.law,
        "verdict": str(verdict.outcome),
        "tested": verdict.work.get("antecedents"),
        "violated": verdict.work.get("violations") or None,
        "first at, s": broken[0] / 1e6 if broken else None,
        "how": witness.get("why"),
    }


def checked_timeline(path: Path) -> Path:
    """The file, if a timeline can be written there. Raises InputError."""
    if path.suffix not in FORMS:
        raise InputError(f"--timeline {path}: which form? name it {' or '.join('FILE' + form for form in FORMS)}")
    if path.suffix == ".html":
        find("jinja2", f"--timeline {path}")
    return checked_place(f"--timeline {path}", path)


def write_timeline(
    path: Path,
    title: str,
    seed: int,
    rows: Sequence[Mapping[str, float | None]],
    faults: Sequence[Mapping[str, Any]],
    judged: VerdictsShown,
    replications: int = 1,
    known: Sequence[str] = (),
) -> None:
    """Write the slices of a run, or of the mean of some, to ``path``; ``faults`` as the report tells their recovery,
    ``known``: what replications cannot tell."""
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        struck = [
            [
                f"{one['fault']} {one['node']}".rstrip()
                for one in faults
                if one["at_s"] is not None and last < one["at_s"] <= row["at_s"]
            ]
            for last, row in zip([0.0, *(row["at_s"] for row in rows)], rows, strict=False)
        ]
        sink = pa.BufferOutputStream()
        pq.write_table(
            pa.Table.from_pylist([{**row, "faults": names} for row, names in zip(rows, struck, strict=True)]), sink
        )
        write_whole(path, sink.getvalue().to_pybytes())
        return
    slice_ms = round(1000 * (rows[0]["at_s"] or 0.0)) if rows else 0
    page = template("timeline.html.j2").render(
        title=title,
        seed=seed,
        panels=list(panels(rows, faults)),
        faults=[_headed(one) for one in faults],
        outcome=judged.outcome,
        answer=judged.answer,
        laws=judged.laws,
        slices=len(rows),
        slice_ms=slice_ms,
        replications=replications,
        nominal=NOMINAL,
        known=known,
    )
    write_whole(path, page.encode())


HEADS = {
    "at_s": "at, s",
    "recovered_runs": "runs recovered",
    "recovered_s": "recovered after, s",
    "low_s": "from, s",
    "high_s": "to, s",
    "least_s": "least, s",
    "greatest_s": "greatest, s",
}
"""What the columns of the table of faults are called, for those who read no field names."""


def _headed(fault: Mapping[str, Any]) -> dict[str, Any]:
    return {HEADS.get(name, name): value for name, value in fault.items()}


def panels(rows: Sequence[Mapping[str, float | None]], faults: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """A chart for each kind of figure. Faults are upright lines."""
    every = -(-len(rows) // POINTS_MAX)
    drawn = rows[::every] if every else rows
    x = ChartAxis("simulated seconds", scale_of([row["at_s"] or 0.0 for row in drawn], is_log=False))
    for caption, wanted in PANELS:
        names = (
            wanted
            if isinstance(wanted, dict)
            else {
                key.removeprefix(wanted): key
                for key in (rows[0] if rows else {})
                if key.startswith(wanted) and not key.endswith(("_low", "_high"))
            }
        )
        curves = [
            Curve(name, marks)
            for name, key in names.items()
            if (marks := [mark for row in drawn if (mark := _mark(name, key, row)) is not None])
        ]
        if not curves:
            continue  # not every system has all
        means = [mark.y for curve in curves for mark in curve.marks]
        ends = [mark.high for curve in curves for mark in curve.marks if mark.high is not None]
        # Intervals of two or three runs may reach far beyond: they are cut, and told by hovering.
        room = 2 * max(means, default=0.0)
        y = ChartAxis(caption, scale_of([0.0, *means, *(min(end, room) for end in ends)], is_log=False))
        struck = list(_struck(faults, LINES_MAX - len(curves), y.scale))
        yield {
            "caption": caption,
            "under": "",
            "kind": "wide",
            "svg": panel(caption, [*curves, *struck], x, y, width=WIDE),
        }


def _struck(faults: Sequence[Mapping[str, Any]], room: int, y: Scale) -> Iterator[Curve]:
    """A curve for each kind of fault, at most as many as there is ``room`` for: it goes up and down where one struck,
    and along the axis between them."""
    told = [one for one in faults if one["at_s"] is not None]
    kinds = list(dict.fromkeys(one["fault"] for one in told))
    alone = kinds if len(kinds) <= room else kinds[: room - 1]
    names = [*alone, *(["other faults"] if len(alone) < len(kinds) else [])]
    # From the end: the same in every chart, and no other curve's.
    for style, name in zip(range(LINES_MAX - 1, -1, -1), names, strict=False):
        at = sorted(
            (one["at_s"], f"{one['fault']} on {one['node']}")
            for one in told
            if (one["fault"] if one["fault"] in alone else "other faults") == name
        )
        yield Curve(
            name,
            [
                mark
                for at_s, what in at
                for mark in (Mark(at_s, y.low), Mark(at_s, y.high, told=what), Mark(at_s, y.low))
            ],
            style=style,
        )


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


def laws_changed(now: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The laws whose verdicts differ, of two runs as ``--json`` tells them, and what became of each: the newly
    violated first."""
    then, since = ({one["law"]: _said_of(one) for one in verdicts} for verdicts in (before, now))
    changed = [
        {"law": law, "before": then.get(law, UNTESTED), "now": since.get(law, UNTESTED)} for law in {**since, **then}
    ]
    kinds = {"now": "newly violated", "before": "no longer violated"}
    for one in changed:
        broken = [words for when, words in kinds.items() if one[when] == Outcome.VIOLATED]
        one["change"] = broken[0] if broken else "otherwise"
    rank = [*kinds.values(), "otherwise"]
    return sorted(
        (one for one in changed if one["before"] != one["now"]), key=lambda one: (rank.index(one["change"]), one["law"])
    )


UNTESTED = "not tested"


def _said_of(verdict: Mapping[str, Any]) -> str:
    return UNTESTED if verdict.get("vacuous") else str(verdict["outcome"])


COMPARED = (
    "throughput_per_s",
    "latency",
    "stages_ms",
    "packs",
    "batches",
    "utilisation",
    "contention",
    "streams",
    "postgres",
    "lag_at_the_end",
    "counts",
    "recovery",
)
"""Parts of a report."""


def numbers(report: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The figures of a report that are compared: throughput, latencies, stages, packs, batches, utilisation,
    contention, streams, recovery, counts. Of nodes and consumers, the mean."""
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
    """The run that ``orderlab simulate --json`` has told before, whatever its system. Raises InputError for what no run
    tells."""
    cure = f"keep one with: orderlab simulate {system} --json > FILE"
    try:
        told = json_of(path.read_bytes(), str(path))
    except OSError as error:
        raise InputError(
            f"--against {path}: cannot be read ({error.strerror}); keep a run with: orderlab simulate {system} "
            f"--json > {path}"
        ) from None
    except InputError:
        told = None
    if (
        not isinstance(told, dict)
        or not isinstance(told.get("latency"), dict)
        or not isinstance(told.get("settings"), dict)
    ):
        raise InputError(f"--against {path}: not one run; {cure}")
    for place, value, wanted in _wrong(told):
        raise InputError(printable(f"--against {path}: {place}: {repr(value)[:60]} is not {wanted}; {cure}"))
    return told


def _wrong(told: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """(place, value, what it would be) of what a comparison reads and cannot use."""
    from orderlab.sim.systems.catalogue import SYSTEMS

    if told.get("system") not in tuple(SYSTEMS):
        yield "system", told.get("system"), "a system that can be simulated"
    seed = told.get("seed")
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        yield "seed", seed, "a whole number from 0 up"
    for name, value in told["settings"].items():
        if not (value is None or isinstance(value, str) or _is_number(value)):
            yield f"settings.{name}", value, "a number, text or nothing"
    for part in COMPARED:
        if part == "recovery":
            continue
        value = told.get(part)
        if value is not None and not isinstance(value, Mapping):
            yield part, value, "an object of figures"
        yield from _no_figures(part, value)
    yield from _no_verdicts(told.get("verdicts", []))
    strikes = told.get("recovery")
    if not (strikes is None or isinstance(strikes, list)):
        yield "recovery", strikes, "a list of faults"
    for number, one in enumerate(strikes or ()):
        if not (
            isinstance(one, Mapping)
            and isinstance(one.get("fault"), str)
            and (one.get("recovered_s") is None or _is_number(one["recovered_s"]))
        ):
            yield f"recovery[{number}]", one, "a fault with the seconds until the system recovered"


def _no_verdicts(told: Any) -> Iterator[tuple[str, Any, str]]:
    if not isinstance(told, list):
        yield "verdicts", told, "a list of verdicts"
        return
    for number, one in enumerate(told):
        is_one = isinstance(one, Mapping) and isinstance(one.get("law"), str) and one.get("outcome") in set(Outcome)
        if not is_one:
            yield f"verdicts[{number}]", one, "a law and its outcome"


def _no_figures(place: str, value: Any, levels: int = 4) -> Iterator[tuple[str, Any, str]]:
    """What is neither a figure, nor figures by name, nor a list of them; parts of reports have at most three levels."""
    if isinstance(value, Mapping) and levels:
        for name, each in value.items():
            yield from _no_figures(f"{place}.{name}", each, levels - 1)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            if not _is_number(each):
                yield f"{place}[{number}]", each, "a number"
    elif not (value is None or _is_number(value)):
        yield place, value, "a number"


def _is_number(value: Any) -> bool:
    """Whether it is one that a figure can be: no larger than a double holds, and not NaN."""
    return isinstance(value, int | float) and -sys.float_info.max <= value <= sys.float_info.max
