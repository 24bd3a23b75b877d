"""Where a script's values come from: KEYS, ARGV, replies of commands, literals, and what is made of these.

Flow is not followed: a variable is whatever is assigned to it anywhere in the script. What cannot be known is open, and
no rule speaks of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tree_sitter import Node

from orderlab.properties.lint.scopes import Scopes, Variable
from orderlab.properties.syntax import Chunk, Command, arguments
from orderlab.sim.redis.registry import COMMANDS, find, load_commands
from orderlab.sim.redis.registry import Command as CommandEntry

DEPTH_MAX = 40
"""Variables that stand for one another."""
KEYS, ARGV, LITERAL, DATA, OPEN = "keys", "argv", "literal", "data", "open"
"""Origins of a value: the two arrays of a script, text of the script, replies of commands, what is not known."""
PASSING = (b"tostring", b"tonumber", b"string.lower", b"string.upper", b"string.sub", b"string.format", b"string.gsub")
"""Functions whose result comes from where their arguments come from."""


@dataclass(frozen=True)
class WrittenCall:
    """A call of a command, as far as it is known from the text."""

    command: Command
    entry: CommandEntry | None
    """None for a command that the kernel does not know."""
    is_protected: bool
    """By `redis.pcall`."""
    is_direct: bool = True
    """Whether the arguments are those of the command, and not of a function of the script that calls it."""

    @property
    def node(self) -> Node:
        """The whole call."""
        return self.command.node

    @property
    def name(self) -> str:
        """The command in capitals."""
        return self.command.name.decode("utf-8", "replace")


class ParsedScript:
    """A parsed script with its variables and calls."""

    def __init__(self, source: bytes, place: str) -> None:
        load_commands()
        self.chunk = Chunk.parse(source, place)
        self.scopes = Scopes(self.chunk)

    @cached_property
    def calls(self) -> list[WrittenCall]:
        """Every call whose command is written in it."""
        return [self._call(command) for command in self.chunk.commands()]

    @cached_property
    def _calls_by_place(self) -> dict[int, WrittenCall]:
        return {call.node.start_byte: call for call in self.calls if call.node.type == "function_call"}

    def _call(self, command: Command) -> WrittenCall:
        argv = [command.name, *(self.string(part) or b"" for part in command.arguments)]
        callee = command.node.child_by_field_name("name")
        name = b"" if callee is None else self.chunk.text(callee)
        return WrittenCall(command, find(argv), name.endswith(b"pcall"), name in self.chunk.call_names)

    def text(self, node: Node) -> str:
        """What stands in the script."""
        return self.chunk.text(node).decode("utf-8", "replace")

    # -- constants -----------------------------------------------------------------------------------------------------

    def string(self, node: Node) -> bytes | None:
        """The text that an expression always is, as it stands in the script; None where it is none."""
        node = self.only_value(node)
        if node.type == "string":
            return self.chunk.string(node)
        if node.type == "number":
            return self.chunk.text(node)
        return None

    def number(self, node: Node) -> float | None:
        """The number that an expression always is."""
        node = self.only_value(node)
        sign = 1
        if node.type == "unary_expression" and node.children[0].type == "-":
            node, sign = node.named_children[0], -1
        try:
            return sign * float(int(self.chunk.text(node), 0)) if node.type == "number" else None
        except ValueError:
            try:
                return sign * float(self.chunk.text(node))
            except ValueError:
                return None

    def only_value(self, node: Node) -> Node:
        """The expression that a variable stands for where one is assigned to it alone; any other as it is."""
        for _ in range(DEPTH_MAX):
            if node.type == "parenthesized_expression" and node.named_children:
                node = node.named_children[0]
                continue
            variable = self.scopes.variable(node)
            if variable is None or variable.is_open or len(variable.values) != 1 or variable.kind == "global":
                return node
            node = variable.values[0]
        return node

    def call_of(self, node: Node) -> WrittenCall | None:
        """The call whose reply an expression is."""
        node = self.only_value(node)
        return self._calls_by_place.get(node.start_byte) if node.type == "function_call" else None

    # -- origins -------------------------------------------------------------------------------------------------------

    def origins(self, node: Node) -> frozenset[str]:
        """Where the value of an expression comes from: any of KEYS, ARGV, LITERAL, DATA, OPEN."""
        return frozenset(self._origins(node, frozenset()))

    def _origins(self, node: Node, seen: frozenset[Variable]) -> Iterator[str]:
        kind = node.type
        if kind in ("string", "number", "true", "false", "nil"):
            yield LITERAL
        elif kind == "identifier":
            yield from self._origins_of_name(node, seen)
        elif kind in ("bracket_index_expression", "dot_index_expression"):
            yield from self._origins(node.named_children[0], seen)
        elif kind in ("binary_expression", "unary_expression", "parenthesized_expression"):
            for child in node.named_children:
                yield from self._origins(child, seen)
        elif kind == "function_call":
            yield from self._origins_of_call(node, seen)
        elif kind == "table_constructor":
            for child in node.named_children:
                value = child.child_by_field_name("value")
                if value is not None:
                    yield from self._origins(value, seen)
        else:
            yield OPEN

    def _origins_of_name(self, node: Node, seen: frozenset[Variable]) -> Iterator[str]:
        name = self.chunk.text(node)
        variable = self.scopes.variable(node)
        if variable is None or (variable.kind == "global" and name in (b"KEYS", b"ARGV")):
            yield {b"KEYS": KEYS, b"ARGV": ARGV}.get(name, OPEN)
            return
        if variable in seen or len(seen) > DEPTH_MAX:
            return
        inner = seen | {variable}
        if variable.kind == "loop":
            # What a loop counts is no key; what it goes through holds its values.
            if variable.source is None or variable.place == 0:
                yield LITERAL
            else:
                yield from self._origins(variable.source, inner)
            return
        if variable.kind == "parameter":
            yield from self._origins_of_parameter(variable, inner)
        for value in (*variable.values, *variable.elements):
            yield from self._origins(value, inner)
        if variable.kind != "parameter" and (variable.is_open or not variable.values):
            yield OPEN

    def _callers(self, parameter: Variable) -> list[Node]:
        return [
            call
            for function, calls in self.scopes.calls.items()
            if any(value == parameter.function for value in function.values)
            for call in calls
        ]

    def is_nil(self, node: Node, seen: frozenset[Variable] = frozenset()) -> bool:
        """Whether an expression is nil, or needs a value of what is: a parameter for which every caller passes nil.
        A call with it as an argument is never made."""
        node = self.only_value(node)
        if node.type == "binary_expression" and node.children[1].type == "..":
            return any(self.is_nil(part, seen) for part in node.named_children)
        variable = self.scopes.variable(node)
        if variable is None or variable.kind != "parameter" or variable.values or variable in seen:
            return node.type == "nil"
        callers = [arguments(call) for call in self._callers(variable)]
        return bool(callers) and all(
            self.is_nil(given[variable.place], seen | {variable})
            if variable.place < len(given)
            else not any(self.spreads(part) for part in given)
            for given in callers
        )

    def _origins_of_parameter(self, variable: Variable, seen: frozenset[Variable]) -> Iterator[str]:
        """Those of the arguments of every call of the function, where it is called by its name alone."""
        callers = self._callers(variable)
        if not callers:
            yield OPEN
        for call in callers:
            given = arguments(call)
            if variable.place < len(given):
                yield from self._origins(given[variable.place], seen)

    def _origins_of_call(self, node: Node, seen: frozenset[Variable]) -> Iterator[str]:
        callee = node.child_by_field_name("name")
        name = b"" if callee is None else self.chunk.text(callee)
        if name in self.chunk.call_names or node.start_byte in self._calls_by_place:
            yield DATA
        elif name in (*PASSING, b"ipairs", b"pairs", b"unpack"):
            for part in arguments(node):
                yield from self._origins(part, seen)
        elif callee is not None and callee.type == "method_index_expression":
            yield from self._origins(callee.named_children[0], seen)
            for part in arguments(node):
                yield from self._origins(part, seen)
        elif name.startswith((b"cjson.", b"cmsgpack.", b"struct.")):
            for part in arguments(node):
                yield from self._origins(part, seen)
        else:
            yield OPEN

    def keys_of(self, call: WrittenCall) -> list[Node]:
        """The arguments of a call that are keys, where their places are known from the text."""
        if call.entry is None:
            return []
        given = call.command.arguments
        if any(part.type == "vararg_expression" or self.spreads(part) for part in given):
            given = tuple(given[: next(n for n, part in enumerate(given) if self.spreads(part))])
        marks = {b"\0%d" % number: part for number, part in enumerate(given)}
        argv = [call.command.name, *(self.string(part) or mark for mark, part in marks.items())]
        for number, (mark, part) in enumerate(marks.items(), 1):
            text = self.string(part)
            if text is None or not text.isdigit():
                argv[number] = mark
        words = {self.string(part) or mark: part for mark, part in marks.items()}
        try:
            found = call.entry.find_keys(argv)
        except IndexError:
            return []
        return [marks.get(key) or words[key] for key in found if key in marks or key in words]

    def spreads(self, node: Node) -> bool:
        """Whether an argument stands for any number of them."""
        if node.type == "vararg_expression":
            return True
        callee = node.child_by_field_name("name") if node.type == "function_call" else None
        return callee is not None and self.chunk.text(callee) in (b"unpack", b"table.unpack")


def knows(name: bytes) -> bool:
    """Whether the kernel has a command of that name."""
    return name.lower() in COMMANDS
