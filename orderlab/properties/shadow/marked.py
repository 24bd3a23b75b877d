"""Values that know where they come from, and the conditions on numbers that a run of a script meets."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

ARGUMENT, LENGTH, SIZE, NUMBER, BUILT, DATA, TIME = "argument", "length", "size", "number", "built", "data", "time"
"""What a symbol is: a number in ARGV, the bytes of an argument, how many things a command counted, a number that a
command replied, the length of a table that the script made, a number in packed data, a part of TIME."""
EQUALITY, ORDERED, CALCULATED, BRANCH, KEY, MEASURED = (
    "compared for equality", "ordered", "calculated with", "decides a branch", "decides a key", "measured",
)  # fmt: skip
MOVED = "only moved"
USES = (EQUALITY, ORDERED, CALCULATED, BRANCH, KEY, MEASURED)
NOTHING: frozenset[Any] = frozenset()


class Unknown(NamedTuple):
    """A number that a script was given."""

    kind: str
    place: Any
    """The index in ARGV; the command that was called; a node of the script."""

    @property
    def general(self) -> tuple[Any, ...]:
        """The same for symbols that are met alike: by the command's name and key, whatever else it was given."""
        return (self.kind, self.place[:2] if isinstance(self.place, tuple) else self.place)


Expression = Any
"""An Unknown, a number, or (operator, expression, ...)."""


class MarkedValue:
    """A value of Lua (None, bool, float, bytes, Table, a callable), the expression of its number where that is known,
    and the arguments of the script that it is made of."""

    __slots__ = ("expression", "marks", "value")

    def __init__(self, value: Any, expression: Expression = None, marks: frozenset[Any] = NOTHING) -> None:
        self.value = value
        self.expression = expression
        self.marks = marks

    @property
    def is_true(self) -> bool:
        """As Lua has it."""
        return self.value is not None and self.value is not False


NIL = MarkedValue(None)
TRUE, FALSE = MarkedValue(True), MarkedValue(False)


class LuaTable:
    """A table of Lua. ``length``: what its number of items is, where a command's reply gave it."""

    __slots__ = ("items", "length", "site")

    def __init__(
        self, items: dict[Any, MarkedValue] | None = None, length: Expression = None, site: Any = None
    ) -> None:
        self.items: dict[Any, MarkedValue] = items if items is not None else {}
        self.length = length
        self.site = site

    def get(self, key: Any) -> MarkedValue:
        """The value under a key; nil where there is none."""
        return self.items.get(key, NIL)

    def set(self, key: Any, value: MarkedValue) -> None:
        """Put a value under a key; nil removes it."""
        if value.value is None:
            self.items.pop(key, None)
        else:
            self.items[key] = value
        self.length = None

    @property
    def border(self) -> int:
        """What ``#`` gives."""
        size = len(self.items)
        if size == 0 or (float(size) in self.items and float(size + 1) not in self.items):
            return size
        size = 0
        while float(size + 1) in self.items:
            size += 1
        return size


class Edge(NamedTuple):
    """A comparison that a run met: ``left operator right``, and how it came out."""

    operator: str
    """``<``, ``<=``, ``==``, or a kind of edge that Redis or Lua has: see ``edges``."""
    left: Expression
    right: Expression
    held: bool
    site: tuple[str, int]
    """The script and the byte at which it stands."""


@dataclass
class Path:
    """What one run of a script met."""

    conditions: list[Edge] = field(default_factory=list)
    uses: dict[Any, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Argument -> what is done with it, besides being moved."""
    given: dict[Unknown, float] = field(default_factory=dict)
    """What each symbol was in this run."""
    texts: list[tuple[int, bytes]] = field(default_factory=list)
    """Arguments that were compared with a text."""
    is_exact: bool = True
    """Whether what the script writes is known byte for byte."""

    def use(self, what: str, *values: MarkedValue) -> None:
        """Note what is done with the arguments that values are made of."""
        for each in values:
            for mark in each.marks:
                self.uses[mark].add(what)

    def meet(self, operator: str, left: MarkedValue, right: MarkedValue, held: bool, site: tuple[str, int]) -> None:
        """Note a condition, where a side is known as an expression of symbols."""
        sides = [each.expression if each.expression is not None else each.value for each in (left, right)]
        if all(isinstance(side, (int, float)) for side in sides) or len(self.conditions) > CONDITIONS_MAX:
            return
        if all(isinstance(side, (int, float, tuple)) for side in sides):
            self.conditions.append(Edge(operator, sides[0], sides[1], held, site))

    def symbol(self, kind: str, place: Any, number: float) -> Unknown:
        """A symbol that was ``number`` here."""
        made = Unknown(kind, place)
        self.given[made] = number
        return made


CONDITIONS_MAX = 400
"""Of one run: loops meet the same again and again."""


def symbols_of(expression: Expression) -> set[Unknown]:
    """Every symbol in an expression."""
    if isinstance(expression, Unknown):
        return {expression}
    if isinstance(expression, tuple):
        return set().union(*(symbols_of(part) for part in expression[1:]))
    return set()


def joined(*values: MarkedValue) -> frozenset[Any]:
    """The marks of all."""
    marks = NOTHING
    for each in values:
        if each.marks:
            marks = marks | each.marks if marks else each.marks
    return marks
