"""An early return: the script answers as at its end, before one of its effects."""

from __future__ import annotations

from collections.abc import Iterator

from orderlab.properties.mutants.syntax import Change, Chunk, siblings


def changes(chunk: Chunk) -> Iterator[Change]:
    """Before each statement that calls a command: return what the script returns at its end, if it says."""
    last = siblings(chunk.root)[-1:]
    answer = chunk.text(last[0]) if last and last[0].type == "return_statement" else b"return"
    for node in chunk.statements():
        if node.type in ("function_declaration", "return_statement") or not chunk.has_effect(node):
            continue
        line = chunk.text(node).split(b"\n", 1)[0].decode("utf-8", "replace").strip()
        yield Change(node.start_byte, node.start_byte, b"do " + answer + b" end ", f"returns before: {line[:50]}")
