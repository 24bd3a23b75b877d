"""BITFIELD: integers of any width inside a string."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orderlab.sim.redis.arguments import integer, option
from orderlab.sim.redis.commands.bitmaps import bit_offset, grown_string
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.numbers import INTEGER_MIN, parse_integer
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import SYNTAX_ERROR, ErrorReply, Reply

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


def _parse(shard: NodeState, argv: Sequence[bytes]) -> list[_Step]:
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
            field = _Field(bit_offset(shard, argv[at + 2], width), width, signed)
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


def _bitfield(shard: NodeState, argv: Sequence[bytes], read_only: bool) -> Reply:
    key = argv[1]
    steps = _parse(shard, argv)
    writes = [step.field for step in steps if step.word != b"GET"]
    if not writes:
        value = shard.lookup_as(key, bytes) or b""
        return [step.field.read(value) for step in steps]
    if read_only:
        raise ErrorReply(b"ERR BITFIELD_RO only supports the GET subcommand")
    buffer, has_grown = grown_string(shard, key, max(field.offset + field.width - 1 for field in writes))
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
    shard.install(key, bytes(buffer))
    shard.set_string_encoding(key, b"raw")
    if changes:
        shard.modified(key, changes)
    return replies


@command("bitfield", -2, "write denyoom", (1, 1, 1))
def bitfield(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """BITFIELD key [GET type offset | [OVERFLOW WRAP | SAT | FAIL] SET | INCRBY type offset value ...]."""
    return _bitfield(shard, argv, read_only=False)


@command("bitfield_ro", -2, "readonly fast", (1, 1, 1))
def bitfield_ro(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """BITFIELD_RO key [GET type offset ...]."""
    return _bitfield(shard, argv, read_only=True)
