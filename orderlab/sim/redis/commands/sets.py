"""Sets, and the collections that commands compute from several of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orderlab.sim.redis.arguments import integer_between, natural, option
from orderlab.sim.redis.node_state import NEW_VALUE_BYTES, NodeState
from orderlab.sim.redis.numbers import INTEGER_MAX
from orderlab.sim.redis.random_draws import draw, draw_positions
from orderlab.sim.redis.registry import command, numbered_keys
from orderlab.sim.redis.replies import SYNTAX_ERROR, ErrorReply, Reply, set_of
from orderlab.sim.redis.scanning import page_of, parse_cursor, parse_options
from orderlab.sim.redis.values import Set, SortedSet

GROWTH_PER_MEMBER: Final = 64
"""Bytes that one more reference to a member costs, roughly: enough to stop a script that multiplies collections."""


def store_result(node: NodeState, key: bytes, result: SortedSet | Set) -> int:
    """Replace whatever is at ``key``, deadline included, by ``result``; an empty one leaves no key. Its size."""
    if not result:
        if node.lookup(key) is not None:
            node.remove(key)
            node.modified(key)
        return 0
    node.grow(GROWTH_PER_MEMBER * len(result))
    node.install(key, result)
    if key in node.deadlines_ms:
        node.set_deadline(key, None)
    node.modified(key)
    return len(result)


@command("sadd", -3, "write denyoom fast", (1, 1, 1))
def sadd(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SADD key member [member ...]."""
    key = argv[1]
    value = node.lookup_as(key, Set)
    undo = node.undo
    if value is None:
        node.grow(NEW_VALUE_BYTES)
        value = Set()
        node.install(key, value)
        undo = None  # to undo the installation is enough
    limit = node.encoding_limits.set_max_intset_entries
    added = 0
    for member in argv[2:]:
        if value.add(member, limit, undo):
            added += 1
    if added:
        node.modified(key, added)
    return added


@command("srem", -3, "write fast", (1, 1, 1))
def srem(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SREM key member [member ...]."""
    key = argv[1]
    value = node.lookup_as(key, Set)
    if value is None:
        return 0
    removed = 0
    for member in argv[2:]:
        if value.discard(member, node.undo):
            removed += 1
    if removed:
        if not value.members:
            node.remove(key)
        node.modified(key, removed)
    return removed


@command("scard", 2, "readonly fast", (1, 1, 1))
def scard(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SCARD key."""
    value = node.lookup_as(argv[1], Set)
    return 0 if value is None else len(value.members)


@command("sismember", 3, "readonly fast", (1, 1, 1))
def sismember(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SISMEMBER key member."""
    value = node.lookup_as(argv[1], Set)
    return 1 if value is not None and argv[2] in value.members else 0


@command("smismember", -3, "readonly fast", (1, 1, 1))
def smismember(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SMISMEMBER key member [member ...]."""
    value = node.lookup_as(argv[1], Set)
    if value is None:
        return [0] * (len(argv) - 2)
    members = value.members
    return [1 if member in members else 0 for member in argv[2:]]


@command("smembers", 2, "readonly", (1, 1, 1))
def smembers(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SMEMBERS key."""
    value = node.lookup_as(argv[1], Set)
    return set_of(node.resp, () if value is None else value.in_order())


@command("smove", 4, "write fast", (1, 2, 1))
def smove(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SMOVE source destination member."""
    _, source_key, destination_key, member = argv
    if node.lookup(source_key) is None:
        node.lookup(destination_key)
        return 0
    source = node.lookup_as(source_key, Set)
    destination = node.lookup_as(destination_key, Set)
    if source is destination:
        return 1 if member in source.members else 0
    if not source.discard(member, node.undo):
        return 0
    if not source.members:
        node.remove(source_key)
    node.modified(source_key)
    if destination is None:
        destination = Set()
        node.install(destination_key, destination)
    if destination.add(member, node.encoding_limits.set_max_intset_entries, node.undo):
        node.modified(destination_key)
    return 1


@command("spop", -2, "write fast", (1, 1, 1))
def spop(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SPOP key [count]."""
    if len(argv) > 3:
        raise ErrorReply(SYNTAX_ERROR)
    key = argv[1]
    if len(argv) == 3:
        return set_of(node.resp, _pop_many(node, key, natural(argv[2])))
    value = node.lookup_as(key, Set)
    if value is None:
        return None
    member = value.in_order()[draw(node, len(value))]
    value.discard(member, node.undo)
    if not value.members:
        node.remove(key)
    node.modified(key)
    return member


_REBUILD_RATIO: Final = 5
"""Where fewer than count / 5 members stay, the server moves those into a new set, whose encoding starts afresh."""


def _pop_many(node: NodeState, key: bytes, count: int) -> list[bytes]:
    value = node.lookup_as(key, Set)
    if value is None or count == 0:
        return []
    limit = node.encoding_limits.set_max_intset_entries
    size = len(value)
    if count >= size:
        node.remove(key)
        node.modified(key, size)
        return list(Set.of(set(value.members), limit).in_order())
    order = value.in_order()
    popped = [order[at] for at in draw_positions(node, size, count)]
    if (size - count) * _REBUILD_RATIO > count:
        for member in popped:
            value.discard(member, node.undo)
    else:
        node.install(key, Set.of(value.members.difference(popped), limit))
    node.modified(key, count)
    return popped


@command("srandmember", -2, "readonly", (1, 1, 1))
def srandmember(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SRANDMEMBER key [count]."""
    if len(argv) > 3:
        raise ErrorReply(SYNTAX_ERROR)
    if len(argv) == 2:
        value = node.lookup_as(argv[1], Set)
        return None if value is None else value.in_order()[draw(node, len(value))]
    count = integer_between(argv[2], -INTEGER_MAX, INTEGER_MAX)
    value = node.lookup_as(argv[1], Set)
    if value is None:
        return []
    order = value.in_order()
    return [order[at] for at in draw_positions(node, len(order), count)]


@command("sscan", -3, "readonly", (1, 1, 1))
def sscan(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SSCAN key cursor [MATCH pattern] [COUNT count]."""
    cursor = parse_cursor(argv[2], node.version.has((7, 2)))
    value = node.lookup_as(argv[1], Set)
    if value is None:
        return [b"0", []]
    following, members = page_of(value.in_order(), value.intset, cursor, parse_options(argv, 3))
    return [following, list(members)]


def _inputs(node: NodeState, keys: Sequence[bytes]) -> list[Set | None]:
    return [node.lookup_as(key, Set) for key in keys]


def _encoded(node: NodeState, members: set[bytes]) -> Set:
    return Set.of(members, node.encoding_limits.set_max_intset_entries)


def _union(node: NodeState, keys: Sequence[bytes]) -> Set:
    members: set[bytes] = set()
    for value in _inputs(node, keys):
        if value is not None:
            members |= value.members
    return _encoded(node, members)


def _intersection(node: NodeState, keys: Sequence[bytes]) -> list[bytes]:
    """Members that all have, in the order of the smallest input, as the server walks it."""
    inputs = _inputs(node, keys)
    present = [value for value in inputs if value is not None]
    if len(present) < len(inputs):
        return []
    present.sort(key=len)
    others = [value.members for value in present[1:]]
    return [member for member in present[0].in_order() if all(member in other for other in others)]


def _difference(node: NodeState, keys: Sequence[bytes]) -> Set:
    inputs = _inputs(node, keys)
    first = inputs[0]
    if first is None:
        return Set()
    present = [value for value in inputs if value is not None]
    result = _encoded(node, first.members.difference(*(value.members for value in present[1:])))
    if len(first) * len(present) // 2 > sum(map(len, present)):
        # Then the server adds the whole first set before it removes: an encoding that is left stays left.
        result.intset = _encoded(node, first.members.copy()).intset
    return result


@command("sunion", -2, "readonly", (1, -1, 1))
def sunion(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SUNION key [key ...]."""
    return set_of(node.resp, _union(node, argv[1:]).in_order())


@command("sinter", -2, "readonly", (1, -1, 1))
def sinter(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SINTER key [key ...]."""
    return set_of(node.resp, _intersection(node, argv[1:]))


@command("sdiff", -2, "readonly", (1, -1, 1))
def sdiff(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SDIFF key [key ...]."""
    return set_of(node.resp, _difference(node, argv[1:]).in_order())


@command("sunionstore", -3, "write denyoom", (1, -1, 1))
def sunionstore(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SUNIONSTORE destination key [key ...]."""
    return store_result(node, argv[1], _union(node, argv[2:]))


@command("sinterstore", -3, "write denyoom", (1, -1, 1))
def sinterstore(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SINTERSTORE destination key [key ...]."""
    return store_result(node, argv[1], _encoded(node, set(_intersection(node, argv[2:]))))


@command("sdiffstore", -3, "write denyoom", (1, -1, 1))
def sdiffstore(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SDIFFSTORE destination key [key ...]."""
    return store_result(node, argv[1], _difference(node, argv[2:]))


@command("sintercard", -3, "readonly movablekeys", numbered_keys(1))
def sintercard(node: NodeState, argv: Sequence[bytes]) -> Reply:
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
    size = len(_intersection(node, argv[2 : 2 + count]))
    return min(size, limit) if limit else size
