"""What operations cost, as a table on a terminal, as JSON, and as a page with a chart of each operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from orderlab.properties.costs.estimates import Checked, Dearer, Estimate
from orderlab.properties.costs.forms import Fitted
from orderlab.properties.costs.readings import AXES, LENGTH

if TYPE_CHECKING:
    from orderlab.report.charts import Curve

LETTERS = {axis: axis[0] if axis != LENGTH else "n" for axis in AXES}
"""What stands for the size along each axis: n, b, p."""
CHARTS = {"blocked_us": "µs", "commands": "commands", "instructions": "instructions"}
"""What is drawn of each operation, and the unit of its axis."""
WORDS = {"blocked_us": "blocks the node", "commands": "commands", "instructions": "Lua instructions", "bytes": "memory"}


def figure(value: float) -> str:
    """Two digits, or the whole number."""
    return f"{value:,.0f}" if abs(value) >= 10 or value == round(value) else f"{value:.2g}"


def duration(us: float) -> str:
    """Microseconds, milliseconds or seconds."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{figure(us / size)} {unit}"
    return f"{figure(us)} µs"


def _with_unit(value: float, unit: str) -> str:
    return duration(value) if unit == "µs" else f"{figure(value)}{unit and ' ' + unit}"


def formula(form: Fitted, letter: str, unit: str = "") -> str:
    """As it is written: ``21 µs + 6.1 µs·n``."""
    grows = form.form.replace("n²", f"{letter}²").replace("log n", f"log {letter}").replace("n ", f"{letter} ")
    grows = letter if form.form == "n" else grows
    parts = [_with_unit(form.constant, unit)] if form.constant or not form.form else []
    if form.form:
        small = unit == "µs" and abs(form.slope) < 0.1
        slope = f"{figure(form.slope * 1000)} ns" if small else _with_unit(form.slope, unit)
        parts.append(f"{slope}·{grows}")
    begins = f" from {letter} = {form.begins:,.0f} on" if form.begins else ""
    return " + ".join(parts).replace("+ -", "- ") + begins


def print_costs(
    console: Console, estimated: Sequence[Estimate], memory: Fitted | None, budget_us: float, checked: Checked | None
) -> None:
    """A table for each axis."""
    for axis, words in AXES.items():
        rows = [one for one in estimated if one.axis == axis]
        if not rows:
            continue
        letter = LETTERS[axis]
        table = Table(box=box.SIMPLE_HEAD, title=f"{letter}: {words}", title_justify="left", title_style="bold")
        columns = [
            "operation",
            "blocks the node for",
            "±",
            f"{letter} = {rows[0].at:,}",
            "commands",
            "Lua instructions",
        ]
        for name in [*columns, *(["on the server"] if checked else [])]:
            table.add_column(name, overflow="fold", justify="right" if name[0] in "±nbp" else "left")
        for one in rows:
            over = one.at_us > budget_us
            cells: list[str | Text] = [
                one.situation + (f" (fails: {one.failed})" if one.failed else ""),
                formula(one.blocked_us, letter, "µs"), f"{one.blocked_us.error:.0%}",
                Text(duration(one.at_us), style="bold red" if over else ""),
                formula(one.commands, letter), formula(one.instructions, letter),
            ]  # fmt: skip
            if checked:
                form = checked.forms.get((one.axis, one.situation))
                cells.append(formula(form, letter, "µs") if form else "–")
            table.add_row(*cells)
        console.print(table)
    if memory is not None:
        console.print(f"memory: the keys hold {formula(memory, 'n', 'B')} (± {memory.error:.0%})")
    if checked is not None:
        console.print(
            f"{checked.server}: {checked.ratio:.2f} of the estimated time; nine of ten calls within a factor of "
            f"{checked.within:.1f} of that. MEMORY USAGE there is {checked.memory_at_length:.2f} of what is told "
            f"here where the store holds most, and {checked.memory:.2f} at worst."
        )


def told_dearer(one: Dearer) -> str:
    """A line that says what got dearer, and by how much."""
    shown = duration if one.what == "blocked_us" else figure
    grows = ", and grows faster than before" if one.grows else ""
    return f"{one.situation} ({one.axis}): {WORDS[one.what]} {shown(one.was)} before, {shown(one.now)} now{grows}"


def cost_page(store: str, estimated: Sequence[Estimate], memory: Fitted | None, budget_us: float) -> str:
    """The text of the page: each operation with its measurements and the line through them."""
    from markupsafe import Markup

    from orderlab.report.report_page import template
    from orderlab.report.words import harmless

    charts = [
        {"title": f"{one.situation} ({one.axis})", "form": formula(one.blocked_us, LETTERS[one.axis], "µs"),
         "error": f"{one.blocked_us.error:.0%}", "at": f"{LETTERS[one.axis]} = {one.at:,}: {duration(one.at_us)}",
         "is_over": one.at_us > budget_us, "svgs": [Markup(_chart(one, what)) for what in CHARTS if _is_any(one, what)]}
        for one in estimated
    ]  # fmt: skip
    text = None if memory is None else f"{formula(memory, 'n', 'B')} (± {memory.error:.0%})"
    return harmless(
        template("cost.html.j2").render(
            title=f"orderlab cost: {store}", store=store, charts=charts, memory=text, budget=duration(budget_us)
        )
    )


def _chart(one: Estimate, what: str) -> str:
    """One of what was measured of an operation, and the line through it."""
    from orderlab.report.charts import ChartAxis, panel, scale_of

    curves = _curves(one, what)
    xs = [mark.x for curve in curves for mark in curve.marks]
    ys = [mark.y for curve in curves for mark in curve.marks]
    chart: str = panel(
        f"{one.situation}, {one.axis}: {WORDS[what]}", curves, ChartAxis(AXES[one.axis], scale_of(xs)),
        ChartAxis(CHARTS[what], scale_of(ys)),
    )  # fmt: skip
    return chart


def _is_any(one: Estimate, what: str) -> bool:
    return any(getattr(reading, what) for reading in one.readings)


def _curves(one: Estimate, what: str) -> list[Curve]:
    from orderlab.report.charts import Curve, Mark

    form: Fitted = getattr(one, what)
    counted = [(reading.size, float(getattr(reading, what))) for reading in one.readings]
    line = [Mark(size, max(form.at(size), 0)) for size, _ in counted if size >= form.begins]
    return [
        Curve(
            "measured", [Mark(size, each, told=f"{each:,.4g} {CHARTS[what]}") for size, each in counted], is_cloud=True
        ),
        Curve("fitted", line),
    ]
