"""The 32-bit arithmetic of Lua BitOp (the library ``bit``)."""

from __future__ import annotations

import struct
from collections.abc import Callable

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


def compute(operation: bytes, a: float, b: float = 0) -> int | bytes:
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
