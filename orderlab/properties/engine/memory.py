"""What steps did where they were taken before: found out once, and looked up from then on.

A contract says what the effect of a step depends on, which is the question. Places that are equal are kept once.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)
E = TypeVar("E")


class Memory(dict[Hashable, E], Generic[T, E]):
    """Effects by question: where there are more than ``most``, or as many places, all are forgotten."""

    def __init__(self, most: int | None = None) -> None:
        super().__init__()
        self.most = most
        self._places: dict[T, T] = {}

    def keep(self, asked: Hashable, effect: E) -> None:
        """Remember an effect."""
        if self.most is not None and max(len(self), len(self._places)) >= self.most:
            self.forget()
        self[asked] = effect

    def first(self, place: T) -> T:
        """The equal of a place that was met first."""
        return self._places.setdefault(place, place)

    def forget(self) -> None:
        """Begin anew."""
        self.clear()
        self._places.clear()


class Interned(Generic[T]):
    """Values by number, numbers by value. Numbers are given in the order of asking."""

    def __init__(self) -> None:
        self._numbers: dict[T, int] = {}
        self._values: list[T] = []

    def number(self, value: T) -> int:
        """The number of a value, a new one for a new value."""
        known = self._numbers.get(value)
        if known is None:
            known = self._numbers[value] = len(self._values)
            self._values.append(value)
        return known

    def __getitem__(self, number: int) -> T:
        return self._values[number]
