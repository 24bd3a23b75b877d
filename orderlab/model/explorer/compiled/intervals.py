"""Intervals: the values that an expression can take, so that its 64-bit translation is proved free of overflow.

Bounds are Python integers of any size. Every operation returns an interval that contains all results of Python's own
operator on members of its operands, or one that does not fit; whoever translates then asks `fits`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass

LARGEST = (1 << 63) - 1
"""Intervals are kept symmetric, so that no quotient or absolute value can leave 64 bits."""


@dataclass(frozen=True)
class ValueInterval:
    low: int
    high: int

    @property
    def fits(self) -> bool:
        return self.low >= -LARGEST and self.high <= LARGEST

    def within(self, low: int, high: int) -> bool:
        return low <= self.low and self.high <= high

    def __or__(self, other: ValueInterval) -> ValueInterval:
        return ValueInterval(min(self.low, other.low), max(self.high, other.high))

    def rounded(self) -> ValueInterval:
        """A coarser interval, so that few distinct ones occur as parameters of a function."""
        reach = max(self.high, -self.low - 1, 0).bit_length()
        bits = next((b for b in (8, 16, 31, 62) if reach <= b), reach)
        return ValueInterval(-(1 << bits) if self.low < 0 else 0, min(LARGEST, (1 << bits) - 1))


TRUTH = ValueInterval(0, 1)


def hull(values: Iterable[int]) -> ValueInterval:
    known = list(values)
    return ValueInterval(min(known), max(known))


def _product(a: ValueInterval, b: ValueInterval) -> ValueInterval:
    return hull(x * y for x in (a.low, a.high) for y in (b.low, b.high))


def _divisors(b: ValueInterval) -> list[int]:
    """The extreme divisors of either sign; zero divides nothing."""
    return [d for d in (b.low, -1, 1, b.high) if d != 0 and b.low <= d <= b.high]


def _quotient(a: ValueInterval, b: ValueInterval) -> ValueInterval:
    return hull([0] if not _divisors(b) else (x // d for x in (a.low, a.high) for d in _divisors(b)))


def _remainder(a: ValueInterval, b: ValueInterval) -> ValueInterval:
    if a.low >= 0 and a.high < b.low:
        return a
    return ValueInterval(min(0, b.low + 1), max(0, b.high - 1))


def _shifted_left(a: ValueInterval, b: ValueInterval) -> ValueInterval:
    if a == ValueInterval(0, 0):
        return a
    if b.high > 128:
        return ValueInterval(-(1 << 128), 1 << 128)
    counts = (max(0, b.low), max(0, b.high))
    return hull(x << n for x in (a.low, a.high) for n in counts)


def _shifted_right(a: ValueInterval, b: ValueInterval) -> ValueInterval:
    counts = (max(0, b.low), min(128, max(0, b.high)))
    return hull(x >> n for x in (a.low, a.high) for n in counts)


def _reach(a: ValueInterval, b: ValueInterval) -> int:
    return max(max(i.high, -i.low - 1, 0).bit_length() for i in (a, b))


def _and(a: ValueInterval, b: ValueInterval) -> ValueInterval:
    if a.low >= 0 or b.low >= 0:
        return ValueInterval(0, min(i.high for i in (a, b) if i.low >= 0))
    return ValueInterval(-(1 << _reach(a, b)), max(a.high, b.high, 0))


def _or_xor(a: ValueInterval, b: ValueInterval) -> ValueInterval:
    top = 1 << _reach(a, b)
    return ValueInterval(0 if a.low >= 0 and b.low >= 0 else -top, top - 1)


RESULT: dict[type[ast.operator], Callable[[ValueInterval, ValueInterval], ValueInterval]] = {
    ast.Add: lambda a, b: ValueInterval(a.low + b.low, a.high + b.high),
    ast.Sub: lambda a, b: ValueInterval(a.low - b.high, a.high - b.low),
    ast.Mult: _product,
    ast.FloorDiv: _quotient,
    ast.Mod: _remainder,
    ast.LShift: _shifted_left,
    ast.RShift: _shifted_right,
    ast.BitAnd: _and,
    ast.BitOr: _or_xor,
    ast.BitXor: _or_xor,
}
"""What each binary operator can yield; a division by zero or a shift by a negative count yields nothing."""


def power(a: ValueInterval, n: int) -> ValueInterval:
    ends = [a.low**n, a.high**n]
    return hull([*ends, 0] if a.low < 0 < a.high else ends)


def absolute(a: ValueInterval) -> ValueInterval:
    return ValueInterval(0 if a.low <= 0 <= a.high else min(abs(a.low), abs(a.high)), max(abs(a.low), abs(a.high)))
