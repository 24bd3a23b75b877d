"""MessagePack of marked values, as far as scripts use it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from orderlab.properties.shadow.arithmetic import NotFollowed
from orderlab.properties.shadow.interpreter import LuaError
from orderlab.properties.shadow.marked import LuaTable, MarkedValue

_INTEGERS = ((0xCC, "B"), (0xCD, ">H"), (0xCE, ">I"), (0xCF, ">Q"))
_NEGATIVES = ((0xD0, "b"), (0xD1, ">h"), (0xD2, ">i"), (0xD3, ">q"))


def packed(value: MarkedValue) -> bytes:
    """What ``cmsgpack.pack`` makes of one value. Raises NotFollowed for a table with names, whose order is Lua's."""
    plain = value.value
    if plain is None:
        return b"\xc0"
    if isinstance(plain, bool):
        return b"\xc3" if plain else b"\xc2"
    if isinstance(plain, bytes):
        return _head(len(plain), 0xA0, 31, ((0xD9, "B"), (0xDA, ">H"), (0xDB, ">I"))) + plain
    if isinstance(plain, float):
        return _number(plain)
    if isinstance(plain, LuaTable) and plain.border == len(plain.items):
        items = [packed(plain.get(float(at))) for at in range(1, plain.border + 1)]
        return _head(len(items), 0x90, 15, ((0xDC, ">H"), (0xDD, ">I"))) + b"".join(items)
    raise NotFollowed("cmsgpack.pack of names")


def _head(size: int, small: int, small_max: int, larger: tuple[tuple[int, str], ...]) -> bytes:
    if size <= small_max:
        return bytes((small + size,))
    for tag, layout in larger:
        if size < 1 << 8 * struct.calcsize(layout):
            return bytes((tag,)) + struct.pack(layout, size)
    raise NotFollowed("cmsgpack.pack of so much")


def _number(number: float) -> bytes:
    if number != number or number != int(number) or abs(number) >= 2.0**63:
        single = struct.pack(">f", number) if abs(number) < 3.4e38 else b""
        if single and struct.unpack(">f", single)[0] == number:
            return b"\xca" + single
        return b"\xcb" + struct.pack(">d", number)
    whole = int(number)
    if -32 <= whole < 0:
        return bytes((256 + whole,))
    if 0 <= whole < 128:
        return bytes((whole,))
    for tag, layout in _INTEGERS if whole >= 0 else _NEGATIVES:
        bits = 8 * struct.calcsize(layout)
        if (whole < 1 << bits) if whole >= 0 else whole >= -(1 << bits - 1):
            return bytes((tag,)) + struct.pack(layout, whole)
    raise NotFollowed("cmsgpack.pack of this number")


def unpacked(data: bytes, leaf: Callable[[float], MarkedValue]) -> list[MarkedValue]:
    """Every value in ``data``; ``leaf`` marks a number. Raises LuaError."""
    collected, at = [], 0
    try:
        while at < len(data):
            value, at = _read(data, at, leaf)
            collected.append(value)
    except (IndexError, struct.error):
        raise LuaError(MarkedValue(b"Missing bytes in input.")) from None
    return collected


def _read(data: bytes, at: int, leaf: Callable[[float], MarkedValue]) -> tuple[MarkedValue, int]:
    tag = data[at]
    at += 1
    if tag < 0x80 or tag >= 0xE0:
        return leaf(float(tag if tag < 0x80 else tag - 256)), at
    if tag in (0xC0, 0xC2, 0xC3):
        return MarkedValue({0xC0: None, 0xC2: False, 0xC3: True}[tag]), at
    for known, layout in (*_INTEGERS, *_NEGATIVES, (0xCA, ">f"), (0xCB, ">d")):
        if tag == known:
            size = struct.calcsize(layout)
            return leaf(float(struct.unpack_from(layout, data, at)[0])), at + size
    kind, size, at = _size(data, tag, at)
    if kind == "text":
        if at + size > len(data):
            raise IndexError
        return MarkedValue(data[at : at + size]), at + size
    items: dict[Any, MarkedValue] = {}
    for number in range(1, size + 1):
        key: Any = float(number)
        if kind == "map":
            name, at = _read(data, at, leaf)
            key = name.value
        items[key], at = _read(data, at, leaf)
    return MarkedValue(LuaTable(items)), at


def _size(data: bytes, tag: int, at: int) -> tuple[str, int, int]:
    if 0xA0 <= tag <= 0xBF:
        return "text", tag - 0xA0, at
    if 0x80 <= tag <= 0x9F:
        return ("map", tag - 0x80, at) if tag < 0x90 else ("array", tag - 0x90, at)
    larger = {
        0xD9: ("text", "B"), 0xDA: ("text", ">H"), 0xDB: ("text", ">I"), 0xC4: ("text", "B"), 0xC5: ("text", ">H"),
        0xC6: ("text", ">I"), 0xDC: ("array", ">H"), 0xDD: ("array", ">I"), 0xDE: ("map", ">H"), 0xDF: ("map", ">I"),
    }  # fmt: skip
    if tag not in larger:
        raise NotFollowed("this form of MessagePack")
    kind, layout = larger[tag]
    return kind, struct.unpack_from(layout, data, at)[0], at + struct.calcsize(layout)
