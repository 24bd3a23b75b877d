"""How much memory a node uses: an estimate that follows the structures of Redis 7.0 on a 64-bit machine.

The size of a key is what ``MEMORY USAGE`` of a server reports, built from the same parts: size classes of the
allocator, string headers, dictionary entries, listpacks. Large collections are estimated from a few members, as the
server does it. The sum over all keys, with their share of the two main dictionaries, stands for ``used_memory``: it is
what ``maxmemory`` is held against. Buffers of clients and replicas are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from orderlab.sim.redis.database import name_in
from orderlab.sim.redis.keyspace import Keyspace
from orderlab.sim.redis.numbers import double_text, parse_integer
from orderlab.sim.redis.values import Hash, List, Set, SortedSet, Value

STARTUP_BYTES = 876_072
"""``used_memory_startup`` of an idle Redis 7.0.15."""
SAMPLES = 5
"""Members looked at in a large collection; the default of MEMORY USAGE."""

_OBJECT = 16
_DICT = 56
_DICT_ENTRY = 24
_DICT_ENTRY_ALLOCATED = 32
_POINTER = 8
_EMBEDDED_MAX = 44
"""The longest string that lives inside its object."""
_SKIPLIST_NODE = 48 + 16 / 3
"""A node of one level, and one more of 16 bytes with probability 1/4 each time."""
_SKIPLIST_HEADER = 640
_QUICKLIST_NODE_BYTES = 8192
_LISTPACK_HEADER = 7
_ENTRY_OVERHEAD = 8
_LIST_ELEMENTS_LOOKED_AT = 12_000
"""More than the five nodes of a sample hold, unless the elements are tiny."""


def allocated(size: int) -> int:
    """What the allocator (jemalloc) sets aside for ``size`` bytes."""
    if size <= 8:
        return 8
    if size <= 128:
        return (size + 15) // 16 * 16
    spacing = 1 << ((size - 1).bit_length() - 3)
    return (size + spacing - 1) // spacing * spacing


def string_bytes(length: int) -> int:
    """A dynamic string (``sds``): header, bytes, and a closing NUL."""
    header = 1 if length < 32 else 3 if length < 256 else 5 if length < 65_536 else 9
    return allocated(header + length + 1)


def _string_value(value: bytes, encoding: bytes | None) -> int:
    if encoding is None and len(value) <= 20:
        number = parse_integer(value)
        if number is not None:
            return _OBJECT
    if encoding != b"raw" and len(value) <= _EMBEDDED_MAX:
        return allocated(_OBJECT + 3 + len(value) + 1)
    return _OBJECT + string_bytes(max(len(value), 32))


def _listpack_entry(element: bytes) -> int:
    """One element of a listpack: encoding, data, and its own length for the way back."""
    number = parse_integer(element) if len(element) <= 20 else None
    if number is not None:
        bits = number.bit_length() + (number < 0)
        if 0 <= number <= 127:
            size = 1
        elif -4096 <= number <= 4095:
            size = 2
        else:
            size = 3 if bits < 16 else 4 if bits < 24 else 5 if bits < 32 else 9
    else:
        size = len(element) + (1 if len(element) < 64 else 2 if len(element) < 4096 else 5)
    return size + (1 if size <= 127 else 2 if size < 16_384 else 3)


def _listpack(elements: Iterable[bytes]) -> int:
    return allocated(7 + sum(map(_listpack_entry, elements)))


def _dictionary(count: int) -> int:
    """A dictionary without its entries: a power of two of buckets, and half of the table before, for as long as it grows the server
    keeps that too, and moves a bucket a call."""
    buckets = max(4, 1 << (count - 1).bit_length())
    return _DICT + _POINTER * (buckets + buckets // 4)


def _mean(sizes: Iterable[int]) -> float:
    sampled = list(sizes)
    return sum(sampled) / len(sampled)


def _hash(value: Hash) -> int:
    if not value.hashtable:
        return _OBJECT + _listpack(part for pair in value.fields.items() for part in pair)
    step = max(1, len(value) // SAMPLES)
    pairs = islice(value.fields.items(), 0, step * SAMPLES, step)
    entry = _DICT_ENTRY + _mean(string_bytes(len(field)) + string_bytes(len(item)) for field, item in pairs)
    return _OBJECT + _dictionary(len(value)) + int(entry * len(value))


def _sorted_set(value: SortedSet) -> int:
    if not value.skiplist:
        scores = map(double_text, value.order_scores)
        parts = zip(value.order_members, scores, strict=True)
        return _OBJECT + _listpack(part for pair in parts for part in pair)
    step = max(1, len(value) // SAMPLES)
    members = value.order_members[::step][:SAMPLES]
    entry = _DICT_ENTRY + _SKIPLIST_NODE + _mean(string_bytes(len(member)) for member in members)
    return _OBJECT + 16 + 32 + _SKIPLIST_HEADER + _dictionary(len(value)) + int(entry * len(value))


def _set(value: Set) -> int:
    if value.intset:
        widest = max(abs(int(value.in_order()[0])), abs(int(value.in_order()[-1])))
        width = 2 if widest < 1 << 15 else 4 if widest < 1 << 31 else 8
        return _OBJECT + allocated(8 + width * len(value))
    entry = _DICT_ENTRY + _mean(string_bytes(len(member)) for member in value.in_order()[:: max(1, len(value) // SAMPLES)][:SAMPLES])
    return _OBJECT + _dictionary(len(value)) + int(entry * len(value))


def _list(value: List) -> int:
    count = len(value)
    nodes, packed = [_LISTPACK_HEADER], 0
    for element in value.slice(0, count) if count <= _LIST_ELEMENTS_LOOKED_AT else value.slice(0, _LIST_ELEMENTS_LOOKED_AT):
        size = nodes[-1]
        if packed and size > _LISTPACK_HEADER and size + len(element) + _ENTRY_OVERHEAD > _QUICKLIST_NODE_BYTES:
            if len(nodes) == SAMPLES:
                break
            nodes.append(_LISTPACK_HEADER)
        nodes[-1] += _listpack_entry(element)
        packed += 1
    scale = count / packed if packed else 1.0  # nodes are filled from the left, as RPUSH fills them
    return _OBJECT + 40 + int(scale * sum(32 + allocated(size) for size in nodes))


def usage(key: bytes, value: Value, encoding: bytes | None = None) -> int:
    """Bytes of one key and its value, as MEMORY USAGE counts them; ``encoding`` as in ``string_encodings``."""
    if isinstance(value, bytes):
        size = _string_value(value, encoding)
    elif isinstance(value, SortedSet):
        size = _sorted_set(value)
    elif isinstance(value, Hash):
        size = _hash(value)
    elif isinstance(value, Set):
        size = _set(value)
    else:
        size = _list(value)
    return _DICT_ENTRY + string_bytes(len(key)) + size


class MemoryAccount:
    """The estimate of ``used_memory``. A key is measured again only after it was changed: O(changes) a question."""

    def __init__(self, keyspace: Keyspace) -> None:
        self._keyspace = keyspace
        self._bytes: dict[bytes, int] = {}
        self._sum = 0
        self._unmeasured: dict[bytes, None] = {}
        self.forget_all()

    def forget(self, key: bytes) -> None:
        """``key``, by its name among those of all databases, may have changed."""
        self._unmeasured[key] = None

    def forget_all(self) -> None:
        """Anything may have changed (rollback, load, flush)."""
        self._bytes.clear()
        self._sum = 0
        keyspace = self._keyspace
        self._unmeasured = {name_in(index, key): None for index, one in keyspace.databases().items() for key in one.data}

    def used(self) -> int:
        """Bytes in use now."""
        keyspace = self._keyspace
        for name in self._unmeasured:
            database, key = keyspace.home_of(name)
            value = database.data.get(key)
            self._sum -= self._bytes.pop(name, 0)
            if value is not None:
                size = usage(key, value, database.string_encodings.get(key))
                self._bytes[name] = size
                self._sum += size
        self._unmeasured.clear()
        return STARTUP_BYTES + self._sum + self._tables()

    def _tables(self) -> int:
        """Buckets of the two main dictionaries of each database, and what the allocator adds to their entries."""
        total = 0
        for database in self._keyspace.databases().values():
            keys, deadlines = len(database.data), len(database.deadlines_ms)
            total += _POINTER * sum(1 << (count - 1).bit_length() for count in (keys, deadlines) if count)
            total += (_DICT_ENTRY_ALLOCATED - _DICT_ENTRY) * keys + _DICT_ENTRY_ALLOCATED * deadlines
        return total
