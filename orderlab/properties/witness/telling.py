"""What is told of long runs and large states: steps that say the same once, of a state the part that changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from orderlab.properties.validation.findings import wording

ALIKE_MIN = 20
"""So many steps in a row that differ in names and numbers alone are told by the first and the last of them."""
STATE_SHOWN = 300
"""Characters of the state after one step."""


def places_told(said: Sequence[Sequence[str]]) -> Iterator[int | range]:
    """The places of steps in order: each that is told, and as a range those between two that say the same."""
    at = 0
    for _, alike in groupby(said, lambda texts: tuple(map(wording, texts))):
        count = len(list(alike))
        if count < ALIKE_MIN:
            yield from range(at, at + count)
        else:
            yield from (at, range(at + 1, at + count - 1), at + count - 1)
        at += count


def left_out(places: range) -> str:
    """The line for steps that are not told."""
    return f"{places.start + 1} to {places.stop}: {len(places):,} steps like these"


def changes_told(states: Sequence[str]) -> Iterator[str]:
    """Each state as it is told after the one before: whole while it is short, else where it differs; empty where it
    does not."""
    before = ""
    for state in states:
        yield "" if state == before else state if len(state) <= STATE_SHOWN else _changed(before, state)
        before = state


def _changed(before: str, after: str) -> str:
    same = _alike(before, after)
    alike = _alike(before[same:][::-1], after[same:][::-1])
    begin = max(after.rfind("(", 0, same), 0)  # where the item begins that differs
    begin = max(after.rfind(" ", 0, begin), 0)
    end = min(len(after) - alike, begin + STATE_SHOWN)
    return f"{'...' if begin else ''}{after[begin:end].strip()}{'...' if end < len(after) else ''}"


def _alike(one: str, other: str) -> int:
    """How many characters both begin with."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
