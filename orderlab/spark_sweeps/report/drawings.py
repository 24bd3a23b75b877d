"""Drawings of a report as SVG text: curves with intervals along one axis, heat maps, and the one that each answer deserves."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from orderlab.spark_sweeps.questions.answer import Answer
from orderlab.spark_sweeps.questions.capacity import capacity_columns
from orderlab.spark_sweeps.questions.cheapest import target_columns
from orderlab.spark_sweeps.results.rows import TWO_DIGITS, PointRows
from orderlab.spark_sweeps.sweep_file.specification import SweepFile

mpl.use("svg")

STYLES = ("-", "--", "-.", ":")
MARKS = "osD^vPX*"
LINES_MAX = 8
"""In one drawing: more cannot be told apart without colour."""
PANELS_MAX = 4
LABEL_WIDTH = 60
"""Characters of a line of the legend."""
TURNED: dict[str, Any] = {"rotation": 45, "ha": "right"}
"""Labels of a heat map that are wider than a column."""
TICK_WIDTH = 8
"""Characters that a column of a heat map has room for."""


def curves(points: Sequence[PointRows], axis: str, metric: str) -> list[tuple[str, str]]:
    """(what is said of it, drawing) for each LINES_MAX settings of the other parameters: the metric along a numeric axis. All
    drawings have the same scale. The last one says how many settings are not drawn.
    """
    groups: dict[str, list[PointRows]] = {}
    for one in points:
        others = ", ".join(f"{name} {value}" for name, value in one.parameters.items() if name != axis)
        groups.setdefault(others, []).append(one)
    groups = {others: mine for others, mine in groups.items() if any(one.interval(metric) for one in mine)}
    names = list(groups)[: LINES_MAX * PANELS_MAX]
    panels = [names[begin : begin + LINES_MAX] for begin in range(0, len(names), LINES_MAX)]
    found = []
    for number, panel in enumerate(panels):
        told = [f"{metric} along {axis}", _runs_behind([one for name in panel for one in groups[name]], metric)]
        if len(panels) > 1:
            told.append(f"curves {number * LINES_MAX + 1} to {number * LINES_MAX + len(panel)} of {len(groups)}")
        if number == len(panels) - 1 and len(names) < len(groups):
            told.append(f"{len(groups) - len(names)} more curves are not drawn: points.csv has them")
        drawing = _panel({name: groups[name] for name in panel}, points, axis, metric, is_named=len(groups) > 1)
        found.append(("; ".join(told), drawing))
    return found


def _runs_behind(points: Sequence[PointRows], metric: str) -> str:
    """How many runs the points rest on."""
    many = sorted({len(one.metrics[metric]) for one in points if one.metrics.get(metric)})
    if not many:
        return "no runs"
    if len(many) > 1:
        return f"each point is the mean of {many[0]} to {many[-1]} runs (points.csv says of how many)"
    return "each point is one run" if many == [1] else f"each point is the mean of {many[0]} runs"


def _panel(groups: dict[str, list[PointRows]], points: Sequence[PointRows], axis: str, metric: str, is_named: bool) -> str:
    """``is_named``: there are other curves, here or in another panel, so that each says which one it is."""
    lines = sum(len(textwrap.wrap(name, LABEL_WIDTH)) or 1 for name in groups) if is_named else 0
    figure = Figure(figsize=(5.2, 3.2 + 0.19 * lines), layout="constrained")
    drawn = figure.subplots()
    for number, (others, mine) in enumerate(groups.items()):
        told = [(one.parameters[axis], i) for one in mine if (i := one.interval(metric)) is not None]
        told.sort(key=lambda pair: pair[0])
        if not told:
            continue
        x = [value for value, _ in told]
        y = np.array([interval.estimate for _, interval in told])
        reach = np.array([[i.estimate - i.low, i.high - i.estimate] for _, i in told]).T
        reach = np.where(np.isfinite(reach), np.maximum(reach, 0), 0)
        drawn.errorbar(x, y, reach, label=textwrap.fill(others, LABEL_WIDTH) or None, capsize=3, lw=1.3, ms=4,
                       ls=STYLES[number % len(STYLES)], marker=MARKS[number % len(MARKS)])  # fmt: skip
    values = np.array([v for one in points for v in one.metrics.get(metric, ())])
    if metric.endswith("_ms") and len(values) and values.max() >= TWO_DIGITS:
        drawn.axhline(TWO_DIGITS, color="0.4", lw=0.8, ls=":")
        drawn.annotate(
            "100 ms", (1, TWO_DIGITS), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8
        )
    if len(values) and values.min() > 0 and values.max() / values.min() > 30:
        drawn.set_yscale("log")
    x_all = sorted({one.parameters[axis] for one in points})
    if len(x_all) > 2 and x_all[0] > 0 and x_all[-1] / x_all[0] > 30:
        drawn.set_xscale("log")
    drawn.set_ylim(_ends(points, metric, drawn.get_yscale() == "log"))
    drawn.set_xlabel(axis)
    drawn.set_ylabel(metric)
    drawn.grid(True, lw=0.3)
    if is_named:  # below the axes: upon them it hides what it names
        figure.legend(fontsize=9, loc="outside lower left", ncols=1, frameon=False, borderpad=0, handlelength=4)
    return svg(figure)


def _ends(points: Sequence[PointRows], metric: str, is_log: bool) -> tuple[float, float] | None:
    """From the lowest to the highest end of any interval, with a margin, so that panels can be compared; None: as it comes."""
    found = [i for one in points if (i := one.interval(metric)) is not None]
    ends = [end for i in found for end in (i.low, i.high, i.estimate) if np.isfinite(end) and (end > 0 or not is_log)]
    if not ends or min(ends) == max(ends):
        return None
    if metric.endswith("_ms") and max(ends) >= TWO_DIGITS:
        ends.append(TWO_DIGITS)  # its line is drawn
    if is_log:
        margin = (max(ends) / min(ends)) ** 0.05
        return min(ends) / margin, max(ends) * margin
    margin = 0.05 * (max(ends) - min(ends))
    return min(ends) - margin, max(ends) + margin


def heat_map(points: Sequence[PointRows], axis_x: str, axis_y: str, metric: str) -> str:
    """The metric over two axes, mean over the others, the value written into each cell; a cross where a run failed."""
    x_values = sorted({one.parameters[axis_x] for one in points}, key=_order)
    y_values = sorted({one.parameters[axis_y] for one in points}, key=_order)
    sums, counts = np.zeros((len(y_values), len(x_values))), np.zeros((len(y_values), len(x_values)))
    failed = np.zeros_like(sums, dtype=bool)
    for one in points:
        place = y_values.index(one.parameters[axis_y]), x_values.index(one.parameters[axis_x])
        failed[place] |= one.failed > 0
        found = one.interval(metric)
        if found is not None:
            sums[place] += found.estimate
            counts[place] += 1
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    figure = Figure(
        figsize=(max(4.0, 1.0 + 0.85 * len(x_values)), max(2.4, 1.0 + 0.42 * len(y_values))), layout="constrained"
    )
    drawn = figure.subplots()
    image = drawn.imshow(means, aspect="auto", cmap="Greys", origin="lower")
    x_labels, y_labels = ([textwrap.shorten("" if value is None else str(value), 24, placeholder="...") for value in each] for each in (x_values, y_values))
    upright = max(len(label) for label in x_labels) <= TICK_WIDTH
    drawn.set_xticks(range(len(x_values)), x_labels, **({} if upright else TURNED))
    drawn.set_yticks(range(len(y_values)), y_labels)
    drawn.set_xlabel(axis_x)
    drawn.set_ylabel(axis_y)
    middle = np.nanmin(means) + (np.nanmax(means) - np.nanmin(means)) / 2 if np.isfinite(means).any() else 0
    for row in range(len(y_values)):
        for column in range(len(x_values)):
            value = means[row, column]
            text = ("x " if failed[row, column] else "") + (f"{value:.3g}" if np.isfinite(value) else "")
            drawn.text(
                column, row, text, ha="center", va="center", fontsize=8, color="white" if value > middle else "black"
            )
    figure.colorbar(image)
    return svg(figure)


def _order(value: Any) -> tuple[int, Any]:
    """Numbers, then texts, then nothing: rows of a table design need not name the same parameters."""
    return (2, "") if value is None else (int(isinstance(value, str)), value)


def svg(figure: Figure) -> str:
    """The drawing alone, the same bytes every time."""
    with mpl.rc_context({"svg.hashsalt": "orderlab", "svg.fonttype": "none", "font.family": "sans-serif"}):
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    drawn = re.sub(r"<metadata>.*?</metadata>", "", text.getvalue(), flags=re.DOTALL)
    return drawn[drawn.index("<svg") :]


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
