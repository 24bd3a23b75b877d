"""The order of two effects swapped: neighbours in one block that both call commands."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tree_sitter import Node

from orderlab.properties.mutants.syntax import BLOCKS, Change, Chunk, siblings

MOVED = ("function_call", "if_statement", "for_statement", "while_statement", "repeat_statement")
"""Statements that need no name which the other one declares."""


def changes(chunk: Chunk) -> Iterator[Change]:
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
