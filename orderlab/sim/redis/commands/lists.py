"""List commands on one key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orderlab.sim.redis.arguments import integer, natural, option
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.numbers import INTEGER_MIN
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import OK, SYNTAX_ERROR, ErrorReply, Reply
from orderlab.sim.redis.values import List


def _push(shard: NodeState, argv: Sequence[bytes], left: bool, only_existing: bool) -> int:
    key = argv[1]
    value = shard.lookup_as(key, List)
    if value is None:
        if only_existing:
            return 0
        value = List(argv[:1:-1] if left else argv[2:])
        shard.install(key, value)
    elif left:
        value.push_left(argv[2:], shard.undo)
    else:
        value.push_right(argv[2:], shard.undo)
    shard.modified(key, len(argv) - 2)
    return len(value)


@command("lpush", -3, "write denyoom fast", (1, 1, 1))
def lpush(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """LPUSH key element [element ...]."""
    return _push(shard, argv, True, False)


@command("rpush", -3, "write denyoom fast", (1, 1, 1))
def rpush(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """RPUSH key element [element ...]."""
    return _push(shard, argv, False, False)


@command("lpushx", -3, "write denyoom fast", (1, 1, 1))
def lpushx(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """LPUSHX key element [element ...]."""
    return _push(shard, argv, True, True)


@command("rpushx", -3, "write denyoom fast", (1, 1, 1))
def rpushx(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """RPUSHX key element [element ...]."""
    return _push(shard, argv, False, True)


def pop_elements(shard: NodeState, key: bytes, value: List, left: bool, count: int) -> list[bytes]:
    """Remove up to ``count`` elements from one end, and the key with the last of them."""
    count = min(count, len(value))
    popped = value.pop_left(count, shard.undo) if left else value.pop_right(count, shard.undo)
    if not len(value):
        shard.remove(key)
    shard.modified(key, count)
    return popped


def _pop(shard: NodeState, argv: Sequence[bytes], left: bool) -> Reply:
    key = argv[1]
    if len(argv) == 2:
        value = shard.lookup_as(key, List)
        return None if value is None else pop_elements(shard, key, value, left, 1)[0]
    if len(argv) > 3:
        raise ErrorReply(b"ERR wrong number of arguments for '%s' command" % (b"lpop" if left else b"rpop"))
    count = natural(argv[2])
    value = shard.lookup_as(key, List)
    if value is None:
        return None
    return pop_elements(shard, key, value, left, count) if count else []


@command("lpop", -2, "write fast", (1, 1, 1))
def lpop(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """LPOP key [count]."""
    return _pop(shard, argv, True)


@command("rpop", -2, "write fast", (1, 1, 1))
def rpop(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """RPOP key [count]."""
    return _pop(shard, argv, False)


@command("llen", 2, "readonly fast", (1, 1, 1))
def llen(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """LLEN key."""
    value = shard.lookup_as(argv[1], List)
    return 0 if value is None else len(value)


def _bounds(start: int, end: int, size: int) -> tuple[int, int]:
    """``start..end``, both inclusive and perhaps counted from the end, as a slice of ``size`` elements."""
    if start < 0:
        start = max(start + size, 0)
    stop = min(end + size if end < 0 else end, size - 1) + 1
    return (start, stop) if start < stop else (0, 0)


@command("lrange", 4, "readonly", (1, 1, 1))
def lrange(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """LRANGE key start stop."""
    start, end = integer(argv[2]), integer(argv[3])
    value = shard.lookup_as(argv[1], List)
    return [] if value is None else value.slice(*_bounds(start, end, len(value)))


@command("ltrim", 4, "write", (1, 1, 1))
def ltrim(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """LTRIM key start stop."""
    key = argv[1]
    start, end = integer(argv[2]), integer(argv[3])
    value = shard.lookup_as(key, List)
    if value is None:
        return OK
    size = len(value)
    start, stop = _bounds(start, end, size)
    if start == stop:
        shard.remove(key)
    else:
        if stop < size:
            value.pop_right(size - stop, shard.undo)
        if start:
            value.pop_left(start, shard.undo)
    shard.modified(key, size - (stop - start))
    return OK


@command("lindex", 3, "readonly", (1, 1, 1))
def lindex(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """LINDEX key index."""
    value = shard.lookup_as(argv[1], List)
    if value is None:
        return None
    index = integer(argv[2])
    if index < 0:
        index += len(value)
    return value[index] if 0 <= index < len(value) else None


@command("lset", 4, "write denyoom", (1, 1, 1))
def lset(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """LSET key index element."""
    key = argv[1]
    value = shard.lookup_as(key, List)
    if value is None:
        raise ErrorReply(b"ERR no such key")
    index = integer(argv[2])
    if index < 0:
        index += len(value)
    if not 0 <= index < len(value):
        raise ErrorReply(b"ERR index out of range")
    value.set(index, argv[3], shard.undo)
    shard.modified(key)
    return OK


@command("linsert", 5, "write denyoom", (1, 1, 1))
def linsert(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """LINSERT key BEFORE|AFTER pivot element."""
    _, key, where, pivot, element = argv
    where = option(where)
    if where not in (b"BEFORE", b"AFTER"):
        raise ErrorReply(SYNTAX_ERROR)
    value = shard.lookup_as(key, List)
    if value is None:
        return 0
    at = next(_matches(value, pivot, 1, 0), None)
    if at is None:
        return -1
    value.insert(at + (where == b"AFTER"), element, shard.undo)
    shard.modified(key)
    return len(value)


@command("lrem", 4, "write", (1, 1, 1))
def lrem(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """LREM key count element."""
    key = argv[1]
    count = integer(argv[2])
    value = shard.lookup_as(key, List)
    if value is None:
        return 0
    found = list(_matches(value, argv[3], -1 if count < 0 else 1, 0))
    indexes = sorted(found[: abs(count)] if count else found)
    if indexes:
        value.remove_at(indexes, shard.undo)
        if not len(value):
            shard.remove(key)
        shard.modified(key, len(indexes))
    return len(indexes)


def _matches(value: List, element: bytes, step: int, compared_max: int) -> Iterator[int]:
    """Indexes of ``element``, from the left (step 1) or from the right (-1), among the first ``compared_max``
    elements on that side (0: all)."""
    size = len(value)
    reach = min(compared_max, size) if compared_max else size
    elements = value.slice(0, reach) if step > 0 else value.slice(size - reach, size)
    if step < 0:
        elements.reverse()
    at = -1
    while True:
        try:
            at = elements.index(element, at + 1)
        except ValueError:
            return
        yield at if step > 0 else size - 1 - at


@command("lpos", -3, "readonly", (1, 1, 1))
def lpos(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """LPOS key element [RANK rank] [COUNT matches] [MAXLEN len]."""
    rank, wanted, compared_max = 1, None, 0
    for at in range(3, len(argv), 2):
        word = option(argv[at])
        if at + 1 == len(argv):
            raise ErrorReply(SYNTAX_ERROR)
        argument = argv[at + 1]
        if word == b"RANK":
            rank = integer(argument)
            if rank == 0:
                raise ErrorReply(
                    b"ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... "
                    b"or use negative to start from the end of the list"
                )
        elif word == b"COUNT":
            wanted = natural(argument, b"ERR COUNT can't be negative")
        elif word == b"MAXLEN":
            compared_max = natural(argument, b"ERR MAXLEN can't be negative")
        else:
            raise ErrorReply(SYNTAX_ERROR)
    value = shard.lookup_as(argv[1], List)
    if value is None:
        return None if wanted is None else []
    skipped = abs(rank) - 1 if rank != INTEGER_MIN else 0  # the server negates the least integer into itself
    found = list(_matches(value, argv[2], 1 if rank > 0 else -1, compared_max))[skipped:]
    if wanted is None:
        return found[0] if found else None
    return found[:wanted] if wanted else found
