"""What programs pass to their scripts: the texts of keys and arguments with the program's own words where a value is
known only when it runs, and moments of time as far as they are read from a clock there.

Followed: the program's own functions that return a text made of what they are given, names that were given a value
before in the same function, constants. A default of a parameter is no value: callers may give another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from tree_sitter import Node

from orderlab.model.errors import InputError
from orderlab.sim.stores.sources.constants import Constants
from orderlab.sim.stores.sources.functions import NamedFunction, functions_of, own_call
from orderlab.sim.stores.sources.parsed_program import CALLS, SUMS, is_function
from orderlab.sim.stores.sources.text import ProgramString

HOLE = re.compile("\x01(.*?)\x02", re.DOTALL)
_ASSIGNMENTS = ("assignment_expression", "assignment", "named_expression")
_NESTED_MAX = 8
"""Functions that are followed within one another."""


class ClockReading(NamedTuple):
    """A time that a program reads from its clock."""

    unit: str
    """``s``, ``ms``, ``us``, ``ns``, or ``?`` where it is neither, or what is made of it is not understood."""
    added: str = ""
    """What is added to it, in the program's own words."""
    is_whole: bool = True
    """Whether fractions of a second are cut off, where it is in seconds."""


@dataclass
class Spelling(Constants):
    """The texts of expressions, with the program's own words where a value is known only when it runs."""

    bound: Mapping[str, str] = field(default_factory=dict)
    """What a function's parameters stand for."""
    functions: list[NamedFunction] = field(default_factory=list)
    depth: int = 0

    def spelled(self, node: Node) -> str:
        """The text of an expression; what is not constant stands between marks."""
        try:
            return self.value(node).characters
        except InputError:
            return f"\x01{' '.join(self.program.text(node).split())}\x02"

    def value(self, node: Node, names: tuple[str, ...] = ()) -> ProgramString:
        if node.type in _ASSIGNMENTS and (right := node.child_by_field_name("right")) is not None:
            return self.value(right, names)
        if node.type in CALLS and (returned := self._returned(node)) is not None:
            return ProgramString.on(returned, self.program.line(node))
        if node.type in SUMS and _is_number(self.program.text(node)):
            return self._filled(node)
        return super().value(node, names)

    def within(self, function: NamedFunction, given: list[Node]) -> Spelling:
        """The spelling in a function whose parameters are given these."""
        texts = {name: self.spelled(part) for name, part in zip(function.parameters, given, strict=False)}
        return Spelling(self.program, self.holes, bound=texts, functions=self._functions, depth=self.depth + 1)

    def function_around(self, node: Node) -> NamedFunction | None:
        """The innermost function that a node lies in."""
        above = node.parent
        while above is not None:
            if (function := self._by_node.get(above.id)) is not None:
                return function
            above = above.parent
        return None

    @cached_property
    def _functions(self) -> list[NamedFunction]:
        return self.functions or functions_of(self.program)

    @cached_property
    def _by_node(self) -> Mapping[int, NamedFunction]:
        return {function.node.id: function for function in self._functions}

    def returned_by(self, call: Node) -> Node | None:
        """The expression that the program's own function returns which is called here."""
        called = own_call(self.program, call)
        alike = [each for each in self._functions if called is not None and each.name == called[0]]
        return alike[0].returned if len(alike) == 1 else None

    def _returned(self, node: Node) -> str | None:
        """What a call of the program's own function returns, where that is a text of its own making."""
        called = own_call(self.program, node)
        if called is None or self.depth > _NESTED_MAX or (expression := self.returned_by(node)) is None:
            return None
        alike = [each for each in self._functions if each.name == called[0]]
        text = self.within(alike[0], called[1]).spelled(expression)
        return text if HOLE.sub("", text).strip() else None

    def _hole_named(self, name: str, node: Node) -> ProgramString:
        return ProgramString.on(self.holes.get(name, f"\x01{name}\x02"), self.program.line(node))

    def _named(self, node: Node, names: tuple[str, ...]) -> ProgramString:
        path = self.program.text(node).lstrip("$")
        if path in self.bound:
            return ProgramString.on(self.bound[path], self.program.line(node))
        return super()._named(node, names)

    def _by_name(self, name: str, node: Node, names: tuple[str, ...], told: str = "") -> ProgramString:
        if name in self.bound and (told or name).lstrip("$") == name:
            return ProgramString.on(self.bound[name], self.program.line(node))
        alike = [value for path, value in self.program.definitions if path[-1] == name and not is_function(value)]
        near = self.near(alike, node)
        if len(alike) > 1 and not near and MEMBER.match(told):
            alike = [value for value in alike if class_around(value) == class_around(node)]
        if name in names or not (near or len(alike) == 1) or any(map(_is_default, near[-1:] or alike)):
            return self._hole_named(told or name, node)
        return self.value((near or alike)[-1], (*names, name))

    def near(self, values: Sequence[Node], node: Node) -> list[Node]:
        """Those of the values of a name that it was given before, in the function around ``node``."""
        around = self.function_around(node)
        return [value for value in values if value.end_byte <= node.start_byte and self._is_in(value, around)]

    def _is_in(self, value: Node, around: NamedFunction | None) -> bool:
        return around is not None and self.function_around(value) is around and not _is_default(value)


TOLD_IN = re.compile(
    r"(?:to|as|get|in|total)?_?(?:milli(?:second)?s?|sec(?:ond)?s?|whole\w*|ms)(?:\(\))?", re.IGNORECASE
)
"""A function that tells a duration in a unit, and is no name of it."""
MEMBER = re.compile(r"(?:this|self|\$this|static|cls|@)\b|@")
"""How a member of the object itself is called."""


def class_around(node: Node) -> int | None:
    """The innermost class that a node lies in."""
    while (above := node.parent) is not None and not (above.type.startswith("class") and above.type != "class_body"):
        node = above
    return None if above is None else above.id


def _is_number(text: str) -> bool:
    """Whether a sum is one of numbers: with a clock, or with a number that is written out."""
    return moment_of(text) is not None or re.search(r"(?:^|[\s+])\d+$|^\d+\s*\+", text.strip()) is not None


def _is_default(value: Node) -> bool:
    above = value.parent
    return above is not None and "parameter" in above.type


_NOW = r"(?:[\w$]+(?:\(\))?(?:\.|->))*_?(?:time_?)?now(?:_?func)?(?:\(\))?(?:\.UTC\(\))?"
"""A clock that a program keeps or is given, as its present: ``r.now()``, ``c.clock.Now()``, ``now``."""
_CLOCKS = {
    rf"(?i:{_NOW})\.UnixMilli\(\)|(?:\w+\.)*\w*[cC]lock(?:\(\))?\.millis\(\)": "ms",
    rf"(?i:{_NOW})\.Unix\(\)": "s",
    rf"(?i:{_NOW})\.UnixMicro\(\)": "us",
    rf"(?i:{_NOW})\.UnixNano\(\)|(?:\w+\.)?time_ns\(\)": "ns",
    r"(?:\w+\.)*currentTimeMillis\(\)|Date\.now\(\)|\+?new Date\(\)(?:\.getTime\(\)|\.valueOf\(\))?": "ms",
    r"Instant\.now\(\)\.toEpochMilli\(\)": "ms",
    r"(?:\w+\.)*ToUnixTimeMilliseconds\(\)": "ms",
    r"time\.time\(\)|(?<![\w.>:])\\?time\(\)|microtime\(true\)|Time\.now(?:\.to_[if]\b)?": "s",
    r"Instant\.now\(\)\.getEpochSecond\(\)": "s",
    r"(?:\w+\.)*ToUnixTimeSeconds\(\)|(?:\w+::)?now\(\)->(?:getTimestamp\(\)|timestamp\b)": "s",
    r"nanoTime\(\)|time\.Now\b|microtime|hrtime|performance\.now|Instant\.now|datetime\.\w*now": "?",
}
"""How programs read a clock -> the unit of what they get."""
_CLOCK = re.compile("|".join(f"(?P<u{number}>{pattern})" for number, pattern in enumerate(_CLOCKS)))
_ROUNDS = (
    r"(?:int|str|String|Math\.\w+|math\.\w+|round|floor|ceil|intval|[\w.]*valueOf|Number|parseInt|Long|fmt\.Sprint)"
)
_INNER = re.compile(
    r"\((?:int|long|string|float)\)|\.(?:toString\(\)|to_[is]\b)|"
    rf"(?:strconv\.\w+|{_ROUNDS})?\((?P<within>[^()+\-,]*)(?:,10)?\)"
)
"""What changes nothing but the kind or the fraction of a number."""
_FRACTION = re.compile(r"time\.time\(\)|microtime|to_f\b|Date\(?\)?\.(?:now|getTime)|performance")
_CUTS = re.compile(r"\b(?:int|round|floor|intval|ceil|parseInt|to_i)\b|//")
_SUM = re.compile(r"\x03(?P<factor>[*/]1_?000(?:\.0)?)?(?:\+(?P<term>[\w$.>\-]+?))?")


_SHIFTED = re.compile(
    r"(?:\.|->)(?:[aA]dd|plus)(?:Millis|Milliseconds|Seconds)?\((?P<by>[^()]*(?:\(\))?)\)"
    r"(?P<unit>(?:\.|->)(?:Unix\w*|to\w+|ToUnixTime\w+|get\w+)\(\))$"
)
"""A time that an object for it makes later before it is told as a number."""
_TOLD_AS = {
    **dict.fromkeys(("Unix", "getEpochSecond", "getTimestamp", "ToUnixTimeSeconds"), "s"),
    **dict.fromkeys(("UnixMilli", "toEpochMilli", "getTime", "ToUnixTimeMilliseconds"), "ms"),
    "UnixMicro": "us", "UnixNano": "ns",
}  # fmt: skip
"""Functions of an object for a time -> the unit that they tell it in."""
_OF_ITS_OWN = re.compile(rf"\$?(?P<path>(?:\w+(?:\.|->))+?)(?P<told>{'|'.join(_TOLD_AS)})\(\)")
"""A moment that a program was given, as a number."""


def moment_of(text: str) -> ClockReading | None:
    """What an expression reads from a clock; None where it reads none. A moment that the program was given counts as
    one that is later than now by what it is called."""
    own = _OF_ITS_OWN.fullmatch(text)
    if own is not None and "now" not in own["path"].lower():
        return ClockReading(_TOLD_AS[own["told"]], re.split(r"\.|->", own["path"])[-2])
    text = _SHIFTED.sub(r"\g<unit> + \g<by>", text.strip())
    match = _CLOCK.search(text)
    if match is None:
        return None
    unit = list(_CLOCKS.values())[int(str(match.lastgroup)[1:])]
    flat = re.sub(r"\s+", "", f"{text[: match.start()]}\x03{text[match.end() :]}")
    while (shorter := _INNER.sub(lambda inner: inner["within"] or "", flat)) != flat:
        flat = shorter
    whole = re.fullmatch(rf"{_ROUNDS}?\((.*)\)", flat)
    reading = _SUM.fullmatch(whole[1] if whole else flat)
    if reading is None or unit == "?":
        return ClockReading("?")
    if reading["factor"]:
        unit = {("s", "*"): "ms", ("ms", "/"): "s"}.get((unit, reading["factor"][0]), "?")
    is_whole = unit != "s" or _FRACTION.search(text) is None or _CUTS.search(text) is not None
    return ClockReading(unit, reading["term"] or "", is_whole)
