"""Hashes: fields and their values, one or many, as numbers, at random, in pages."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.sim.redis.arguments import integer, integer_between, option
from orderlab.sim.redis.long_doubles import add_long_doubles, long_double_text, parse_long_double
from orderlab.sim.redis.node_state import NEW_VALUE_BYTES, NodeState
from orderlab.sim.redis.numbers import INTEGER_MAX, INTEGER_MIN, parse_integer
from orderlab.sim.redis.random_draws import draw, draw_positions
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import NOT_A_FLOAT, OK, SYNTAX_ERROR, ErrorReply, Reply, mapping
from orderlab.sim.redis.scanning import page_of, parse_cursor, parse_options
from orderlab.sim.redis.values import ExpiringHash, Hash


@command("hget", 3, "readonly fast", (1, 1, 1))
def hget(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HGET key field."""
    value = node.lookup_as(argv[1], Hash)
    return None if value is None else value.fields.get(argv[2])


@command("hmget", -3, "readonly fast", (1, 1, 1))
def hmget(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HMGET key field [field ...]."""
    value = node.lookup_as(argv[1], Hash)
    if value is None:
        return [None] * (len(argv) - 2)
    return list(map(value.fields.get, argv[2:]))


def put_fields(node: NodeState, argv: Sequence[bytes], keeps_deadlines: bool = False) -> int:
    """Set the pairs of ``argv[2:]``; how many fields are new."""
    key = argv[1]
    value = node.lookup_as(key, Hash)
    undo = node.undo
    limits = node.encoding_limits
    if value is None:
        node.grow(NEW_VALUE_BYTES)
        value = Hash()
        node.install(key, value)
        undo = None  # to undo the installation is enough
    is_measured = not keeps_deadlines or node.version.has((7, 0))  # 6.2 measures no sums
    if not value.hashtable and is_measured and max(map(len, argv[2:])) > limits.hash_max_listpack_value:
        value.become_hashtable(undo)
    if isinstance(value, ExpiringHash):
        put = value.put_only if keeps_deadlines else value.put
        added = sum(put(argv[at], argv[at + 1], undo) for at in range(2, len(argv), 2))
    elif undo is None and value.hash_order is None:
        fields = value.fields
        before = len(fields)
        for at in range(2, len(argv), 2):
            fields[argv[at]] = argv[at + 1]
        added = len(fields) - before
    else:
        added = sum(value.put(argv[at], argv[at + 1], undo) for at in range(2, len(argv), 2))
    if not value.hashtable and len(value.fields) > limits.hash_max_listpack_entries:
        value.become_hashtable(undo)
    node.modified(key, (len(argv) - 2) // 2)
    return added


@command("hset", -4, "write denyoom fast", (1, 1, 1))
def hset(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HSET key field value [field value ...]."""
    if len(argv) & 1:
        raise ErrorReply(b"ERR wrong number of arguments for 'hset' command")
    return put_fields(node, argv)


@command("hmset", -4, "write denyoom fast", (1, 1, 1))
def hmset(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HMSET key field value [field value ...]."""
    if len(argv) & 1:
        raise ErrorReply(b"ERR wrong number of arguments for 'hmset' command")
    put_fields(node, argv)
    return OK


@command("hsetnx", 4, "write denyoom fast", (1, 1, 1))
def hsetnx(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HSETNX key field value."""
    value = node.lookup_as(argv[1], Hash)
    if value is not None and argv[2] in value.fields:
        return 0
    return put_fields(node, argv)


@command("hdel", -3, "write fast", (1, 1, 1))
def hdel(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HDEL key field [field ...]."""
    key = argv[1]
    value = node.lookup_as(key, Hash)
    if value is None:
        return 0
    removed: int = value.remove(argv[2:], node.undo)
    if removed:
        if not value.fields:
            node.remove(key)
        node.modified(key, removed)
    return removed


@command("hlen", 2, "readonly fast", (1, 1, 1))
def hlen(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HLEN key."""
    value = node.lookup_as(argv[1], Hash)
    return 0 if value is None else len(value.fields)


@command("hexists", 3, "readonly fast", (1, 1, 1))
def hexists(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HEXISTS key field."""
    value = node.lookup_as(argv[1], Hash)
    return 1 if value is not None and argv[2] in value.fields else 0


@command("hstrlen", 3, "readonly fast", (1, 1, 1))
def hstrlen(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HSTRLEN key field."""
    value = node.lookup_as(argv[1], Hash)
    return 0 if value is None else len(value.fields.get(argv[2], b""))


@command("hgetall", 2, "readonly", (1, 1, 1))
def hgetall(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HGETALL key."""
    value = node.lookup_as(argv[1], Hash)
    return mapping(node.resp, [] if value is None else _flat(value, value.in_order()))


@command("hkeys", 2, "readonly", (1, 1, 1))
def hkeys(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HKEYS key."""
    value = node.lookup_as(argv[1], Hash)
    return [] if value is None else list(value.in_order())


@command("hvals", 2, "readonly", (1, 1, 1))
def hvals(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HVALS key."""
    value = node.lookup_as(argv[1], Hash)
    return [] if value is None else [value.fields[field] for field in value.in_order()]


def _flat(value: Hash, fields: Sequence[bytes]) -> list[bytes]:
    """Fields and their values in turn."""
    flat = [b""] * (2 * len(fields))
    flat[::2] = fields
    flat[1::2] = map(value.fields.__getitem__, fields)
    return flat


@command("hincrby", 4, "write denyoom fast", (1, 1, 1))
def hincrby(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HINCRBY key field increment."""
    _, key, field, amount = argv
    increment = integer(amount)
    value = node.lookup_as(key, Hash)
    old = None if value is None else value.fields.get(field)
    total = 0 if old is None else parse_integer(old)
    if total is None:
        raise ErrorReply(b"ERR hash value is not an integer")
    total += increment
    if not INTEGER_MIN <= total <= INTEGER_MAX:
        raise ErrorReply(b"ERR increment or decrement would overflow")
    put_fields(node, (b"hset", key, field, b"%d" % total), True)
    return total


@command("hincrbyfloat", 4, "write denyoom fast", (1, 1, 1))
def hincrbyfloat(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HINCRBYFLOAT key field increment."""
    _, key, field, amount = argv
    increment = parse_long_double(amount)
    if increment is None:
        raise ErrorReply(NOT_A_FLOAT)
    if isinstance(increment, float):
        raise ErrorReply(b"ERR value is NaN or Infinity")
    value = node.lookup_as(key, Hash)
    old = None if value is None else value.fields.get(field)
    start = parse_long_double(b"0" if old is None else old)
    if start is None:
        raise ErrorReply(b"ERR hash value is not a float")
    total = add_long_doubles(start, increment)
    if total is None:
        raise ErrorReply(b"ERR increment would produce NaN or Infinity")
    text = long_double_text(total)
    put_fields(node, (b"hset", key, field, text), True)
    return text


@command("hrandfield", -2, "readonly", (1, 1, 1))
def hrandfield(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HRANDFIELD key [count [WITHVALUES]]."""
    if len(argv) == 2:
        value = node.lookup_as(argv[1], Hash)
        return None if value is None else value.in_order()[draw(node, len(value))]
    count = integer_between(argv[2], -INTEGER_MAX, INTEGER_MAX)
    with_values = len(argv) == 4 and option(argv[3]) == b"WITHVALUES"
    if len(argv) > 3 and not with_values:
        raise ErrorReply(SYNTAX_ERROR)
    if with_values and not -INTEGER_MAX // 2 < count <= INTEGER_MAX // 2:
        raise ErrorReply(b"ERR value is out of range")
    value = node.lookup_as(argv[1], Hash)
    if value is None:
        return []
    order = value.in_order()
    fields = [order[at] for at in draw_positions(node, len(order), count)]
    if not with_values:
        return fields
    if node.resp == 3:
        return [[field, value.fields[field]] for field in fields]
    return _flat(value, fields)


@command("hscan", -3, "readonly", (1, 1, 1))
def hscan(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """HSCAN key cursor [MATCH pattern] [COUNT count]."""
    cursor = parse_cursor(argv[2], node.version.has((7, 2)))
    value = node.lookup_as(argv[1], Hash)
    if value is None:
        return [b"0", []]
    only_names = len(argv) > 3 and option(argv[-1]) == b"NOVALUES" and node.version.has_option("HSCAN", b"NOVALUES")
    options = parse_options(argv[:-1] if only_names else argv, 3)
    following, fields = page_of(value.in_order(), not value.hashtable, cursor, options)
    if only_names:
        return [following, fields]
    return [following, _flat(value, fields)]
