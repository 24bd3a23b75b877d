"""The hash table of packed states: open addressing over rows of 63-bit words, compiled with numba.

A slot holds the words of a state and beside them the state's number, so that one memory access decides whether a
successor is known. Free slots have -1 in their first word, which no packed state has.
"""

from __future__ import annotations

from numba import int64

from orderlab.model.machine_code import njit

FREE = -1


@njit(inline="always")
def hashed(rows, row):  # type: ignore[no-untyped-def]
    """Multiply and fold each word in turn (the finalizer of splitmix64, with signed words)."""
    h = int64(0)
    for word in range(rows.shape[1]):
        h = (h ^ rows[row, word]) * int64(-4658895280553007687)
        h = (h ^ (h >> 29)) * int64(-7723592293110705685)
    return h ^ (h >> 32)


@njit(inline="always")
def slot_of(table, rows, row, mask):  # type: ignore[no-untyped-def]
    """The slot that holds the row, or the free slot where it belongs."""
    at = hashed(rows, row) & mask
    words = rows.shape[1]
    while table[at, 0] != FREE:
        same = True
        for word in range(words):
            if table[at, word] != rows[row, word]:
                same = False
        if same:
            return at
        at = (at + 1) & mask
    return at


@njit(cache=True)
def rehash(table, numbers, rows, count):  # type: ignore[no-untyped-def]
    """Enter the first `count` rows, which are distinct, into an empty table."""
    mask = table.shape[0] - 1
    words = rows.shape[1]
    for row in range(count):
        at = slot_of(table, rows, row, mask)
        for word in range(words):
            table[at, word] = rows[row, word]
        numbers[at] = row


@njit(cache=True)
def look_up(table, numbers, rows):  # type: ignore[no-untyped-def]
    """The number of the state in row 0 of `rows`, or -1."""
    at = slot_of(table, rows, 0, table.shape[0] - 1)
    return numbers[at] if table[at, 0] != FREE else -1
