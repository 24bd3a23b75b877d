"""A compiled hash table from a pair of integers to a number and a companion: the index of every linear pass here.

Open addressing in one array of four words a slot (first key, second key, number, companion), so that a hit costs
one cache line. Compiled code cannot grow an array that it was handed; its caller makes room ahead of each chunk.
"""

from __future__ import annotations

from typing import Any

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
    """The table, rebuilt larger if `more` entries would fill it beyond one half."""
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
