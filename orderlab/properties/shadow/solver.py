"""Numbers on both sides of each condition that a run of a script met, by an SMT solver (the extra ``solver``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from importlib.util import find_spec
from itertools import product
from typing import Any, NamedTuple

from orderlab.properties.shadow.marked import (
    ARGUMENT,
    BUILT,
    DATA,
    LENGTH,
    NUMBER,
    SIZE,
    TIME,
    Edge,
    Path,
    Unknown,
    symbols_of,
)

NOT_INSTALLED = "boundaries: not solved, install orderlab[solver]"
SIDES = (-1, 0, 1)
"""Around the nearest number with which a condition comes out the other way."""
WORK_MAX = 60_000
"""Of one question, in the solver's own units (``rlimit``): the same on any machine."""
ASKED_MAX, ALIKE_MAX = 12, 2
"""Times that one condition is asked about for one symbol, with other numbers around it; and in runs as long."""
COUNT_MAX = 2_000_000
INTEGERS = (-(1 << 63), (1 << 63) - 1)
EARLIER_MAX = 12


class Target(NamedTuple):
    """A number that a symbol must be for a condition to be met at its edge."""

    symbol: Unknown
    value: int
    given: float
    """What it was."""
    site: tuple[str, int]
    is_exact: bool = False
    """The script looks for this very number: what it does there it does nowhere else."""


def is_installed() -> bool:
    """Whether there is a solver."""
    with suppress(ModuleNotFoundError):
        return find_spec("z3") is not None
    return False


@dataclass
class Solver:
    """Asks what is on both sides of each condition, each once."""

    asked: Counter[Any] = field(default_factory=Counter)
    answers: dict[Any, int | None] = field(default_factory=dict)
    queries: int = 0
    unknown: int = 0
    """Questions that it gave up on."""

    def targets(self, path: Path) -> Iterator[Target]:
        """What to try next, by the conditions of one run."""
        for at, condition in enumerate(path.conditions):
            for symbol in sorted(_free(condition), key=repr):
                key = (condition.site, condition.operator, symbol.general, condition.held)
                alike = (key, len(path.conditions))
                if self.asked[key] >= ASKED_MAX or self.asked[alike] >= ALIKE_MAX:
                    continue
                self.asked.update((key, alike))
                given = path.given[symbol]
                edges = self._edges(condition, symbol, path, path.conditions[:at])
                for edge, side in product(dict.fromkeys(edges), SIDES):
                    value = edge + side
                    if value != given:
                        is_exact = condition.operator == "==" and not condition.held and not side
                        yield Target(symbol, value, given, condition.site, is_exact)

    def _edges(self, condition: Edge, symbol: Unknown, path: Path, earlier: Sequence[Edge]) -> Iterator[int]:
        """The nearest number with which a condition comes out the other way; after all others as they came out, and
        whatever they do."""
        others = [item for item in earlier if symbol in _free(item)][-EARLIER_MAX:]
        for before in (others, []) if others else ([],):
            question = (
                _settled(condition, symbol, path),
                condition.held,
                path.given[symbol],
                frozenset((_settled(item, symbol, path), item.held) for item in before),
                symbol.kind,
            )
            if question not in self.answers:
                self.answers[question] = self._ask(question)
            answer = self.answers[question]
            if answer is not None:
                yield answer

    def _ask(self, question: Any) -> int | None:
        import z3

        condition, held, given, before, kind = question
        unknown = z3.Int("s")
        low, high = (0, COUNT_MAX) if kind in (SIZE, BUILT, LENGTH) else INTEGERS
        bounds = [unknown >= low, unknown <= high]
        try:
            wanted = _holds(condition, not held, unknown)
            bounds += [_holds(item, was, unknown) for item, was in before]
        except ZeroDivisionError:
            return None
        start = int(given)
        for toward in (unknown > start, unknown < start):
            solver = z3.Optimize()
            solver.set("rlimit", WORK_MAX)
            solver.add(wanted, toward, *bounds)
            solver.minimize(unknown) if toward.decl().name() == ">" else solver.maximize(unknown)
            self.queries += 1
            answer = solver.check()
            if answer == z3.sat:
                return int(solver.model().eval(unknown, model_completion=True).as_long())
            self.unknown += answer == z3.unknown
        return None


def _free(condition: Edge) -> set[Unknown]:
    return {
        item
        for item in symbols_of(condition.left) | symbols_of(condition.right)
        if item.kind in (ARGUMENT, LENGTH, SIZE, NUMBER, BUILT, DATA, TIME)
    }


def _settled(condition: Edge, symbol: Unknown, path: Path) -> tuple[str, Any, Any]:
    """The condition with every other symbol as it was."""

    def settle(part: Any) -> Any:
        if isinstance(part, Unknown):
            return "s" if part == symbol else path.given[part]
        if isinstance(part, tuple):
            return (part[0], *map(settle, part[1:]))
        return part

    return condition.operator, settle(condition.left), settle(condition.right)


def _term(part: Any, unknown: Any) -> Any:
    import z3

    if isinstance(part, str):
        return unknown
    if isinstance(part, int | float):
        if part != part or part in (float("inf"), float("-inf")):
            raise ZeroDivisionError
        return z3.IntVal(int(part)) if part == int(part) else z3.RealVal(str(Fraction(part)))
    operator, *rest = part
    terms = [_term(item, unknown) for item in rest]
    if operator == "floor":
        return terms[0] if terms[0].is_int() else z3.ToInt(terms[0])
    left, right = terms
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    if isinstance(rest[1], int | float) and rest[1] == 0:
        raise ZeroDivisionError
    if operator == "%" and left.is_int() and right.is_int():
        return left % right
    quotient = (z3.ToReal(left) if left.is_int() else left) / (z3.ToReal(right) if right.is_int() else right)
    return quotient if operator == "/" else left - z3.ToInt(quotient) * right


def _holds(condition: tuple[str, Any, Any], held: bool, unknown: Any) -> Any:
    import z3

    operator, left, right = condition
    a, b = _term(left, unknown), _term(right, unknown)
    truth = a == b if operator == "==" else a <= b if operator == "<=" else a < b  # "digits" too
    return truth if held else z3.Not(truth)


def merged(targets: Iterable[Target]) -> list[Target]:
    """Each once, in the order in which they came."""
    return list(dict.fromkeys(targets))
