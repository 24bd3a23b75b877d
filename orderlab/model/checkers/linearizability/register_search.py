"""Registers with compare-and-set, compiled: just-in-time linearization over (event, state, open operations taken).

Operations take effect only when a return forces them to: at the return of one that has not been taken, first every
open operation that the state allows and that changes nothing (a read of this value, a compare-and-set that reported a
mismatch) is taken, since it loses nothing; then each open write or matching compare-and-set is tried. A configuration
is a few words (the event, the state, which open operations are taken), so the memory is small.

A configuration is not entered if one is known that is the same but for having taken fewer indeterminate operations;
of indeterminate operations that are the same only the earliest is tried.

Complexity: linear where few operations overlap; exponential in the number of open writes at worst, indeterminate ones
being open for ever. Complete: given time, exact.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from orderlab.model.checkers.linearizability.objects import MISMATCH, UNKNOWN, ObjectCall
from orderlab.model.checkers.linearizability.operations import NEVER, Typed
from orderlab.model.checkers.linearizability.search import Decision, violated_at
from orderlab.model.machine_code import njit
from orderlab.model.verdict import Outcome

_READ, _WRITE, _CAS, _MISMATCH = 0, 1, 2, 3
_HELD, _BROKEN, _TOO_LONG = 0, 1, 2
MAX_CONFIGURATIONS = 1 << 24  # about 1 GiB


@njit(cache=True)
def _hash(row: Any, words: Any) -> Any:
    mixed = np.uint64(0x9E3779B97F4A7C15)
    for word in range(words):
        mixed = (mixed ^ np.uint64(row[word])) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(29)
    return mixed


@njit(cache=True)
def _is_news(table: Any, chain: Any, rows: Any, row: Any, certain: Any) -> Any:
    """Whether no known configuration is as good: the same up to word `certain`, with no other indeterminate call taken.

    What can follow from having taken fewer of the calls that need not happen includes what can follow from more.
    """
    number = table[_hash(row, certain) & np.uint64(len(table) - 1)]
    while number >= 0:
        known = rows[number]
        as_good = True
        for word in range(certain):
            if known[word] != row[word]:
                as_good = False
                break
        if as_good:
            for word in range(certain, len(row)):
                if known[word] & ~row[word] != 0:
                    as_good = False
                    break
            if as_good:
                return False
        number = chain[number]
    return True


@njit(cache=True)
def _enter(table: Any, chain: Any, rows: Any, number: Any, certain: Any) -> None:
    slot = _hash(rows[number], certain) & np.uint64(len(table) - 1)
    chain[number] = table[slot]
    table[slot] = number


@njit(cache=True)
def _advance(row: Any, function: Any, first: Any, slot: Any, ends: Any, opens: Any, offsets: Any) -> Any:
    """Pass every return whose call is taken; before each, take what is open and changes nothing."""
    at = row[0]
    while at < len(ends):
        for index in range(offsets[at], offsets[at + 1]):
            call = opens[index]
            what = function[call]
            if (what == _READ and first[call] == row[1]) or (what == _MISMATCH and first[call] != row[1]):
                row[2 + (slot[call] >> 6)] |= np.int64(1) << (slot[call] & 63)
        word, bit = 2 + (slot[ends[at]] >> 6), np.int64(1) << (slot[ends[at]] & 63)
        if row[word] & bit == 0:
            break
        row[word] &= ~bit
        at += 1
    row[0] = at


@njit(cache=True)
def _decide(
    function: Any,
    first: Any,
    second: Any,
    slot: Any,
    twin: Any,
    ends: Any,
    opens: Any,
    offsets: Any,
    certain: Any,
    words: Any,
    limit: Any,
) -> Any:
    """Over the returns in order: call `ends[i]` returns i-th, and `opens[offsets[i]:offsets[i+1]]` are open then.

    A row is (returns passed, state, slots of calls that are taken: the certain ones up to word `certain`, then the
    indeterminate ones). Returns (what, number of configurations, the furthest return that no order passed).
    """
    rows = np.zeros((1024, words), np.int64)
    table, chain, stack = np.full(4096, -1, np.int64), np.zeros(1024, np.int64), np.zeros(1024, np.int64)
    row, child = np.zeros(words, np.int64), np.zeros(words, np.int64)
    _advance(rows[0], function, first, slot, ends, opens, offsets)
    _enter(table, chain, rows, 0, certain)
    count, height, furthest = 1, 1, rows[0, 0]
    if furthest == len(ends):
        return _HELD, count, furthest
    while height:
        height -= 1
        row[:] = rows[stack[height]]
        at, state = row[0], row[1]
        # The last one pushed is tried first, so the certain calls are pushed after the indeterminate ones.
        for round_number in range(2):
            for index in range(offsets[at], offsets[at + 1]):
                call = opens[index]
                word, bit = 2 + (slot[call] >> 6), np.int64(1) << (slot[call] & 63)
                if (word < certain) != (round_number == 1) or row[word] & bit != 0:
                    continue
                if function[call] == _WRITE:
                    after = first[call]
                elif function[call] == _CAS and first[call] == state:
                    after = second[call]
                else:
                    continue
                if twin[call] >= 0 and row[2 + (slot[twin[call]] >> 6)] & (np.int64(1) << (slot[twin[call]] & 63)) == 0:
                    continue
                if word >= certain and after == state:
                    continue
                child[:] = row
                child[word] |= bit
                child[1] = after
                _advance(child, function, first, slot, ends, opens, offsets)
                furthest = max(furthest, child[0])
                if child[0] == len(ends):
                    return _HELD, count, furthest
                if not _is_news(table, chain, rows, child, certain):
                    continue
                if count == rows.shape[0]:
                    table, chain, rows, stack = _grown(table, rows, stack, count, certain)
                rows[count] = child
                _enter(table, chain, rows, count, certain)
                stack[height] = count
                height += 1
                count += 1
        if count >= limit:
            return _TOO_LONG, count, furthest
    return _BROKEN, count, furthest


@njit(cache=True)
def _grown(table: Any, rows: Any, stack: Any, count: Any, certain: Any) -> Any:
    more_rows = np.zeros((2 * len(rows), rows.shape[1]), np.int64)
    more_rows[:count] = rows[:count]
    more_stack = np.zeros(2 * len(rows), np.int64)
    more_stack[: len(stack)] = stack
    more_chain, more_table = np.zeros(2 * len(rows), np.int64), np.full(2 * len(table), -1, np.int64)
    for number in range(count):
        _enter(more_table, more_chain, more_rows, number, certain)
    return more_table, more_chain, more_rows, more_stack


@njit(cache=True)
def _lay_out(returns: Any, order: Any, slot: Any, opens: Any, offsets: Any) -> Any:
    """Slots for the calls that return (free again then), and the calls open at each return; `order` sorts all events.

    Event e < n is the invocation of call e, event n + e its return. Returns (slots, entries of opens); slots is -1 if
    `opens` is too short.
    """
    calls = len(returns)
    live = np.empty(calls, np.int64)
    free = np.empty(calls, np.int64)
    alive, freed, slots, filled, ends = 0, 0, 0, 0, 0
    for event in order:
        if event < calls:
            if returns[event] and freed:
                freed -= 1
                slot[event] = free[freed]
            elif returns[event]:
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


def search_register(calls: Sequence[ObjectCall], initial: Any = None, deadline: float | None = None) -> Decision:
    """Decide the calls (`read`, `write`, `cas`) on one register; UNKNOWN when `deadline` (time.monotonic) passes."""
    codes: dict[Typed, int] = {Typed(initial): 0}
    function, first, second, twin = (np.full(len(calls), -1, np.int64) for _ in range(4))
    seen: dict[tuple[int, int, int], int] = {}

    def code(value: Any) -> int:
        return codes.setdefault(Typed(value), len(codes))

    for number, call in enumerate(calls):
        if call.function == "read":
            function[number], first[number] = _READ, code(call.result)
        elif call.function == "write":
            function[number], first[number] = _WRITE, code(call.argument)
        else:
            function[number] = _MISMATCH if call.result is MISMATCH else _CAS
            first[number], second[number] = map(code, call.argument)
        if call.result is UNKNOWN:
            kind = int(function[number]), int(first[number]), int(second[number])
            twin[number] = seen.get(kind, -1)
            seen[kind] = number
    invoked = np.array([call.invoked for call in calls], np.int64)
    returned = np.array([call.returned for call in calls], np.int64)
    returns = returned < NEVER
    done = np.flatnonzero(returns)
    events = np.concatenate([np.arange(len(calls)), len(calls) + done])
    order = events[np.argsort(np.concatenate([invoked, returned[done]]), kind="stable")]
    slot, offsets = np.zeros(len(calls), np.int64), np.zeros(len(done) + 1, np.int64)
    opens = np.zeros(max(64, 16 * len(calls)), np.int64)
    slots, filled = _lay_out(returns, order, slot, opens, offsets)
    while slots < 0:
        opens = np.zeros(max(2 * len(opens), filled), np.int64)
        slots, filled = _lay_out(returns, order, slot, opens, offsets)
    ends = order[order >= len(calls)] - len(calls)
    certain = 2 + (int(slots) + 63) // 64
    indeterminate = int((~returns).sum())
    slot[~returns] = (certain - 2) * 64 + np.arange(indeterminate)
    words = certain + (indeterminate + 63) // 64
    limit = 1 << 16
    while True:
        what, count, furthest = _decide(
            function, first, second, slot, twin, ends, opens[:filled], offsets, certain, words, limit
        )
        if what == _HELD:
            return Decision(Outcome.HOLDS, int(count))
        if what == _BROKEN:
            return violated_at(calls, int(returned[ends[furthest]]), int(count))
        if count >= MAX_CONFIGURATIONS or (deadline is not None and time.monotonic() > deadline):
            return Decision(Outcome.UNKNOWN, int(count))
        limit *= 4  # begin again with more room: at most a third is done twice
