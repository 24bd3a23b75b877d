"""A Lua script as a tree with byte-exact places (tree-sitter), and what operators ask of it.

The grammar is of a newer Lua than Redis's; what Lua 5.1 does not compile is weeded out when mutants are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import tree_sitter_lua
from tree_sitter import Language, Node, Parser

from orderlab.model.errors import InputError

_PARSER = Parser(Language(tree_sitter_lua.language()))

STATEMENTS = frozenset(
    [
        "assignment_statement",
        "variable_declaration",
        "function_call",
        "if_statement",
        "for_statement",
        "while_statement",
        "repeat_statement",
        "do_statement",
        "function_declaration",
        "return_statement",
        "break_statement",
    ]
)
BLOCKS = ("chunk", "block")
HOST_CALLS = (b"redis.call", b"redis.pcall", b"server.call", b"server.pcall")


class Change(NamedTuple):
    """``replacement`` instead of the bytes from ``start`` to ``end``."""

    start: int
    end: int
    replacement: bytes
    said: str
    """What was done, in a few words."""


Operator = Callable[["Chunk"], Iterator[Change]]
"""Every change of one kind that can be made to a script."""


@dataclass(frozen=True)
class Chunk:
    """A parsed script."""

    source: bytes
    root: Node

    @classmethod
    def parse(cls, source: bytes, place: str = "script") -> Chunk:
        """Raises InputError where the grammar finds an error."""
        # A first line "#!..." is for the server; blanks of the same length keep every place where it is.
        end = source.find(b"\n") if source.startswith(b"#!") else 0
        end = len(source) if end < 0 else end
        root = _PARSER.parse(b" " * end + source[end:]).root_node
        if root.has_error:
            line = next((node.start_point[0] + 1 for node in _walk(root) if node.is_error or node.is_missing), 1)
            raise InputError(f"{place}:{line}: cannot be parsed as Lua; correct the script")
        return cls(source, root)

    def text(self, node: Node) -> bytes:
        """The bytes of a node, comments and all."""
        return self.source[node.start_byte : node.end_byte]

    def nodes(self, *kinds: str) -> Iterator[Node]:
        """Every node of these kinds, in the order of the source."""
        return (node for node in _walk(self.root) if node.type in kinds)

    def changed(self, change: Change) -> bytes:
        """The source with one change."""
        return self.source[: change.start] + change.replacement + self.source[change.end :]

    def line(self, place: int) -> int:
        """The line that a byte is on, from 1."""
        return self.source.count(b"\n", 0, place) + 1

    def replaced(self, node: Node, replacement: bytes, said: str) -> Change:
        """The change that puts something else in the place of a node."""
        return Change(node.start_byte, node.end_byte, replacement, said)

    def statements(self) -> Iterator[Node]:
        """Every statement, the outer before the inner ones."""
        return (node for node in self.nodes(*STATEMENTS) if is_statement(node))

    def binary(self) -> Iterator[tuple[Node, Node, Node]]:
        """Left side, operator and right side of every binary expression."""
        for node in self.nodes("binary_expression"):
            operator = next((child for child in node.children if not child.is_named and child.type != "--"), None)
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            if operator is not None and left is not None and right is not None:
                yield left, operator, right

    # -- calls of commands ---------------------------------------------------------------------------------------------

    @cached_property
    def call_names(self) -> frozenset[bytes]:
        """Expressions that call a command: ``redis.call`` and the locals that stand for it."""
        found = set(HOST_CALLS)
        for names, values in self.assignments():
            found |= {
                self.text(name) for name, value in zip(names, values, strict=False) if self.text(value) in HOST_CALLS
            }
        return frozenset(found)

    @cached_property
    def sending_functions(self) -> frozenset[bytes]:
        """Functions of the script whose first parameter is handed on as the command's name."""
        found = set()
        for function in self.nodes("function_declaration"):
            name, parameters = function.child_by_field_name("name"), function.child_by_field_name("parameters")
            first = (
                next((one for one in parameters.named_children if one.type == "identifier"), None)
                if parameters
                else None
            )
            if name is None or first is None:
                continue
            inner = [
                one for one in _walk(function) if one.type == "function_call" and self._callee(one) in self.call_names
            ]
            if any(given and self.text(given[0]) == self.text(first) for given in map(arguments, inner)):
                found.add(self.text(name))
        return frozenset(found)

    def commands(self) -> Iterator[Command]:
        """Every call whose command is written in it, directly or by a function that sends it."""
        senders = self.call_names | self.sending_functions
        for node in self.nodes("function_call"):
            given = arguments(node)
            if self._callee(node) in senders and given and given[0].type == "string":
                yield Command(node, given[0], tuple(given[1:]), self.string(given[0]).upper())

    def has_effect(self, node: Node) -> bool:
        """Whether a command may be called within ``node``."""
        senders = self.call_names | self.sending_functions
        return any(one.type == "function_call" and self._callee(one) in senders for one in _walk(node))

    def assignments(self) -> Iterator[tuple[list[Node], list[Node]]]:
        """Names and values of every assignment, local or not."""
        for node in self.nodes("assignment_statement"):
            sides = [child for child in node.named_children if child.type in ("variable_list", "expression_list")]
            if len(sides) == 2:
                names, values = (_plain(side) for side in sides)
                yield names, values

    def string(self, node: Node) -> bytes:
        """The content of a string literal, escapes as they stand."""
        return b"".join(self.text(child) for child in node.named_children if child.type == "string_content")

    def _callee(self, node: Node) -> bytes:
        name = node.child_by_field_name("name")
        return b"" if name is None else self.text(name)


class Command(NamedTuple):
    """One call of a command."""

    node: Node
    name_node: Node
    arguments: tuple[Node, ...]
    """Behind the command's name."""
    name: bytes
    """In capitals."""


def arguments(call: Node) -> list[Node]:
    """The arguments of a call."""
    given = call.child_by_field_name("arguments")
    return [] if given is None else _plain(given)


def is_statement(node: Node) -> bool:
    """Whether a node stands as a statement, not within another one's expression."""
    parent = node.parent
    return node.type in STATEMENTS and parent is not None and parent.type in BLOCKS


def siblings(block: Node) -> list[Node]:
    """The statements of a block, one after the other."""
    return [child for child in block.named_children if is_statement(child)]


def _plain(node: Node) -> list[Node]:
    return [child for child in node.named_children if child.type != "comment"]


def _walk(node: Node) -> Iterator[Node]:
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        waiting.extend(reversed(one.children))
