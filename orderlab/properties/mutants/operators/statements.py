"""A statement dropped: a call, an assignment, a whole branch or loop, a return, a break."""

from __future__ import annotations

from collections.abc import Iterator

from orderlab.properties.mutants.syntax import Change, Chunk

KEPT = ("variable_declaration", "function_declaration")
"""Without a declaration the first use of its name is an error at once, which shows nothing."""


def changes(chunk: Chunk) -> Iterator[Change]:
    """Each statement but declarations, left out."""
    for node in chunk.statements():
        if node.type not in KEPT:
            first_line = chunk.text(node).split(b"\n", 1)[0].decode("utf-8", "replace").strip()
            yield chunk.replaced(node, b"", f"dropped: {first_line[:60]}")
