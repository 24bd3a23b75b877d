"""What the Lua libraries in ``libraries`` call in Python: bytes, numbers and flat lists in, the same out; and the
library bit."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from typing import Any

from orderlab.sim.redis.lua import msgpack as lua_msgpack
from orderlab.sim.redis.lua import struct as lua_struct
from orderlab.sim.redis.lua.compilation import compile_steps
from orderlab.sim.redis.lua.json import JsonError, JsonReader, quote
from orderlab.sim.redis.lua.replies import ReplyWriter
from orderlab.sim.redis.lua.sandbox import Sandbox

_MASK = 0xFFFFFFFF
_ROUND = 6755399441055744.0
"""2**52 + 2**51: adding it leaves the integer, rounded to nearest even, in the low bits of a double."""


def to_bits(number: float) -> int:
    """The low 32 bits of a number, as BitOp takes them from its double."""
    (bits,) = struct.unpack_from("<I", struct.pack("<d", number + _ROUND))
    return int(bits)


def _signed(bits: int) -> int:
    bits &= _MASK
    return bits - (1 << 32) if bits & 0x80000000 else bits


def _swap(value: int) -> int:
    return int.from_bytes(value.to_bytes(4, "little"), "big")


def _rotate_left(value: int, distance: int) -> int:
    return value << distance | value >> (32 - distance)


_ONE: dict[bytes, Callable[[int], int]] = {
    b"tobit": lambda a: a,
    b"bnot": lambda a: ~a,
    b"bswap": _swap,
}
_TWO: dict[bytes, Callable[[int, int], int]] = {
    b"band": lambda a, b: a & b,
    b"bor": lambda a, b: a | b,
    b"bxor": lambda a, b: a ^ b,
    b"lshift": lambda a, b: a << (b & 31),
    b"rshift": lambda a, b: a >> (b & 31),
    b"arshift": lambda a, b: _signed(a) >> (b & 31),
    b"rol": lambda a, b: _rotate_left(a, b & 31),
    b"ror": lambda a, b: _rotate_left(a, -b & 31),
}


def compute_bits(operation: bytes, a: float, b: float = 0) -> int | bytes:
    """The result of one operation on one or two numbers, signed; text for ``tohex``."""
    if operation == b"tohex":
        digits = _signed(to_bits(b))
        text = b"%08x" % to_bits(a)
        if digits < 0:
            text, digits = text.upper(), -digits
        return text[8 - min(digits, 8) :]
    if operation in _ONE:
        return _signed(_ONE[operation](to_bits(a)))
    return _signed(_TWO[operation](to_bits(a), to_bits(b)))


TEXT_BYTES_MAX = 8 << 20
"""JSON and MessagePack that Python reads: its values take many times the memory of the text."""


def library_callables(sandbox: Sandbox, writer: ReplyWriter) -> dict[str, Callable[..., Any]]:
    """The functions by the name under which Lua knows them. ``sandbox`` is asked for its marks when they run."""

    def decode(text: bytes, depth_max: int, invalid_numbers: bool) -> tuple[Any, ...]:
        if len(text) > TEXT_BYTES_MAX:
            return False, b"not enough memory"
        marks = writer.marks
        reader = JsonReader(text, depth_max, invalid_numbers, marks["array"], marks["object"], sandbox.function("null"))
        try:
            return True, *writer.tree(reader.read())
        except JsonError as error:
            return False, str(error).encode()

    def unpack(data: bytes, limit: int, offset: int) -> tuple[Any, ...]:
        if len(data) > TEXT_BYTES_MAX:
            return False, b"not enough memory", True
        marks = writer.marks
        reader = lua_msgpack.MsgpackReader(marks["array"], marks["table"], marks["null"])
        try:
            count, at, flat = reader.read(data, limit, offset)
        except lua_msgpack.MsgpackError as error:
            return False, str(error).encode(), not error.is_placed
        return True, count, at, *writer.tree(flat)

    return {
        "more": writer.more, "sha1hex": lambda text: hashlib.sha1(text).hexdigest().encode(),
        "find": bytes.find, "compile_steps": compile_steps, "bit": compute_bits,
        "quote": quote, "decode": decode,
        "struct_pack": _struct(lambda text, *values: (lua_struct.pack(text, values),)),
        "struct_unpack": _struct(lua_struct.unpack),
        "struct_size": _struct(lambda text: (lua_struct.size_of(text),)),
        "pack_double": lua_msgpack.pack_double, "pack_integer": lua_msgpack.pack_integer, "msgpack_unpack": unpack,
    }  # fmt: skip


def _struct(function: Callable[..., Sequence[Any]]) -> Callable[..., tuple[Any, ...]]:
    """True and the results, or what ``settle`` of struct.lua makes an error of."""

    def call(*arguments: Any) -> tuple[Any, ...]:
        try:
            return True, *function(*arguments)
        except lua_struct.StructError as error:
            return False, str(error).encode("latin-1")
        except lua_struct.ArgumentError as error:
            complaint = None if error.complaint is None else error.complaint.encode("latin-1")
            return False, error.number, error.expected.encode(), complaint

    return call
