"""The one drawing that each question's answer deserves, as SVG text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from orderlab.spark_sweeps.questions.answer import Answer
from orderlab.spark_sweeps.questions.tables import capacity_columns, target_columns
from orderlab.spark_sweeps.report.drawings import svg
from orderlab.spark_sweeps.specification import SweepFile

Rows = Sequence[Mapping[str, Any]]


def drawn(answer: Answer, sweep: SweepFile) -> str | None:
    """The drawing, None for a kind that is said in words."""
    asked = sweep.question or {}
    draw = _DRAWINGS.get(answer.kind)
    return None if draw is None or not answer.rows else draw(answer.rows, asked, answer.settings)


def _sensitivity(rows: Rows, asked: Mapping[str, Any], settings: Sequence[str]) -> str:
    names = [str(row["parameter"]) for row in rows]
    figure = Figure(figsize=(7, 0.8 + 0.5 * len(rows)), layout="constrained")
    axes = figure.subplots()
    columns = ("total", "first") if "total" in rows[0] else ("mean_absolute_effect",)
    thick = 0.8 / len(columns)
    for number, column in enumerate(columns):
        half = "half_width" if column == "mean_absolute_effect" else f"{column}_half_width"
        places = [place + number * thick for place in range(len(rows))]
        axes.barh(places, [row[column] for row in rows], thick * 0.9, xerr=[row[half] for row in rows], label=column,
                  color=str(0.45 + 0.3 * number), ecolor="black", capsize=3)  # fmt: skip
    axes.set_yticks([place + thick * (len(columns) - 1) / 2 for place in range(len(rows))], names)
    axes.invert_yaxis()
    axes.axvline(0, color="0.3", lw=0.6)
    axes.set_xlabel(f"influence on {asked['metric']}")
    if len(columns) > 1:
        axes.legend(fontsize=8)
    return svg(figure)


def _cheapest(rows: Rows, asked: Mapping[str, Any], settings: Sequence[str]) -> str:
    """Price against the first target, the front as a line of steps."""
    target = next(iter(asked["targets"]))
    metric = target_columns(asked["targets"])[0][target]
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    for told, marker, face in (("meets", "o", "black"), ("does not meet", "o", "white")):
        mine = [row for row in rows if row[metric] is not None and row["meets"] == (told == "meets")]
        axes.scatter([row["price"] for row in mine], [row[metric] for row in mine], marker=marker, facecolor=face,
                     edgecolor="black", label=told)  # fmt: skip
    front = sorted((row["price"], row[metric]) for row in rows if row["on_front"])
    axes.step([x for x, _ in front], [y for _, y in front], where="post", lw=1, color="0.4", label="front")
    axes.axhline(asked["targets"][target], color="0.4", lw=0.8, ls=":", label="target")
    axes.set_xlabel("price")
    axes.set_ylabel(target)
    axes.legend(fontsize=8)
    return svg(figure)


def _comparison(rows: Rows, asked: Mapping[str, Any], settings: Sequence[str]) -> str:
    """Differences relative to a, so that metrics of any unit share an axis; of 0 nothing is a share, and nothing is drawn."""
    figure = Figure(figsize=(7, 0.9 + 0.35 * len(rows)), layout="constrained")
    axes = figure.subplots()
    labels = []
    for place, row in enumerate(rows):
        others = _named(row, settings)
        labels.append(f"{row['metric']}{' at ' if others else ''}{others}{'' if row['a'] else ' (0 there)'}")
        if not row["a"]:
            continue
        scale = 100 / abs(row["a"])
        centre = row["difference"] * scale
        reach = [[centre - row["low"] * scale], [row["high"] * scale - centre]] if row["low"] is not None else None
        axes.errorbar([centre], [place], xerr=reach, color="black", marker="o" if row["differs"] else ".", capsize=3)
    axes.set_yticks(range(len(rows)), labels, fontsize=8)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.axvline(0, color="0.3", lw=0.6)
    axes.set_xlabel(f"difference of {asked['b']} from {asked['a']}, % of {asked['a']}")
    return svg(figure)


def _capacity(rows: Rows, asked: Mapping[str, Any], settings: Sequence[str]) -> str:
    parameter = asked["parameter"]
    kept, broken, _ = capacity_columns(parameter, asked["metric"])
    figure = Figure(figsize=(7, 0.9 + 0.35 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for place, row in enumerate(rows):
        end = row[broken] if row[broken] is not None else asked["to"]
        axes.barh([place], [row[kept]], 0.6, color="0.6")
        axes.barh([place], [end - row[kept]], 0.6, left=[row[kept]], color="white", edgecolor="black", hatch="///")
    axes.set_yticks(range(len(rows)), [_named(row, settings) for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(f"{parameter}: grey is kept, hatched is open")
    return svg(figure)


def _named(row: Mapping[str, Any], settings: Sequence[str]) -> str:
    """The configuration that a row is about."""
    return ", ".join(f"{name} {row[name]}" for name in settings if name in row)


_DRAWINGS: dict[str, Callable[[Rows, Mapping[str, Any], Sequence[str]], str]] = {
    "sensitivity": _sensitivity, "cheapest": _cheapest, "comparison": _comparison, "capacity": _capacity,
}  # fmt: skip
