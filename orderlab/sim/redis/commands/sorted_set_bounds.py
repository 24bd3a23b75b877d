"""Ranges of a sorted set by rank, by score and by member: how their ends are written, and the ranks that they select.

A selection is always a slice ``start, stop`` of the ranks in ascending order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import inf
from typing import NamedTuple

from orderlab.sim.redis.numbers import strtod
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.values import SortedSet

_SPACES = b" \t\n\v\f\r"
_NOTHING = (0, 0)


class Limit(NamedTuple):
    """LIMIT offset count: a negative offset selects nothing, a negative count everything."""

    offset: int
    most: int

    def cut(self, start: int, stop: int, from_end: bool) -> tuple[int, int]:
        """The part of ``start, stop`` that the limit leaves, counted from its end if ``from_end``."""
        if self.offset < 0:
            return _NOTHING
        if from_end:
            stop -= self.offset
            start = max(start, stop - self.most) if self.most >= 0 else start
        else:
            start += self.offset
            stop = min(stop, start + self.most) if self.most >= 0 else stop
        return (start, stop) if start < stop else _NOTHING


NO_LIMIT = Limit(0, -1)


def slice_of_ranks(first: int, last: int, size: int, from_end: bool) -> tuple[int, int]:
    """Ranks ``first..last``, both inclusive, negative ones counted from the other end."""
    if first < 0:
        first = max(first + size, 0)
    stop = min(last + size if last < 0 else last, size - 1) + 1
    if first >= stop:
        return _NOTHING
    return (size - stop, size - first) if from_end else (first, stop)


class ScoreRange(NamedTuple):
    """Scores from ``low`` to ``high``; an open end leaves its bound out."""

    low: float
    low_open: bool
    high: float
    high_open: bool

    def select(self, value: SortedSet) -> tuple[int, int]:
        """The slice of ranks in the range."""
        return value.score_slice(*self)


def parse_score_range(low: bytes, high: bytes) -> ScoreRange:
    """``5``, ``(5``, ``-inf``, ``+inf``. Raises the server's error for anything else."""
    return ScoreRange(*score_bound(low), *score_bound(high))


_INFINITE = {b"-inf": (-inf, False), b"+inf": (inf, False), b"inf": (inf, False)}


def score_bound(text: bytes) -> tuple[float, bool]:
    """One end of a range by score, and whether it is open."""
    if text.isdigit() and len(text) < 300:
        return float(text), False
    if text in _INFINITE:
        return _INFINITE[text]
    is_open = text[:1] == b"("
    if is_open:
        text = text[1:]
    text = text.partition(b"\0")[0]  # the server reads a C string here, and forgives leading spaces and nothing
    if not text:
        return 0.0, is_open
    read = strtod(text.lstrip(_SPACES))
    if read is None:
        raise ErrorReply(b"ERR min or max is not a float")
    return read[0], is_open


class LexBound(NamedTuple):
    """``place`` sorts below, among or above all members: (-1, b""), (0, member) or (1, b"")."""

    place: tuple[int, bytes]
    is_open: bool


class LexRange(NamedTuple):
    """Members between two bounds, by bytes. The server defines it for members of one score only; for others this does
    what its listpack encoding does: the first member inside, and on from there until one is outside."""

    low: LexBound
    high: LexBound

    def select(self, value: SortedSet, from_end: bool = False, limit: Limit = NO_LIMIT) -> tuple[int, int]:
        """The slice of ranks in the range that ``limit`` leaves."""
        low, high = self
        if low.place > high.place or (low.place == high.place and (low.is_open or high.is_open)):
            return _NOTHING
        members = value.order_members
        if value.order_scores[0] != value.order_scores[-1]:
            return self._walk(members, from_end, limit)
        start = self._position(members, low, low.is_open)
        return limit.cut(start, self._position(members, high, not high.is_open), from_end)

    @staticmethod
    def _position(members: list[bytes], bound: LexBound, after: bool) -> int:
        side, member = bound.place
        if side:
            return 0 if side < 0 else len(members)
        return bisect_right(members, member) if after else bisect_left(members, member)

    def _above_low(self, member: bytes) -> bool:
        return (0, member) > self.low.place if self.low.is_open else (0, member) >= self.low.place

    def _below_high(self, member: bytes) -> bool:
        return (0, member) < self.high.place if self.high.is_open else (0, member) <= self.high.place

    def _walk(self, members: list[bytes], from_end: bool, limit: Limit) -> tuple[int, int]:
        """Skips ``limit.offset`` members without a look at them, as the server does."""
        if limit.offset < 0 or not (self._above_low(members[-1]) and self._below_high(members[0])):
            return _NOTHING
        size = len(members)
        if from_end:
            first = next(at for at in range(size, 0, -1) if self._below_high(members[at - 1]))
            stop = max(first - limit.offset, 0) if self._above_low(members[first - 1]) else 0
            start = next((at for at in range(stop, 0, -1) if not self._above_low(members[at - 1])), 0)
        else:
            first = next(at for at in range(size) if self._above_low(members[at]))
            start = min(first + limit.offset, size) if self._below_high(members[first]) else size
            stop = next((at for at in range(start, size) if not self._below_high(members[at])), size)
        return Limit(0, limit.most).cut(start, stop, from_end)


def parse_lex_range(low: bytes, high: bytes) -> LexRange:
    """``[member``, ``(member``, ``-``, ``+``. Raises the server's error for anything else."""
    return LexRange(_lex_bound(low), _lex_bound(high))


def _lex_bound(text: bytes) -> LexBound:
    if text[:1] == b"[":
        return LexBound((0, text[1:]), False)
    if text[:1] == b"(":
        return LexBound((0, text[1:]), True)
    if text[:1] in (b"-", b"+") and text[1:2] in (b"", b"\0"):
        return LexBound((-1 if text[:1] == b"-" else 1, b""), True)
    raise ErrorReply(b"ERR min or max not valid string range item")
