"""Sorted-set commands on ranges: reading, counting, storing, removing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from orderlab.sim.redis.arguments import integer, option
from orderlab.sim.redis.commands.sorted_set_bounds import (
    NO_LIMIT,
    LexRange,
    Limit,
    ScoreRange,
    parse_lex_range,
    parse_score_range,
    score_bound,
    slice_of_ranks,
)
from orderlab.sim.redis.commands.stored_results import store_result
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import SYNTAX_ERROR, ErrorReply, Reply, scored
from orderlab.sim.redis.values import SortedSet


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


_CACHED_BYTES_MAX = 100


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


def _answer(shard: NodeState, key: bytes, query: Query) -> Reply:
    value = shard.lookup_as(key, SortedSet)
    if value is None:
        return []
    members, scores = query.select(value)
    return scored(shard.resp, members, scores) if query.with_scores else members


@command("zrange", -4, "readonly", (1, 1, 1))
def zrange(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZRANGE key start stop [BYSCORE|BYLEX] [REV] [LIMIT offset count] [WITHSCORES]."""
    if len(argv) == 4:
        first, last = integer(argv[2]), integer(argv[3])
        value = shard.lookup_as(argv[1], SortedSet)
        if value is None:
            return []
        members = value.order_members
        if first == 0 and last == -1:
            return members.copy()
        start, stop = slice_of_ranks(first, last, len(members), False)
        return members[start:stop]
    return _answer(shard, argv[1], _parse(argv, 2, None, None))


@command("zrevrange", -4, "readonly", (1, 1, 1))
def zrevrange(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZREVRANGE key start stop [WITHSCORES]."""
    if len(argv) == 4:
        first, last = integer(argv[2]), integer(argv[3])
        value = shard.lookup_as(argv[1], SortedSet)
        if value is None:
            return []
        start, stop = slice_of_ranks(first, last, len(value.scores), True)
        return value.order_members[start:stop][::-1]
    return _answer(shard, argv[1], _parse(argv, 2, "RANK", True))


@command("zrangebyscore", -4, "readonly", (1, 1, 1))
def zrangebyscore(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count]."""
    if len(argv) == 4:
        low, low_open = score_bound(argv[2])
        high, high_open = score_bound(argv[3])
        value = shard.lookup_as(argv[1], SortedSet)
        if value is None:
            return []
        start, stop = value.score_slice(low, low_open, high, high_open)
        return value.order_members[start:stop]
    return _answer(shard, argv[1], _parse(argv, 2, "SCORE", False))


@command("zrevrangebyscore", -4, "readonly", (1, 1, 1))
def zrevrangebyscore(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZREVRANGEBYSCORE key max min [WITHSCORES] [LIMIT offset count]."""
    return _answer(shard, argv[1], _parse(argv, 2, "SCORE", True))


@command("zrangebylex", -4, "readonly", (1, 1, 1))
def zrangebylex(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZRANGEBYLEX key min max [LIMIT offset count]."""
    return _answer(shard, argv[1], _parse(argv, 2, "LEX", False))


@command("zrevrangebylex", -4, "readonly", (1, 1, 1))
def zrevrangebylex(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZREVRANGEBYLEX key max min [LIMIT offset count]."""
    return _answer(shard, argv[1], _parse(argv, 2, "LEX", True))


@command("zrangestore", -5, "write denyoom", (1, 2, 1))
def zrangestore(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZRANGESTORE destination source min max [BYSCORE|BYLEX] [REV] [LIMIT offset count]."""
    query = _parse_words.__wrapped__(tuple(argv[3:]), None, None, True)
    source = shard.lookup_as(argv[2], SortedSet)
    result = SortedSet()
    if source is not None:
        members, scores = query.select(source)
        limits = shard.encoding_limits
        if query.is_by_rank and len(members) > limits.zset_max_listpack_entries:
            result.skiplist = True  # by rank the server knows the size beforehand; else it goes member by member
        for member, score in zip(members, scores, strict=True):
            if not result.skiplist:
                result.make_room(member, limits, None)
            result.insert(member, score, None)
    return store_result(shard, argv[1], result)


@command("zcount", 4, "readonly fast", (1, 1, 1))
def zcount(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZCOUNT key min max."""
    chosen = parse_score_range(argv[2], argv[3])
    value = shard.lookup_as(argv[1], SortedSet)
    if value is None:
        return 0
    start, stop = value.score_slice(*chosen)
    return stop - start


@command("zlexcount", 4, "readonly fast", (1, 1, 1))
def zlexcount(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZLEXCOUNT key min max."""
    chosen = parse_lex_range(argv[2], argv[3])
    value = shard.lookup_as(argv[1], SortedSet)
    if value is None:
        return 0
    start, stop = chosen.select(value)
    return stop - start


def remove_slice(shard: NodeState, key: bytes, value: SortedSet, start: int, stop: int) -> int:
    """Remove the ranks ``start, stop``, and the key with the last of them; how many there were."""
    if start >= stop:
        return 0
    value.remove_slice(start, stop, shard.undo)
    if not value.scores:
        shard.remove(key)
    shard.modified(key, stop - start)
    return stop - start


@command("zremrangebyrank", 4, "write", (1, 1, 1))
def zremrangebyrank(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZREMRANGEBYRANK key start stop."""
    first, last = integer(argv[2]), integer(argv[3])
    value = shard.lookup_as(argv[1], SortedSet)
    if value is None:
        return 0
    return remove_slice(shard, argv[1], value, *slice_of_ranks(first, last, len(value), False))


@command("zremrangebyscore", 4, "write", (1, 1, 1))
def zremrangebyscore(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZREMRANGEBYSCORE key min max."""
    chosen = parse_score_range(argv[2], argv[3])
    value = shard.lookup_as(argv[1], SortedSet)
    return 0 if value is None else remove_slice(shard, argv[1], value, *chosen.select(value))


@command("zremrangebylex", 4, "write", (1, 1, 1))
def zremrangebylex(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZREMRANGEBYLEX key min max."""
    chosen = parse_lex_range(argv[2], argv[3])
    value = shard.lookup_as(argv[1], SortedSet)
    return 0 if value is None else remove_slice(shard, argv[1], value, *chosen.select(value))
