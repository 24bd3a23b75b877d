"""Lists, and moves between them, with or without a wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orderlab.sim.redis.arguments import integer, integer_between, natural, option, timeout_ms_of
from orderlab.sim.redis.node_state import NEW_VALUE_BYTES, NodeState
from orderlab.sim.redis.numbers import INTEGER_MAX, INTEGER_MIN
from orderlab.sim.redis.registry import command, numbered_keys
from orderlab.sim.redis.replies import OK, SYNTAX_ERROR, ErrorReply, Reply
from orderlab.sim.redis.values import List


def _push(node: NodeState, argv: Sequence[bytes], left: bool, only_existing: bool) -> int:
    key = argv[1]
    value = node.lookup_as(key, List)
    if value is None:
        if only_existing:
            return 0
        node.grow(NEW_VALUE_BYTES)
        value = List(argv[:1:-1] if left else argv[2:])
        node.install(key, value)
    elif left:
        value.push_left(argv[2:], node.undo)
    else:
        value.push_right(argv[2:], node.undo)
    node.modified(key, len(argv) - 2)
    return len(value)


@command("lpush", -3, "write denyoom fast", (1, 1, 1))
def lpush(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """LPUSH key element [element ...]."""
    return _push(node, argv, True, False)


@command("rpush", -3, "write denyoom fast", (1, 1, 1))
def rpush(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """RPUSH key element [element ...]."""
    return _push(node, argv, False, False)


@command("lpushx", -3, "write denyoom fast", (1, 1, 1))
def lpushx(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """LPUSHX key element [element ...]."""
    return _push(node, argv, True, True)


@command("rpushx", -3, "write denyoom fast", (1, 1, 1))
def rpushx(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """RPUSHX key element [element ...]."""
    return _push(node, argv, False, True)


def pop_elements(node: NodeState, key: bytes, value: List, left: bool, count: int) -> list[bytes]:
    """Remove up to ``count`` elements from one end, and the key with the last of them."""
    count = min(count, len(value))
    popped = value.pop_left(count, node.undo) if left else value.pop_right(count, node.undo)
    if not len(value):
        node.remove(key)
    node.modified(key, count)
    return popped


def _pop(node: NodeState, argv: Sequence[bytes], left: bool) -> Reply:
    key = argv[1]
    if len(argv) == 2:
        value = node.lookup_as(key, List)
        return None if value is None else pop_elements(node, key, value, left, 1)[0]
    if len(argv) > 3:
        raise ErrorReply(b"ERR wrong number of arguments for '%s' command" % (b"lpop" if left else b"rpop"))
    count = natural(argv[2])
    value = node.lookup_as(key, List)
    if value is None:
        return None
    return pop_elements(node, key, value, left, count) if count else []


@command("lpop", -2, "write fast", (1, 1, 1))
def lpop(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """LPOP key [count]."""
    return _pop(node, argv, True)


@command("rpop", -2, "write fast", (1, 1, 1))
def rpop(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """RPOP key [count]."""
    return _pop(node, argv, False)


@command("llen", 2, "readonly fast", (1, 1, 1))
def llen(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """LLEN key."""
    value = node.lookup_as(argv[1], List)
    return 0 if value is None else len(value)


def _bounds(start: int, end: int, size: int) -> tuple[int, int]:
    """``start..end``, both inclusive and perhaps counted from the end, as a slice of ``size`` elements."""
    if start < 0:
        start = max(start + size, 0)
    stop = min(end + size if end < 0 else end, size - 1) + 1
    return (start, stop) if start < stop else (0, 0)


@command("lrange", 4, "readonly", (1, 1, 1))
def lrange(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """LRANGE key start stop."""
    start, end = integer(argv[2]), integer(argv[3])
    value = node.lookup_as(argv[1], List)
    return [] if value is None else value.slice(*_bounds(start, end, len(value)))


@command("ltrim", 4, "write", (1, 1, 1))
def ltrim(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """LTRIM key start stop."""
    key = argv[1]
    start, end = integer(argv[2]), integer(argv[3])
    value = node.lookup_as(key, List)
    if value is None:
        return OK
    size = len(value)
    start, stop = _bounds(start, end, size)
    if start == stop:
        node.remove(key)
    else:
        if stop < size:
            value.pop_right(size - stop, node.undo)
        if start:
            value.pop_left(start, node.undo)
    node.modified(key, size - (stop - start))
    return OK


@command("lindex", 3, "readonly", (1, 1, 1))
def lindex(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """LINDEX key index."""
    value = node.lookup_as(argv[1], List)
    if value is None:
        return None
    index = integer(argv[2])
    if index < 0:
        index += len(value)
    return value[index] if 0 <= index < len(value) else None


@command("lset", 4, "write denyoom", (1, 1, 1))
def lset(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """LSET key index element."""
    key = argv[1]
    value = node.lookup_as(key, List)
    if value is None:
        raise ErrorReply(b"ERR no such key")
    index = integer(argv[2])
    if index < 0:
        index += len(value)
    if not 0 <= index < len(value):
        raise ErrorReply(b"ERR index out of range")
    value.set(index, argv[3], node.undo)
    node.modified(key)
    return OK


@command("linsert", 5, "write denyoom", (1, 1, 1))
def linsert(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """LINSERT key BEFORE|AFTER pivot element."""
    _, key, where, pivot, element = argv
    where = option(where)
    if where not in (b"BEFORE", b"AFTER"):
        raise ErrorReply(SYNTAX_ERROR)
    value = node.lookup_as(key, List)
    if value is None:
        return 0
    at = next(_matches(value, pivot, 1, 0), None)
    if at is None:
        return -1
    value.insert(at + (where == b"AFTER"), element, node.undo)
    node.modified(key)
    return len(value)


_NOT_THE_LEAST = b"ERR value is out of range, value must between %d and %d" % (-INTEGER_MAX, INTEGER_MAX)


@command("lrem", 4, "write", (1, 1, 1))
def lrem(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """LREM key count element."""
    key = argv[1]
    count = integer(argv[2])
    if count == INTEGER_MIN and node.version.has((7, 2)):
        raise ErrorReply(_NOT_THE_LEAST)
    value = node.lookup_as(key, List)
    if value is None:
        return 0
    found = list(_matches(value, argv[3], -1 if count < 0 else 1, 0))
    indexes = sorted(found[: abs(count)] if count else found)
    if indexes:
        value.remove_at(indexes, node.undo)
        if not len(value):
            node.remove(key)
        node.modified(key, len(indexes))
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
def lpos(node: NodeState, argv: Sequence[bytes]) -> Reply:
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
            if rank == INTEGER_MIN and node.version.has((7, 2)):
                raise ErrorReply(_NOT_THE_LEAST)
        elif word == b"COUNT":
            wanted = natural(argument, b"ERR COUNT can't be negative")
        elif word == b"MAXLEN":
            compared_max = natural(argument, b"ERR MAXLEN can't be negative")
        else:
            raise ErrorReply(SYNTAX_ERROR)
    value = node.lookup_as(argv[1], List)
    if value is None:
        return None if wanted is None else []
    skipped = abs(rank) - 1 if rank != INTEGER_MIN else 0  # the server negates the least integer into itself
    found = list(_matches(value, argv[2], 1 if rank > 0 else -1, compared_max))[skipped:]
    if wanted is None:
        return found[0] if found else None
    return found[:wanted] if wanted else found


def _is_left(argument: bytes) -> bool:
    word = option(argument)
    if word not in (b"LEFT", b"RIGHT"):
        raise ErrorReply(SYNTAX_ERROR)
    return word == b"LEFT"


def _move(node: NodeState, source_key: bytes, destination_key: bytes, from_left: bool, to_left: bool) -> Reply:
    source = node.lookup_as(source_key, List)
    if source is None:
        return None
    destination = node.lookup_as(destination_key, List)
    undo = node.undo
    [element] = source.pop_left(1, undo) if from_left else source.pop_right(1, undo)
    if destination is None:
        node.install(destination_key, List((element,)))
    elif to_left:
        destination.push_left((element,), undo)
    else:
        destination.push_right((element,), undo)
    node.modified(destination_key, 0)
    if not len(source):
        node.remove(source_key)
    node.modified(source_key)
    return element


def _blocking_move(node: NodeState, argv: Sequence[bytes], from_left: bool, to_left: bool) -> Reply:
    deadline_ms = timeout_ms_of(argv[-1], node.now_ms)
    source, destination = argv[1], argv[2]
    if node.lookup_as(source, List) is not None:
        return _move(node, source, destination, from_left, to_left)

    def serve(key: bytes) -> Reply:
        if node.effects is not None:
            sides = [b"LEFT" if is_left else b"RIGHT" for is_left in (from_left, to_left)]
            node.rewritten = (b"LMOVE", source, destination, *sides)
        return _move(node, source, destination, from_left, to_left)

    return node.wait_for(List, (source,), deadline_ms, serve, argv)


@command("lmove", 5, "write denyoom", (1, 2, 1))
def lmove(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """LMOVE source destination LEFT|RIGHT LEFT|RIGHT."""
    return _move(node, argv[1], argv[2], _is_left(argv[3]), _is_left(argv[4]))


@command("blmove", 6, "write denyoom noscript blocking", (1, 2, 1))
def blmove(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """BLMOVE source destination LEFT|RIGHT LEFT|RIGHT timeout."""
    from_left, to_left = _is_left(argv[3]), _is_left(argv[4])
    return _blocking_move(node, argv, from_left, to_left)


@command("rpoplpush", 3, "write denyoom", (1, 2, 1))
def rpoplpush(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """RPOPLPUSH source destination."""
    return _move(node, argv[1], argv[2], False, True)


@command("brpoplpush", 4, "write denyoom noscript blocking", (1, 2, 1))
def brpoplpush(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """BRPOPLPUSH source destination timeout."""
    return _blocking_move(node, argv, False, True)


def _pop_from_first(node: NodeState, keys: Sequence[bytes], left: bool, count: int) -> tuple[bytes, list[bytes]] | None:
    """Pop from the first of ``keys`` that holds a list; WRONGTYPE if another type comes first."""
    for key in keys:
        value = node.lookup_as(key, List)
        if value is not None:
            return key, pop_elements(node, key, value, left, count)
    return None


def _blocking_pop(node: NodeState, argv: Sequence[bytes], left: bool) -> Reply:
    deadline_ms = timeout_ms_of(argv[-1], node.now_ms)
    found = _pop_from_first(node, argv[1:-1], left, 1)
    if found is not None:
        return [found[0], found[1][0]]

    def serve(key: bytes) -> Reply:
        if node.effects is not None:
            node.rewritten = (b"LPOP" if left else b"RPOP", key)
        return [key, pop_elements(node, key, node.lookup_as(key, List), left, 1)[0]]

    return node.wait_for(List, argv[1:-1], deadline_ms, serve, argv)


@command("blpop", -3, "write noscript blocking", (1, -2, 1))
def blpop(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """BLPOP key [key ...] timeout."""
    return _blocking_pop(node, argv, True)


@command("brpop", -3, "write noscript blocking", (1, -2, 1))
def brpop(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """BRPOP key [key ...] timeout."""
    return _blocking_pop(node, argv, False)


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


def _multiple_pop(node: NodeState, argv: Sequence[bytes], count_at: int) -> Reply:
    keys, left, count = multiple_pop_arguments(argv, count_at, (b"LEFT", b"RIGHT"))
    deadline_ms = timeout_ms_of(argv[1], node.now_ms) if count_at == 2 else 0
    found = _pop_from_first(node, keys, left, count)
    if found is not None or count_at == 1:
        return None if found is None else list(found)

    def serve(key: bytes) -> Reply:
        if node.effects is not None:
            node.rewritten = (b"LPOP" if left else b"RPOP", key, b"%d" % count)
        return [key, pop_elements(node, key, node.lookup_as(key, List), left, count)]

    return node.wait_for(List, keys, deadline_ms, serve, argv)


@command("lmpop", -4, "write movablekeys", numbered_keys(1))
def lmpop(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """LMPOP numkeys key [key ...] LEFT|RIGHT [COUNT count]."""
    return _multiple_pop(node, argv, 1)


@command("blmpop", -5, "write blocking movablekeys", numbered_keys(2))
def blmpop(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """BLMPOP timeout numkeys key [key ...] LEFT|RIGHT [COUNT count]."""
    return _multiple_pop(node, argv, 2)
