"""`linearizability`: every operation took effect at one moment between its invocation and its return.

Linearizability is local (Herlihy and Wing 1990): a history is linearizable if it is so on each object, so the history
is split by key and each object decided by the fastest algorithm that is exact for it: forbidden patterns for queues
with distinct values, levels for sets that only grow, a compiled search for registers, the general search for the rest.

Assumes one clock for all events, as in the order of the recording. A failed operation did not happen, except a failed
compare-and-set that returned its own arguments, which reports that the values differed; if it can fail for another
reason, `violated` can be wrong. Holds and violated are exact otherwise; unknown says that the budget ran out.

Two kinds of object need no search; they are decided exactly and in n log n.

FIFO queues with distinct values, by forbidden patterns (Henzinger, Sezgin and Vafeiadis, CONCUR 2013). A history of a
queue whose values are all different is linearizable exactly if it shows none of these, where "before" means returned
before the other was invoked:

1. a value was dequeued that was never enqueued, or its dequeue came before its enqueue;
2. a value was dequeued twice;
3. a was enqueued before b, and b dequeued before a, or a never;
4. a dequeue found the queue empty although at each moment between its two events some value was certainly in it.

Indeterminate enqueues count if their value was dequeued, and need not have happened otherwise. Indeterminate dequeues
may each have taken one of the values that are still missing under 3: the earliest invoked serve the earliest need.
`decide_queue` says None for repeated values, drains, and for indeterminate dequeues together with dequeues that found
nothing.

Sets that only grow and are read whole, by levels. If every element is added once, the reads must form a chain: each
contains the one before. Between two neighbours of the chain lie the additions that the later one saw. So the operations
fall into levels whose order is forced, adds and reads in turn; within a level any order does. Giving each operation the
earliest moment that its invocation and the levels before it allow shows whether all can take effect before they return.
An add of unknown outcome that no read saw need not have happened; one that completed and that no read saw comes after
all reads. Takes O(n log n + total size of the reads); `decide_set` says None if an element is added twice, or if there
are operations besides add and read.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orderlab.model.checkers.findings import VACUOUS
from orderlab.model.checkers.linearizability.objects import MODELS, ObjectCall, ObjectModel, calls_by_key
from orderlab.model.checkers.linearizability.operations import FAIL, INFO, NEVER, OK, IntArray, OperationLog
from orderlab.model.checkers.linearizability.register_search import search_register
from orderlab.model.checkers.linearizability.search import Decision, search
from orderlab.model.errors import InputError
from orderlab.model.verdict import UNFINISHED, Outcome, Verdict

LAW = "linearizability"


@dataclass(frozen=True)
class NotLinearizable:
    """The witness: the object's key, why no order exists, and the operations that show it."""

    why: str
    operations: tuple[dict[str, Any], ...]
    key: Any = None


def guess_model(log: OperationLog) -> str:
    """The object that has the log's functions. Raises InputError if none has."""
    used = log.used()
    for name in ("register", "cas-register", "queue", "kv", "set"):
        if used <= MODELS[name].functions.keys():
            return name
    raise InputError(f"no object has all of the operations {', '.join(sorted(used))}; objects: {', '.join(MODELS)}")


def decide(model_name: str, log: OperationLog, budget_s: float | None = None) -> Verdict:
    """The verdict on a log. Raises InputError for an unknown object or an operation that it does not have."""
    model = MODELS.get(model_name)
    if model is None:
        raise InputError(f"--model {model_name}: unknown object; it is one of {', '.join(MODELS)}")
    started = time.perf_counter()
    deadline = None if budget_s is None else time.monotonic() + budget_s
    tried: Counter[str] = Counter()
    configurations, broken, undecided = 0, [], 0
    for key, algorithm, decision in _decisions(model, log, deadline):
        tried[algorithm] += 1
        configurations += decision.configurations
        undecided += decision.outcome is Outcome.UNKNOWN
        if decision.outcome is Outcome.VIOLATED:
            broken.append((key, decision))
    work = {
        "antecedents": _told(model, log),
        "operations": len(log),
        "indeterminate": int((log.outcome == INFO).sum()),
        "objects": sum(tried.values()),
        **{f"objects_by_{name}": count for name, count in sorted(tried.items())},
        "configurations": configurations,
        "seconds": round(time.perf_counter() - started, 6),
    }
    notes = tuple(_notes(model, log, undecided))
    if undecided:
        work[UNFINISHED] = 1
    elif work["antecedents"] == 0 and not broken:
        return Verdict(LAW, Outcome.UNKNOWN, None, work, (VACUOUS, *notes))
    if broken:
        key, decision = min(broken, key=lambda pair: (max(pair[1].rows), str(pair[0])))
        witness = NotLinearizable(decision.why, tuple(log.describe(row) for row in decision.rows), key)
        return Verdict(LAW, Outcome.VIOLATED, witness, {**work, "violated_objects": len(broken)}, notes)
    return Verdict(LAW, Outcome.UNKNOWN if undecided else Outcome.HOLDS, None, work, notes)


def _decisions(model: ObjectModel, log: OperationLog, deadline: float | None) -> Iterator[tuple[Any, str, Decision]]:
    if model.name == "queue":
        yield from _queues(model, log, deadline)
        return
    for key, calls in calls_by_key(model, log).items():
        if model.name in ("register", "cas-register"):
            yield key, "register_search", search_register(calls, None, deadline)
            continue
        by_levels = decide_set(calls) if model.name == "set" and _distinct_adds(calls) else None
        yield (key, "levels", by_levels) if by_levels else (key, "search", search(model, calls, deadline))


def _distinct_adds(calls: Iterable[ObjectCall]) -> bool:
    added = [call.argument for call in calls if call.function == "add"]
    return len(added) == len(set(added))


def _queues(model: ObjectModel, log: OperationLog, deadline: float | None) -> Iterator[tuple[Any, str, Decision]]:
    kinds = [model.functions.get(name) for name in log.functions]
    is_enqueue = np.array([kind == "enqueue" for kind in kinds], np.bool_)
    is_drain = np.array([kind == "drain" for kind in kinds], np.bool_)
    no_value = [code for code, value in enumerate(log.values) if value is None]
    if None in kinds or np.isin(log.argument[is_enqueue[log.function]], no_value).any():
        calls_by_key(model, log)  # names the operation that a queue does not have, or cannot take
    order = np.argsort(log.key, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(log.key[order])) + 1):
        if len(rows) == 0:
            continue
        key = log.keys[log.key[rows[0]]] if log.key[rows[0]] >= 0 else None
        decision = decide_queue(log, rows, is_enqueue, is_drain)
        if decision is not None:
            yield key, "patterns", decision
            continue
        for calls in calls_by_key(model, log.select(rows)).values():
            found = search(model, [call._replace(row=int(rows[call.row])) for call in calls], deadline)
            yield key, "search", found


_SAYS_NOTHING = ("write", "enqueue", "add", "remove", "put")
"""What returns no result that another order of the operations could contradict."""


def _told(model: ObjectModel, log: OperationLog) -> int:
    """How many operations returned something that the others must bear out. Of writes alone every order is right."""
    tells = np.array([model.functions.get(name) not in _SAYS_NOTHING for name in log.functions], np.bool_)
    is_cas = np.array([model.functions.get(name) == "cas" for name in log.functions], np.bool_)
    mismatch = (log.outcome == FAIL) & is_cas[log.function] & (log.result == log.argument)
    return int((tells[log.function] & ((log.outcome == OK) | mismatch)).sum())


def _notes(model: ObjectModel, log: OperationLog, undecided: int) -> Iterator[str]:
    if undecided:
        yield f"{undecided} objects are undecided: the budget ran out"
    failed = log.outcome == FAIL
    if model.name == "cas-register" and failed.any():
        yield "a failed compare-and-set that returned its arguments is taken to have found another value"
    elif failed.any():
        yield f"{int(failed.sum())} failed operations are taken not to have happened"


class _Values(NamedTuple):
    """Per value that was enqueued: the events of its two operations (NEVER where there is none) and their rows."""

    enqueue_invoked: IntArray
    enqueue_returned: IntArray
    dequeue_invoked: IntArray
    dequeue_returned: IntArray
    enqueue_row: IntArray
    dequeue_row: IntArray

    def where(self, mask: npt.NDArray[np.bool_]) -> _Values:
        return _Values(*(column[mask] for column in self))


def decide_queue(log: OperationLog, rows: IntArray, is_enqueue: Any, is_drain: Any) -> Decision | None:
    """Decide the operations at `rows`, which are on one queue; None where the patterns do not apply.

    is_enqueue and is_drain say it per function code.
    """
    enqueues = is_enqueue[log.function[rows]]
    nothing = np.array([value is None for value in log.values], np.bool_)
    enqueue_rows = rows[enqueues & (log.outcome[rows] != FAIL)]
    dequeue_rows = rows[~enqueues & (log.outcome[rows] == OK)]
    waiting = rows[~enqueues & (log.outcome[rows] == INFO)]
    if is_drain[log.function[rows]].any() or nothing[log.argument[enqueue_rows]].any():
        return None
    found = ~nothing[log.result[dequeue_rows]]
    empty_rows, dequeue_rows = dequeue_rows[~found], dequeue_rows[found]

    enqueue_of = np.full(len(log.values), -1, np.int64)
    enqueue_of[log.argument[enqueue_rows]] = enqueue_rows
    if (enqueue_of >= 0).sum() != len(enqueue_rows):
        return None
    dequeue_of = np.full(len(log.values), -1, np.int64)
    dequeue_of[log.result[dequeue_rows]] = dequeue_rows
    taken = log.result[dequeue_rows]
    early = _unlawful_dequeue(log, dequeue_rows, taken, enqueue_of, dequeue_of)
    if early is not None:
        return early
    values = _values(log, enqueue_rows, dequeue_of)
    return _wrong_order(values, log, waiting) or _not_empty(values, log, empty_rows, waiting)


def _violated(why: str, *rows: Any) -> Decision:
    return Decision(Outcome.VIOLATED, 0, why, tuple(int(row) for row in rows if row >= 0))


def _unlawful_dequeue(
    log: OperationLog, dequeue_rows: IntArray, taken: IntArray, enqueue_of: IntArray, dequeue_of: IntArray
) -> Decision | None:
    """Patterns 1 and 2."""
    fresh = np.flatnonzero(enqueue_of[taken] < 0)
    if len(fresh):
        row = dequeue_rows[fresh[0]]
        return _violated(f"dequeue returned {log.values[taken[fresh[0]]]!r}, which was never enqueued", row)
    before = np.flatnonzero(log.returned[dequeue_rows] < log.invoked[enqueue_of[taken]])
    if len(before):
        row = dequeue_rows[before[0]]
        value = taken[before[0]]
        return _violated(f"{log.values[value]!r} was dequeued before its enqueue was invoked", row, enqueue_of[value])
    again = np.flatnonzero(dequeue_of[taken] != dequeue_rows)
    if len(again):
        value = taken[again[0]]
        row = dequeue_rows[again[0]]
        return _violated(f"{log.values[value]!r} was dequeued twice", enqueue_of[value], row, dequeue_of[value])
    return None


def _values(log: OperationLog, enqueue_rows: IntArray, dequeue_of: IntArray) -> _Values:
    dequeue_row = dequeue_of[log.argument[enqueue_rows]]
    taken = dequeue_row >= 0
    values = _Values(
        log.invoked[enqueue_rows],
        log.returned[enqueue_rows],
        np.where(taken, log.invoked[dequeue_row], NEVER),
        np.where(taken, log.returned[dequeue_row], NEVER),
        enqueue_rows,
        dequeue_row,
    )
    return values.where(taken | (log.outcome[enqueue_rows] == OK))


def _wrong_order(values: _Values, log: OperationLog, waiting: IntArray) -> Decision | None:
    """Pattern 3. For each b the candidate a is the one, among those enqueued before it, whose dequeue began last."""
    present = values if len(waiting) == 0 else values.where(values.dequeue_row >= 0)
    worst = _overtaken(present, log)
    if worst is not None or len(waiting) == 0:
        return worst
    # Values that nobody is known to have taken, and by when somebody must have begun to: before the first return of
    # a dequeue of a value that was enqueued after them.
    left = values.where(values.dequeue_row < 0)
    by_invocation = np.argsort(present.enqueue_invoked)
    first_return = np.append(np.minimum.accumulate(present.dequeue_returned[by_invocation][::-1])[::-1], NEVER)
    after = np.searchsorted(present.enqueue_invoked[by_invocation], left.enqueue_returned)
    due = first_return[after]
    needed = np.argsort(due, kind="stable")[: int((due < NEVER).sum())]
    offers = np.sort(log.invoked[waiting])
    for turn, index in enumerate(needed.tolist()):
        if turn >= len(offers) or offers[turn] > due[index]:
            overtaker = present.dequeue_row[np.flatnonzero(present.dequeue_returned == due[index])[0]]
            value = log.values[log.result[overtaker]]
            left_value = log.values[log.argument[left.enqueue_row[index]]]
            why = (
                f"{left_value!r} was enqueued before {value!r}, which was dequeued, and no dequeue"
                " of unknown outcome is left that could have taken it first"
            )
            enqueue = present.enqueue_row[np.flatnonzero(present.dequeue_row == overtaker)[0]]
            return _violated(why, left.enqueue_row[index], enqueue, overtaker)
    return None


def _overtaken(values: _Values, log: OperationLog) -> Decision | None:
    if len(values.enqueue_row) == 0:
        return None
    by_return = np.argsort(values.enqueue_returned, kind="stable")
    latest = np.maximum.accumulate(values.dequeue_invoked[by_return])
    before = np.searchsorted(values.enqueue_returned[by_return], values.enqueue_invoked)
    begun = np.where(before > 0, latest[np.maximum(before - 1, 0)], -1)
    wrong = np.flatnonzero(values.dequeue_returned < begun)
    if len(wrong) == 0:
        return None
    b = int(wrong[np.argmin(values.dequeue_returned[wrong])])
    earlier = by_return[: before[b]]
    a = int(earlier[np.argmax(values.dequeue_invoked[earlier])])
    name_a, name_b = (log.values[log.argument[values.enqueue_row[index]]] for index in (a, b))
    never = values.dequeue_row[a] < 0
    why = (
        f"{name_a!r} was enqueued before {name_b!r}, and {name_b!r} was dequeued while {name_a!r} never was"
        if never
        else f"{name_a!r} was enqueued before {name_b!r} and dequeued after it"
    )
    return _violated(why, values.enqueue_row[a], values.enqueue_row[b], values.dequeue_row[b], values.dequeue_row[a])


def _not_empty(values: _Values, log: OperationLog, empty_rows: IntArray, waiting: IntArray) -> Decision | None:
    """Pattern 4: count, for each gap between two neighbouring events, the values that are certainly in the queue."""
    holds = Decision(Outcome.HOLDS, 0)
    if len(empty_rows) == 0:
        return holds
    end = int(log.returned[log.returned < NEVER].max()) + 1
    certain = values.where(values.enqueue_returned < np.minimum(values.dequeue_invoked, end))
    change = np.zeros(end + 2, np.int64)
    np.add.at(change, certain.enqueue_returned, 1)
    np.add.at(change, np.minimum(certain.dequeue_invoked, end), -1)
    free = np.concatenate([[0], np.cumsum(np.cumsum(change)[:end] == 0)])
    invoked, returned = log.invoked[empty_rows], log.returned[empty_rows]
    wrong = np.flatnonzero(free[returned] == free[invoked])
    if len(waiting):  # somebody may have emptied the queue, or a needed taking may have put it out of reach
        untouched = len(wrong) == 0
        return holds if untouched else None
    if len(wrong) == 0:
        return holds
    worst = int(wrong[np.argmin(returned[wrong])])
    cover = _cover(certain, int(invoked[worst]), int(returned[worst]))
    named = ", ".join(repr(log.values[log.argument[row]]) for row in cover)
    return _violated(f"dequeue found nothing while {named} kept the queue from being empty", empty_rows[worst], *cover)


def _cover(certain: _Values, start: int, end: int) -> list[int]:
    """Fewest values whose certain presence covers the events start .. end: always the one that lasts longest."""
    rows = []
    while start < end:
        there = np.flatnonzero(certain.enqueue_returned <= start)
        best = int(there[np.argmax(certain.dequeue_invoked[there])])
        rows.append(int(certain.enqueue_row[best]))
        start = int(certain.dequeue_invoked[best])
    return rows


def decide_set(calls: Sequence[ObjectCall]) -> Decision | None:
    """Decide the calls on one set; None where the levels do not apply."""
    adds = {call.argument: call for call in calls if call.function == "add"}
    reads = [call for call in calls if call.function == "read"]
    if len(adds) + len(reads) != len(calls):
        return None
    reads.sort(key=lambda call: (len(set(call.result or ())), call.returned))
    levels: list[list[ObjectCall]] = []
    seen: set[Any] = set()
    before: ObjectCall | None = None
    for read in reads:
        elements = set(read.result or ())
        unknown = sorted(elements - adds.keys(), key=repr)
        if unknown:
            return Decision(Outcome.VIOLATED, 0, f"read returned {unknown[0]!r}, which was never added", (read.row,))
        if not seen <= elements:
            assert before is not None
            missing, new = (sorted(part, key=repr)[0] for part in (seen - elements, elements - seen))
            why = f"one read saw {missing!r} and not {new!r}, another {new!r} and not {missing!r}"
            rows = (before.row, read.row, adds[missing].row, adds[new].row)
            return Decision(Outcome.VIOLATED, 0, why, rows)
        if before is None or elements != seen:
            levels += [[adds[element] for element in elements - seen], []]
        levels[-1].append(read)
        seen, before = elements, read
    levels.append([call for element, call in adds.items() if element not in seen and call.returned < NEVER])
    return _schedule(levels)


def _schedule(levels: Sequence[Sequence[ObjectCall]]) -> Decision:
    earliest, holder = -1, None
    for level in levels:
        for call in sorted(level, key=lambda call: call.returned):
            if earliest > call.returned:
                assert holder is not None
                why = "this operation returned before one was invoked that must come before it"
                return Decision(Outcome.VIOLATED, 0, why, (call.row, holder.row))
        for call in level:
            if call.invoked > earliest:
                earliest, holder = call.invoked, call
    return Decision(Outcome.HOLDS, 0)
