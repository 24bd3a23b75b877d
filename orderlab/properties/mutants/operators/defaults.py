"""The default behind ``or`` dropped: what stands for a value that is missing."""

from __future__ import annotations

from collections.abc import Iterator

from orderlab.properties.mutants.syntax import Change, Chunk


def changes(chunk: Chunk) -> Iterator[Change]:
    """Each ``a or b`` as ``a``."""
    for left, operator, right in chunk.binary():
        if chunk.text(operator) == b"or":
            said = f"dropped: or {chunk.text(right).decode('utf-8', 'replace')[:50]}"
            yield Change(left.end_byte, right.end_byte, b"", said)
