"""A stream: entries in nodes as the server's radix tree of listpacks has them, and its consumer groups.

Where one node ends and the next begins is seen from outside (trimming with ``~`` removes whole nodes, XINFO counts
them), and so is that an entry which was deleted keeps its place in its node. So nodes are as those of Redis 7.0 to the
byte (``t_stream.c``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from typing import Any, Final

from orderlab.sim.redis.numbers import parse_integer

Undo = list[tuple[Any, ...]]
StreamId = tuple[int, int]
"""Milliseconds and sequence, each of 64 bits without a sign."""
Entry = tuple[StreamId, tuple[bytes, ...]]
"""Identifier; fields and values in turn."""
Pending = tuple[bytes, int, int]
"""What was delivered and not acknowledged: to which consumer, when (Unix time, ms), how often."""
FrozenStream = tuple[Any, ...]
"""Nodes of (fields of the master entry, entries), an entry being (id, fields and values), or (id, its bytes) if it is
deleted; last id, greatest deleted id, entries ever added; groups of (name, last id, entries read, pending (id,
consumer, time, deliveries), consumers (name, time seen))."""

PART_MAX: Final = (1 << 64) - 1
FIRST_ID: Final = (0, 0)
LAST_ID: Final = (PART_MAX, PART_MAX)
UNKNOWN_READ: Final = -1
"""``entries_read`` of a group that cannot tell."""
NODE_MAX_BYTES: Final = 4096
NODE_MAX_ENTRIES: Final = 100
_LISTPACK_FRAME: Final = 7
_HUGE_NODE: Final = 1 << 30
_WORD: Final = 1 << 64


def next_id(entry_id: StreamId) -> StreamId | None:
    """The least identifier beyond ``entry_id``; None beyond the last."""
    ms, sequence = entry_id
    if sequence < PART_MAX:
        return ms, sequence + 1
    return (ms + 1, 0) if ms < PART_MAX else None


def id_before(entry_id: StreamId) -> StreamId | None:
    """The greatest identifier below ``entry_id``; None below the first."""
    ms, sequence = entry_id
    if sequence:
        return ms, sequence - 1
    return (ms - 1, PART_MAX) if ms else None


def _integer_size(number: int) -> int:
    """One integer in a listpack, with its own length for the way back."""
    if 0 <= number <= 127:
        return 2
    if -4096 <= number <= 4095:
        return 3
    for bits, size in ((15, 3), (23, 4), (31, 5)):
        if -(1 << bits) <= number < 1 << bits:
            return size + 1
    return 10


def _text_size(text: bytes) -> int:
    """One string in a listpack, which keeps the canonical form of a number as a number."""
    number = parse_integer(text) if len(text) <= 20 else None
    if number is not None:
        return _integer_size(number)
    size = len(text) + (1 if len(text) < 64 else 2 if len(text) < 4096 else 5)
    return size + (
        1 if size <= 127 else 2 if size < 16_383 else 3 if size < 2_097_151 else 4 if size < 268_435_455 else 5
    )


def _signed(number: int) -> int:
    """A difference of two 64-bit numbers as a listpack takes it."""
    number %= _WORD
    return number - _WORD if number >> 63 else number


class Node:
    """One listpack: a master entry, which names the fields that most entries have, and entries in the order of their
    arrival."""

    __slots__ = ("fields", "gone", "ids", "items", "lost_sizes", "master", "size")

    def __init__(self, master: StreamId, fields: tuple[bytes, ...]) -> None:
        self.master = master
        self.fields = fields
        self.ids: list[StreamId] = []
        self.items: list[tuple[bytes, ...]] = []
        self.gone: set[int] = set()
        """Positions of entries that are marked as deleted."""
        self.lost_sizes: dict[StreamId, int] = {}
        """Bytes of deleted entries of which nothing else is known: those of a frozen stream."""
        self.size = _LISTPACK_FRAME + _integer_size(len(fields)) + sum(map(_text_size, fields)) + 2
        """Bytes without the two counters."""

    @property
    def live(self) -> int:
        """Entries that are not deleted."""
        return len(self.ids) - len(self.gone)

    def bytes_used(self) -> int:
        """The length of the listpack (``lpBytes``)."""
        return self.size + _integer_size(self.live) + _integer_size(len(self.gone))

    def size_of(self, entry: StreamId, items: tuple[bytes, ...]) -> int:
        """The bytes that an entry takes here."""
        ms, sequence = entry
        has_same_fields = items[::2] == self.fields
        count = len(items) // 2
        size = 2 + _integer_size(_signed(ms - self.master[0])) + _integer_size(_signed(sequence - self.master[1]))
        if has_same_fields:
            return size + sum(map(_text_size, items[1::2])) + _integer_size(count + 3)
        return size + _integer_size(count) + sum(map(_text_size, items)) + _integer_size(2 * count + 4)

    def append(self, entry: StreamId, items: tuple[bytes, ...]) -> None:
        """Add an entry."""
        self.size += self.size_of(entry, items)
        self.ids.append(entry)
        self.items.append(items)

    def pop(self) -> None:
        """Take the last entry back."""
        self.size -= self.size_of(self.ids.pop(), self.items.pop())

    def frozen_entries(self) -> tuple[tuple[StreamId, tuple[bytes, ...] | int], ...]:
        """Identifiers with fields and values; of what is deleted the bytes that it takes are left, and nothing to be
        found in them."""
        gone, items = self.gone, self.items
        return tuple(
            (entry_id, self.size_at(position) if position in gone else items[position])
            for position, entry_id in enumerate(self.ids)
        )

    def thaw_entry(self, entry_id: StreamId, items: tuple[bytes, ...] | int) -> None:
        """Add what ``frozen_entries`` gave."""
        if isinstance(items, tuple):
            self.append(entry_id, items)
            return
        self.gone.add(len(self.ids))
        self.ids.append(entry_id)
        self.items.append(())
        self.lost_sizes[entry_id] = items
        self.size += items

    def size_at(self, position: int) -> int:
        """The bytes that an entry takes, be it deleted."""
        entry_id = self.ids[position]
        return self.lost_sizes.get(entry_id) or self.size_of(entry_id, self.items[position])

    def copy(self) -> Node:
        """An independent equal node."""
        node = Node(self.master, self.fields)
        node.ids, node.items, node.gone, node.size = self.ids.copy(), self.items.copy(), self.gone.copy(), self.size
        node.lost_sizes = self.lost_sizes.copy()
        return node


def _master(node: Node) -> StreamId:
    return node.master


class Group:
    """A consumer group: how far it has read, and what it has delivered and not seen acknowledged."""

    __slots__ = ("consumers", "entries_read", "ids", "last_id", "pending", "seen_ms")

    def __init__(self, last_id: StreamId, entries_read: int) -> None:
        self.last_id = last_id
        self.entries_read = entries_read
        self.pending: dict[StreamId, Pending] = {}
        self.ids: list[StreamId] = []
        """Those of ``pending`` in order."""
        self.consumers: dict[bytes, list[StreamId]] = {}
        """Name -> what is pending there, in order."""
        self.seen_ms: dict[bytes, int] = {}
        """When each consumer was last heard of."""

    # -- mutators: each appends its inverse to ``undo``, if there is one -------------------------------------

    def read_to(self, last_id: StreamId, entries_read: int, undo: Undo | None) -> None:
        """Set how far the group has read."""
        if undo is not None:
            undo.append((self.read_to, self.last_id, self.entries_read, None))
        self.last_id, self.entries_read = last_id, entries_read

    def see(self, consumer: bytes, now_ms: int, undo: Undo | None) -> bool:
        """Note that a consumer was heard of; True if it is new."""
        before = self.seen_ms.get(consumer)
        if undo is not None:
            undo.append((self._unsee, consumer, before))
        self.seen_ms[consumer] = now_ms
        if before is None:
            self.consumers[consumer] = []
        return before is None

    def _unsee(self, consumer: bytes, before: int | None) -> None:
        if before is None:
            del self.seen_ms[consumer], self.consumers[consumer]
        else:
            self.seen_ms[consumer] = before

    def forget(self, consumer: bytes, undo: Undo | None) -> int:
        """Remove a consumer with all that is pending there; how much that was."""
        ids = list(self.consumers[consumer])
        for entry_id in ids:
            self.put(entry_id, None, undo)
        seen_ms = self.seen_ms.pop(consumer)
        del self.consumers[consumer]
        if undo is not None:
            undo.append((self.see, consumer, seen_ms, None))
        return len(ids)

    def put(self, entry: StreamId, pending: Pending | None, undo: Undo | None) -> None:
        """Set what is known of a delivery; None: acknowledged, or lost. The consumer must be known."""
        before = self.pending.get(entry)
        if undo is not None:
            undo.append((self.put, entry, before, None))
        if before is not None and (pending is None or before[0] != pending[0]):
            ids = self.consumers[before[0]]
            del ids[bisect_left(ids, entry)]
        if pending is None:
            if before is not None:
                del self.pending[entry], self.ids[bisect_left(self.ids, entry)]
            return
        if before is None:
            insort(self.ids, entry)
        if before is None or before[0] != pending[0]:
            insort(self.consumers[pending[0]], entry)
        self.pending[entry] = pending

    def freeze(self) -> tuple[Any, ...]:
        """The group as a hashable tuple."""
        pending = tuple((entry_id, *self.pending[entry_id]) for entry_id in self.ids)
        return self.last_id, self.entries_read, pending, tuple(sorted(self.seen_ms.items()))

    @classmethod
    def thaw(cls, frozen: tuple[Any, ...]) -> Group:
        """The group that ``freeze`` gave ``frozen`` for."""
        last_id, entries_read, pending, consumers = frozen
        group = cls(last_id, entries_read)
        for name, seen_ms in consumers:
            group.see(name, seen_ms, None)
        for entry_id, consumer, time_ms, count in pending:
            group.put(entry_id, (consumer, time_ms, count), None)
        return group


class Stream:
    """Entries by identifier, which only grow, and consumer groups by name."""

    __slots__ = ("entries_added", "first_id", "groups", "last_id", "length", "max_deleted_id", "nodes")

    encoding = b"stream"
    """As OBJECT ENCODING names it."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.length = 0
        self.first_id: StreamId = FIRST_ID
        """The first that is there; 0-0 in an empty stream."""
        self.last_id: StreamId = FIRST_ID
        """The greatest that was ever given."""
        self.max_deleted_id: StreamId = FIRST_ID
        """The greatest that XDEL removed."""
        self.entries_added = 0
        self.groups: dict[bytes, Group] = {}

    def __len__(self) -> int:
        return self.length

    # -- reading -----------------------------------------------------------------------------------------

    def between(
        self, start: StreamId = FIRST_ID, end: StreamId = LAST_ID, is_reversed: bool = False
    ) -> Iterator[Entry]:
        """The entries from ``start`` to ``end``, both included, in order or from the end."""
        nodes = self.nodes
        if not nodes:
            return
        at = bisect_right(nodes, end if is_reversed else start, key=_master) - 1
        if not is_reversed:
            for index in range(max(at, 0), len(nodes)):
                node = nodes[index]
                for position, entry_id in enumerate(node.ids):
                    if entry_id >= start and position not in node.gone:
                        if entry_id > end:
                            return
                        yield entry_id, node.items[position]
            return
        for index in range(at if at >= 0 and end != FIRST_ID else len(nodes) - 1, -1, -1):
            node = nodes[index]
            for position in range(len(node.ids) - 1, -1, -1):
                entry_id = node.ids[position]
                if entry_id <= end and position not in node.gone:
                    if entry_id < start:
                        return
                    yield entry_id, node.items[position]

    def entry(self, entry_id: StreamId) -> tuple[bytes, ...] | None:
        """The fields and values of the entry ``entry_id``, or None."""
        return next((items for _, items in self.between(entry_id, entry_id)), None)

    def top(self) -> StreamId:
        """The identifier of the last entry that is there; 0-0 in an empty stream."""
        return next((entry_id for entry_id, _ in self.between(is_reversed=True)), FIRST_ID)

    def has_tombstones_from(self, start: StreamId) -> bool:
        """Whether XDEL has removed something at ``start`` or later, behind the first entry
        (``streamRangeHasTombstones``)."""
        return (
            bool(self.length) and self.max_deleted_id != FIRST_ID and max(start, self.first_id) <= self.max_deleted_id
        )

    def entries_up_to(self, entry_id: StreamId) -> int:
        """How many entries were ever added up to ``entry_id``, or UNKNOWN_READ
        (``streamEstimateDistanceFromFirstEverEntry``)."""
        if not self.entries_added:
            return 0
        if not self.length and entry_id <= self.last_id:
            return self.entries_added
        if entry_id == self.last_id:
            return self.entries_added
        if entry_id > self.last_id:
            return UNKNOWN_READ
        if self.max_deleted_id == FIRST_ID or self.max_deleted_id < self.first_id:
            if entry_id < self.first_id:
                return self.entries_added - self.length
            if entry_id == self.first_id:
                return self.entries_added - self.length + 1
        return UNKNOWN_READ

    def lag_of(self, group: Group) -> int | None:
        """How many entries a group has still to read; None if nobody can tell."""
        if not self.entries_added:
            return 0
        if group.entries_read != UNKNOWN_READ and not self.has_tombstones_from(group.last_id):
            return self.entries_added - group.entries_read
        read = self.entries_up_to(group.last_id)
        return None if read == UNKNOWN_READ else self.entries_added - read

    # -- mutators: each appends its inverse to ``undo``, if there is one -------------------------------------

    def append(
        self, entry_id: StreamId, items: tuple[bytes, ...], undo: Undo | None, max_bytes: int, max_entries: int
    ) -> None:
        """Add an entry whose identifier is greater than the last; a node holds so many bytes and entries."""
        self._note(undo)
        tail = self.nodes[-1] if self.nodes else None
        if not max_bytes or max_bytes > _HUGE_NODE:
            max_bytes = _HUGE_NODE
        opens = tail is None or tail.bytes_used() + sum(map(len, items)) >= max_bytes
        if tail is None or opens or (max_entries and len(tail.ids) >= max_entries):
            tail = Node(entry_id, items[::2])
            at = bisect_left(self.nodes, entry_id, key=_master)  # not at the end only if the last id was set back
            self.nodes.insert(at, tail)
            if undo is not None:
                undo.append((self.nodes.pop, at))
        tail.append(entry_id, items)
        if undo is not None:
            undo.append((tail.pop,))
        self.length += 1
        self.entries_added += 1
        self.last_id = entry_id
        if self.length == 1:
            self.first_id = entry_id

    def delete(self, entry_id: StreamId, undo: Undo | None) -> bool:
        """Remove an entry; True if it was there."""
        found = self._find(entry_id)
        if found is None:
            return False
        self._note(undo)
        index, position = found
        node = self.nodes[index]
        if node.live == 1:
            self._remove_node(index, undo)
        else:
            self._mark(node, position, undo)
        self.length -= 1
        return True

    def after_deletions(self, ids: Sequence[StreamId], undo: Undo | None) -> None:
        """Note that ``ids`` were removed by XDEL."""
        self._note(undo)
        self.max_deleted_id = max(self.max_deleted_id, *ids)
        self._look_for_first()

    def trim_to_length(self, maxlen: int, approximately: bool, limit: int, undo: Undo | None) -> int:
        """Remove the oldest entries beyond ``maxlen``, with ``approximately`` whole nodes only, and about ``limit`` at
        most (0: no limit); how many went."""
        return self._trim(maxlen, None, approximately, limit, undo)

    def trim_before(self, minid: StreamId, approximately: bool, limit: int, undo: Undo | None) -> int:
        """The same with the entries below ``minid``."""
        return self._trim(0, minid, approximately, limit, undo)

    def _trim(self, maxlen: int, minid: StreamId | None, approximately: bool, limit: int, undo: Undo | None) -> int:
        if not self.nodes:
            return 0
        self._note(undo)
        deleted = 0
        while self.nodes:
            if minid is None and self.length <= maxlen:
                break
            node = self.nodes[0]
            live = node.live
            if limit and deleted + live > limit:
                break
            if self.length - live >= maxlen if minid is None else node.ids[-1] < minid:
                self._remove_node(0, undo)
                self.length -= live
                deleted += live
                continue
            if approximately:
                break
            for position, entry_id in enumerate(node.ids):
                if self.length <= maxlen if minid is None else entry_id >= minid:
                    break
                if position not in node.gone:
                    self._mark(node, position, undo)
                    self.length -= 1
                    deleted += 1
            break
        if deleted or not self.length:
            self._look_for_first()
        return deleted

    def set_ids(
        self, last_id: StreamId, entries_added: int | None, max_deleted_id: StreamId, undo: Undo | None
    ) -> None:
        """XSETID: None and 0-0 leave the second and the third as they are."""
        self._note(undo)
        self.last_id = last_id
        if entries_added is not None:
            self.entries_added = entries_added
        if max_deleted_id != FIRST_ID:
            self.max_deleted_id = max_deleted_id

    def set_group(self, name: bytes, group: Group | None, undo: Undo | None) -> None:
        """Make, or with None destroy, a group."""
        if undo is not None:
            undo.append((self.set_group, name, self.groups.get(name), None))
        if group is None:
            self.groups.pop(name, None)
        else:
            self.groups[name] = group

    def _find(self, entry_id: StreamId) -> tuple[int, int] | None:
        """Index of the node and position of the entry ``entry_id``, if it is there."""
        first = max(bisect_right(self.nodes, entry_id, key=_master) - 1, 0)
        for index in range(first, len(self.nodes)):
            node = self.nodes[index]
            for position, other in enumerate(node.ids):
                if other >= entry_id and position not in node.gone:
                    return (index, position) if other == entry_id else None
        return None

    def _note(self, undo: Undo | None) -> None:
        if undo is not None:
            undo.append(
                (self._reset, self.length, self.first_id, self.last_id, self.max_deleted_id, self.entries_added)
            )

    def _reset(
        self, length: int, first_id: StreamId, last_id: StreamId, max_deleted_id: StreamId, entries_added: int
    ) -> None:
        self.length, self.first_id, self.last_id = length, first_id, last_id
        self.max_deleted_id, self.entries_added = max_deleted_id, entries_added

    def _remove_node(self, index: int, undo: Undo | None) -> None:
        node = self.nodes.pop(index)
        if undo is not None:
            undo.append((self.nodes.insert, index, node))

    def _mark(self, node: Node, position: int, undo: Undo | None) -> None:
        node.gone.add(position)
        if undo is not None:
            undo.append((node.gone.discard, position))

    def _look_for_first(self) -> None:
        self.first_id = next((entry_id for entry_id, _ in self.between()), FIRST_ID)

    # -- values ------------------------------------------------------------------------------------------

    def freeze(self) -> FrozenStream:
        """The stream as a hashable tuple: equal ones answer every command equally."""
        nodes = tuple((node.fields, node.frozen_entries()) for node in self.nodes)
        groups = tuple((name, *group.freeze()) for name, group in sorted(self.groups.items()))
        return nodes, self.last_id, self.max_deleted_id, self.entries_added, groups

    @classmethod
    def thaw(cls, frozen: FrozenStream) -> Stream:
        """The stream that ``freeze`` gave ``frozen`` for."""
        nodes, last_id, max_deleted_id, entries_added, groups = frozen
        value = cls()
        for fields, entries in nodes:
            node = Node(entries[0][0], fields)
            for entry_id, items in entries:
                node.thaw_entry(entry_id, items)
            value.nodes.append(node)
            value.length += node.live
        value.last_id, value.max_deleted_id, value.entries_added = last_id, max_deleted_id, entries_added
        value.groups = {name: Group.thaw(tuple(rest)) for name, *rest in groups}
        value._look_for_first()
        return value

    def copy(self) -> Stream:
        """An independent equal value, but that its consumers were not heard of since (``streamDup``)."""
        value = Stream()
        value.nodes = [node.copy() for node in self.nodes]
        value._reset(self.length, self.first_id, self.last_id, self.max_deleted_id, self.entries_added)
        value.groups = {name: Group.thaw(group.freeze()) for name, group in self.groups.items()}
        return value


def radix_nodes(keys: Sequence[bytes]) -> int:
    """How many nodes the server's radix tree has for these keys in order, none of which begins another: a chain of
    bytes that does not branch is one."""
    if not keys:
        return 1
    return _radix_nodes(keys, 0)


def _radix_nodes(keys: Sequence[bytes], depth: int) -> int:
    if len(keys) == 1:
        return 2 if depth < len(keys[0]) else 1
    first, last = keys[0], keys[-1]
    common = depth
    while first[common] == last[common]:
        common += 1
    count = 1 + (common > depth)
    start = 0
    while start < len(keys):
        byte = keys[start][common]
        stop = bisect_right(keys, byte, start, key=lambda key: key[common])
        count += _radix_nodes(keys[start:stop], common + 1)
        start = stop
    return count


def id_key(entry_id: StreamId) -> bytes:
    """An identifier as a key of the server's radix tree."""
    return entry_id[0].to_bytes(8, "big") + entry_id[1].to_bytes(8, "big")


def radix_counts(value: Stream) -> tuple[int, int]:
    """Keys and nodes of the radix tree of a stream (XINFO STREAM)."""
    return len(value.nodes), radix_nodes([id_key(node.master) for node in value.nodes])


def visible(frozen: FrozenStream) -> tuple[Any, ...]:
    """What a dump can see of a frozen stream: not the nodes, nor when consumers were heard of and entries delivered."""
    nodes, last_id, max_deleted_id, entries_added, groups = frozen
    entries = tuple((entry_id, items) for _, node in nodes for entry_id, items in node if not isinstance(items, int))
    shown = tuple(
        (
            name,
            last,
            read,
            tuple((entry_id, consumer, count) for entry_id, consumer, _, count in pending),
            tuple(consumer for consumer, _ in consumers),
        )
        for name, last, read, pending, consumers in groups
    )
    return entries, last_id, max_deleted_id, entries_added, shown
