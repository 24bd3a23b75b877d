"""What translated expressions, statements and compounds have in common: values, scopes, places of the packed row."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orderlab.model.explorer.compiled.intervals import ValueInterval
from orderlab.model.explorer.compiled.layout import Field, Layout
from orderlab.model.explorer.compiled.program_text import NotCompilable
from orderlab.model.spec.variables import Domain


class _Marker:
    """A result of folding that is not a value."""


UNKNOWN = _Marker()
"""The value of an expression differs from state to state."""
RAISES = _Marker()
"""Evaluating the expression raises, whatever the state."""


@dataclass(frozen=True)
class Value:
    """The text of an expression; it is a boolean of numba if `is_bool`, else a 64-bit integer."""

    text: str
    interval: ValueInterval
    is_bool: bool = False
    kind: Domain | None = None
    """The domain of a set, a record or a sequence, of which `text` is the code."""

    @property
    def number(self) -> str:
        return f"int64({self.text})" if self.is_bool else self.text

    @property
    def truth(self) -> str:
        return self.text if self.is_bool else f"({self.text} != 0)"

    @property
    def may_raise(self) -> bool:
        return "error" in self.text


@dataclass
class MethodScope:
    """What the names of one function mean.

    `ranges` holds the locals that surely have a value here, with their intervals; it is None where control never comes.
    `known` are the variables of unrolled comprehensions.
    """

    owner: str | None
    names: Mapping[str, Any]
    assigned: frozenset[str]
    where: str
    states: frozenset[str]
    ranges: dict[str, ValueInterval] | None
    is_action: bool = False
    is_predicate: bool = False
    known: dict[str, Any] = field(default_factory=dict)
    kinds: dict[str, Domain | None] = field(default_factory=dict)
    """Of the locals, which hold codes of sets, records or sequences."""
    returned: list[ValueInterval | None] = field(default_factory=list)
    breaks: list[dict[str, ValueInterval]] = field(default_factory=list)
    continues: list[dict[str, ValueInterval]] = field(default_factory=list)


@dataclass(frozen=True)
class IndexStretch:
    """What a loop runs over: text, the interval of its elements (None: surely nothing), least and most rounds."""

    text: str
    element: ValueInterval | None
    rounds: ValueInterval
    before: tuple[str, ...] = ()
    """Lines before the loop, and at the beginning of each round."""
    first: tuple[str, ...] = ()
    kind: Domain | None = None
    """Of the elements, if these are no integers."""

    def head(self, variable: str) -> list[str]:
        """The lines up to the body, which stands one step further in."""
        counter = f"at_{variable}" if self.first else f"v_{variable}"
        return [*self.before, f"for {counter} in {self.text}:", *(f"    {line}" for line in self.first)]


class Translating:
    """What the parts of the translator ask of each other."""

    specification: Any
    layout: Layout
    tables: dict[tuple[int, ...], str]

    def function(
        self, method: Callable[..., Any], states: int, given: tuple[ValueInterval, ...], is_action: bool, bound: bool
    ) -> tuple[str, ValueInterval | None, bool]:
        raise NotImplementedError

    def define(self, stem: str, states: list[str], rest: list[str], lines: list[str]) -> str:
        raise NotImplementedError

    def condition(self, node: ast.expr, scope: MethodScope) -> str:
        raise NotImplementedError

    def value(self, node: ast.expr, scope: MethodScope) -> Value:
        raise NotImplementedError

    def constant(self, node: ast.expr, scope: MethodScope) -> Any:
        raise NotImplementedError

    def refusal(self, node: ast.AST, scope: MethodScope) -> NotCompilable:
        raise NotImplementedError

    def field_access(self, node: ast.expr, scope: MethodScope) -> tuple[str, Field, str]:
        raise NotImplementedError

    def _field(self, node: ast.expr, scope: MethodScope) -> Field | None:
        raise NotImplementedError

    def _is_builtin(self, name: str, scope: MethodScope) -> bool:
        raise NotImplementedError


def shortened(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 120 else f"{text[:117]}..."


def unsubscripted(node: ast.expr) -> tuple[ast.expr, list[ast.expr]]:
    """`t`, [i, j] of `t[i][j]`."""
    indices: list[ast.expr] = []
    while isinstance(node, ast.Subscript):
        indices.insert(0, node.slice)
        node = node.value
    return node, indices


def position(place: Field, index: str) -> tuple[str, str]:
    """The texts of the word and of the shift of an element."""
    if not index:
        return str(place.word), str(place.shift)
    if index.isdigit():
        word, shift = place.place(int(index))
        return str(word), str(shift)
    if place.elements <= place.per_word:
        return str(place.word), f"{place.shift} + {index} * {place.bits}"
    return f"{place.word} + {index} // {place.per_word}", f"({index} % {place.per_word}) * {place.bits}"


def reading(state: str, place: Field, index: str) -> str:
    word, shift = position(place, index)
    low = f" + {place.domain.low}" if place.domain.low else ""
    return f"(((s_{state}[r_{state}, {word}] >> ({shift})) & {(1 << place.bits) - 1}){low})"
