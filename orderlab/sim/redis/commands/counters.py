"""Counters: strings read as numbers."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.sim.redis.arguments import integer
from orderlab.sim.redis.long_doubles import LongDouble, add_long_doubles, long_double_text, parse_long_double
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.numbers import INTEGER_MAX, INTEGER_MIN, parse_integer
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import NOT_A_FLOAT, NOT_AN_INTEGER, ErrorReply, Reply


def _add(shard: NodeState, key: bytes, amount: int) -> int:
    old = shard.lookup_as(key, bytes)
    value = 0 if old is None else parse_integer(old)
    if value is None:
        raise ErrorReply(NOT_AN_INTEGER)
    value += amount
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        raise ErrorReply(b"ERR increment or decrement would overflow")
    shard.install(key, b"%d" % value)
    shard.modified(key)
    return value


@command("incr", 2, "write denyoom fast", (1, 1, 1))
def incr(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """INCR key."""
    return _add(shard, argv[1], 1)


@command("decr", 2, "write denyoom fast", (1, 1, 1))
def decr(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """DECR key."""
    return _add(shard, argv[1], -1)


@command("incrby", 3, "write denyoom fast", (1, 1, 1))
def incrby(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """INCRBY key increment."""
    return _add(shard, argv[1], integer(argv[2]))


@command("decrby", 3, "write denyoom fast", (1, 1, 1))
def decrby(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """DECRBY key decrement."""
    amount = integer(argv[2])
    if amount == INTEGER_MIN:
        raise ErrorReply(b"ERR decrement would overflow")
    return _add(shard, argv[1], -amount)


@command("incrbyfloat", 3, "write denyoom fast", (1, 1, 1))
def incrbyfloat(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """INCRBYFLOAT key increment, in 80-bit long doubles as a server on x86-64 computes."""
    key = argv[1]
    old = shard.lookup_as(key, bytes)
    value: LongDouble | None = parse_long_double(b"0" if old is None else old)
    amount = parse_long_double(argv[2])
    if value is None or amount is None:
        raise ErrorReply(NOT_A_FLOAT)
    total = add_long_doubles(value, amount)
    if total is None:
        raise ErrorReply(b"ERR increment would produce NaN or Infinity")
    assert not isinstance(total, float)
    text = long_double_text(total)
    shard.install(key, text)
    if parse_integer(text) is not None:
        shard.set_string_encoding(key, b"embstr")  # the server does not look for an integer here
    shard.modified(key)
    return text
