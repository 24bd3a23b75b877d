"""MessagePack as lua-cmsgpack 0.4.0 reads it, for ``cmsgpack.unpack`` and its kin."""

from __future__ import annotations

import struct
from typing import Any

_FIXED = {
    0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q", 0xCA: ">f",
    0xCB: ">d",
}  # fmt: skip
"""Unsigned 64-bit integers too are pushed as signed ones."""
_STRINGS = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
_ARRAYS = {0xDC: ">H", 0xDD: ">I"}
_MAPS = {0xDE: ">H", 0xDF: ">I"}
NESTED_MAX = 190
"""Containers inside each other; the server's own bound is the C stack, far above what `pack` can write."""
VALUES_MAX = 7900
"""Values of one stream that the Lua stack of a C function can hold."""


class MsgpackError(Exception):
    """``args[0]`` is the message of lua-cmsgpack; ``is_placed`` whether the place in the script goes before it."""

    def __init__(self, message: str, is_placed: bool = True) -> None:
        super().__init__(message)
        self.is_placed = is_placed


def pack_double(value: float) -> bytes:
    """A number that is not an integer: in four bytes if that loses nothing."""
    try:
        short = struct.pack(">f", value)
    except OverflowError:
        return b"\xcb" + struct.pack(">d", value)
    if struct.unpack(">f", short)[0] == value:
        return b"\xca" + short
    return b"\xcb" + struct.pack(">d", value)


def pack_integer(value: float) -> bytes:
    """The eight bytes of a 64-bit integer, big-endian."""
    return (int(value) & (1 << 64) - 1).to_bytes(8, "big")


class MsgpackReader:
    """Reads MessagePack into the flat lists of ``tree.lua``."""

    def __init__(self, array: Any, map_: Any, null: Any) -> None:
        self._array = array
        self._map = map_
        self._null = null
        self._data = b""
        self._at = 0
        self._flat: list[Any] = []

    def read(self, data: bytes, limit: int, offset: int) -> tuple[int, int, list[Any]]:
        """(number of values, next offset or -1 at the end, their flat list). Limit and offset 0: all values.

        Raises MsgpackError.
        """
        if offset < 0 or limit < 0:
            raise MsgpackError(
                f"Invalid request to unpack with offset of {_to_int(offset)} and limit of {_to_int(len(data))}."
            )
        if offset > len(data):
            raise MsgpackError(f"Start offset {_to_int(offset)} greater than input length {len(data)}.")
        everything = not limit and not offset
        self._data, self._at = data, offset
        self._flat = [self._array, 0]
        count = 0
        while self._at < len(data) and (everything or count < limit):
            if count == VALUES_MAX:
                raise MsgpackError(
                    "stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)"
                )
            self._value(0)
            count += 1
        self._flat[1] = count
        return count, -1 if self._at == len(data) else self._at, self._flat

    def _take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise MsgpackError("Missing bytes in input.")
        self._at += size
        return self._data[self._at - size : self._at]

    def _unpack(self, layout: str) -> Any:
        return struct.unpack(layout, self._take(struct.calcsize(layout)))[0]

    def _value(self, depth: int) -> None:
        tag = self._take(1)[0]
        flat = self._flat
        if tag < 0x80:
            flat.append(tag)
        elif tag >= 0xE0:
            flat.append(tag - 256)
        elif tag < 0x90:
            self._container(self._map, tag & 15, depth)
        elif tag < 0xA0:
            self._container(self._array, tag & 15, depth)
        elif tag < 0xC0:
            flat.append(self._take(tag & 31))
        elif tag in _FIXED:
            flat.append(self._unpack(_FIXED[tag]))
        elif tag in _STRINGS:
            flat.append(self._take(self._unpack(_STRINGS[tag])))
        elif tag in _ARRAYS:
            self._container(self._array, self._unpack(_ARRAYS[tag]), depth)
        elif tag in _MAPS:
            self._container(self._map, self._unpack(_MAPS[tag]), depth)
        elif tag in (0xC2, 0xC3):
            flat.append(tag == 0xC3)
        elif tag == 0xC0:
            flat.append(self._null)
        else:
            raise MsgpackError("Bad data format in input.")

    def _container(self, mark: Any, size: int, depth: int) -> None:
        if depth == NESTED_MAX:
            raise MsgpackError("MessagePack data nested too deeply")
        flat = self._flat
        flat.append(mark)
        flat.append(size)
        for _ in range(size):
            if mark is self._map:
                key_at = len(flat)
                self._value(depth + 1)
                if flat[key_at] is self._null:
                    self._value(depth + 1)
                    raise MsgpackError("table index is nil", is_placed=False)
                if flat[key_at] != flat[key_at]:
                    self._value(depth + 1)
                    raise MsgpackError("table index is NaN", is_placed=False)
            self._value(depth + 1)


def _to_int(value: int) -> int:
    value &= (1 << 32) - 1
    return value - (1 << 32) if value >> 31 else value
