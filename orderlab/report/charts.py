"""Charts as SVG text for the pages: curves with intervals along an axis, and intervals in rows below each other.

Each curve is told by its name at its end, and has a dash and a marker of its own, so that no colour has to be told from
another. Charts are as wide as a telephone unless told otherwise, so that several stand beside each other on a screen;
marks lead to their row of the page's table. What a panel draws lies in an inner picture, which cuts what leaves it, so
that the page's script can stretch it along x (`data-zoom`); without a script it is whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 360, 222
WIDE = 1080
"""Of a chart, as wide as the page."""
LABEL_PX, LABEL_MAX = 6.1, 22
"""Of one character of a label, and how many are drawn; the whole name is told by hovering."""
ROW_MAX = 56
"""Characters of a line above a row."""
COLOURS = ("#000000", "#0060a8", "#c04000", "#007a5a", "#9c4a86", "#5c6066", "#8a6a00", "#2a93c8")
"""After Okabe and Ito, darker where text of that colour stands on white: told apart by readers who are colour-blind."""
DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 2", "1 2", "9 3 2 3 2 3")
LINES_MAX = len(DASHES)
"""In one chart: more cannot be told apart without colour."""
LOG_FROM = 30
"""From this ratio of the greatest to the least on an axis counts in powers of ten."""
TICKS_MAX = 6
MARGIN = 7.0
"""Pixels around what lies between the axes, for markers."""
DRAWN_MAX = 1e290
"""Beyond it differences of two numbers overflow."""


class Mark(NamedTuple):
    """A value with its interval; ``told`` is shown by hovering, ``link`` the id of what tells more of it."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    told: str = ""
    link: str = ""
    is_open: bool = False
    """Drawn hollow."""
    is_bad: bool = False
    """Crossed out: a run behind it failed or broke a law."""


class Curve(NamedTuple):
    """Marks that a line goes through; with steps, as of a front; without a line, a cloud."""

    name: str
    marks: Sequence[Mark]
    is_step: bool = False
    is_cloud: bool = False
    style: int | None = None
    """Which colour, dash and marker; by its place among the curves where it does not say."""


class Row(NamedTuple):
    """What a row is about, what its marks say in words, and the marks, along x."""

    name: str
    words: str
    marks: Sequence[Mark]


class ChartAxis(NamedTuple):
    """What is measured, with its unit, on which scale; ``at``: the only values that there are, if they are few."""

    name: str
    scale: Scale
    at: tuple[float, ...] = ()

    @property
    def ticks(self) -> Sequence[float]:
        """Where numbers stand."""
        return self.at if 0 < len(self.at) <= TICKS_MAX else self.scale.ticks()


@dataclass(frozen=True)
class Scale:
    """From the least to the greatest value of an axis."""

    low: float
    high: float
    is_log: bool = False

    def place(self, value: float) -> float:
        """From 0 (the low end) to 1."""
        low, high = self.low, self.high
        if self.is_log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, self.low))
        return min(1.0, max(0.0, (value - low) / (high - low)))

    def ticks(self) -> list[float]:
        """Round numbers within it."""
        if self.is_log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for steps in ((1,), (1, 3), (1, 2, 5)):
                found = [step * 10.0**power for power in powers for step in steps]
                found = [one for one in found if self.low <= one * (1 + 1e-9) and one <= self.high * (1 + 1e-9)]
                if len(found) >= 3:
                    return found[:: -(-len(found) // 6)]
        raw = (self.high - self.low) / 4
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(power * one for one in (1, 2, 5, 10) if power * one >= raw * (1 - 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


def scale_of(values: Iterable[float], is_log: bool | None = None, room: float = 0.05, from_zero: bool = True) -> Scale:
    """The scale on which all finite values lie, with a little room; from 0 where they reach near to it. ``is_log``:
    None to see."""
    found = sorted(one for one in values if is_drawn(one))
    if not found:
        return Scale(0.0, 1.0)
    low, high = found[0], found[-1]
    if is_log is None:
        is_log = low > 0 and high / low > LOG_FROM and len(set(found)) > 2
    if is_log and low > 0 and high > low:
        factor = (high / low) ** room
        return Scale(low / factor, high * factor, True)
    if low == high:
        reach = abs(low) * 0.1 or 1.0
        return Scale(low - reach, high + reach)
    margin = (high - low) * room
    near_zero = from_zero and 0 <= low < high / 2
    return Scale(0.0 if near_zero else low - margin, high + margin)


def is_drawn(value: float | None) -> bool:
    """Whether a value has a place on an axis."""
    return value is not None and abs(value) < DRAWN_MAX


def figure(value: float) -> str:
    """A number at a tick."""
    if value and not 1e-3 <= abs(value) < 1e7:
        return f"{value:.3g}"
    return f"{value:,.10g}" if abs(value) >= 1 else f"{value:.6g}"


def panel(
    title: str,
    curves: Sequence[Curve],
    x: ChartAxis,
    y: ChartAxis,
    limits: Sequence[tuple[float, str]] = (),
    width: int = WIDTH,
) -> str:
    """One chart of at most LINES_MAX curves. ``limits``: values of y at which a dotted line is drawn, with its
    words."""
    curves = [one._replace(marks=_drawable(one.marks)) for one in curves]
    ticks = [(tick, figure(tick)) for tick in y.ticks]
    left = 14 + LABEL_PX * max((len(text) for _, text in ticks), default=1)
    names = [one.name for one in curves if one.name and one.marks]
    right = width - 10 - (12 + LABEL_PX * min(LABEL_MAX, max(map(len, names))) if names else 0)
    top, bottom = 10.0, HEIGHT - 34.0

    def at(mark_x: float, mark_y: float) -> tuple[float, float]:
        return left + x.scale.place(mark_x) * (right - left), bottom - y.scale.place(mark_y) * (bottom - top)

    parts: list[str] = []
    for tick, text in ticks:
        parts.append(_line(left, at(0, tick)[1], right, at(0, tick)[1], "grid"))
        parts.append(_text(left - 5, at(0, tick)[1] + 4, text, "end"))
    parts += _below(x, left, right, bottom, width)
    for value, words in limits:
        if is_drawn(value) and y.scale.low <= value <= y.scale.high:
            parts.append(_line(left, at(0, value)[1], right, at(0, value)[1], "limit"))
            parts.append(_text(right - 2, at(0, value)[1] - 3, words, "end"))
    ends = []
    drawn: list[str] = []
    for place, one in enumerate(curves):
        if not one.marks:
            continue
        number = place if one.style is None else one.style
        colour, placed = COLOURS[number % LINES_MAX], [at(mark.x, mark.y) for mark in one.marks]
        if not one.is_cloud and len(placed) > 1:
            drawn.append(
                f'<path class="curve" d="{_path(placed, one.is_step)}" stroke="{colour}" '
                f'stroke-dasharray="{DASHES[number % LINES_MAX] or "none"}"/>'
            )
        for mark, (px, py) in zip(one.marks, placed, strict=True):
            drawn.append(_mark(mark, px, py, number, [at(mark.x, end)[1] for end in _ends(mark)], upright=True))
        ends.append((placed[-1], one.name, number))
    parts.append(_plot(drawn, left, right, top, bottom))
    parts += _names(ends, right, top, bottom)
    kind = "log" if x.scale.is_log else "linear"
    zoom = f"{kind} {x.scale.low!r} {x.scale.high!r} {left:.1f} {right:.1f} {bottom:.1f}"
    return _svg(title, parts, HEIGHT, width, f' data-zoom="{zoom}"')


def _plot(parts: Iterable[str], left: float, right: float, top: float, bottom: float) -> str:
    """What lies between the axes, with room for markers at their ends."""
    box = (left - MARGIN, top - MARGIN, right - left + 2 * MARGIN, bottom - top + 2 * MARGIN)
    x, y, width, height = (f"{one:.1f}" for one in box)
    frame = f'x="{x}" y="{y}" width="{width}" height="{height}" viewBox="{x} {y} {width} {height}"'
    return f'<svg class="plot" {frame}>{"".join(parts)}</svg>'


def rows_of_intervals(
    title: str, rows: Sequence[Row], x: ChartAxis, limits: Sequence[tuple[float, str]] = (), width: int = WIDTH
) -> str:
    """One chart: each row says above its marks what they are."""
    left, right, line = 8.0, width - 8.0, 13.0
    lines = [_said(one) for one in rows]
    height = 26 + sum(14 * len(said) + line * len(one.marks) + 6 for one, said in zip(rows, lines, strict=True)) + 34

    def at(value: float) -> float:
        return left + x.scale.place(value) * (right - left)

    parts: list[str] = []
    y, bottom = 22.0, height - 34.0
    for value, words in limits:
        if is_drawn(value):
            parts.append(_line(at(value), 16, at(value), bottom, "limit"))
            place = x.scale.place(value)
            parts.append(_text(at(value), 12, words, "start" if place < 0.25 else "end" if place > 0.75 else "middle"))
    parts += _below(x, left, right, bottom, width)
    for one, said in zip(rows, lines, strict=True):
        for words in said:
            y += 14
            parts.append(_text(left, y - 3, _short(words, ROW_MAX), "over", one.name))
        for number, mark in enumerate(one.marks):
            if is_drawn(mark.x):
                parts.append(
                    _mark(mark, at(mark.x), y + line / 2, number, [at(end) for end in _ends(mark)], upright=False)
                )
            y += line
        y += 6
    return _svg(title, parts, round(height), width)


def _said(row: Row) -> list[str]:
    """Name and words, on one line where it holds them."""
    whole = ": ".join(filter(None, (row.name, row.words)))
    return [whole] if len(whole) <= ROW_MAX else [row.name, row.words]


def _drawable(marks: Sequence[Mark]) -> list[Mark]:
    return [one for one in marks if is_drawn(one.x) and is_drawn(one.y)]


def _ends(mark: Mark) -> list[float]:
    if (
        mark.low is None
        or mark.high is None
        or not (is_drawn(mark.low) and is_drawn(mark.high))
        or mark.low == mark.high
    ):
        return []
    return [mark.low, mark.high]


def _below(x: ChartAxis, left: float, right: float, bottom: float, width: int) -> Iterator[str]:
    """The axis below a chart."""
    yield _line(left, bottom, right, bottom, "base")
    yield '<g class="ticks">'
    free = -math.inf
    for tick in x.ticks:
        place, text = left + x.scale.place(tick) * (right - left), figure(tick)
        yield _line(place, bottom, place, bottom + 4, "base")
        half = LABEL_PX * len(text) / 2
        if place - half > free:
            shift = min(0.0, width - 2 - place - half)
            yield _text(place + shift, bottom + 15, text, "middle")
            free = place + half + 5
    yield "</g>"
    yield _text((left + right) / 2, bottom + 30, x.name, "axis middle")


def _names(
    ends: Sequence[tuple[tuple[float, float], str, int]], right: float, top: float, bottom: float
) -> Iterator[str]:
    """The name of each curve at its end, none upon another."""
    wanted = sorted((one for one in ends if one[1]), key=lambda one: one[0][1])
    places: list[float] = []
    for (_, y), _, _ in wanted:
        places.append(max(y, places[-1] + 12 if places else top))
    over = places[-1] - bottom if places else 0
    if over > 0:
        for number in reversed(range(len(places))):
            limit = bottom if number == len(places) - 1 else places[number + 1] - 12
            places[number] = min(places[number], limit)
    for ((x, y), name, number), place in zip(wanted, places, strict=True):
        colour = COLOURS[number % LINES_MAX]
        yield f'<path class="lead" d="M{x + 5:.1f} {y:.1f} L{right + 8:.1f} {place:.1f}" stroke="{colour}"/>'
        yield f'<g fill="{colour}">{_text(right + 11, place + 4, _short(name, LABEL_MAX), "name", name)}</g>'


def _mark(mark: Mark, x: float, y: float, number: int, ends: Sequence[float], upright: bool) -> str:
    """A marker with its interval; a link where it leads somewhere."""
    colour = COLOURS[number % LINES_MAX]
    drawn = ""
    if ends:
        low, high = ends
        drawn = f"M{x:.1f} {low:.1f}V{high:.1f}M{x - 3:.1f} {low:.1f}h6M{x - 3:.1f} {high:.1f}h6" if upright else (
            f"M{low:.1f} {y:.1f}H{high:.1f}M{low:.1f} {y - 3:.1f}v6M{high:.1f} {y - 3:.1f}v6")  # fmt: skip
        drawn = f'<path class="reach" d="{drawn}" stroke="{colour}"/>'
    fill = "#fff" if mark.is_open else colour
    drawn += f'<path d="{_shape(number, x, y)}" fill="{fill}" stroke="{colour}" stroke-width="1.4"/>'
    if mark.is_bad:
        drawn += f'<path class="bad" d="M{x - 6:.1f} {y - 6:.1f}l12 12m0 -12l-12 12"/>'
    tip = f' data-tip="{escape(mark.told)}"' if mark.told else ""
    if mark.link:
        return f'<a href="#{escape(mark.link)}" tabindex="-1"{tip}>{drawn}</a>'
    return f"<g{tip}>{drawn}</g>"


def _shape(number: int, x: float, y: float) -> str:
    """Circles, squares, triangles, diamonds in turn."""
    size = 3.6
    match number % 4:
        case 0:
            return f"M{x - size:.1f} {y:.1f}a{size} {size} 0 1 0 {2 * size} 0a{size} {size} 0 1 0 {-2 * size} 0z"
        case 1:
            return f"M{x - size:.1f} {y - size:.1f}h{2 * size}v{2 * size}h{-2 * size}z"
        case 2:
            return f"M{x:.1f} {y - 4.6:.1f}l4.4 8h-8.8z"
        case _:
            return f"M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z"


def _path(placed: Sequence[tuple[float, float]], is_step: bool) -> str:
    x, y = placed[0]
    parts = [f"M{x:.1f} {y:.1f}"]
    for x, y in placed[1:]:
        parts.append(f"H{x:.1f}V{y:.1f}" if is_step else f"L{x:.1f} {y:.1f}")
    return "".join(parts)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _line(x: float, y: float, to_x: float, to_y: float, style: str) -> str:
    return f'<path class="{style}" d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}"/>'


def _text(x: float, y: float, text: str, style: str, whole: str = "") -> str:
    tip = f' data-tip="{escape(whole)}"' if whole and whole != text else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}"{tip}>{escape(text)}</text>'


def _svg(title: str, parts: Iterable[str], height: int, width: int, more: str = "") -> str:
    head = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}"{more}>'
    return f"{head}{''.join(parts)}</svg>"
