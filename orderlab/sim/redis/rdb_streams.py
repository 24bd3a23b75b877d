"""Streams as DUMP of a server writes them and RESTORE reads them: one listpack for each node, then what the stream and
its groups remember.

Written as Redis 7.0 does (type 19), so that nodes end where they ended; read as 7.0 and what came before it wrote
(type 15, without first and deleted identifiers and counts of what was read).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from orderlab.model.protocol.packet_id import TWO_BYTES_MAX
from orderlab.sim.redis.numbers import parse_integer
from orderlab.sim.redis.rdb import BadFormat, Grow, PayloadReader, length_prefix, listpack_elements
from orderlab.sim.redis.values.stream import FIRST_ID, PART_MAX, UNKNOWN_READ, Group, Node, Stream, StreamId

BEFORE_7_0: Final = 15
SINCE_7_0: Final = 19
_DELETED, _SAME_FIELDS = 1, 2
_INTEGERS: Final = ((15, 0xF1, 2), (23, 0xF2, 3), (31, 0xF3, 4), (63, 0xF4, 8))
"""Bits beside the sign, first byte, bytes."""


class ForgottenEntries(Exception):
    """A node has deleted entries of which only the size is known."""


# -- writing -------------------------------------------------------------------------------------------------


def encoded(stream: Stream) -> bytes:
    """A stream with its type. Raises ForgottenEntries."""
    body = bytes((SINCE_7_0,)) + length_prefix(len(stream.nodes))
    for node in stream.nodes:
        listpack = _listpack(_elements(node))
        body += length_prefix(16) + _raw(node.master) + length_prefix(len(listpack)) + listpack
    body += _lengths(
        stream.length, *stream.last_id, *stream.first_id, *stream.max_deleted_id, stream.entries_added,
        len(stream.groups),
    )  # fmt: skip
    return body + b"".join(_group(name, group) for name, group in sorted(stream.groups.items()))


def _group(name: bytes, group: Group) -> bytes:
    body = _text(name) + _lengths(*group.last_id, group.entries_read & PART_MAX, len(group.ids))
    for entry_id in group.ids:
        _, delivered_ms, deliveries = group.pending[entry_id]
        body += _raw(entry_id) + struct.pack("<q", delivered_ms) + length_prefix(deliveries)
    body += length_prefix(len(group.consumers))
    for consumer, ids in sorted(group.consumers.items()):
        body += _text(consumer) + struct.pack("<q", group.seen_ms[consumer]) + length_prefix(len(ids))
        body += b"".join(map(_raw, ids))
    return body


def _raw(entry_id: StreamId) -> bytes:
    return struct.pack(">QQ", *entry_id)


def _text(text: bytes) -> bytes:
    return length_prefix(len(text)) + text


def _lengths(*values: int) -> bytes:
    return b"".join(map(length_prefix, values))


def _elements(node: Node) -> Iterator[int | bytes]:
    """Of the node's listpack: the master entry, then each entry, with how many elements it has."""
    if node.lost_sizes:
        raise ForgottenEntries
    yield from (node.live, len(node.gone), len(node.fields))
    yield from node.fields
    yield 0
    for position, (entry_id, items) in enumerate(zip(node.ids, node.items, strict=True)):
        same = items[::2] == node.fields
        yield _DELETED * (position in node.gone) + _SAME_FIELDS * same
        yield from (_signed(part - first) for part, first in zip(entry_id, node.master, strict=True))
        if not same:
            yield len(items) // 2
        yield from items[1::2] if same else items
        yield len(items) // 2 + 3 if same else len(items) + 4


def _signed(number: int) -> int:
    number &= PART_MAX
    return number - (1 << 64) if number >> 63 else number


def _listpack(elements: Iterator[int | bytes]) -> bytes:
    count, body = 0, bytearray()
    for element in elements:
        element_body = _element(element)
        body += element_body + _backward(len(element_body))
        count += 1
    return struct.pack("<IH", len(body) + 7, min(count, TWO_BYTES_MAX)) + bytes(body) + b"\xff"


def _element(element: int | bytes) -> bytes:
    number = element if isinstance(element, int) else parse_integer(element) if len(element) <= 20 else None
    if number is None:
        assert isinstance(element, bytes)
        size = len(element)
        if size < 64:
            return bytes((0x80 | size,)) + element
        if size < 4096:
            return bytes((0xE0 | size >> 8, size & 0xFF)) + element
        return b"\xf0" + struct.pack("<I", size) + element
    if 0 <= number <= 127:
        return bytes((number,))
    if -4096 <= number <= 4095:
        return struct.pack(">H", 0xC000 | number & 0x1FFF)
    first, width = next((first, width) for bits, first, width in _INTEGERS if -(1 << bits) <= number < 1 << bits)
    return bytes((first,)) + number.to_bytes(width, "little", signed=True)


def _backward(size: int) -> bytes:
    """The length of an element as it is read from behind: seven bits a byte, all but the first of which say so."""
    parts = [size & 0x7F]
    while size := size >> 7:
        parts.append(size & 0x7F)
    return bytes((parts[-1], *(part | 0x80 for part in reversed(parts[:-1]))))


# -- reading -------------------------------------------------------------------------------------------------


def decoded(body: bytes, grow: Grow) -> Stream:
    """The stream that a body of one of the two types holds. Raises BadFormat."""
    reader = PayloadReader(body, grow)
    kind = reader.byte()
    stream = Stream()
    for _ in range(reader.length()):
        stream.nodes.append(_node(reader))
    stream.length = reader.length()
    stream.last_id = _id(reader)
    if kind == SINCE_7_0:
        stream.first_id, stream.max_deleted_id = _id(reader), _id(reader)
        stream.entries_added = reader.length()
    else:
        stream.first_id = next((entry_id for entry_id, _ in stream.between()), FIRST_ID)
        stream.entries_added = stream.length
    masters = [node.master for node in stream.nodes]
    if sum(node.live for node in stream.nodes) != stream.length or masters != sorted({*masters}):
        raise BadFormat
    for _ in range(reader.length()):
        name = reader.string()
        if name in stream.groups:
            raise BadFormat
        stream.groups[name] = _read_group(reader, stream, kind)
    return stream


def _id(reader: PayloadReader) -> StreamId:
    return reader.length(), reader.length()


def _raw_id(reader: PayloadReader) -> StreamId:
    ms, sequence = struct.unpack(">QQ", reader.take(16))
    return ms, sequence


def _time_ms(reader: PayloadReader) -> int:
    return int.from_bytes(reader.take(8), "little", signed=True)


def _node(reader: PayloadReader) -> Node:
    key = reader.string()
    elements = listpack_elements(reader.string())
    if len(key) != 16:
        raise BadFormat
    live, gone, field_count = _numbers(elements, 3)
    ms, sequence = struct.unpack(">QQ", key)
    node = Node((ms, sequence), _texts(elements, field_count))
    if _numbers(elements, 1) != [0]:
        raise BadFormat
    for flag_text in elements:
        flags = _number(flag_text)
        later_ms, later_sequence = _numbers(elements, 2)
        if flags & _SAME_FIELDS:
            values = _texts(elements, field_count)
            items = tuple(part for pair in zip(node.fields, values, strict=True) for part in pair)
        else:
            items = _texts(elements, 2 * _numbers(elements, 1)[0])
        _numbers(elements, 1)
        if flags & _DELETED:
            node.gone.add(len(node.ids))
        node.append(((ms + later_ms) & PART_MAX, (sequence + later_sequence) & PART_MAX), items)
    if (node.live, len(node.gone)) != (live, gone):
        raise BadFormat
    return node


def _number(text: bytes) -> int:
    number = parse_integer(text)
    if number is None:
        raise BadFormat
    return number


def _numbers(elements: Iterator[bytes], count: int) -> Sequence[int]:
    return [_number(text) for text in _texts(elements, count)]


def _texts(elements: Iterator[bytes], count: int) -> tuple[bytes, ...]:
    texts = tuple(islice(elements, min(max(0, count), 1 << 32)))
    if len(texts) != count:
        raise BadFormat
    return texts


def _read_group(reader: PayloadReader, stream: Stream, kind: int) -> Group:
    last_id = _id(reader)
    if kind == SINCE_7_0:
        entries_read = reader.length()
        entries_read = UNKNOWN_READ if entries_read == PART_MAX else entries_read
    else:
        entries_read = stream.entries_up_to(last_id)
    group = Group(last_id, entries_read)
    deliveries: dict[StreamId, tuple[int, int]] = {}
    for _ in range(reader.length()):
        entry_id = _raw_id(reader)
        if entry_id in deliveries:
            raise BadFormat
        deliveries[entry_id] = _time_ms(reader), reader.length()
    for _ in range(reader.length()):
        consumer = reader.string()
        if not group.see(consumer, _time_ms(reader), None):
            raise BadFormat
        for _ in range(reader.length()):
            entry_id = _raw_id(reader)
            if entry_id not in deliveries or entry_id in group.pending:
                raise BadFormat
            group.put(entry_id, (consumer, *deliveries[entry_id]), None)
    if len(group.pending) != len(deliveries):
        raise BadFormat
    return group
