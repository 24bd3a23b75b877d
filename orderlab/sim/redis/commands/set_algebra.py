"""Set commands over several keys: union, intersection, difference."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.sim.redis.arguments import integer_between, natural, option
from orderlab.sim.redis.commands.stored_results import store_result
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.numbers import INTEGER_MAX
from orderlab.sim.redis.registry import command, numbered_keys
from orderlab.sim.redis.replies import SYNTAX_ERROR, ErrorReply, Reply, set_of
from orderlab.sim.redis.values import Set


def _inputs(shard: NodeState, keys: Sequence[bytes]) -> list[Set | None]:
    return [shard.lookup_as(key, Set) for key in keys]


def _encoded(shard: NodeState, members: set[bytes]) -> Set:
    return Set.of(members, shard.encoding_limits.set_max_intset_entries)


def _union(shard: NodeState, keys: Sequence[bytes]) -> Set:
    members: set[bytes] = set()
    for value in _inputs(shard, keys):
        if value is not None:
            members |= value.members
    return _encoded(shard, members)


def _intersection(shard: NodeState, keys: Sequence[bytes]) -> list[bytes]:
    """In the order of the smallest input, as the server walks it."""
    inputs = _inputs(shard, keys)
    present = [value for value in inputs if value is not None]
    if len(present) < len(inputs):
        return []
    present.sort(key=len)
    others = [value.members for value in present[1:]]
    return [member for member in present[0].in_order() if all(member in other for other in others)]


def _difference(shard: NodeState, keys: Sequence[bytes]) -> Set:
    inputs = _inputs(shard, keys)
    first = inputs[0]
    if first is None:
        return Set()
    present = [value for value in inputs if value is not None]
    result = _encoded(shard, first.members.difference(*(value.members for value in present[1:])))
    if len(first) * len(present) // 2 > sum(map(len, present)):
        # Then the server adds the whole first set before it removes: an encoding that is left stays left.
        result.intset = _encoded(shard, first.members.copy()).intset
    return result


@command("sunion", -2, "readonly", (1, -1, 1))
def sunion(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SUNION key [key ...]."""
    return set_of(shard.resp, _union(shard, argv[1:]).in_order())


@command("sinter", -2, "readonly", (1, -1, 1))
def sinter(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SINTER key [key ...]."""
    return set_of(shard.resp, _intersection(shard, argv[1:]))


@command("sdiff", -2, "readonly", (1, -1, 1))
def sdiff(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SDIFF key [key ...]."""
    return set_of(shard.resp, _difference(shard, argv[1:]).in_order())


@command("sunionstore", -3, "write denyoom", (1, -1, 1))
def sunionstore(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SUNIONSTORE destination key [key ...]."""
    return store_result(shard, argv[1], _union(shard, argv[2:]))


@command("sinterstore", -3, "write denyoom", (1, -1, 1))
def sinterstore(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SINTERSTORE destination key [key ...]."""
    return store_result(shard, argv[1], _encoded(shard, set(_intersection(shard, argv[2:]))))


@command("sdiffstore", -3, "write denyoom", (1, -1, 1))
def sdiffstore(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SDIFFSTORE destination key [key ...]."""
    return store_result(shard, argv[1], _difference(shard, argv[2:]))


@command("sintercard", -3, "readonly movablekeys", numbered_keys(1))
def sintercard(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SINTERCARD numkeys key [key ...] [LIMIT limit]."""
    count = integer_between(argv[1], 1, INTEGER_MAX, b"ERR numkeys should be greater than 0")
    if count > len(argv) - 2:
        raise ErrorReply(b"ERR Number of keys can't be greater than number of args")
    limit = 0
    at = 2 + count
    while at < len(argv):
        if option(argv[at]) != b"LIMIT" or at + 1 == len(argv):
            raise ErrorReply(SYNTAX_ERROR)
        limit = natural(argv[at + 1], b"ERR LIMIT can't be negative")
        at += 2
    size = len(_intersection(shard, argv[2 : 2 + count]))
    return min(size, limit) if limit else size
