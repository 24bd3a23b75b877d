"""Registers with compare-and-set, compiled: just-in-time linearization over (event, state, open operations taken).

Operations take effect only when a return forces them to: at the return of one that has not been taken, first every
open operation that the state allows and that changes nothing (a read of this value, a compare-and-set that reported a
mismatch) is taken, since it loses nothing; then each open write or matching compare-and-set is tried. A configuration
is three words (the event, the state, which open operations are taken), so the memory is small, and what was visited
is not visited again.

Complexity: linear where few operations overlap; exponential in the number of open writes at worst, indeterminate ones
being open for ever. Of indeterminate writes that are the same only the earliest is tried. Complete: given time, exact.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from model.checkers.linearizability.calls import Call
from model.checkers.linearizability.objects import MISMATCH, UNKNOWN
from model.checkers.linearizability.operations import NEVER
from model.checkers.linearizability.search import Decision, violated_at
from model.verdict import Outcome

_READ, _WRITE, _CAS, _MISMATCH = 0, 1, 2, 3
_HELD, _BROKEN, _TOO_LONG = 0, 1, 2
MAX_CONFIGURATIONS = 1 << 24  # about 1 GiB


@njit(cache=True)
def _hash(row: Any) -> Any:
    mixed = np.uint64(0x9E3779B97F4A7C15)
    for word in range(len(row)):
        mixed = (mixed ^ np.uint64(row[word])) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(29)
    return mixed


@njit(cache=True)
def _is_new(table: Any, rows: Any, count: Any, row: Any) -> Any:
    """Whether the row differs from all rows before `count`; if so it is entered as number `count`."""
    mask = np.uint64(len(table) - 1)
    slot = _hash(row) & mask
    while table[slot] >= 0:
        known = rows[table[slot]]
        same = True
        for word in range(len(row)):
            if known[word] != row[word]:
                same = False
                break
        if same:
            return False
        slot = (slot + np.uint64(1)) & mask
    table[slot] = count
    for word in range(len(row)):
        rows[count, word] = row[word]
    return True


@njit(cache=True)
def _grown(table: Any, rows: Any, count: Any) -> Any:
    wide = np.empty((2 * rows.shape[0], rows.shape[1]), rows.dtype)
    wide[:count] = rows[:count]
    larger = np.full(2 * len(table), -1, table.dtype)
    mask = np.uint64(len(larger) - 1)
    for number in range(count):
        slot = _hash(rows[number]) & mask
        while larger[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        larger[slot] = number
    return larger, wide


@njit(cache=True)
def _decide(function: Any, first: Any, second: Any, slot: Any, twin: Any, ends: Any, opens: Any, offsets: Any,
            words: Any, limit: Any) -> Any:  # fmt: skip
    """Over the returns in order: call `ends[i]` returns i-th, and `opens[offsets[i]:offsets[i+1]]` are open then.

    Returns (what, number of configurations, the furthest return that no order passed).
    """
    rows = np.zeros((1024, 2 + words), np.int64)
    table = np.full(4096, -1, np.int64)
    stack = np.zeros(1024, np.int64)
    row = np.zeros(2 + words, np.int64)
    _is_new(table, rows, 0, row)
    count, height, furthest = 1, 1, 0
    while height:
        height -= 1
        row[:] = rows[stack[height]]
        at = row[0]
        # Pass every return whose operation is taken, and take what changes nothing.
        while at < len(ends):
            for index in range(offsets[at], offsets[at + 1]):
                call = opens[index]
                what = function[call]
                if (what == 0 and first[call] == row[1]) or (what == 3 and first[call] != row[1]):
                    row[2 + (slot[call] >> 6)] |= np.int64(1) << (slot[call] & 63)
            word, bit = 2 + (slot[ends[at]] >> 6), np.int64(1) << (slot[ends[at]] & 63)
            if row[word] & bit == 0:
                break
            row[word] &= ~bit
            at += 1
        if at == len(ends):
            return 0, count, at
        furthest = max(furthest, at)
        row[0] = at
        state = row[1]
        for index in range(offsets[at], offsets[at + 1]):
            call = opens[index]
            word, bit = 2 + (slot[call] >> 6), np.int64(1) << (slot[call] & 63)
            if row[word] & bit != 0:
                continue
            if function[call] == 1:
                after = first[call]
            elif function[call] == 2 and first[call] == state:
                after = second[call]
            else:
                continue
            if twin[call] >= 0 and row[2 + (slot[twin[call]] >> 6)] & (np.int64(1) << (slot[twin[call]] & 63)) == 0:
                continue
            if count == rows.shape[0]:
                table, rows = _grown(table, rows, count)
            row[word] |= bit
            row[1] = after
            if _is_new(table, rows, count, row):
                if height == len(stack):
                    taller = np.zeros(2 * len(stack), np.int64)
                    taller[:height] = stack
                    stack = taller
                stack[height] = count
                height += 1
                count += 1
            row[word] &= ~bit
            row[1] = state
        if count >= limit:
            return 2, count, furthest
    return 1, count, furthest


@njit(cache=True)
def _lay_out(invoked: Any, returned: Any, order: Any, slot: Any, opens: Any, offsets: Any) -> Any:
    """Slots for calls (free again after the return), and the calls open at each return; `order` sorts all events.

    Event e < n is the invocation of call e, event n + e its return. Returns (slots, entries of opens).
    """
    calls = len(invoked)
    live = np.empty(calls, np.int64)
    free = np.empty(calls, np.int64)
    alive, freed, slots, filled, ends = 0, 0, 0, 0, 0
    for event in order:
        if event < calls:
            if freed:
                freed -= 1
                slot[event] = free[freed]
            else:
                slot[event] = slots
                slots += 1
            live[alive] = event
            alive += 1
            continue
        offsets[ends] = filled
        if filled + alive > len(opens):
            return -1, filled + alive
        for index in range(alive):
            opens[filled + index] = live[index]
        filled += alive
        ends += 1
        call = event - calls
        kept = 0
        for index in range(alive):
            if live[index] != call:
                live[kept] = live[index]
                kept += 1
        alive = kept
        free[freed] = slot[call]
        freed += 1
    offsets[ends] = filled
    return slots, filled


def search_register(calls: Sequence[Call], initial: Any = None, deadline: float | None = None) -> Decision:
    """Decide the calls (`read`, `write`, `cas`) on one register; UNKNOWN when `deadline` (time.monotonic) passes."""
    codes: dict[Any, int] = {initial: 0}
    function, first, second, twin = (np.full(len(calls), -1, np.int64) for _ in range(4))
    seen: dict[tuple[str, Any], int] = {}
    for number, call in enumerate(calls):
        if call.function == "read":
            function[number], first[number] = _READ, codes.setdefault(call.result, len(codes))
        elif call.function == "write":
            function[number], first[number] = _WRITE, codes.setdefault(call.argument, len(codes))
        else:
            function[number] = _MISMATCH if call.result is MISMATCH else _CAS
            first[number], second[number] = (codes.setdefault(value, len(codes)) for value in call.argument)
        if call.result is UNKNOWN:
            twin[number] = seen.get((call.function, call.argument), -1)
            seen[call.function, call.argument] = number
    invoked = np.array([call.invoked for call in calls], np.int64)
    returned = np.array([call.returned for call in calls], np.int64)
    done = np.flatnonzero(returned < NEVER)
    events = np.concatenate([np.arange(len(calls)), len(calls) + done])
    order = events[np.argsort(np.concatenate([invoked, returned[done]]), kind="stable")]
    slot, offsets = np.zeros(len(calls), np.int64), np.zeros(len(done) + 1, np.int64)
    opens = np.zeros(max(64, 16 * len(calls)), np.int64)
    slots, filled = _lay_out(invoked, returned, order, slot, opens, offsets)
    while slots < 0:
        opens = np.zeros(max(2 * len(opens), filled), np.int64)
        slots, filled = _lay_out(invoked, returned, order, slot, opens, offsets)
    ends = order[order >= len(calls)] - len(calls)
    words = max(1, (int(slots) + 63) // 64)
    limit = 1 << 16
    while True:
        what, count, furthest = _decide(
            function, first, second, slot, twin, ends, opens[:filled], offsets, words, limit
        )
        if what == _HELD:
            return Decision(Outcome.HOLDS, int(count))
        if what == _BROKEN:
            return violated_at(calls, int(returned[ends[furthest]]), int(count))
        if count >= MAX_CONFIGURATIONS or (deadline is not None and time.monotonic() > deadline):
            return Decision(Outcome.UNKNOWN, int(count))
        limit *= 4  # begin again with more room: at most a third is done twice
