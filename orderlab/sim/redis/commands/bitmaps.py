"""Strings as arrays of bits: SETBIT, BITCOUNT, BITPOS, BITOP."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orderlab.sim.redis.arguments import integer, option
from orderlab.sim.redis.commands.strings import put_raw, put_string
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.numbers import parse_integer
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import SYNTAX_ERROR, ErrorReply, Reply

BAD_OFFSET = b"ERR bit offset is not an integer or out of range"
_BAD_BIT = b"ERR bit is not an integer or out of range"
_WRAP = 1 << 64


def bit_offset(shard: NodeState, argument: bytes, width: int = 0) -> int:
    """An offset in bits. With a ``width``, ``#n`` means the n-th field of that width."""
    counts_fields = width > 0 and argument[:1] == b"#"
    offset = parse_integer(argument[1:] if counts_fields else argument)
    if offset is None:
        raise ErrorReply(BAD_OFFSET)
    if counts_fields:
        offset = (offset * width + _WRAP // 2) % _WRAP - _WRAP // 2  # the server's product wraps around
    if offset < 0 or (offset >> 3 >= shard.config.proto_max_bulk_len and not shard.caller.is_master):
        raise ErrorReply(BAD_OFFSET)
    return offset


def grown_string(shard: NodeState, key: bytes, last_bit: int) -> tuple[bytearray, bool]:
    """A copy of the string at ``key`` that reaches to ``last_bit``, and whether it had to grow."""
    old = shard.lookup_as(key, bytes) or b""
    size = (last_bit >> 3) + 1
    if len(old) >= size:
        return bytearray(old), False
    shard.grow(size - len(old))
    return bytearray(old.ljust(size, b"\0")), True


@command("setbit", 4, "write denyoom", (1, 1, 1))
def setbit(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """SETBIT key offset bit: the bit before."""
    offset = bit_offset(shard, argv[2])
    bit = integer(argv[3], _BAD_BIT)
    if bit not in (0, 1):
        raise ErrorReply(_BAD_BIT)
    buffer, has_grown = grown_string(shard, argv[1], offset)
    mask = 0x80 >> (offset & 7)
    old = int(buffer[offset >> 3] & mask != 0)
    if has_grown or old != bit:
        buffer[offset >> 3] ^= mask if old != bit else 0
        put_raw(shard, argv[1], bytes(buffer))
    else:
        shard.set_string_encoding(argv[1], b"raw")
    return old


@command("getbit", 3, "readonly fast", (1, 1, 1))
def getbit(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """GETBIT key offset."""
    offset = bit_offset(shard, argv[2])
    value = shard.lookup_as(argv[1], bytes) or b""
    at = offset >> 3
    return (value[at] >> (7 - (offset & 7))) & 1 if at < len(value) else 0


def _in_bits(unit: bytes) -> bool:
    word = option(unit)
    if word not in (b"BIT", b"BYTE"):
        raise ErrorReply(SYNTAX_ERROR)
    return word == b"BIT"


def _bits_between(value: bytes, start: int, end: int, in_bits: bool) -> tuple[int, int]:
    """The first bit and the bit after the last of a range with negative indexes; empty if they are in no order."""
    total = len(value) * 8 if in_bits else len(value)
    start = max(0, start + total if start < 0 else start)
    end = min(max(0, end + total if end < 0 else end), total - 1)
    return (start, end + 1) if in_bits else (start * 8, (end + 1) * 8)


def _window(value: bytes, first: int, beyond: int) -> int:
    """The bits from ``first`` up to, not including, ``beyond`` as one number."""
    covering = int.from_bytes(value[first >> 3 : (beyond + 7) >> 3], "big")
    return (covering >> (-beyond % 8)) & ((1 << (beyond - first)) - 1)


@command("bitcount", -2, "readonly", (1, 1, 1))
def bitcount(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """BITCOUNT key [start end [BYTE | BIT]]."""
    value = shard.lookup_as(argv[1], bytes)
    if value is None:
        return 0
    if len(argv) == 2:
        return int.from_bytes(value, "big").bit_count()
    if len(argv) not in (4, 5):
        raise ErrorReply(SYNTAX_ERROR)
    start, end = integer(argv[2]), integer(argv[3])
    if start < 0 and end < 0 and start > end:
        return 0
    first, beyond = _bits_between(value, start, end, len(argv) == 5 and _in_bits(argv[4]))
    return _window(value, first, beyond).bit_count() if first < beyond else 0


@command("bitpos", -3, "readonly", (1, 1, 1))
def bitpos(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """BITPOS key bit [start [end [BYTE | BIT]]]: right of a string without a given end all bits are clear."""
    bit = integer(argv[2])
    if bit not in (0, 1):
        raise ErrorReply(b"ERR The bit argument must be 1 or 0.")
    value = shard.lookup(argv[1])
    if value is None:
        return -1 if bit else 0
    value = shard.lookup_as(argv[1], bytes)
    if len(argv) > 6:
        raise ErrorReply(SYNTAX_ERROR)
    start = integer(argv[3]) if len(argv) > 3 else 0
    in_bits = len(argv) == 6 and _in_bits(argv[5])
    end = integer(argv[4]) if len(argv) > 4 else -1
    first, beyond = _bits_between(value, start, end, in_bits)
    if first >= beyond:
        return -1
    length = beyond - first
    window = _window(value, first, beyond)
    if not bit:
        window ^= (1 << length) - 1
    if window:
        return first + length - window.bit_length()
    return beyond if not bit and len(argv) < 5 else -1


_OPERATIONS: dict[bytes, Callable[[int, int], int]] = {
    b"AND": int.__and__,
    b"OR": int.__or__,
    b"XOR": int.__xor__,
}


@command("bitop", -4, "write denyoom", (2, -1, 1))
def bitop(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """BITOP AND | OR | XOR | NOT destkey key [key ...]: shorter strings count as padded with zeros."""
    operation, target = option(argv[1]), argv[2]
    if operation != b"NOT" and operation not in _OPERATIONS:
        raise ErrorReply(SYNTAX_ERROR)
    if operation == b"NOT" and len(argv) != 4:
        raise ErrorReply(b"ERR BITOP NOT must be called with a single source key.")
    values = [shard.lookup_as(key, bytes) or b"" for key in argv[3:]]
    size = max(map(len, values))
    if not size:
        if shard.lookup(target) is not None:
            shard.remove(target)
            shard.modified(target)
        return 0
    numbers = [int.from_bytes(value.ljust(size, b"\0"), "big") for value in values]
    result = numbers[0]
    if operation == b"NOT":
        result ^= (1 << (8 * size)) - 1
    else:
        for number in numbers[1:]:
            result = _OPERATIONS[operation](result, number)
    shard.grow(size)
    put_string(shard, target, result.to_bytes(size, "big"))
    shard.set_string_encoding(target, b"raw")
    return size
