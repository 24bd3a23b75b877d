"""Set commands on one key, and SMOVE."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.sim.redis.arguments import integer_between, natural
from orderlab.sim.redis.commands.scanning import page_of, parse_cursor, parse_options
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.numbers import INTEGER_MAX
from orderlab.sim.redis.random_draws import draw, draw_positions
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import SYNTAX_ERROR, ErrorReply, Reply, set_of
from orderlab.sim.redis.values import Set


@command("sadd", -3, "write denyoom fast", (1, 1, 1))
def sadd(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SADD key member [member ...]."""
    key = argv[1]
    value = shard.lookup_as(key, Set)
    undo = shard.undo
    if value is None:
        value = Set()
        shard.install(key, value)
        undo = None  # to undo the installation is enough
    limit = shard.encoding_limits.set_max_intset_entries
    added = 0
    for member in argv[2:]:
        if value.add(member, limit, undo):
            added += 1
    if added:
        shard.modified(key, added)
    return added


@command("srem", -3, "write fast", (1, 1, 1))
def srem(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SREM key member [member ...]."""
    key = argv[1]
    value = shard.lookup_as(key, Set)
    if value is None:
        return 0
    removed = 0
    for member in argv[2:]:
        if value.discard(member, shard.undo):
            removed += 1
    if removed:
        if not value.members:
            shard.remove(key)
        shard.modified(key, removed)
    return removed


@command("scard", 2, "readonly fast", (1, 1, 1))
def scard(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SCARD key."""
    value = shard.lookup_as(argv[1], Set)
    return 0 if value is None else len(value.members)


@command("sismember", 3, "readonly fast", (1, 1, 1))
def sismember(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SISMEMBER key member."""
    value = shard.lookup_as(argv[1], Set)
    return 1 if value is not None and argv[2] in value.members else 0


@command("smismember", -3, "readonly fast", (1, 1, 1))
def smismember(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SMISMEMBER key member [member ...]."""
    value = shard.lookup_as(argv[1], Set)
    if value is None:
        return [0] * (len(argv) - 2)
    members = value.members
    return [1 if member in members else 0 for member in argv[2:]]


@command("smembers", 2, "readonly", (1, 1, 1))
def smembers(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SMEMBERS key."""
    value = shard.lookup_as(argv[1], Set)
    return set_of(shard.resp, () if value is None else value.in_order())


@command("smove", 4, "write fast", (1, 2, 1))
def smove(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SMOVE source destination member."""
    _, source_key, destination_key, member = argv
    if shard.lookup(source_key) is None:
        shard.lookup(destination_key)
        return 0
    source = shard.lookup_as(source_key, Set)
    destination = shard.lookup_as(destination_key, Set)
    if source is destination:
        return 1 if member in source.members else 0
    if not source.discard(member, shard.undo):
        return 0
    if not source.members:
        shard.remove(source_key)
    shard.modified(source_key)
    if destination is None:
        destination = Set()
        shard.install(destination_key, destination)
    if destination.add(member, shard.encoding_limits.set_max_intset_entries, shard.undo):
        shard.modified(destination_key)
    return 1


@command("spop", -2, "write fast", (1, 1, 1))
def spop(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SPOP key [count]."""
    if len(argv) > 3:
        raise ErrorReply(SYNTAX_ERROR)
    key = argv[1]
    if len(argv) == 3:
        return set_of(shard.resp, _pop_many(shard, key, natural(argv[2])))
    value = shard.lookup_as(key, Set)
    if value is None:
        return None
    member = value.in_order()[draw(shard, len(value))]
    value.discard(member, shard.undo)
    if not value.members:
        shard.remove(key)
    shard.modified(key)
    return member


_REBUILD_RATIO = 5
"""Where fewer than count / 5 members stay, the server moves those into a new set, whose encoding starts afresh."""


def _pop_many(shard: NodeState, key: bytes, count: int) -> list[bytes]:
    value = shard.lookup_as(key, Set)
    if value is None or count == 0:
        return []
    limit = shard.encoding_limits.set_max_intset_entries
    size = len(value)
    if count >= size:
        shard.remove(key)
        shard.modified(key, size)
        return list(Set.of(set(value.members), limit).in_order())
    order = value.in_order()
    popped = [order[at] for at in draw_positions(shard, size, count)]
    if (size - count) * _REBUILD_RATIO > count:
        for member in popped:
            value.discard(member, shard.undo)
    else:
        shard.install(key, Set.of(value.members.difference(popped), limit))
    shard.modified(key, count)
    return popped


@command("srandmember", -2, "readonly", (1, 1, 1))
def srandmember(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SRANDMEMBER key [count]."""
    if len(argv) > 3:
        raise ErrorReply(SYNTAX_ERROR)
    if len(argv) == 2:
        value = shard.lookup_as(argv[1], Set)
        return None if value is None else value.in_order()[draw(shard, len(value))]
    count = integer_between(argv[2], -INTEGER_MAX, INTEGER_MAX)
    value = shard.lookup_as(argv[1], Set)
    if value is None:
        return []
    order = value.in_order()
    return [order[at] for at in draw_positions(shard, len(order), count)]


@command("sscan", -3, "readonly", (1, 1, 1))
def sscan(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SSCAN key cursor [MATCH pattern] [COUNT count]."""
    cursor = parse_cursor(argv[2])
    value = shard.lookup_as(argv[1], Set)
    if value is None:
        return [b"0", []]
    following, members = page_of(value.in_order(), value.intset, cursor, parse_options(argv, 3))
    return [following, list(members)]
