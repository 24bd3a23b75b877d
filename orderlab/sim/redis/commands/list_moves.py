"""List commands that take from the first of several keys, or move from one list to another, and their blocking forms.

A blocking command never waits here: inside MULTI and scripts the server does not wait either, and outside nothing can
happen on a shard between one client's command and its reply, so the wait ends at once with nil.
"""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.sim.redis.arguments import check_timeout, integer_between, option
from orderlab.sim.redis.commands.lists import pop_elements
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.numbers import INTEGER_MAX
from orderlab.sim.redis.registry import command, numbered_keys
from orderlab.sim.redis.replies import SYNTAX_ERROR, ErrorReply, Reply
from orderlab.sim.redis.values import List


def _is_left(argument: bytes) -> bool:
    word = option(argument)
    if word not in (b"LEFT", b"RIGHT"):
        raise ErrorReply(SYNTAX_ERROR)
    return word == b"LEFT"


def _move(shard: NodeState, source_key: bytes, destination_key: bytes, from_left: bool, to_left: bool) -> Reply:
    source = shard.lookup_as(source_key, List)
    if source is None:
        return None
    destination = shard.lookup_as(destination_key, List)
    undo = shard.undo
    [element] = source.pop_left(1, undo) if from_left else source.pop_right(1, undo)
    if destination is None:
        shard.install(destination_key, List((element,)))
    elif to_left:
        destination.push_left((element,), undo)
    else:
        destination.push_right((element,), undo)
    shard.modified(destination_key, 0)
    if not len(source):
        shard.remove(source_key)
    shard.modified(source_key)
    return element


@command("lmove", 5, "write denyoom", (1, 2, 1))
def lmove(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """LMOVE source destination LEFT|RIGHT LEFT|RIGHT."""
    return _move(shard, argv[1], argv[2], _is_left(argv[3]), _is_left(argv[4]))


@command("blmove", 6, "write denyoom noscript blocking", (1, 2, 1))
def blmove(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """BLMOVE source destination LEFT|RIGHT LEFT|RIGHT timeout."""
    from_left, to_left = _is_left(argv[3]), _is_left(argv[4])
    check_timeout(argv[5])
    return _move(shard, argv[1], argv[2], from_left, to_left)


@command("rpoplpush", 3, "write denyoom", (1, 2, 1))
def rpoplpush(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """RPOPLPUSH source destination."""
    return _move(shard, argv[1], argv[2], False, True)


@command("brpoplpush", 4, "write denyoom noscript blocking", (1, 2, 1))
def brpoplpush(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """BRPOPLPUSH source destination timeout."""
    check_timeout(argv[3])
    return _move(shard, argv[1], argv[2], False, True)


def _pop_from_first(shard: NodeState, keys: Sequence[bytes], left: bool, count: int) -> tuple[bytes, list[bytes]] | None:
    """Pop from the first of ``keys`` that holds a list; WRONGTYPE if another type comes first."""
    for key in keys:
        value = shard.lookup_as(key, List)
        if value is not None:
            return key, pop_elements(shard, key, value, left, count)
    return None


def _blocking_pop(shard: NodeState, argv: Sequence[bytes], left: bool) -> Reply:
    check_timeout(argv[-1])
    found = _pop_from_first(shard, argv[1:-1], left, 1)
    return None if found is None else [found[0], found[1][0]]


@command("blpop", -3, "write noscript blocking", (1, -2, 1))
def blpop(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """BLPOP key [key ...] timeout."""
    return _blocking_pop(shard, argv, True)


@command("brpop", -3, "write noscript blocking", (1, -2, 1))
def brpop(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """BRPOP key [key ...] timeout."""
    return _blocking_pop(shard, argv, False)


def multiple_pop_arguments(
    argv: Sequence[bytes], count_at: int, sides: tuple[bytes, bytes]
) -> tuple[Sequence[bytes], bool, int]:
    """``numkeys key [key ...] side [COUNT count]`` of LMPOP and ZMPOP: the keys, whether the first of ``sides`` is
    named, and the count."""
    keys_count = integer_between(argv[count_at], 1, INTEGER_MAX, b"ERR numkeys should be greater than 0")
    side_at = count_at + keys_count + 1
    if side_at >= len(argv):
        raise ErrorReply(SYNTAX_ERROR)
    side = option(argv[side_at])
    if side not in sides:
        raise ErrorReply(SYNTAX_ERROR)
    rest = argv[side_at + 1 :]
    count = 1
    if rest:
        if option(rest[0]) != b"COUNT" or len(rest) == 1:
            raise ErrorReply(SYNTAX_ERROR)
        count = integer_between(rest[1], 1, INTEGER_MAX, b"ERR count should be greater than 0")
        if len(rest) > 2:
            raise ErrorReply(SYNTAX_ERROR)
    return argv[count_at + 1 : side_at], side == sides[0], count


def _multiple_pop(shard: NodeState, argv: Sequence[bytes], count_at: int) -> Reply:
    keys, left, count = multiple_pop_arguments(argv, count_at, (b"LEFT", b"RIGHT"))
    if count_at == 2:
        check_timeout(argv[1])
    found = _pop_from_first(shard, keys, left, count)
    return None if found is None else list(found)


@command("lmpop", -4, "write movablekeys", numbered_keys(1))
def lmpop(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """LMPOP numkeys key [key ...] LEFT|RIGHT [COUNT count]."""
    return _multiple_pop(shard, argv, 1)


@command("blmpop", -5, "write blocking movablekeys", numbered_keys(2))
def blmpop(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """BLMPOP timeout numkeys key [key ...] LEFT|RIGHT [COUNT count]."""
    return _multiple_pop(shard, argv, 2)
