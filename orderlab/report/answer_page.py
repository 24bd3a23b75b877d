"""The page of an answer: the answer in a sentence, its drawing, its table, what was asked. Self-contained, as that of a
sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from orderlab.model.files import write_whole
from orderlab.report.charts import WIDE, ChartAxis, Curve, Mark, Row, is_drawn, panel, rows_of_intervals, scale_of
from orderlab.report.report import versions
from orderlab.report.report_page import template
from orderlab.report.sweep import answered, named, sentence, with_unit
from orderlab.report.sweep_page import held_fixed
from orderlab.report.words import cell, counted, harmless
from orderlab.spark_sweeps.questions.aims import Best
from orderlab.spark_sweeps.questions.answer import Answer
from orderlab.spark_sweeps.questions.asking import COMMANDS
from orderlab.spark_sweeps.questions.best import aim_columns
from orderlab.spark_sweeps.questions.capacity import capacity_columns
from orderlab.spark_sweeps.questions.cheapest import target_columns
from orderlab.spark_sweeps.questions.dependence import LOG_FROM, Dependence
from orderlab.spark_sweeps.runs.digests import code_digest, scripts_digest
from orderlab.spark_sweeps.sweep_file.specification import SweepFile

ADAPTIVE = ("best", "capacity", "risk", "rare-event")
"""Questions that decide themselves how often, and under which seeds, points are run."""
DECIDED = ("replications", "common random numbers")
ROWS_MAX = 60
"""Of a drawing; the table has all."""
TABLE_MAX = 50
"""Rows of the table on the page; ``answer.csv`` has all."""
Rows = Sequence[Mapping[str, Any]]


class Lead(NamedTuple):
    """Where a mark leads: the row of the table, and the command that does its run again."""

    link: str = ""
    told: str = ""


Drawing = Callable[[Rows, Mapping[str, Any], Sequence[str], Callable[[Mapping[str, Any]], Lead]], tuple[str, str, str]]
"""Rows, question, columns of settings, where rows lead -> caption, what is said below it, SVG."""


def write_answer_page(answer: Answer, sweep: SweepFile) -> Path:
    """Write the report of an answer; its file. Raises InputError where it cannot be written."""
    rows = [dict(row) for row in answer.rows]
    commands = [(name.replace("_", " "), row.pop(name)) for row in rows for name in COMMANDS if name in row]
    is_one = len(rows) == 1
    commands += [("replay", command) for command in answer.replays] if is_one else []
    if is_one:
        rows = [{"": name, "value": value} for name, value in rows[0].items()]
    page = template("answer.html.j2").render(
        title=f"{answer.kind}: {sweep.system}",
        description=sweep.description,
        outcome=str(answer.outcome),
        answered=answered(answer.outcome),
        rows=rows[:TABLE_MAX],
        rows_hidden=max(0, len(rows) - TABLE_MAX),
        is_one=is_one,
        sentence=sentence(answer, sweep.question or {}),
        seed=answer.seed,
        versions=versions(),
        warnings=answer.warnings,
        notes=answer.notes,
        commands=[(name, command) for name, command in commands if command],
        replays=answer.replays,
        drawing=drawn(answer, sweep),
        curves=[curve for dependence in answer.dependence for curve in _curves(dependence)],
        asked=[{"": f"question.{name}", "value": _plain(value)} for name, value in (sweep.question or {}).items()],
        axes=[
            {"axis": name, "values": _plain(axis.model_dump(mode="json", by_alias=True, exclude_defaults=True))}
            for name, axis in sweep.axes.items()
        ],
        fixed=[
            row
            for row in held_fixed(sweep, list(sweep.axes))
            if answer.kind not in ADAPTIVE or row["parameter"] not in DECIDED
        ],
        digests=[{"": "code", "digest": code_digest()}, {"": "scripts", "digest": scripts_digest()}],
    )
    folder = Path(answer.folder) / "report"
    folder.mkdir(exist_ok=True)
    write_whole(folder / "index.html", harmless(page).encode())
    return folder / "index.html"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return _plain(value["values"]) if "values" in value else ", ".join(f"{k} {v}" for k, v in value.items())
    return ", ".join(str(one) for one in value) if isinstance(value, (list, tuple)) else str(value)


# -- its drawing
# -------------------------------------------------------------------------------------------------------------


def drawn(answer: Answer, sweep: SweepFile) -> dict[str, Any] | None:
    """The drawing; None where there is nothing to draw."""
    draw = _DRAWINGS.get(answer.kind)
    if draw is None or not answer.rows:
        return None
    numbers = {id(row): number for number, row in enumerate(answer.rows)}

    def lead(row: Mapping[str, Any]) -> Lead:
        number = numbers[id(row)]
        if number >= len(answer.replays):
            return Lead()
        has_row = len(answer.rows) > 1 and number < TABLE_MAX
        return Lead(f"row-{number}" if has_row else "", f"\nreplay: {answer.replays[number]}")

    caption, under, svg = draw(answer.rows, sweep.question or {}, answer.settings, lead)
    if len(answer.rows) > ROWS_MAX and answer.kind != "cheapest":
        under = f"{under}; the first {ROWS_MAX} of {len(answer.rows)} rows"
    return {"caption": caption, "under": under, "svg": svg, "kind": "wide"}


def _sensitivity(
    rows: Rows, asked: Mapping[str, Any], settings: Sequence[str], lead: Callable[[Mapping[str, Any]], Lead]
) -> tuple[str, str, str]:
    columns = {"total": "total", "first": "its own"} if "total" in rows[0] else {"mean_absolute_effect": ""}
    made = []
    for row in rows[:ROWS_MAX]:
        marks, words_of = [], []
        for number, (column, words) in enumerate(columns.items()):
            value, half = row[column], row["half_width" if column == "mean_absolute_effect" else f"{column}_half_width"]
            told = f"{words} {cell(float(value))} ± {cell(float(half))}".strip()
            words_of.append(told)
            marks.append(Mark(value, 0, value - half, value + half, f"{row['parameter']}: {told}", is_open=number == 1))
        made.append(Row(str(row["parameter"]), ", ".join(words_of), marks))
    unit = "share of the variance" if "total" in rows[0] else f"mean effect on {with_unit(asked['metric'])}"
    caption = f"Influence on {asked['metric']}"
    under = (
        "filled: what it has a part in; hollow: its own part; " if "total" in rows[0] else ""
    ) + "nominal 95 % intervals"
    return caption, under, rows_of_intervals(caption, made, ChartAxis(unit, _scale(made, (0.0,))), [(0.0, "")], WIDE)


def _cheapest(
    rows: Rows, asked: Mapping[str, Any], settings: Sequence[str], lead: Callable[[Mapping[str, Any]], Lead]
) -> tuple[str, str, str]:
    """Price against the first target, the front as a line of steps."""
    target = next(iter(asked["targets"]))
    means, highs = target_columns(asked["targets"])
    metric, high = means[target], highs[target]
    bound = asked["targets"][target]
    curves = []
    for is_front, name in ((True, "front"), (False, "")):
        mine = sorted(
            (row for row in rows if row[metric] is not None and row["on_front"] == is_front),
            key=lambda row: row["price"],
        )
        marks = [
            Mark(row["price"], row[metric], None if row[high] is None else 2 * row[metric] - row[high], row[high],
                 f"{named(row, settings)}\nprice {cell(row['price'])}, {with_unit(target)} {cell(row[metric])}: "
                     f"{'meets' if row['meets'] else 'may meet' if row['open'] else 'does not meet'}{lead(row).told}",
                 lead(row).link, is_open=not row["meets"])
            for row in mine
        ]  # fmt: skip
        curves.append(Curve(name if len(mine) > 1 else "", marks, is_step=is_front, is_cloud=not is_front))
    told = [mark for curve in curves for mark in curve.marks]
    y = ChartAxis(
        with_unit(target),
        scale_of([end for mark in told for end in (mark.y, *([mark.high] if mark.high is not None else []))] + [bound]),
    )
    x = ChartAxis("price", scale_of(mark.x for mark in told))
    caption = f"{with_unit(target)} by price"
    return (
        caption,
        "filled: meets every target; hollow: does not, or is open",
        panel(caption, curves, x, y, [(bound, "target")], width=WIDE),
    )


def _comparison(
    rows: Rows, asked: Mapping[str, Any], settings: Sequence[str], lead: Callable[[Mapping[str, Any]], Lead]
) -> tuple[str, str, str]:
    """Differences relative to a, so that metrics of any unit share an axis; of 0 nothing is a share, and nothing is
    drawn."""
    made = []
    for row in rows[:ROWS_MAX]:
        others = named(row, settings)
        name = f"{row['metric']}{' at ' if others else ''}{others}{' (0 there)' if row['a'] == 0 else ''}"
        if row["a"] is None or row["difference"] is None:
            made.append(Row(name, "no finite number", [Mark(float("inf"), 0)]))
            continue
        if not row["a"]:
            made.append(Row(name, f"from 0 to {cell(row['b'])}", [Mark(float("inf"), 0)]))
            continue
        scale = 100 / abs(row["a"])
        low, high = (None, None) if row["low"] is None else (row["low"] * scale, row["high"] * scale)
        words = f"{row['difference'] * scale:+.3g} %{'' if row['differs'] else ', not told from 0'}"
        told = (
            f"{with_unit(row['metric'])}: {cell(row['a'])} and {cell(row['b'])}, "
            f"{counted(row.get('pairs', 0), 'pair')} of runs"
        )
        made.append(
            Row(
                name,
                words,
                [
                    Mark(
                        row["difference"] * scale,
                        0,
                        low,
                        high,
                        told + lead(row).told,
                        lead(row).link,
                        is_open=not row["differs"],
                    )
                ],
            )
        )
    caption = f"Difference of {asked['b']} from {asked['a']}"
    axis = ChartAxis(f"% of the value at {asked['a']}", _scale(made, (0.0,)))
    return (
        caption,
        "with intervals, over pairs of runs of one seed",
        rows_of_intervals(caption, made, axis, [(0.0, "")], WIDE),
    )


def _capacity(
    rows: Rows, asked: Mapping[str, Any], settings: Sequence[str], lead: Callable[[Mapping[str, Any]], Lead]
) -> tuple[str, str, str]:
    parameter = asked["parameter"]
    kept, broken, _ = capacity_columns(parameter, asked["metric"])
    made = []
    for row in rows[:ROWS_MAX]:
        end = row[broken] if row[broken] is not None else asked["to"]
        open_top = "and more" if row[kept] >= asked["to"] else "at least"
        open_end = open_top if row[broken] is None else f"to {cell(end)}"
        words = f"{cell(row[kept])} {open_end}"
        told = (
            f"{cell(row[kept])} is kept, {'nothing that was tried' if row[broken] is None else cell(end)} is not; "
            f"{counted(row.get('runs', 0), 'run')}"
        )
        made.append(
            Row(
                named(row, settings) or "capacity",
                words,
                [Mark(row[kept], 0, row[kept], end, told + lead(row).told, lead(row).link)],
            )
        )
    caption = f"Highest {parameter} that is kept"
    return (
        caption,
        "the bar: the capacity lies within",
        rows_of_intervals(caption, made, ChartAxis(with_unit(parameter), _scale(made, (0.0,))), width=WIDE),
    )


def _best(
    rows: Rows, asked: Mapping[str, Any], settings: Sequence[str], lead: Callable[[Mapping[str, Any]], Lead]
) -> tuple[str, str, str]:
    """The finalists with their intervals, the chosen one first; of several aims the two first against each other."""
    question = Best.model_validate(asked)
    columns = aim_columns(question)
    if len(columns) > 1:
        return _front_of(question, rows, settings, lead)
    ((metric, ends),) = columns.items()
    shown = [row for row in rows if row["value"] is not None]
    made = [Row(named(row, settings), _between(row, *ends), [_estimate(row, *ends)]) for row in shown]
    caption = f"Finalists by {metric}"
    below = "the first is the chosen one" if rows[0]["chosen"] else "none of them meets the constraints"
    return caption, below, rows_of_intervals(caption, made, ChartAxis(with_unit(metric), _scale(made)), width=WIDE)


def _front_of(
    question: Best, rows: Rows, settings: Sequence[str], lead: Callable[[Mapping[str, Any]], Lead]
) -> tuple[str, str, str]:
    """The first aim against the second, the front as a line."""
    (across, (x, _, _)), (up, (y, low, high)), *_ = aim_columns(question).items()
    shown = sorted((row for row in rows if row[x] is not None and row[y] is not None), key=lambda row: row[x])

    def mark(row: Mapping[str, Any]) -> Mark:
        words = f"{named(row, settings)}: {across} {cell(row[x])}, {up} {_between(row, y, low, high)}"
        return Mark(
            row[x], row[y], row[low], row[high], words + lead(row).told, lead(row).link, is_open=not row["meets"]
        )

    curves = [
        Curve("front" if is_front else "", [mark(row) for row in shown if row["on_front"] == is_front],
              is_cloud=not is_front)
        for is_front in (True, False)
    ]  # fmt: skip
    caption = f"{up} against {across}"
    x_axis, y_axis = (
        ChartAxis(with_unit(name), scale_of([row[column] for row in shown])) for name, column in ((across, x), (up, y))
    )
    return (
        caption,
        "the line joins the front; hollow: the constraints are not met",
        panel(caption, curves, x_axis, y_axis, width=WIDE),
    )


def _curves(dependence: Dependence) -> Iterator[dict[str, Any]]:
    """A drawing for each parameter, all of an aim on one scale; ordered values along an axis, choices in rows."""
    ends = [end for curve in dependence.effects.values() for effect in curve for end in effect[1:]]
    for name, curve in dependence.effects.items():
        marks = [
            Mark(
                effect.value, effect.mean, effect.low, effect.high, f"{name} {cell(effect.value)}: {cell(effect.mean)}"
            )
            for effect in curve
        ]
        if all(isinstance(effect.value, (int, float)) and not isinstance(effect.value, bool) for effect in curve):
            values = [float(effect.value) for effect in curve]
            is_log = min(values) > 0 and max(values) / min(values) > LOG_FROM
            x = ChartAxis(with_unit(name), scale_of(values, is_log=is_log, from_zero=False))
            svg = panel(name, [Curve("", marks)], x, ChartAxis(with_unit(dependence.metric), scale_of(ends)))
        else:
            drawn_rows = [Row(f"{effect.value}", cell(effect.mean), [mark._replace(x=effect.mean, y=0)])
                    for effect, mark in zip(curve, marks, strict=True)]  # fmt: skip
            svg = rows_of_intervals(
                name, drawn_rows, ChartAxis(with_unit(dependence.metric), scale_of(ends, is_log=False))
            )
        yield {
            "caption": f"{dependence.metric} by {name}",
            "under": "mean of the model, and eight of ten",
            "svg": svg,
            "kind": "",
        }


def _probability(
    rows: Rows, asked: Mapping[str, Any], settings: Sequence[str], lead: Callable[[Mapping[str, Any]], Lead]
) -> tuple[str, str, str]:
    """The probability with its interval, beside what is acceptable and what is not, or what plain runs show."""
    (row,) = rows
    made = [
        Row("probability", _between(row, "probability", "low", "high"), [_estimate(row, "probability", "low", "high")])
    ]
    if row.get("plain") is not None:
        words = _between(row, "plain", "plain_low", "plain_high")
        made.append(
            Row(f"by {row['plain_runs']} plain runs", words, [_estimate(row, "plain", "plain_low", "plain_high")])
        )
    limits = [(asked[name], name) for name in ("acceptable", "unacceptable") if name in asked]
    axis = ChartAxis("probability", _scale(made, tuple(value for value, _ in limits)))
    kind = "nominal 95 % interval" if "levels" in row else "exact 95 % interval"
    return (
        "Probability",
        f"{counted(row['runs'], 'run')}; {kind}",
        rows_of_intervals("Probability", made, axis, limits, WIDE),
    )


def _between(row: Mapping[str, Any], value: str, low: str, high: str) -> str:
    return f"{cell(row[value])} ({cell(row[low])} to {cell(row[high])})"


def _estimate(row: Mapping[str, Any], value: str, low: str, high: str) -> Mark:
    return Mark(row[value], 0, row[low], row[high], _between(row, value, low, high))


def _scale(rows: Sequence[Row], more: Sequence[float] = ()) -> Any:
    """Of all marks with their intervals."""
    marks = [mark for row in rows for mark in row.marks]
    ends = [end for mark in marks for end in (mark.x, mark.low, mark.high) if end is not None and is_drawn(end)]
    return scale_of([*ends, *more], is_log=False)


_DRAWINGS: dict[str, Drawing] = {
    "sensitivity": _sensitivity, "cheapest": _cheapest, "comparison": _comparison, "capacity": _capacity,
    "risk": _probability, "rare-event": _probability, "best": _best,
}  # fmt: skip
