"""Arithmetic swaps: plus for minus, times for divided by, a remainder left out."""

from __future__ import annotations

from collections.abc import Iterator

from orderlab.properties.mutants.syntax import Change, Chunk

SWAPS = {b"+": b"-", b"-": b"+", b"*": b"/", b"/": b"*", b"%": b"*", b"^": b"*"}


def changes(chunk: Chunk) -> Iterator[Change]:
    """Each arithmetic operator as its counterpart."""
    for _, operator, _ in chunk.binary():
        other = SWAPS.get(chunk.text(operator))
        if other is not None:
            yield chunk.replaced(operator, other, f"{chunk.text(operator).decode()} becomes {other.decode()}")
