"""What is told of long runs and large states: steps that say the same once, of a state the part that changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import Any

from orderlab.model.contracts.base import State, shown
from orderlab.properties.validation.findings import wording

ALIKE_MIN = 20
"""So many steps in a row that differ in names and numbers alone are told by the first and the last of them."""
ITEMS_TOLD = 3
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


def states_told(before: Collection[State], after: Collection[State]) -> str:
    """The states that explain what was seen so far: what changed, where one large state followed another."""
    if len(before) == len(after) == 1:
        (one,), (other,) = before, after
        if len(shown(other)) > STATE_SHOWN and type(one) is type(other) and hasattr(one, "_fields"):
            return _parts_changed(one, other)
    return "; ".join(sorted(map(shown, after)))


def _parts_changed(before: Any, after: Any) -> str:
    """What a record has that it had not, by fields; of a field with many items those that came and went."""
    parts: list[str] = []
    for name, old, new in zip(after._fields, before, after, strict=True):
        if old == new:
            continue
        if type(old) is type(new) is tuple:
            went, came = [one for one in old if one not in new], [one for one in new if one not in old]
            parts += [f"{name} without {brief_items(went)}"] if went else []
            parts += [f"{name} with {brief_items(came)}"] if came else []
        else:
            parts.append(f"{name}={shown(new)}")
    return f"{type(after).__name__}: {'; '.join(parts) or 'its items in another order'}"


def brief_items(items: Sequence[Any]) -> str:
    """A few of the items, and how many more there are."""
    parts = ", ".join(map(shown, items[:ITEMS_TOLD]))
    return parts if len(items) <= ITEMS_TOLD else f"{parts} and {len(items) - ITEMS_TOLD:,} more"


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
