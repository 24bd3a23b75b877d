"""MessagePack as lua-cmsgpack 0.4.0 reads it, for ``cmsgpack.unpack`` and its kin."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

_FIXED = {
    0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q", 0xCA: ">f",
    0xCB: ">d",
}  # fmt: skip
"""Unsigned 64-bit integers too are pushed as signed ones."""
_STRINGS = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
_ARRAYS = {0xDC: ">H", 0xDD: ">I"}
_MAPS = {0xDE: ">H", 0xDF: ">I"}
SLOTS_MAX = 8000
"""Slots of the Lua stack that a C function may use (``LUAI_MAXCSTACK``): the server holds there what it is in the
middle of, a table and its index or key for each level of nesting."""
TOO_MANY = "stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)"
TOO_DEEP = "stack overflow (in function mp_decode_to_lua_array)"
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
        self._nil = null
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
                raise MsgpackError(TOO_MANY)
            self._value(1 + count)
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

    def _value(self, used: int) -> None:
        """Read one value with all that is in it. ``used``: slots of the server's stack that are taken before."""
        open_tables: list[_Table] = []
        while True:
            if used >= SLOTS_MAX:
                self._take(1)  # as the server does: an end of the text is told first
                raise MsgpackError(TOO_MANY)
            opened = self._item(used)
            if opened is not None:
                open_tables.append(opened)
            is_whole = opened is None  # the last item that was begun
            while open_tables:
                table = open_tables[-1]
                if is_whole:
                    self._check_key(table)
                if table.left:
                    break
                open_tables.pop()
                is_whole = True
            else:
                return
            table.left -= 1
            is_key = table.is_map and table.left % 2 == 1
            if is_key:
                table.key_at = len(self._flat)
            used = table.used + (1 if is_key else 2)

    def _item(self, used: int) -> _Table | None:
        """Read what holds nothing else, or the head of a table, which is returned."""
        tag = self._take(1)[0]
        flat = self._flat
        if tag < 0x80:
            flat.append(tag)
        elif tag >= 0xE0:
            flat.append(tag - 256)
        elif tag < 0x90:
            return self._table(True, tag & 15, used)
        elif tag < 0xA0:
            return self._table(False, tag & 15, used)
        elif tag < 0xC0:
            flat.append(self._take(tag & 31))
        elif tag in _FIXED:
            flat.append(self._unpack(_FIXED[tag]))
        elif tag in _STRINGS:
            flat.append(self._take(self._unpack(_STRINGS[tag])))
        elif tag in _ARRAYS:
            return self._table(False, self._unpack(_ARRAYS[tag]), used)
        elif tag in _MAPS:
            return self._table(True, self._unpack(_MAPS[tag]), used)
        elif tag in (0xC2, 0xC3):
            flat.append(tag == 0xC3)
        elif tag == 0xC0:
            flat.append(self._nil)
        else:
            raise MsgpackError("Bad data format in input.")
        return None

    def _table(self, is_map: bool, size: int, used: int) -> _Table:
        if not is_map and used + 1 >= SLOTS_MAX:
            raise MsgpackError(TOO_DEEP)
        self._flat += (self._map if is_map else self._array, size)
        return _Table(is_map, 2 * size if is_map else size, used)

    def _check_key(self, table: _Table) -> None:
        """A pair of a map is whole: the server puts it into the table now, and complains of its key."""
        if not table.is_map or table.left % 2 == 1:
            return
        key = self._flat[table.key_at]
        if key is self._nil:
            raise MsgpackError("table index is nil", is_placed=False)
        if key != key:
            raise MsgpackError("table index is NaN", is_placed=False)


@dataclass(slots=True)
class _Table:
    """A table that is not whole yet."""

    is_map: bool
    left: int
    """Items that have not begun, keys and values counted one by one."""
    used: int
    """Slots of the server's stack below it."""
    key_at: int = 0
    """Where in the flat list the last key is."""


def _to_int(value: int) -> int:
    value &= (1 << 32) - 1
    return value - (1 << 32) if value >> 31 else value
