"""Constants one higher and one lower: 65535 among them, indices, bounds, chunk sizes."""

from __future__ import annotations

from collections.abc import Iterator

from orderlab.properties.mutants.syntax import Change, Chunk


def changes(chunk: Chunk) -> Iterator[Change]:
    """Each whole number in the script, plus and minus one."""
    for node in chunk.nodes("number"):
        text = chunk.text(node)
        try:
            value = int(text, 16) if text[:2].lower() == b"0x" else int(text)
        except ValueError:
            continue  # a fraction or an exponent: one more or less says nothing of it
        for other in (value + 1, value - 1):
            spelled = b"%d" % other if other >= 0 else b"(%d)" % other
            yield chunk.replaced(node, spelled, f"{value} becomes {other}")
