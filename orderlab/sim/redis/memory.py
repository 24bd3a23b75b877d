"""How much memory a node uses: an estimate that follows the structures of Redis 7.0 on a 64-bit machine.

The size of a key is what ``MEMORY USAGE`` of a server reports, built from the same parts: size classes of the
allocator, string headers, dictionary entries, listpacks. Large collections are estimated from a few members, as the
server does it. The sum over all keys, with their share of the two main dictionaries, stands for ``used_memory``: it is
what ``maxmemory`` is held against. Buffers of clients and replicas are not counted.

What goes when memory is full follows ``performEvictions``: a few keys are sampled, the best of them are kept in a pool
of sixteen from one eviction to the next, and the best of the pool goes. Draws come from the node's own stream, so that
the same run evicts the same keys. The server gives up a long eviction after some time and goes on later; here each one
is carried through.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from itertools import islice

from orderlab.sim.redis.database import DrawableKeys, KeyUse, name_in, place_of
from orderlab.sim.redis.keyspace import Keyspace
from orderlab.sim.redis.node_state import EvictionPool, NodeState
from orderlab.sim.redis.numbers import double_text, parse_integer
from orderlab.sim.redis.random_draws import draw
from orderlab.sim.redis.values import Hash, List, Set, SortedSet, Stream, Value
from orderlab.sim.redis.values.stream import NODE_MAX_BYTES, NODE_MAX_ENTRIES, id_key, radix_nodes

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
    """A dictionary without its entries: a power of two of buckets, and half of the table before, for as long as it
    grows the server keeps that too, and moves a bucket a call."""
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
    entry = _DICT_ENTRY + _mean(
        string_bytes(len(member)) for member in value.in_order()[:: max(1, len(value) // SAMPLES)][:SAMPLES]
    )
    return _OBJECT + _dictionary(len(value)) + int(entry * len(value))


def _list(value: List) -> int:
    count = len(value)
    nodes, packed = [_LISTPACK_HEADER], 0
    for element in (
        value.slice(0, count) if count <= _LIST_ELEMENTS_LOOKED_AT else value.slice(0, _LIST_ELEMENTS_LOOKED_AT)
    ):
        size = nodes[-1]
        if packed and size > _LISTPACK_HEADER and size + len(element) + _ENTRY_OVERHEAD > _QUICKLIST_NODE_BYTES:
            if len(nodes) == SAMPLES:
                break
            nodes.append(_LISTPACK_HEADER)
        nodes[-1] += _listpack_entry(element)
        packed += 1
    scale = count / packed if packed else 1.0  # nodes are filled from the left, as RPUSH fills them
    return _OBJECT + 40 + int(scale * sum(32 + allocated(size) for size in nodes))


_STREAM = 80
_GROUP = 40
_CONSUMER = 24
_PENDING = 24


def _radix_tree(keys: list[bytes]) -> int:
    """What the server reckons for a radix tree: its keys, and thirty pointers a node."""
    return 16 * len(keys) + (4 + 30 * _POINTER) * radix_nodes(keys)


def _stream(value: Stream) -> int:
    nodes = value.nodes
    sizes = [
        allocated(
            node.bytes_used()
            if at + 1 < len(nodes) and len(node.ids) >= NODE_MAX_ENTRIES
            else max(NODE_MAX_BYTES, node.bytes_used())
        )
        for at, node in enumerate(nodes)
        if at < SAMPLES or at + 1 == len(nodes)
    ]
    packed = sum(sizes) if len(nodes) <= SAMPLES else sum(sizes[:SAMPLES]) // SAMPLES * (len(nodes) - 1) + sizes[-1]
    total = _OBJECT + _STREAM + _radix_tree([id_key(node.master) for node in nodes]) + packed
    for group in value.groups.values():
        total += _GROUP + _radix_tree([id_key(one) for one in group.ids]) + _PENDING * len(group.ids)
        for name, ids in group.consumers.items():
            total += _CONSUMER + len(name) + _radix_tree([id_key(one) for one in ids])
    return total


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
    elif isinstance(value, Stream):
        size = _stream(value)
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
        self._unmeasured = {
            name_in(index, key): None for index, one in keyspace.databases().items() for key in one.data
        }

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


POOL_SIZE = 16
LFU_FIRST = 5
"""The counter of a new key, so that it is not the first to go."""
LFU_MAX = 255
_MS_PER_MINUTE = 60_000
_LRU_RESOLUTION_MS = 1000


class KeySet:
    """Keys that can be added, removed and drawn from in constant time."""

    __slots__ = ("_keys", "_positions")

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._positions: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, position: int) -> bytes:
        return self._keys[position]

    def add(self, key: bytes) -> None:
        """Add ``key`` if it is not there."""
        if key not in self._positions:
            self._positions[key] = len(self._keys)
            self._keys.append(key)

    def discard(self, key: bytes) -> None:
        """Remove ``key`` if it is there; the last one takes its place."""
        position = self._positions.pop(key, None)
        if position is not None:
            last = self._keys.pop()
            if last != key:
                self._keys[position] = last
                self._positions[last] = position


class KeysInUse:
    """When each key was last used, and how often: 24 bits per object on a server. Not part of a frozen state."""

    def __init__(self, node: NodeState) -> None:
        self._shard = node
        self.is_lfu = node.config.maxmemory_policy.endswith("lfu")
        self.keys = KeySet()
        self.volatile = KeySet()
        """Those that have a deadline."""
        self._last_ms: dict[bytes, int] = {}
        self._counters: dict[bytes, int] = {}
        self.reset()

    def anew(self) -> KeysInUse:
        """The same for the database that is selected now, each key of which counts as used now."""
        return KeysInUse(self._shard)

    def reset(self) -> None:
        """The whole database was replaced: every key counts as used now."""
        self.keys, self.volatile = KeySet(), KeySet()
        self._last_ms.clear()
        self._counters.clear()
        for key in self._shard.data:
            self.admit(key)
        for key in self._shard.deadlines_ms:
            self.volatile.add(key)

    def admit(self, key: bytes) -> None:
        """``key`` may be new."""
        if key not in self._last_ms:
            self.keys.add(key)
            self._last_ms[key] = self._shard.now_ms
            self._counters[key] = LFU_FIRST

    def drop(self, key: bytes) -> None:
        """``key`` is gone."""
        self.keys.discard(key)
        self.volatile.discard(key)
        self._last_ms.pop(key, None)
        self._counters.pop(key, None)

    def note_deadline(self, key: bytes, has_deadline: bool) -> None:
        """``key`` was given a deadline, or has lost it."""
        if has_deadline:
            self.volatile.add(key)
        else:
            self.volatile.discard(key)

    def touch(self, key: bytes) -> None:
        """``key`` was just used. Its LFU counter grows with a probability that falls as it grows (``LFULogIncr``)."""
        if self._shard.caller.is_untouching:
            return
        if self.is_lfu:
            counter = self.frequency(key)
            if counter < LFU_MAX:
                above = max(0, counter - LFU_FIRST)
                counter += draw(self._shard, above * self._shard.config.lfu_log_factor + 1) == 0
            self._counters[key] = counter
        self._last_ms[key] = self._shard.now_ms

    def idle_ms(self, key: bytes) -> int:
        """Time since the last use, in the server's resolution of a second."""
        tick = _LRU_RESOLUTION_MS
        return (self._shard.now_ms // tick - self._last_ms[key] // tick) * tick

    def frequency(self, key: bytes) -> int:
        """The LFU counter now: it loses one for each ``lfu-decay-time`` minutes without use."""
        decay_minutes = self._shard.config.lfu_decay_time
        counter = self._counters[key]
        if not decay_minutes:
            return counter
        idle_minutes = self._shard.now_ms // _MS_PER_MINUTE - self._last_ms[key] // _MS_PER_MINUTE
        return max(0, counter - idle_minutes // decay_minutes)


def _offer(pool: EvictionPool, key: bytes, idleness: int) -> None:
    """Consider ``key``; the higher its idleness the better."""
    candidates = pool.candidates
    if any(key == other for _, other in candidates):
        return
    insort(candidates, (idleness, key))
    if len(candidates) > POOL_SIZE:
        del candidates[0]


def _take(node: NodeState, volatile_only: bool) -> bytes | None:
    """The best candidate that is still there, by its name among the keys of all databases."""
    candidates = node.eviction_pool.candidates
    while candidates:
        name = candidates.pop()[1]
        database, key = node.home_of(name)
        if key in database.deadlines_ms or (not volatile_only and key in database.data):
            return name
    return None


def prepare(node: NodeState) -> None:
    """Begin to account for memory and for the use of keys, if that has not begun."""
    if node.memory is None:
        node.memory = MemoryAccount(node)
        node.observe_changes()
    track_use(node)


def track_use(node: NodeState) -> None:
    """Begin to note the use of keys as the policy asks, if that has not begun."""
    if node.access is None or node.access.is_lfu != node.config.maxmemory_policy.endswith("lfu"):
        node.forget_use()
        node.access = KeysInUse(node)


def make_room(node: NodeState) -> bool:
    """Evict keys until the estimate of used memory is within ``maxmemory``; whether that was achieved. A replica
    leaves eviction to its master (``replica-ignore-maxmemory``)."""
    config = node.config
    if not config.maxmemory or node.is_replica:
        return True
    prepare(node)
    assert node.memory is not None
    while node.memory.used() > config.maxmemory:
        name = None if config.maxmemory_policy == "noeviction" else _choose(node)
        if name is None:
            return False
        selected = node.database
        index, key = place_of(name)
        node.use(index)
        node.remove(key)
        node.evicted_keys += 1
        if node.evicted is not None:
            node.evicted.append(name)
        if node.on_vanished is not None:
            node.note_eviction(key)
        node.use(selected)
    return True


def _choose(node: NodeState) -> bytes | None:
    """The key that the policy gives up next, by its name; None if there is none."""
    policy, pool = node.config.maxmemory_policy, node.eviction_pool
    volatile_only = not policy.startswith("allkeys")
    while eligible := _eligible(node, volatile_only):
        if policy.endswith("random"):  # the databases take turns, however full they are
            index = min(eligible, key=lambda one: (one - pool.next_database) % node.config.databases)
            pool.next_database = index + 1
            return name_in(index, eligible[index][draw(node, len(eligible[index]))])
        selected = node.database
        for index, keys in eligible.items():
            node.use(index)
            assert node.access is not None
            for _ in range(min(node.config.maxmemory_samples, len(keys))):
                key = keys[draw(node, len(keys))]
                _offer(pool, name_in(index, key), _idleness(node, node.access, policy, key))
        node.use(selected)
        chosen = _take(node, volatile_only)
        if chosen is not None:
            return chosen
    return None


def _eligible(node: NodeState, volatile_only: bool) -> dict[int, DrawableKeys]:
    """What may go, by the index of its database; none of them is empty."""
    found = {}
    selected = node.database
    for index in node.databases():
        node.use(index)
        assert node.access is not None
        keys = node.access.volatile if volatile_only else node.access.keys
        if keys:
            found[index] = keys
    node.use(selected)
    return found


def _idleness(node: NodeState, use: KeyUse, policy: str, key: bytes) -> int:
    if policy.endswith("lru"):
        return use.idle_ms(key)
    if policy.endswith("lfu"):
        return LFU_MAX - use.frequency(key)
    return -node.deadlines_ms[key]
