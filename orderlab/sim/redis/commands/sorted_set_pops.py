"""Sorted-set commands that remove members from an end, and their blocking forms.

As with lists, nothing waits: a blocking command whose keys are all missing answers nil at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.sim.redis.arguments import check_timeout, natural
from orderlab.sim.redis.commands.list_moves import multiple_pop_arguments
from orderlab.sim.redis.commands.sorted_set_ranges import remove_slice
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.registry import command, numbered_keys
from orderlab.sim.redis.replies import SYNTAX_ERROR, ErrorReply, Reply, double, scored
from orderlab.sim.redis.values import SortedSet


def _take(shard: NodeState, key: bytes, value: SortedSet, least: bool, count: int) -> tuple[list[bytes], list[float]]:
    """Remove up to ``count`` members from the end of the least or the greatest score."""
    size = len(value)
    start, stop = (0, min(count, size)) if least else (max(size - count, 0), size)
    members, scores = value.order_members[start:stop], value.order_scores[start:stop]
    if not least:
        members.reverse()
        scores.reverse()
    remove_slice(shard, key, value, start, stop)
    return members, scores


def _pop(shard: NodeState, argv: Sequence[bytes], least: bool) -> Reply:
    if len(argv) > 3:
        raise ErrorReply(SYNTAX_ERROR)
    count = natural(argv[2]) if len(argv) == 3 else 1
    key = argv[1]
    value = shard.lookup_as(key, SortedSet)
    if value is None or count == 0:
        return []
    members, scores = _take(shard, key, value, least, count)
    if len(argv) == 2:
        return [members[0], double(shard.resp, scores[0])]
    return scored(shard.resp, members, scores)


@command("zpopmin", -2, "write fast", (1, 1, 1))
def zpopmin(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZPOPMIN key [count]."""
    return _pop(shard, argv, True)


@command("zpopmax", -2, "write fast", (1, 1, 1))
def zpopmax(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZPOPMAX key [count]."""
    return _pop(shard, argv, False)


def _first_present(shard: NodeState, keys: Sequence[bytes]) -> tuple[bytes, SortedSet] | None:
    """The first of ``keys`` that holds a sorted set; WRONGTYPE if another type comes first."""
    for key in keys:
        value = shard.lookup_as(key, SortedSet)
        if value is not None:
            return key, value
    return None


def _blocking_pop(shard: NodeState, argv: Sequence[bytes], least: bool) -> Reply:
    check_timeout(argv[-1])
    found = _first_present(shard, argv[1:-1])
    if found is None:
        return None
    key, value = found
    [member], [score] = _take(shard, key, value, least, 1)
    return [key, member, double(shard.resp, score)]


@command("bzpopmin", -3, "write noscript blocking fast", (1, -2, 1))
def bzpopmin(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """BZPOPMIN key [key ...] timeout."""
    return _blocking_pop(shard, argv, True)


@command("bzpopmax", -3, "write noscript blocking fast", (1, -2, 1))
def bzpopmax(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """BZPOPMAX key [key ...] timeout."""
    return _blocking_pop(shard, argv, False)


def _multiple_pop(shard: NodeState, argv: Sequence[bytes], count_at: int) -> Reply:
    keys, least, count = multiple_pop_arguments(argv, count_at, (b"MIN", b"MAX"))
    if count_at == 2:
        check_timeout(argv[1])
    found = _first_present(shard, keys)
    if found is None:
        return None
    key, value = found
    members, scores = _take(shard, key, value, least, count)
    return [key, [[member, double(shard.resp, score)] for member, score in zip(members, scores, strict=True)]]


@command("zmpop", -4, "write movablekeys", numbered_keys(1))
def zmpop(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """ZMPOP numkeys key [key ...] MIN|MAX [COUNT count]."""
    return _multiple_pop(shard, argv, 1)


@command("bzmpop", -5, "write blocking movablekeys", numbered_keys(2))
def bzmpop(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """BZMPOP timeout numkeys key [key ...] MIN|MAX [COUNT count]."""
    return _multiple_pop(shard, argv, 2)
