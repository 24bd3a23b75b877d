"""The general search: any object, by trying orders (Wing and Gong 1993, with Lowe's memory of configurations).

Go through the history; take an operation that has been invoked and not yet taken, if the object allows it, before the
first return of one that has not been taken; go back when stuck. A configuration (operations taken, state) that was
left once is never entered again.

Complexity: exponential in the number of operations that overlap, indeterminate ones for ever; linear in time for
histories whose operations do not overlap. It is complete: given time, its answer is exact. The budget ends it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orderlab.model.checkers.linearizability.objects import IMPOSSIBLE, UNKNOWN, ObjectCall, ObjectModel
from orderlab.model.checkers.linearizability.operations import NEVER
from orderlab.model.verdict import Outcome

_CLOCK_EVERY = 4096


@dataclass(frozen=True)
class Decision:
    """The decision on one object: the outcome; the configurations visited; if violated, what shows it.

    `why` is one sentence, `rows` the log rows of the operations that it speaks of.
    """

    outcome: Outcome
    configurations: int
    why: str = ""
    rows: tuple[int, ...] = ()


class _Entry:
    """An invocation or a return in a doubly linked list, from which taken operations are lifted."""

    __slots__ = ("before", "call", "number", "partner", "position", "then")

    def __init__(self, position: int, number: int, call: ObjectCall | None) -> None:
        self.position, self.number, self.call = position, number, call
        self.partner: _Entry | None = None
        self.before: _Entry
        self.then: _Entry | None = None


def _linked(calls: Sequence[ObjectCall]) -> _Entry:
    entries = []
    for number, call in enumerate(calls):
        invocation = _Entry(call.invoked, number, call)
        entries.append(invocation)
        if call.returned < NEVER:
            invocation.partner = _Entry(call.returned, number, None)
            entries.append(invocation.partner)
    head = _Entry(-1, -1, None)
    last = head
    # Calls of one drain share their two events; a return never comes before an invocation at the same position.
    for entry in sorted(entries, key=lambda entry: (entry.position, entry.call is None)):
        last.then, entry.before = entry, last
        last = entry
    return head


def _lift(entry: _Entry) -> None:
    for lifted in (entry, entry.partner):
        if lifted is not None:
            lifted.before.then = lifted.then
            if lifted.then is not None:
                lifted.then.before = lifted.before


def _unlift(entry: _Entry) -> None:
    for lifted in (entry.partner, entry):
        if lifted is not None:
            lifted.before.then = lifted
            if lifted.then is not None:
                lifted.then.before = lifted


def _twins(calls: Sequence[ObjectCall]) -> list[int]:
    """The bit of the call that has to be taken before: of indeterminate equals the earlier one loses nothing."""
    seen: dict[tuple[str, Any], int] = {}
    twins = []
    for number, call in enumerate(calls):
        twin = 0
        if call.result is UNKNOWN:
            twin = seen.get((call.function, call.argument), 0)
            seen[call.function, call.argument] = 1 << number
        if call.place > 1:
            twin = 1 << (number - 1)  # a drain's dequeues come in its order
        twins.append(twin)
    return twins


def search(model: ObjectModel, calls: Sequence[ObjectCall], deadline: float | None = None) -> Decision:
    """Decide whether the calls on one object are linearizable; UNKNOWN when `deadline` (time.monotonic) passes."""
    head, twins = _linked(calls), _twins(calls)
    remaining = sum(call.returned < NEVER for call in calls)
    state, taken = model.initial, 0
    stack: list[tuple[_Entry, Any]] = []
    visited = {(0, state)}
    stuck_at, step = -1, model.step
    steps = 0
    entry = head.then
    while remaining:
        steps += 1
        if deadline is not None and steps % _CLOCK_EVERY == 0 and time.monotonic() > deadline:
            return Decision(Outcome.UNKNOWN, len(visited))
        if entry is not None and entry.call is not None:
            call, bit = entry.call, 1 << entry.number
            twin = twins[entry.number]
            after = IMPOSSIBLE if twin and not taken & twin else step(state, call.function, call.argument, call.result)
            if after is not IMPOSSIBLE and (configuration := (taken | bit, after)) not in visited:
                visited.add(configuration)
                stack.append((entry, state))
                state, taken = after, taken | bit
                remaining -= call.returned < NEVER
                _lift(entry)
                entry = head.then
            else:
                entry = entry.then
            continue
        if entry is not None:
            stuck_at = max(stuck_at, entry.position)
        if not stack:
            return violated_at(calls, stuck_at, len(visited))
        entry, state = stack.pop()
        taken &= ~(1 << entry.number)
        assert entry.call is not None
        remaining += entry.call.returned < NEVER
        _unlift(entry)
        entry = entry.then
    return Decision(Outcome.HOLDS, len(visited))


def violated_at(calls: Sequence[ObjectCall], stuck_at: int, configurations: int) -> Decision:
    """The shortest prefix of the history that is not linearizable ends with the return at `stuck_at`."""
    stuck = next(call for call in calls if call.returned == stuck_at)
    open_then = [call for call in calls if call.invoked < stuck_at <= call.returned and call is not stuck]
    why = "no order of the operations so far allows what this one returned"
    rows = (stuck.row, *sorted({call.row for call in open_then} - {stuck.row}))
    return Decision(Outcome.VIOLATED, configurations, why, rows)
