"""A range widened or narrowed by one: loops, bounds of score ranges, open and closed ends."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from orderlab.properties.mutants.syntax import Change, Chunk

SCORE_RANGES = frozenset(
    (
        b"ZRANGEBYSCORE ZREVRANGEBYSCORE ZREMRANGEBYSCORE ZCOUNT ZRANGE ZRANGESTORE "
        b"ZRANGEBYLEX ZREVRANGEBYLEX ZREMRANGEBYLEX ZLEXCOUNT"
    ).split()
)


def changes(chunk: Chunk) -> Iterator[Change]:
    """Each numeric loop one longer or shorter at each end; each bound of a score range opened, closed or at zero."""
    for node in chunk.nodes("for_numeric_clause"):
        yield from _of_loop(chunk, node)
    for command in chunk.commands():
        if command.name in SCORE_RANGES:
            for argument in command.arguments[1:3]:
                yield from _of_bound(chunk, argument)


def _of_loop(chunk: Chunk, node: Node) -> Iterator[Change]:
    for end, steps in (("start", (b"+ 1",)), ("end", (b"+ 1", b"- 1"))):
        bound = node.child_by_field_name(end)
        if bound is None or bound.type == "number":
            continue  # a number is the operator of constants'
        for step in steps:
            text = b"(" + chunk.text(bound) + b") " + step
            yield chunk.replaced(
                bound, text, f"loop to {text.decode()}" if end == "end" else f"loop from {text.decode()}"
            )


def _of_bound(chunk: Chunk, argument: Node) -> Iterator[Change]:
    literal = argument
    if argument.type == "binary_expression":  # '(' .. score
        literal = argument.child_by_field_name("left") or argument
    if literal.type != "string":
        return
    text = chunk.string(literal)
    quote = chunk.text(literal)[:1]
    if quote not in (b"'", b'"'):
        return
    if text.startswith((b"(", b"[")):
        other = b"[" if text[:1] == b"(" and text[1:2].isalpha() else b""
        yield chunk.replaced(literal, quote + other + text[1:] + quote, f"{_said(text)} becomes closed")
    elif text.lower() in (b"-inf", b"+inf", b"inf"):
        yield chunk.replaced(literal, quote + b"0" + quote, f"{_said(text)} becomes 0")
    elif text and argument is literal:
        yield chunk.replaced(literal, quote + b"(" + text + quote, f"{_said(text)} becomes open")


def _said(text: bytes) -> str:
    return text.decode("utf-8", "replace")
