"""Values as DUMP of a server writes them and RESTORE reads them: RDB of version 10, with its checksum.

Written in the plainest encodings, which any server from 5.0 on takes; read in all that a server of 7.0 writes. Streams
are for ``rdb_streams``. What is broken is a ``BadFormat``, and no more is built than the payload holds.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from orderlab.sim.redis.config import EncodingLimits
from orderlab.sim.redis.numbers import parse_double, parse_integer
from orderlab.sim.redis.values import Hash, List, Set, SortedSet, Value

VERSION: Final = 10
FUNCTION: Final = 245
_STRING, _LIST, _SET, _ZSET, _HASH, _ZSET_2 = 0, 1, 2, 3, 4, 5
_LIST_ZIPLIST, _INTSET, _ZSET_ZIPLIST, _HASH_ZIPLIST, _QUICKLIST = 10, 11, 12, 13, 14
_HASH_LISTPACK, _ZSET_LISTPACK, _QUICKLIST_2 = 16, 17, 18
_FOOTER_BYTES: Final = 10
Grow = Callable[[int], None]
"""Told how many bytes are about to be built beyond those of the payload."""


class BadFormat(Exception):
    """No value, or one that is broken."""


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x95AC9329AC4BC9B5 if value & 1 else 0)
        table.append(value)
    return table


_TABLE: Final = _crc_table()


def crc64(data: bytes) -> int:
    """The checksum of a payload (CRC-64, Jones)."""
    value, table = 0, _TABLE
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    return value


def sealed(body: bytes) -> bytes:
    """A payload with its version and checksum."""
    body += struct.pack("<H", VERSION)
    return body + struct.pack("<Q", crc64(body))


def opened(payload: bytes) -> bytes | None:
    """What ``sealed`` was given; None where version or checksum are wrong."""
    if len(payload) < _FOOTER_BYTES or struct.unpack("<H", payload[-10:-8])[0] > VERSION:
        return None
    return payload[:-_FOOTER_BYTES] if crc64(payload[:-8]) == struct.unpack("<Q", payload[-8:])[0] else None


# -- writing -------------------------------------------------------------------------------------------------


def length_prefix(value: int) -> bytes:
    """A length, or another number without a sign."""
    if value < 1 << 6:
        return bytes((value,))
    if value < 1 << 14:
        return bytes((0x40 | value >> 8, value & 0xFF))
    return b"\x80" + struct.pack(">I", value) if value < 1 << 32 else b"\x81" + struct.pack(">Q", value)


def _string(text: bytes) -> bytes:
    number = parse_integer(text) if len(text) <= 11 else None
    if number is not None:
        for code, form in ((b"\xc0", "<b"), (b"\xc1", "<h"), (b"\xc2", "<i")):
            bits = 8 * struct.calcsize(form) - 1
            if -(1 << bits) <= number < 1 << bits:
                return code + struct.pack(form, number)
    return length_prefix(len(text)) + text


def encoded(value: Value) -> bytes | None:
    """A value with its type; None for a stream."""
    if isinstance(value, bytes):
        return bytes((_STRING,)) + _string(value)
    if isinstance(value, List):
        return bytes((_LIST,)) + length_prefix(len(value)) + b"".join(map(_string, value))
    if isinstance(value, Set):
        return bytes((_SET,)) + length_prefix(len(value)) + b"".join(map(_string, value.in_order()))
    if isinstance(value, Hash):
        parts = [_string(part) for field in value.in_order() for part in (field, value.fields[field])]
        return bytes((_HASH,)) + length_prefix(len(value)) + b"".join(parts)
    if isinstance(value, SortedSet):
        pairs = zip(reversed(value.order_members), reversed(value.order_scores), strict=True)
        scored = [_string(member) + struct.pack("<d", score) for member, score in pairs]
        return bytes((_ZSET_2,)) + length_prefix(len(value)) + b"".join(scored)
    return None


def function_body(code: bytes) -> bytes:
    """A library of functions."""
    return bytes((FUNCTION,)) + length_prefix(len(code)) + code


# -- reading -------------------------------------------------------------------------------------------------


class PayloadReader:
    """Reads a payload from its beginning on. Raises BadFormat."""

    def __init__(self, data: bytes, grow: Grow) -> None:
        self._data, self._at, self._grow = data, 0, grow

    def is_over(self) -> bool:
        """Whether all has been read."""
        return self._at >= len(self._data)

    def take(self, count: int) -> bytes:
        """The next bytes."""
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise BadFormat
        taken, self._at = self._data[self._at : end], end
        return taken

    def byte(self) -> int:
        """The next byte."""
        return self.take(1)[0]

    def unpack(self, form: str) -> float:
        """A number of a fixed size."""
        number: float = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return number

    def length(self) -> int:
        """A length that is none of an encoded string."""
        value, is_encoded = self._length()
        if is_encoded:
            raise BadFormat
        return value

    def _length(self) -> tuple[int, bool]:
        first = self.byte()
        kind = first >> 6
        if kind == 3:
            return first & 0x3F, True
        if kind < 2:
            return first & 0x3F if not kind else (first & 0x3F) << 8 | self.byte(), False
        if first not in (0x80, 0x81):
            raise BadFormat
        return int(self.unpack(">I")) if first == 0x80 else int.from_bytes(self.take(8), "big"), False

    def string(self) -> bytes:
        """A string in any encoding."""
        length, is_encoded = self._length()
        if not is_encoded:
            return self.take(length)
        if length < 3:
            return b"%d" % int(self.unpack(("<b", "<h", "<i")[length]))
        if length != 3:
            raise BadFormat
        packed_size, size = self.length(), self.length()
        packed = self.take(packed_size)
        self._grow(size)
        return _unpacked(packed, size)

    def strings(self, count: int) -> list[bytes]:
        """So many of them; each takes a byte at least."""
        if count > len(self._data) - self._at:
            raise BadFormat
        return [self.string() for _ in range(count)]


def _unpacked(packed: bytes, size: int) -> bytes:
    """What LZF has packed into these bytes."""
    out, at = bytearray(), 0
    try:
        while at < len(packed) and len(out) <= size:
            control = packed[at]
            at += 1
            if control < 32:
                out += packed[at : at + control + 1]
                at += control + 1
                continue
            length = control >> 5
            if length == 7:
                length += packed[at]
                at += 1
            start = len(out) - ((control & 0x1F) << 8) - packed[at] - 1
            at += 1
            if start < 0:
                raise BadFormat
            for place in range(start, start + length + 2):
                out.append(out[place])
    except IndexError:
        raise BadFormat from None
    if len(out) != size:
        raise BadFormat
    return bytes(out)


def listpack_elements(data: bytes) -> Iterator[bytes]:
    """The elements of a listpack. Raises BadFormat."""
    at, end = 6, len(data)
    if end < 7 or struct.unpack("<I", data[:4])[0] != end or data[-1] != 0xFF:
        raise BadFormat
    while data[at] != 0xFF:
        first = data[at]
        if first < 0x80:
            size, text = 1, b"%d" % first
        elif first < 0xC0:
            size = 1 + (first & 0x3F)
            text = data[at + 1 : at + size]
        elif first < 0xE0:
            number = ((first & 0x1F) << 8) + int.from_bytes(data[at + 1 : at + 2], "little")
            size, text = 2, b"%d" % (number - 8192 if number >= 4096 else number)
        elif first < 0xF0:
            size = 2 + ((first & 0x0F) << 8) + int.from_bytes(data[at + 1 : at + 2], "little")
            text = data[at + 2 : at + size]
        elif first == 0xF0:
            size = 5 + int.from_bytes(data[at + 1 : at + 5], "little")
            text = data[at + 5 : at + size]
        elif first <= 0xF4:
            width = (2, 3, 4, 8)[first - 0xF1]
            size = 1 + width
            text = b"%d" % int.from_bytes(data[at + 1 : at + size], "little", signed=True)
        else:
            raise BadFormat
        at += size + _backward_bytes(size)
        if at >= end:
            raise BadFormat
        yield text


def _backward_bytes(size: int) -> int:
    return 1 + (size > 127) + (size > 16_382) + (size > 2_097_150) + (size > 268_435_454)


def _intset(data: bytes) -> list[bytes]:
    if len(data) < 8:
        raise BadFormat
    width, count = struct.unpack("<II", data[:8])
    if width not in (2, 4, 8) or 8 + width * count != len(data):
        raise BadFormat
    return [b"%d" % int.from_bytes(data[at : at + width], "little", signed=True) for at in range(8, len(data), width)]


def _pairs(flat: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    if len(flat) % 2:
        raise BadFormat
    return list(zip(flat[::2], flat[1::2], strict=True))


def decoded(body: bytes, limits: EncodingLimits, grow: Grow) -> Value | None:
    """The value that a body holds, in the encoding that a server loads it in; None for a type that is not read here.
    Raises BadFormat."""
    reader = PayloadReader(body, grow)
    kind = reader.byte()
    if kind == _STRING:
        return reader.string()
    if kind in (_LIST, _QUICKLIST_2):
        return List(_filled(_list_elements(reader, kind)))
    if kind in (_SET, _INTSET):
        members = reader.strings(reader.length()) if kind == _SET else _intset(reader.string())
        return Set.of(_distinct(members), limits.set_max_intset_entries)
    if kind in (_HASH, _HASH_LISTPACK):
        flat = reader.strings(2 * reader.length()) if kind == _HASH else list(listpack_elements(reader.string()))
        return _hash(_pairs(flat), limits)
    if kind in (_ZSET, _ZSET_2, _ZSET_LISTPACK):
        scores = _scores(reader, kind)
        return SortedSet.of(scores, limits)
    if kind in (_LIST_ZIPLIST, _ZSET_ZIPLIST, _HASH_ZIPLIST, _QUICKLIST, 9):
        return None
    raise BadFormat


def _filled(items: Sequence[bytes]) -> Sequence[bytes]:
    if not items:
        raise BadFormat
    return items


def _distinct(members: Sequence[bytes]) -> set[bytes]:
    distinct = set(_filled(members))
    if len(distinct) != len(members):
        raise BadFormat
    return distinct


def _list_elements(reader: PayloadReader, kind: int) -> list[bytes]:
    count = reader.length()
    if kind == _LIST:
        return reader.strings(count)
    elements: list[bytes] = []
    for _ in range(count):
        container = reader.length()
        node = reader.string()
        if container not in (1, 2):
            raise BadFormat
        elements += [node] if container == 1 else listpack_elements(node)
    return elements


def _hash(pairs: list[tuple[bytes, bytes]], limits: EncodingLimits) -> Hash:
    value = Hash()
    value.fields = dict(pairs)
    if len(_distinct([field for field, _ in pairs])) > limits.hash_max_listpack_entries:
        value.hashtable = True
    longest = limits.hash_max_listpack_value
    value.hashtable = value.hashtable or any(max(map(len, pair)) > longest for pair in pairs)
    return value


def _scores(reader: PayloadReader, kind: int) -> dict[bytes, float]:
    if kind == _ZSET_LISTPACK:
        pairs = _pairs(list(listpack_elements(reader.string())))
        read = [(member, parse_double(text)) for member, text in pairs]
    else:
        read = []
        for _ in range(reader.length()):
            member = reader.string()
            read.append((member, reader.unpack("<d") if kind == _ZSET_2 else _old_double(reader)))
    scores = {member: score for member, score in read if score is not None and not math.isnan(score)}
    _distinct([member for member, _ in read])
    if len(scores) != len(read):
        raise BadFormat
    return scores


def _old_double(reader: PayloadReader) -> float | None:
    length = reader.byte()
    if length >= 254:
        return math.inf if length == 254 else -math.inf
    return None if length == 253 else parse_double(reader.take(length))
