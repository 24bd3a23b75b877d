"""Compiled data structures of linear passes: an index from pairs of integers, and sets of sequence numbers.

The index (`new_table`) leads from a pair of integers to a number and a companion: open addressing in one array of four
words a slot (first key, second key, number, companion), so that a hit costs one cache line.

The sets, one per owner, mostly grow upwards: runs for what ascends, a hash table for the rest. An owner's numbers that
arrive in ascending order form runs [start, end]; the run that grows lies in `last`, closed ones in an append-only list
per owner with jump pointers (Myers' skew-binary stack), so that membership costs O(log runs) whatever the history does.
A number that arrives below the highest one and is in no run goes to `late`. Adding in ascending order without gaps
costs one cache line and no memory.

Compiled code cannot grow an array that it was handed; its caller makes room ahead of each chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orderlab.model.machine_code import njit

Table = npt.NDArray[np.int64]
EMPTY = -1


def new_table(slots: int = 1024) -> Table:
    """An empty table; `slots` is a power of two."""
    return np.full((slots, 4), EMPTY, dtype=np.int64)


@njit(cache=True, inline="always")
def slot_of(table: Any, first: Any, second: Any) -> Any:
    """The slot that holds the pair, or the empty one where it belongs."""
    # Publishers, topics and sequences count up from 0: without the mixing neighbours would lie in one long run of
    # slots.
    mask = np.uint64(table.shape[0] - 1)
    mixed = np.uint64(first) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(second) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    slot = mixed & mask
    while table[slot, 2] != -1 and (table[slot, 0] != first or table[slot, 1] != second):
        slot = (slot + np.uint64(1)) & mask
    return slot


@njit(cache=True)
def _rehash(old: Any, new: Any) -> None:
    for row in range(old.shape[0]):
        if old[row, 2] != -1:
            slot = slot_of(new, old[row, 0], old[row, 1])
            for word in range(4):
                new[slot, word] = old[row, word]


def with_room(table: Table, used: int, more: int) -> Table:
    """The table, rebuilt larger if `more` entries would fill it beyond one half: linear probing is short up to
    there."""
    slots = table.shape[0]
    while 2 * (used + more) > slots:
        slots *= 2
    if slots == table.shape[0]:
        return table
    grown = new_table(slots)
    _rehash(table, grown)
    return grown


def rows_with_room(array: npt.NDArray[Any], needed: int, fill: int = -1) -> npt.NDArray[Any]:
    """The array with at least `needed` rows, grown by doubling; new rows hold `fill`."""
    if array.shape[0] >= needed:
        return array
    grown = np.full((max(needed, 2 * array.shape[0]), *array.shape[1:]), fill, dtype=array.dtype)
    grown[: array.shape[0]] = array
    return grown


ASCENDING, REPEATED, LATE = 0, 1, 2
_START, _END, _NODE, _TAG = 0, 1, 2, 3  # words of a row of `last`
_PREV, _JUMP, _DEPTH, _OWNER = 2, 3, 4, 5  # further words of a row of `nodes`


class Arrays(NamedTuple):
    """What compiled code reads and writes.

    A tuple of arrays and no class of numba's, whose machine code cannot be kept between runs. Compiled code cannot
    assign to a field of a tuple, so numbers that change lie in an array too (`used`).
    """

    last: npt.NDArray[np.int64]
    nodes: npt.NDArray[np.int64]
    late: npt.NDArray[np.int64]
    used: npt.NDArray[np.int64]  # nodes, late entries


@njit(cache=True, inline="always")
def push_node(nodes: Any, used: Any, owner: Any, previous: Any, start: Any, end: Any) -> Any:
    """Append [start, end] to the owner's closed runs and return its node."""
    node = used[0]
    used[0] = node + 1
    nodes[node, 0] = start
    nodes[node, 1] = end
    nodes[node, 2] = previous
    nodes[node, 5] = owner
    if previous < 0:
        nodes[node, 3] = node
        nodes[node, 4] = 0
    else:
        jump = nodes[previous, 3]
        further = nodes[jump, 3]
        balanced = nodes[previous, 4] - nodes[jump, 4] == nodes[jump, 4] - nodes[further, 4]
        nodes[node, 3] = further if balanced else previous
        nodes[node, 4] = nodes[previous, 4] + 1
    return node


@njit(cache=True)
def _in_closed_runs(nodes: Any, node: Any, number: Any) -> Any:
    while nodes[node, 0] > number:
        if nodes[node, 2] < 0:
            return False
        jump = nodes[node, 3]
        node = jump if nodes[jump, 0] > number else nodes[node, 2]
    return number <= nodes[node, 1]


@njit(cache=True)
def _add_below(arrays: Any, owner: Any, number: Any) -> Any:
    last, nodes, late, used = arrays
    if number >= last[owner, 0]:
        return 1
    node = last[owner, 2]
    if node >= 0 and _in_closed_runs(nodes, node, number):
        return 1
    slot = slot_of(late, owner, number)
    if late[slot, 2] != -1:
        return 1
    late[slot, 0] = owner
    late[slot, 1] = number
    late[slot, 2] = 0
    used[1] += 1
    return 2


@njit(cache=True, inline="always")
def add(arrays: Any, owner: Any, number: Any, tag: Any) -> Any:
    """Add a number; ASCENDING, REPEATED or LATE. `tag` is kept with the owner's highest number."""
    last, nodes, _, used = arrays
    end = last[owner, 1]
    if number == end + 1:
        last[owner, 1] = number
        last[owner, 3] = tag
        return 0
    if number > end:
        if last[owner, 0] <= end:
            last[owner, 2] = push_node(nodes, used, owner, last[owner, 2], last[owner, 0], end)
        last[owner, 0] = number
        last[owner, 1] = number
        last[owner, 3] = tag
        return 0
    return _add_below(arrays, owner, number)


@njit(cache=True)
def _contains_below(arrays: Any, owner: Any, number: Any) -> Any:
    last, nodes, late, _ = arrays
    node = last[owner, 2]
    if node >= 0 and _in_closed_runs(nodes, node, number):
        return True
    return late[slot_of(late, owner, number), 2] != -1


@njit(cache=True, inline="always")
def contains(arrays: Any, owner: Any, number: Any) -> Any:
    """Membership; O(1) in the growing run, O(log runs) below it."""
    last = arrays[0]
    if number > last[owner, 1]:
        return False
    if number >= last[owner, 0]:
        return True
    return _contains_below(arrays, owner, number)


_NO_RUN = np.array([0, -2, -1, -1], dtype=np.int64)  # start > end: empty; -2 so that no number continues it


@dataclass
class SequenceSets:
    """The sets of all owners 0, 1, 2, ... and their growth."""

    arrays: Arrays

    @classmethod
    def empty(cls) -> SequenceSets:
        """Sets of no owner."""
        last = np.tile(_NO_RUN, (256, 1))
        nodes = np.zeros((256, 6), np.int64)
        return cls(Arrays(last, nodes, new_table(), np.zeros(2, np.int64)))

    def make_room(self, owners: int, more: int) -> None:
        """Make room for owners 0 .. owners - 1 and for `more` additions."""
        last, nodes, late, used = self.arrays
        if last.shape[0] < owners:
            grown = np.tile(_NO_RUN, (max(owners, 2 * last.shape[0]), 1))
            grown[: last.shape[0]] = last
            last = grown
        nodes = rows_with_room(nodes, int(used[0]) + more)
        late = with_room(late, int(used[1]), more)
        self.arrays = Arrays(last, nodes, late, used)

    def high(self, owner: int) -> int:
        """The highest number of an owner; -1 if it has none."""
        return max(int(self.arrays.last[owner, _END]), -1)

    def tag(self, owner: int) -> int:
        """What was given with the highest number."""
        return int(self.arrays.last[owner, _TAG])

    def intervals(self) -> Intervals:
        """All sets as sorted, disjoint intervals. O(n log n) in runs and late numbers."""
        last, nodes, late, used = self.arrays
        live = np.flatnonzero(last[:, _START] <= last[:, _END])
        closed = nodes[: int(used[0])]
        single = late[late[:, 2] != -1]
        owner = np.concatenate([live, closed[:, _OWNER], single[:, 0]])
        start = np.concatenate([last[live, _START], closed[:, _START], single[:, 1]])
        end = np.concatenate([last[live, _END], closed[:, _END], single[:, 1]])
        return Intervals.of(owner, start, end, last.shape[0])


@dataclass(frozen=True)
class Intervals:
    """Disjoint closed intervals of integers per owner, sorted; owner o has rows offsets[o] .. offsets[o + 1] - 1."""

    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]

    @classmethod
    def of(cls, owner: Any, start: Any, end: Any, owners: int) -> Intervals:
        """Sort intervals that may be in any order and overlap, and merge those that touch."""
        order = np.lexsort((start, owner))
        merged = _merge_touching(owner[order], start[order], end[order])
        offsets = np.searchsorted(merged[0], np.arange(owners + 1))
        return cls(merged[1], merged[2], offsets.astype(np.int64))

    def owned_by(self, owner: int) -> list[tuple[int, int]]:
        """The intervals (begin, end) of one owner, in order."""
        if not 0 <= owner < len(self.offsets) - 1:
            return []
        rows = slice(int(self.offsets[owner]), int(self.offsets[owner + 1]))
        return list(zip(self.start[rows].tolist(), self.end[rows].tolist(), strict=True))


@njit(cache=True)
def _merge_touching(owner: Any, start: Any, end: Any) -> Any:
    kept = 0
    owners, starts, ends = np.empty_like(owner), np.empty_like(start), np.empty_like(end)
    for row in range(len(owner)):
        if kept and owners[kept - 1] == owner[row] and start[row] <= ends[kept - 1] + 1:
            ends[kept - 1] = max(ends[kept - 1], end[row])
        else:
            owners[kept], starts[kept], ends[kept] = owner[row], start[row], end[row]
            kept += 1
    return owners[:kept], starts[:kept], ends[:kept]


def segments(
    owner: npt.NDArray[np.int64],
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    weight: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], ...]:
    """(owner, start, end, total weight) of the pieces into which overlapping intervals cut each other; O(n log n)."""
    at, whose = np.concatenate([start, end + 1]), np.concatenate([owner, owner])
    order = np.lexsort((at, whose))
    at, whose, total = at[order], whose[order], np.cumsum(np.concatenate([weight, -weight])[order])
    pieces = np.flatnonzero((total[:-1] > 0) & (at[1:] > at[:-1]))
    return whose[pieces], at[pieces], at[pieces + 1] - 1, total[pieces]
