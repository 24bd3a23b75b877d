"""A trace as a sequence diagram: clients, the store and the faults as lanes; as one SVG file and as Mermaid."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from orderlab.model.contracts.client_steps import TIME
from orderlab.properties.export.transcript import FAULTS, STORE, Change, Move, Transcript, changes_between

KEYS_SHOWN = 12
"""Places of a state that are drawn; others are counted."""
VALUE_MAX = 160
"""Characters of one value."""


def changed(move: Move, before: Move) -> tuple[list[Change], int]:
    """What a step changed, as much of it as is drawn, and how much is left out."""
    found = [one for one in changes_between(before.state, move.state) if one.sign]
    return found[:KEYS_SHOWN], len(found) - KEYS_SHOWN


def told_change(one: Change) -> str:
    """A change in one line: sign, name, value."""
    value = one.value if len(one.value) <= VALUE_MAX else one.value[:VALUE_MAX] + "..."
    return f"{one.sign} {one.name}" + ("" if one.sign == "-" else f" = {value}")


# -- SVG
# -------------------------------------------------------------------------------------------------------------------

LANE_PX, LEFT_PX, TOP_PX, LINE_PX, KEYS_PX = 210, 60, 96, 16, 470
TITLE_COLUMNS = 118
COLUMNS = 30
"""Characters of a line beside an arrow."""
KEY_COLUMNS = 62
STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1a1a1a;
  paint-order: stroke; stroke: #fff; stroke-width: 3px }
.title { font-size: 16px; font-weight: 600 } .lane { font-weight: 600; text-anchor: middle } .n { fill: #555 }
.key { font: 12px ui-monospace, Menlo, Consolas, monospace; white-space: pre } .quiet { fill: #555 }
.life { stroke: #9a9a9a; stroke-dasharray: 3 4 } .arrow { stroke: #1a1a1a; stroke-width: 1.4; fill: none }
.back { stroke-dasharray: 6 4 } .box { fill: #fff; stroke: #1a1a1a } .rule { stroke: #ddd }
.fault { fill: #fff4d6; stroke: #8a5a00 } .broken { fill: #fdecea; stroke: #a1260d; stroke-width: 1.5 } .law { fill: #8a1c08; font-weight: 600; stroke: #fdecea }
"""  # noqa: E501


class Row(NamedTuple):
    """A step with the lines of text that it needs, and its height."""

    number: int
    move: Move
    action: list[str]
    answer: list[str]
    fault: list[str]
    broken: list[str]
    keys: list[str]

    @property
    def height(self) -> int:
        """In pixels."""
        beside = max(len(self.action) + len(self.answer), len(self.fault)) + (2 if self.answer else 1)
        return max(beside, len(self.keys) + 1) * LINE_PX + len(self.broken) * LINE_PX + (22 if self.broken else 10)


def svg(told: Transcript) -> str:
    """The text of the file."""
    lanes, rows = told.lanes, list(_rows(told))
    title = _wrapped(told.title, TITLE_COLUMNS)
    top = TOP_PX + (len(title) - 1) * 20
    keys_at = LEFT_PX + len(lanes) * LANE_PX
    width, height = max(keys_at + KEYS_PX, 960), top + sum(row.height for row in rows) + 40
    at = {lane: LEFT_PX + LANE_PX // 2 + number * LANE_PX for number, lane in enumerate(lanes)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-labelledby="title">',
        f'<title id="title">{_safe(told.title)}</title>',
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse">'
        '<path d="M0 0 10 5 0 10z" fill="#1a1a1a"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        *(_text(16, 28 + number * 20, line, "title") for number, line in enumerate(title)),
    ]
    for lane in lanes:
        x = at[lane]
        parts.append(f'<rect class="box" x="{x - 62}" y="{top - 44}" width="124" height="26" rx="4"/>')
        parts.append(_text(x, top - 26, lane, "lane"))
        parts.append(f'<line class="life" x1="{x}" y1="{top - 18}" x2="{x}" y2="{height - 16}"/>')
    parts.append(_text(keys_at, top - 26, "what changed: + new  ~ changed  - gone", "quiet"))
    y = top
    for row in rows:
        parts += _drawn(row, y, at, keys_at, width, told)
        y += row.height
    return "\n".join([*parts, "</svg>"]) + "\n"


def _rows(told: Transcript) -> Iterator[Row]:
    before = told.start
    for number, move in enumerate(told.moves, 1):
        found, more = changed(move, before)
        keys = [line for one in found for line in _wrapped(told_change(one), KEY_COLUMNS)]
        keys += [f"and {more} more"] if more > 0 else []
        broken = [line for law, text in move.broken for line in _wrapped(f"✗ {law} is violated: {text}", TITLE_COLUMNS)]
        yield Row(
            number, move, _wrapped(move.action, COLUMNS), _wrapped(move.answer, COLUMNS) if move.answer else [],
            _wrapped(move.fault, 24) if move.fault else [], broken, keys,
        )  # fmt: skip
        before = move


def _drawn(row: Row, y: int, at: dict[str, int], keys_at: int, width: int, told: Transcript) -> Iterator[str]:
    move, x = row.move, at[row.move.lane]
    yield f'<line class="rule" x1="16" y1="{y}" x2="{width - 16}" y2="{y}"/>'
    if told.loop_start == row.number - 1:
        yield _text(16, y + 32, "↻ from here again", "law")
    yield _text(16, y + LINE_PX + 1, f"{row.number}.", "n")
    calls = bool(move.call_count) and STORE in at
    text_at = x + 8
    for number, line in enumerate(row.action):
        yield _text(text_at, y + LINE_PX * (number + 1) + 1, line)
    below = y + LINE_PX * len(row.action) + 7
    if calls:
        yield f'<line class="arrow" x1="{x}" y1="{below}" x2="{at[STORE] - 2}" y2="{below}" marker-end="url(#tip)"/>'
    for number, line in enumerate(row.answer):
        yield _text(text_at, below + LINE_PX * (number + 1), line, "quiet")
    if calls and row.answer:
        back = below + LINE_PX * len(row.answer) + 6
        yield f'<line class="arrow back" x1="{at[STORE]}" y1="{back}" x2="{x + 2}" y2="{back}" marker-end="url(#tip)"/>'
    if row.fault:
        yield (
            f'<rect class="fault" x="{at[FAULTS] - 98}" y="{y + 5}" width="196" '
            f'height="{LINE_PX * len(row.fault) + 6}" rx="3"/>'
        )
        for number, line in enumerate(row.fault):
            yield _text(at[FAULTS] - 90, y + LINE_PX * (number + 1) + 3, line)
    for number, line in enumerate(row.keys):
        yield _text(keys_at, y + LINE_PX * (number + 1) + 1, line, "key")
    if row.broken:
        box = y + row.height - LINE_PX * len(row.broken) - 14
        yield (
            f'<rect class="broken" x="40" y="{box}" width="{width - 56}" height="{LINE_PX * len(row.broken) + 8}" '
            'rx="3"/>'
        )
        for number, line in enumerate(row.broken):
            yield _text(50, box + LINE_PX * (number + 1), line, "law")


def _text(x: int, y: int, text: str, style: str = "") -> str:
    return f'<text{f" class={chr(34)}{style}{chr(34)}" if style else ""} x="{x}" y="{y}">{_safe(text)}</text>'


def _wrapped(text: str, columns: int) -> list[str]:
    return textwrap.wrap(_visible(text), columns, break_long_words=True, break_on_hyphens=False) or [""]


def _visible(text: str) -> str:
    """Text with escapes for what cannot be seen, or moves what comes after it."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def _safe(text: str) -> str:
    return escape(_visible(text), {'"': "&quot;"})


# -- Mermaid
# ---------------------------------------------------------------------------------------------------------------

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,()=+-_/'")
"""What Mermaid takes as text wherever it stands; everything else is written as an entity."""


def mermaid(told: Transcript) -> str:
    """The text of a ``sequenceDiagram``."""
    lanes = told.lanes
    names = {lane: f"p{number}" for number, lane in enumerate(lanes)}
    lines = ["sequenceDiagram", "    autonumber", f"    accTitle: {_entities(told.title)}"]
    for lane in lanes:
        kind = "participant" if lane in (STORE, TIME, FAULTS) else "actor"
        lines.append(f"    {kind} {names[lane]} as {_entities(lane)}")
    before = told.start
    for number, move in enumerate(told.moves):
        if told.loop_start == number:
            lines.append("    loop again and again")
        lines += [f"    {line}" for line in _messages(move, before, names, lanes)]
        before = move
    if told.loop_start is not None and told.loop_start < len(told.moves):
        lines.append("    end")
    return "\n".join(lines) + "\n"


def _messages(move: Move, before: Move, names: dict[str, str], lanes: Sequence[str]) -> Iterator[str]:
    who = names[move.lane]
    store = names.get(STORE, who)
    if move.fault:
        yield f"Note over {names[FAULTS]}: {_entities(move.fault)}"
    if move.call_count:
        yield f"{who}->>{store}: {_entities(move.action)}"
        if move.answer:
            yield f"{store}-->>{who}: {_entities(move.answer)}"
    else:
        yield f"{who}->>{who}: {_entities(move.action)}"
    found, more = changed(move, before)
    if found:
        told = [told_change(one) for one in found] + ([f"and {more} more"] if more > 0 else [])
        yield f"Note over {store}: {'<br/>'.join(map(_entities, told))}"
    for law, text in move.broken:
        across = ",".join(dict.fromkeys((names[lanes[0]], names[lanes[-1]])))
        yield f"Note over {across}: {_entities(f'{law} IS VIOLATED: {text}')}"


def _entities(text: str) -> str:
    """Text in which nothing is markup: other characters as ``#code;``, and so the keyword ``end``."""
    safe = "".join(one if one in _PLAIN else f"#{ord(one)};" for one in _visible(text))
    return safe.replace("end", "en#100;").replace("End", "En#100;").replace("END", "EN#68;") or "#32;"
