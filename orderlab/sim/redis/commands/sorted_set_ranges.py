"""Ranges of sorted sets: bounds by score and by text, and the commands that read, store or remove a range."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from math import inf
from typing import Final, NamedTuple

from orderlab.sim.redis.arguments import integer, option
from orderlab.sim.redis.commands.sets import store_result
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.numbers import strtod
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import SYNTAX_ERROR, ErrorReply, Reply, scored
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


class Query(NamedTuple):
    """What a command of the ZRANGE family asks for: ``chosen`` is a pair of ranks, or a range of scores or members."""

    chosen: tuple[int, int] | ScoreRange | LexRange
    reverse: bool
    limit: Limit
    with_scores: bool

    @property
    def is_by_rank(self) -> bool:
        """Neither by score nor by member."""
        return not isinstance(self.chosen, (ScoreRange, LexRange))

    def select(self, value: SortedSet) -> tuple[list[bytes], list[float]]:
        """Members and scores in the order asked for."""
        if isinstance(self.chosen, LexRange):
            start, stop = self.chosen.select(value, self.reverse, self.limit)
        elif isinstance(self.chosen, ScoreRange):
            start, stop = self.limit.cut(*self.chosen.select(value), self.reverse)
        else:
            start, stop = slice_of_ranks(*self.chosen, len(value), self.reverse)
        members, scores = value.order_members[start:stop], value.order_scores[start:stop]
        if self.reverse:
            members.reverse()
            scores.reverse()
        return members, scores


def _parse(argv: Sequence[bytes], at: int, by: str | None, reverse: bool | None) -> Query:
    words = tuple(argv[at:])
    if len(words[0]) + len(words[1]) > _CACHED_BYTES_MAX:
        return _parse_words.__wrapped__(words, by, reverse, False)
    return _parse_words(words, by, reverse, False)


_CACHED_BYTES_MAX: Final = 100


@lru_cache(maxsize=1024)
def _parse_words(words: tuple[bytes, ...], by: str | None, reverse: bool | None, store: bool) -> Query:
    """The query ``start stop [options]``. ``by`` and ``reverse`` are None where options decide. Cached, because a
    script asks the same again and again."""
    direction_is_open = reverse is None
    with_scores = False
    offset, count = 0, -1
    at = 2
    while at < len(words):
        word = option(words[at])
        if word == b"WITHSCORES" and not store:
            with_scores = True
        elif word == b"LIMIT" and at + 2 < len(words):
            offset, count = integer(words[at + 1]), integer(words[at + 2])
            at += 2
        elif word == b"REV" and direction_is_open and not reverse:
            reverse = True
        elif word in (b"BYLEX", b"BYSCORE") and by is None:
            by = "LEX" if word == b"BYLEX" else "SCORE"
        else:
            raise ErrorReply(SYNTAX_ERROR)
        at += 1
    by = by or "RANK"
    if count != -1 and by == "RANK":
        raise ErrorReply(b"ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX")
    if with_scores and by == "LEX":
        raise ErrorReply(b"ERR syntax error, WITHSCORES not supported in combination with BYLEX")
    first, last = words[:2]
    chosen: tuple[int, int] | ScoreRange | LexRange
    if by == "RANK":
        return Query((integer(first), integer(last)), bool(reverse), NO_LIMIT, with_scores)
    if reverse:
        first, last = last, first
    chosen = parse_score_range(first, last) if by == "SCORE" else parse_lex_range(first, last)
    return Query(chosen, bool(reverse), Limit(offset, count), with_scores)


def _answer(node: NodeState, key: bytes, query: Query) -> Reply:
    value = node.lookup_as(key, SortedSet)
    if value is None:
        return []
    members, scores = query.select(value)
    return scored(node.resp, members, scores, node.double_text) if query.with_scores else members


@command("zrange", -4, "readonly", (1, 1, 1))
def zrange(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZRANGE key start stop [BYSCORE|BYLEX] [REV] [LIMIT offset count] [WITHSCORES]."""
    if len(argv) == 4:
        first, last = integer(argv[2]), integer(argv[3])
        value = node.lookup_as(argv[1], SortedSet)
        if value is None:
            return []
        members = value.order_members
        if first == 0 and last == -1:
            return members.copy()
        start, stop = slice_of_ranks(first, last, len(members), False)
        return members[start:stop]
    return _answer(node, argv[1], _parse(argv, 2, None, None))


@command("zrevrange", -4, "readonly", (1, 1, 1))
def zrevrange(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZREVRANGE key start stop [WITHSCORES]."""
    if len(argv) == 4:
        first, last = integer(argv[2]), integer(argv[3])
        value = node.lookup_as(argv[1], SortedSet)
        if value is None:
            return []
        start, stop = slice_of_ranks(first, last, len(value.scores), True)
        return value.order_members[start:stop][::-1]
    return _answer(node, argv[1], _parse(argv, 2, "RANK", True))


@command("zrangebyscore", -4, "readonly", (1, 1, 1))
def zrangebyscore(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count]."""
    if len(argv) == 4:
        low, low_open = score_bound(argv[2])
        high, high_open = score_bound(argv[3])
        value = node.lookup_as(argv[1], SortedSet)
        if value is None:
            return []
        start, stop = value.score_slice(low, low_open, high, high_open)
        return value.order_members[start:stop]
    return _answer(node, argv[1], _parse(argv, 2, "SCORE", False))


@command("zrevrangebyscore", -4, "readonly", (1, 1, 1))
def zrevrangebyscore(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZREVRANGEBYSCORE key max min [WITHSCORES] [LIMIT offset count]."""
    return _answer(node, argv[1], _parse(argv, 2, "SCORE", True))


@command("zrangebylex", -4, "readonly", (1, 1, 1))
def zrangebylex(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZRANGEBYLEX key min max [LIMIT offset count]."""
    return _answer(node, argv[1], _parse(argv, 2, "LEX", False))


@command("zrevrangebylex", -4, "readonly", (1, 1, 1))
def zrevrangebylex(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZREVRANGEBYLEX key max min [LIMIT offset count]."""
    return _answer(node, argv[1], _parse(argv, 2, "LEX", True))


@command("zrangestore", -5, "write denyoom", (1, 2, 1))
def zrangestore(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZRANGESTORE destination source min max [BYSCORE|BYLEX] [REV] [LIMIT offset count]."""
    query = _parse_words.__wrapped__(tuple(argv[3:]), None, None, True)
    source = node.lookup_as(argv[2], SortedSet)
    result = SortedSet()
    if source is not None:
        members, scores = query.select(source)
        limits = node.encoding_limits
        if query.is_by_rank and len(members) > limits.zset_max_listpack_entries:
            result.skiplist = True  # by rank the server knows the size beforehand; else it goes member by member
        for member, score in zip(members, scores, strict=True):
            if not result.skiplist:
                result.make_room(member, limits, None)
            result.insert(member, score, None)
    return store_result(node, argv[1], result)


@command("zcount", 4, "readonly fast", (1, 1, 1))
def zcount(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZCOUNT key min max."""
    chosen = parse_score_range(argv[2], argv[3])
    value = node.lookup_as(argv[1], SortedSet)
    if value is None:
        return 0
    start, stop = value.score_slice(*chosen)
    return stop - start


@command("zlexcount", 4, "readonly fast", (1, 1, 1))
def zlexcount(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZLEXCOUNT key min max."""
    chosen = parse_lex_range(argv[2], argv[3])
    value = node.lookup_as(argv[1], SortedSet)
    if value is None:
        return 0
    start, stop = chosen.select(value)
    return stop - start


def remove_slice(node: NodeState, key: bytes, value: SortedSet, start: int, stop: int) -> int:
    """Remove the ranks ``start, stop``, and the key with the last of them; how many there were."""
    if start >= stop:
        return 0
    value.remove_slice(start, stop, node.undo)
    if not value.scores:
        node.remove(key)
    node.modified(key, stop - start)
    return stop - start


@command("zremrangebyrank", 4, "write", (1, 1, 1))
def zremrangebyrank(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZREMRANGEBYRANK key start stop."""
    first, last = integer(argv[2]), integer(argv[3])
    value = node.lookup_as(argv[1], SortedSet)
    if value is None:
        return 0
    return remove_slice(node, argv[1], value, *slice_of_ranks(first, last, len(value), False))


@command("zremrangebyscore", 4, "write", (1, 1, 1))
def zremrangebyscore(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZREMRANGEBYSCORE key min max."""
    chosen = parse_score_range(argv[2], argv[3])
    value = node.lookup_as(argv[1], SortedSet)
    return 0 if value is None else remove_slice(node, argv[1], value, *chosen.select(value))


@command("zremrangebylex", 4, "write", (1, 1, 1))
def zremrangebylex(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZREMRANGEBYLEX key min max."""
    chosen = parse_lex_range(argv[2], argv[3])
    value = node.lookup_as(argv[1], SortedSet)
    return 0 if value is None else remove_slice(node, argv[1], value, *chosen.select(value))
