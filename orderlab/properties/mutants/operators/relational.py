"""Relational swaps: a comparison takes in one value more or less, or is turned round."""

from __future__ import annotations

from collections.abc import Iterator

from orderlab.properties.mutants.syntax import Change, Chunk

SWAPS = {
    b"<": (b"<=", b">="),
    b"<=": (b"<", b">"),
    b">": (b">=", b"<="),
    b">=": (b">", b"<"),
    b"==": (b"~=",),
    b"~=": (b"==",),
}


def changes(chunk: Chunk) -> Iterator[Change]:
    """Each comparison with its nearest neighbour and with its opposite."""
    for _, operator, _ in chunk.binary():
        for other in SWAPS.get(chunk.text(operator), ()):
            yield chunk.replaced(operator, other, f"{chunk.text(operator).decode()} becomes {other.decode()}")
