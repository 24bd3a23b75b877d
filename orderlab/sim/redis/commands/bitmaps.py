"""Strings as rows of bits, and as fields of integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orderlab.sim.redis.arguments import integer, option
from orderlab.sim.redis.commands.strings import put_raw, put_string
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.numbers import INTEGER_MIN, parse_integer
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import SYNTAX_ERROR, ErrorReply, Reply

BAD_OFFSET = b"ERR bit offset is not an integer or out of range"
_BAD_BIT = b"ERR bit is not an integer or out of range"
_WRAP = 1 << 64


def bit_offset(node: NodeState, argument: bytes, width: int = 0) -> int:
    """An offset in bits. With a ``width``, ``#n`` means the n-th field of that width."""
    counts_fields = width > 0 and argument[:1] == b"#"
    offset = parse_integer(argument[1:] if counts_fields else argument)
    if offset is None:
        raise ErrorReply(BAD_OFFSET)
    if counts_fields:
        offset = (offset * width + _WRAP // 2) % _WRAP - _WRAP // 2  # the server's product wraps around
    if offset < 0 or (offset >> 3 >= node.config.proto_max_bulk_len and not node.caller.is_master):
        raise ErrorReply(BAD_OFFSET)
    return offset


def grown_string(node: NodeState, key: bytes, last_bit: int) -> tuple[bytearray, bool]:
    """A copy of the string at ``key`` that reaches to ``last_bit``, and whether it had to grow."""
    old = node.lookup_as(key, bytes) or b""
    size = (last_bit >> 3) + 1
    if len(old) >= size:
        return bytearray(old), False
    node.grow(size - len(old))
    return bytearray(old.ljust(size, b"\0")), True


@command("setbit", 4, "write denyoom", (1, 1, 1))
def setbit(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """SETBIT key offset bit: the bit before."""
    offset = bit_offset(node, argv[2])
    bit = integer(argv[3], _BAD_BIT)
    if bit not in (0, 1):
        raise ErrorReply(_BAD_BIT)
    buffer, has_grown = grown_string(node, argv[1], offset)
    mask = 0x80 >> (offset & 7)
    old = int(buffer[offset >> 3] & mask != 0)
    if has_grown or old != bit:
        buffer[offset >> 3] ^= mask if old != bit else 0
        put_raw(node, argv[1], bytes(buffer))
    else:
        node.set_string_encoding(argv[1], b"raw")
    return old


@command("getbit", 3, "readonly fast", (1, 1, 1))
def getbit(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """GETBIT key offset."""
    offset = bit_offset(node, argv[2])
    value = node.lookup_as(argv[1], bytes) or b""
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


def _check_range(words: Sequence[bytes]) -> None:
    """Read a range and its unit: Redis 7.2 does so before it looks for the key."""
    for bound in words[:2]:
        integer(bound)
    if len(words) == 3:
        _in_bits(words[2])


@command("bitcount", -2, "readonly", (1, 1, 1))
def bitcount(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """BITCOUNT key [start end [BYTE | BIT]]."""
    if node.version.has((7, 2)):
        if len(argv) == 3 and node.version.is_valkey:
            argv = [*argv, b"-1"]  # a start alone
        if len(argv) not in (2, 4, 5):
            raise ErrorReply(SYNTAX_ERROR)
        _check_range(argv[2:])
    value = node.lookup_as(argv[1], bytes)
    if value is None:
        return 0
    if len(argv) == 2:
        return int.from_bytes(value, "big").bit_count()
    if len(argv) not in (4, 5) or (len(argv) == 5 and not node.version.has((7, 0))):
        raise ErrorReply(SYNTAX_ERROR)
    start, end = integer(argv[2]), integer(argv[3])
    if start < 0 and end < 0 and start > end:
        return 0
    first, beyond = _bits_between(value, start, end, len(argv) == 5 and _in_bits(argv[4]))
    return _window(value, first, beyond).bit_count() if first < beyond else 0


@command("bitpos", -3, "readonly", (1, 1, 1))
def bitpos(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """BITPOS key bit [start [end [BYTE | BIT]]]: right of a string without a given end all bits are clear."""
    bit = integer(argv[2])
    if bit not in (0, 1):
        raise ErrorReply(b"ERR The bit argument must be 1 or 0.")
    value = node.lookup(argv[1])
    if node.version.has((7, 2)):
        _check_range(argv[3:4])
        if len(argv) == 6:
            _in_bits(argv[5])
        _check_range(argv[4:5])
    if value is None:
        return -1 if bit else 0
    value = node.lookup_as(argv[1], bytes)
    if len(argv) > (6 if node.version.has((7, 0)) else 5):
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
def bitop(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """BITOP AND | OR | XOR | NOT destkey key [key ...]: shorter strings count as padded with zeros."""
    operation, target = option(argv[1]), argv[2]
    if operation != b"NOT" and operation not in _OPERATIONS:
        raise ErrorReply(SYNTAX_ERROR)
    if operation == b"NOT" and len(argv) != 4:
        raise ErrorReply(b"ERR BITOP NOT must be called with a single source key.")
    values = [node.lookup_as(key, bytes) or b"" for key in argv[3:]]
    size = max(map(len, values))
    if not size:
        if node.lookup(target) is not None:
            node.remove(target)
            node.modified(target)
        return 0
    numbers = [int.from_bytes(value.ljust(size, b"\0"), "big") for value in values]
    result = numbers[0]
    if operation == b"NOT":
        result ^= (1 << (8 * size)) - 1
    else:
        for number in numbers[1:]:
            result = _OPERATIONS[operation](result, number)
    node.grow(size)
    put_string(node, target, result.to_bytes(size, "big"))
    node.set_string_encoding(target, b"raw")
    return size


_BAD_TYPE = b"ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is."


@dataclass(frozen=True, slots=True)
class _Field:
    """A place in the string and how to read it."""

    offset: int
    width: int
    signed: bool

    def read(self, buffer: bytes | bytearray) -> int:
        """Its value; beyond the string all bits are clear."""
        first, last = self.offset >> 3, (self.offset + self.width - 1) >> 3
        covering = int.from_bytes(buffer[first : last + 1].ljust(last + 1 - first, b"\0"), "big")
        value = (covering >> self._right(last)) & ((1 << self.width) - 1)
        return value - (1 << self.width) if self.signed and value >> (self.width - 1) else value

    def write(self, buffer: bytearray, value: int) -> None:
        """Put ``value``, cut to the width, into a buffer that reaches far enough."""
        first, last = self.offset >> 3, (self.offset + self.width - 1) >> 3
        mask = ((1 << self.width) - 1) << self._right(last)
        covering = int.from_bytes(buffer[first : last + 1], "big") & ~mask
        covering |= (value << self._right(last)) & mask
        buffer[first : last + 1] = covering.to_bytes(last + 1 - first, "big")

    def add(self, value: int, amount: int, overflow: bytes) -> int | None:
        """``value + amount`` if it fits; else what the overflow rule makes of it, None for FAIL.

        As ``checkSignedBitfieldOverflow`` and its unsigned twin compute it: in 64 bits, which wrap when ``value`` is
        a number that SET was given and that lies far out of the field's range.
        """
        low = -(1 << (self.width - 1)) if self.signed else 0
        high = (1 << (self.width - self.signed)) - 1
        room, depth = _int64(high - value), _int64(low - value)
        checks_always = self.signed and self.width < 64
        if value > high or (amount > room and (checks_always or (amount > 0 and (value >= 0 or not self.signed)))):
            limit = high
        elif value < low or (amount < depth and (checks_always or (amount < 0 and (value < 0 or not self.signed)))):
            limit = low
        else:
            return value + amount
        if overflow == b"FAIL":
            return None
        if overflow == b"SAT":
            return limit
        return (value + amount - low) % (1 << self.width) + low

    def _right(self, last: int) -> int:
        return last * 8 + 7 - (self.offset + self.width - 1)


def _int64(number: int) -> int:
    return (number - INTEGER_MIN) % (1 << 64) + INTEGER_MIN


@dataclass(frozen=True, slots=True)
class _Step:
    """One GET, SET or INCRBY."""

    word: bytes
    field: _Field
    amount: int
    overflow: bytes


_OPERANDS = {b"GET": 2, b"SET": 3, b"INCRBY": 3, b"OVERFLOW": 1}


def _parse(node: NodeState, argv: Sequence[bytes]) -> list[_Step]:
    steps: list[_Step] = []
    overflow = b"WRAP"
    at = 2
    while at < len(argv):
        word = option(argv[at])
        operands = _OPERANDS.get(word)
        if operands is None or at + operands >= len(argv):
            raise ErrorReply(SYNTAX_ERROR)
        if word == b"OVERFLOW":
            overflow = option(argv[at + 1])
            if overflow not in (b"WRAP", b"SAT", b"FAIL"):
                raise ErrorReply(b"ERR Invalid OVERFLOW type specified")
        else:
            width, signed = _type(argv[at + 1])
            field = _Field(bit_offset(node, argv[at + 2], width), width, signed)
            amount = integer(argv[at + 3]) if word != b"GET" else 0
            steps.append(_Step(word, field, amount, overflow))
        at += 1 + operands
    return steps


def _type(text: bytes) -> tuple[int, bool]:
    signed = text[:1] == b"i"
    width = parse_integer(text[1:].split(b"\0")[0])
    if text[:1] not in (b"i", b"u") or width is None or not 1 <= width <= (64 if signed else 63):
        raise ErrorReply(_BAD_TYPE)
    return width, signed


def _bitfield(node: NodeState, argv: Sequence[bytes], read_only: bool) -> Reply:
    key = argv[1]
    steps = _parse(node, argv)
    writes = [step.field for step in steps if step.word != b"GET"]
    if not writes:
        value = node.lookup_as(key, bytes) or b""
        return [step.field.read(value) for step in steps]
    if read_only:
        raise ErrorReply(b"ERR BITFIELD_RO only supports the GET subcommand")
    buffer, has_grown = grown_string(node, key, max(field.offset + field.width - 1 for field in writes))
    replies: list[Reply] = []
    changes = 0
    for step in steps:
        old = step.field.read(buffer)
        if step.word == b"GET":
            replies.append(old)
            continue
        value, amount = (step.amount, 0) if step.word == b"SET" else (old, step.amount)
        if value < 0 and not step.field.signed:
            value += 1 << 64  # the server reads it as an unsigned number
        new = step.field.add(value, amount, step.overflow)
        if new is None:
            replies.append(None)
            continue
        step.field.write(buffer, new)
        replies.append(old if step.word == b"SET" else new)
        changes += has_grown or old != new
    node.install(key, bytes(buffer))
    node.set_string_encoding(key, b"raw")
    if changes:
        node.modified(key, changes)
    return replies


@command("bitfield", -2, "write denyoom", (1, 1, 1))
def bitfield(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """BITFIELD key [GET type offset | [OVERFLOW WRAP | SAT | FAIL] SET | INCRBY type offset value ...]."""
    return _bitfield(node, argv, read_only=False)


@command("bitfield_ro", -2, "readonly fast", (1, 1, 1))
def bitfield_ro(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """BITFIELD_RO key [GET type offset ...]."""
    return _bitfield(node, argv, read_only=True)
