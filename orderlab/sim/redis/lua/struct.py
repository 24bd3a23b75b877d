"""The formats of Lua's ``struct`` library as Redis carries it (lua_struct.c): C structures in strings."""

from __future__ import annotations

import struct
from collections.abc import Sequence

INTEGER_BYTES_MAX = 32
_INT_MAX = (1 << 31) - 1
_SIZES = {0x62: 1, 0x42: 1, 0x68: 2, 0x48: 2, 0x6C: 8, 0x4C: 8, 0x54: 8, 0x66: 4, 0x64: 8, 0x78: 1}
_INTEGERS = b"bBhHlLTiI"
_RESULTS_MAX = 7990

Item = bytes | int | float


class StructError(Exception):
    """A message that the caller's place goes before."""


class ArgumentError(Exception):
    """A bad argument: its number and either the expected type or the complaint."""

    def __init__(self, number: int, expected: str, complaint: str | None = None) -> None:
        super().__init__(number, expected, complaint)
        self.number = number
        self.expected = expected
        self.complaint = complaint


class _Format:
    """A cursor over a format string; keeps byte order and alignment."""

    def __init__(self, text: bytes) -> None:
        self.text = text.split(b"\0")[0]
        self.at = 0
        self.order = "<"
        self.align = 1

    def next(self) -> int:
        """The next option, 0 at the end."""
        if self.at == len(self.text):
            return 0
        self.at += 1
        return self.text[self.at - 1]

    def _number(self, default: int) -> int:
        start, value = self.at, 0
        while self.at < len(self.text) and 0x30 <= self.text[self.at] <= 0x39:
            value = value * 10 + self.text[self.at] - 0x30
            if value > _INT_MAX:
                raise StructError("integral size overflow")
            self.at += 1
        return value if self.at > start else default

    def size(self, option: int) -> int:
        """Bytes that the option takes, 0 where that depends on the data."""
        if option == 0x63:
            return self._number(1)
        if option in b"iI":
            size = self._number(4)
            if size > INTEGER_BYTES_MAX:
                raise StructError(f"integral size {size} is larger than limit of {INTEGER_BYTES_MAX}")
            return size
        return _SIZES.get(option, 0)

    def padding(self, option: int, size: int, position: int) -> int:
        """Bytes to leave out before the option so that it is aligned."""
        if size == 0 or option == 0x63:
            return 0
        size = min(size, self.align)
        return (size - (position & (size - 1))) & (size - 1)

    def control(self, option: int) -> None:
        """An option that takes no data: byte order, alignment, a space. Raises for any other."""
        if option == 0x20:
            return
        if option == 0x3E:
            self.order = ">"
        elif option == 0x3C:
            self.order = "<"
        elif option == 0x21:
            align = self._number(8)
            if align <= 0 or align & (align - 1):
                raise StructError(f"alignment {align} is not a power of 2")
            self.align = align
        else:
            raise ArgumentError(1, "", f"invalid format option '{chr(option)}'")


def _as_number(value: Item | bool, argument: int) -> float:
    if isinstance(value, bytes):
        found = _parse_number(value)
    elif isinstance(value, bool) or value is None:
        found = None
    else:
        found = float(value)
    if found is None:
        raise ArgumentError(argument, "number")
    return found


def _parse_number(text: bytes) -> float | None:
    """lua_str2number: decimal or hexadecimal, with blanks around."""
    text = text.strip(b" \t\n\v\f\r")
    try:
        if text.lower().lstrip(b"+-").startswith(b"0x"):
            return float.fromhex(text.decode())
        return float(text) if b"_" not in text else None
    except (ValueError, OverflowError):
        return None


def _to_bytes(number: float, size: int, order: str) -> bytes:
    """The low ``size`` bytes of the 64-bit integer that a C cast makes of ``number``; further bytes are 0."""
    if number != number or number < -(2.0**63) or number >= 2.0**64:
        value = 1 << 63 if number != number or number < 0 else 0
    else:
        value = int(number) & (1 << 64) - 1
    data = value.to_bytes(max(size, 8), "little")[:size]
    return data if order == "<" else data[::-1]


def pack(text: bytes, arguments: Sequence[Item | bool]) -> bytes:
    """``struct.pack``; the first argument has the number 2. False stands for an argument of another type.

    Raises StructError, ArgumentError.
    """
    form, result, position, number = _Format(text), bytearray(), 0, 2

    def argument() -> Item | bool:
        return arguments[number - 2] if number - 2 < len(arguments) else False

    while option := form.next():
        size = form.size(option)
        padding = form.padding(option, size, position)
        position += padding
        result.extend(bytes(padding))
        if option in _INTEGERS:
            result += _to_bytes(_as_number(argument(), number), size, form.order)
            number += 1
        elif option == 0x78:
            result.append(0)
        elif option == 0x66:
            result += _pack_float(_as_number(argument(), number), form.order)
            number += 1
        elif option == 0x64:
            result += struct.pack(form.order + "d", _as_number(argument(), number))
            number += 1
        elif option in b"cs":
            value = argument()
            number += 1
            if isinstance(value, bool):
                raise ArgumentError(number - 1, "string")
            data = value if isinstance(value, bytes) else b"%.14g" % value
            size = size or len(data)
            if len(data) < size:
                raise ArgumentError(number, "", "string too short")
            result += data[:size]
            if option == 0x73:
                result.append(0)
                size += 1
        else:
            form.control(option)
        position += size
    return bytes(result)


def _pack_float(number: float, order: str) -> bytes:
    try:
        return struct.pack(order + "f", number)
    except OverflowError:
        return struct.pack(order + "f", float("inf") if number > 0 else float("-inf"))


def unpack(text: bytes, data: bytes, offset: int) -> list[Item]:
    """``struct.unpack``: the values and, last, the next offset, from 1.

    Raises StructError, ArgumentError.
    """
    form, results = _Format(text), list[Item]()
    position = offset - 1 & (1 << 64) - 1
    while option := form.next():
        size = form.size(option)
        position += form.padding(option, size, position)
        _check_data(data, position, size)
        if len(results) >= _RESULTS_MAX:
            raise StructError("stack overflow (too many results)")
        if option in _INTEGERS:
            results.append(_integer(data[position : position + size], form.order, chr(option).islower()))
        elif option == 0x66:
            results.append(struct.unpack_from(form.order + "f", data, position)[0])
        elif option == 0x64:
            results.append(struct.unpack_from(form.order + "d", data, position)[0])
        elif option == 0x63:
            if size == 0:
                size = _size_before(results)
                _check_data(data, position, size)
            results.append(data[position : position + size])
        elif option == 0x73:
            end = data.find(b"\0", position)
            if end < 0:
                raise StructError("unfinished string in data")
            size = end - position + 1
            results.append(data[position:end])
        elif option != 0x78:
            form.control(option)
        position += size
    following = position + 1 & (1 << 64) - 1
    results.append(following - (1 << 64) if following >> 63 else following)
    return results


def _check_data(data: bytes, position: int, size: int) -> None:
    if size > len(data) or position > len(data) - size:
        raise ArgumentError(2, "", "data string too short")


def _size_before(results: list[Item]) -> int:
    """The size of ``c0``: the value read last, which it takes the place of."""
    number = None
    if results:
        last = results[-1]
        number = _parse_number(last) if isinstance(last, bytes) else float(last)
    if number is None:
        raise StructError("format 'c0' needs a previous size")
    results.pop()
    if number >= 2.0**64:  # what a cast to size_t makes of it on x86-64
        return 0
    return int(number) if number > -1 else 1 << 63


def _integer(data: bytes, order: str, is_signed: bool) -> float:
    size = len(data)
    value = int.from_bytes(data, "little" if order == "<" else "big") & (1 << 64) - 1
    if is_signed and size:
        mask = -1 << (size * 8 - 1 & 63) & (1 << 64) - 1
        if value & mask:
            value |= mask
        if value >> 63:
            value -= 1 << 64
    return float(value)


def size_of(text: bytes) -> int:
    """``struct.size``. Raises StructError, ArgumentError."""
    form, position = _Format(text), 0
    while option := form.next():
        size = form.size(option)
        position += form.padding(option, size, position)
        if option == 0x73:
            raise ArgumentError(1, "", "option 's' has no fixed size")
        if option == 0x63 and size == 0:
            raise ArgumentError(1, "", "option 'c0' has no fixed size")
        if not chr(option).isalnum() or option > 127:
            form.control(option)
        position += size
    return position
