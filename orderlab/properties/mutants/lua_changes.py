"""Mutation operators on Lua itself: comparisons, arithmetic, constants, defaults, statements, their order, early
returns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tree_sitter import Node

from orderlab.properties.syntax import BLOCKS, Change, Chunk, siblings

# -- relational swaps --------------------------------------------------------------------------------------------------

COMPARISONS = {
    b"<": (b"<=", b">="),
    b"<=": (b"<", b">"),
    b">": (b">=", b"<="),
    b">=": (b">", b"<"),
    b"==": (b"~=",),
    b"~=": (b"==",),
}


def swap_comparisons(chunk: Chunk) -> Iterator[Change]:
    """Each comparison with its nearest neighbour and with its opposite."""
    for _, operator, _ in chunk.binary():
        for other in COMPARISONS.get(chunk.text(operator), ()):
            yield chunk.replaced(operator, other, f"{chunk.text(operator).decode()} becomes {other.decode()}")


# -- arithmetic swaps --------------------------------------------------------------------------------------------------

ARITHMETIC = {b"+": b"-", b"-": b"+", b"*": b"/", b"/": b"*", b"%": b"*", b"^": b"*"}


def swap_arithmetic(chunk: Chunk) -> Iterator[Change]:
    """Each arithmetic operator as its counterpart."""
    for _, operator, _ in chunk.binary():
        other = ARITHMETIC.get(chunk.text(operator))
        if other is not None:
            yield chunk.replaced(operator, other, f"{chunk.text(operator).decode()} becomes {other.decode()}")


# -- constants one higher and one lower --------------------------------------------------------------------------------


def shift_constants(chunk: Chunk) -> Iterator[Change]:
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


# -- the default behind ``or`` dropped ---------------------------------------------------------------------------------


def drop_defaults(chunk: Chunk) -> Iterator[Change]:
    """Each ``a or b`` as ``a``."""
    for left, operator, right in chunk.binary():
        if chunk.text(operator) == b"or":
            said = f"dropped: or {chunk.text(right).decode('utf-8', 'replace')[:50]}"
            yield Change(left.end_byte, right.end_byte, b"", said)


# -- a statement dropped -----------------------------------------------------------------------------------------------

KEPT = ("variable_declaration", "function_declaration")
"""Without a declaration the first use of its name is an error at once, which shows nothing."""


def drop_statements(chunk: Chunk) -> Iterator[Change]:
    """Each statement but declarations, left out."""
    for node in chunk.statements():
        if node.type not in KEPT:
            first_line = chunk.text(node).split(b"\n", 1)[0].decode("utf-8", "replace").strip()
            yield chunk.replaced(node, b"", f"dropped: {first_line[:60]}")


# -- the order of two effects swapped ----------------------------------------------------------------------------------

MOVED = ("function_call", "if_statement", "for_statement", "while_statement", "repeat_statement")
"""Statements that need no name which the other one declares."""


def swap_effects(chunk: Chunk) -> Iterator[Change]:
    """Each two neighbouring effects, the second first."""
    for block in chunk.nodes(*BLOCKS):
        for first, second in pairwise(siblings(block)):
            if _is_effect(chunk, first) and _is_effect(chunk, second):
                between = chunk.source[first.end_byte : second.start_byte]
                swapped = chunk.text(second) + between + chunk.text(first)
                said = f"swapped: {_told(chunk, first)} and {_told(chunk, second)}"
                yield Change(first.start_byte, second.end_byte, swapped, said)


def _is_effect(chunk: Chunk, node: Node) -> bool:
    return node.type in MOVED and chunk.has_effect(node)


def _told(chunk: Chunk, node: Node) -> str:
    return chunk.text(node).split(b"\n", 1)[0].decode("utf-8", "replace")[:40]


# -- an early return ---------------------------------------------------------------------------------------------------


def return_early(chunk: Chunk) -> Iterator[Change]:
    """Before each statement that calls a command: return what the script returns at its end, if it says."""
    last = siblings(chunk.root)[-1:]
    answer = chunk.text(last[0]) if last and last[0].type == "return_statement" else b"return"
    for node in chunk.statements():
        if node.type in ("function_declaration", "return_statement") or not chunk.has_effect(node):
            continue
        line = chunk.text(node).split(b"\n", 1)[0].decode("utf-8", "replace").strip()
        yield Change(node.start_byte, node.start_byte, b"do " + answer + b" end ", f"returns before: {line[:50]}")
