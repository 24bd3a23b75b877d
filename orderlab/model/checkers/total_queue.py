"""A queue that promises no order: what went in comes out, once (`total-queue`, as Jepsen calls its checker).

Judged on `enqueue`, `dequeue` and `drain` (a dequeue of everything; its result is a list), values counted as a
multiset:

1. `no-lost-element`: an enqueue that ended `ok`, and nobody dequeued its value although the queue was found empty
   afterwards: by a `dequeue` that returned nothing, or a `drain` that ended `ok`, invoked after the enqueue had
   returned. Without either, the element may still be in the queue: undecided. A dequeue of unknown outcome may have
   taken one: as many as there are of them are undecided too.
2. `no-unexpected-element`: more of a value was dequeued than anybody tried to enqueue, and nobody tried to; an enqueue
   that failed counts as no try.
3. `no-duplicate-element`: a value was dequeued more often than its enqueues, failed ones aside, allow.

Recovered elements (dequeued, though their enqueue had not ended `ok`) are counted and right. Where a message is
handed out again by design (at-least-once), `no-duplicate-element` says how often; leave it out with `--law`.

Differs from Jepsen where that would accuse a queue that nobody emptied. Complexity: O(n log n).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from orderlab.model.checkers.findings import VACUOUS, OutOfBudget, TimeBudget
from orderlab.model.checkers.linearizability.objects import MODELS
from orderlab.model.checkers.linearizability.operations import FAIL, INFO, OK, OperationLog, Typed
from orderlab.model.errors import InputError
from orderlab.model.verdict import UNFINISHED, Outcome, Verdict

MODEL = "total-queue"
LAWS = ("no-lost-element", "no-unexpected-element", "no-duplicate-element")


@dataclass(frozen=True)
class QueueAnomaly:
    """The witness: why, the operations that show it, and the queue's key if it has one."""

    why: str
    operations: tuple[dict[str, Any], ...]
    key: Any = None


@dataclass
class _Element:
    """A value of one queue: the rows of its enqueues and of its dequeues."""

    key: Any
    value: Any
    tried: list[int]
    acknowledged: list[int]
    dequeued: list[int]


def judge_total_queue(log: OperationLog, laws: Collection[str] = (), budget_s: float | None = None) -> list[Verdict]:
    """The verdicts on the laws asked for, or on all. Raises InputError for an operation that a queue does not have.

    What was dequeued later may decide about any element, so a budget that runs out leaves all undecided.
    """
    started = time.perf_counter()
    try:
        return _judged(log, laws, started, TimeBudget(budget_s))
    except OutOfBudget:
        work = {"operations": len(log), "seconds": round(time.perf_counter() - started, 6), UNFINISHED: 1}
        asked = (law for law in LAWS if not laws or law in laws)
        return [Verdict(law, Outcome.UNKNOWN, None, work, ("the budget ran out",)) for law in asked]


def _judged(log: OperationLog, laws: Collection[str], started: float, budget: TimeBudget) -> list[Verdict]:
    elements, emptied, takers = _elements(log, budget)
    broken: dict[str, list[tuple[int, str, tuple[int, ...], Any]]] = {law: [] for law in LAWS}
    met, recovered, undecided = dict.fromkeys(LAWS, 0), 0, 0
    lost: dict[Any, list[_Element]] = {}
    for element in elements:
        budget.check()
        owed = element.acknowledged[len(element.dequeued) :]
        held = min(len(element.acknowledged), len(element.dequeued))
        met["no-lost-element"] += held
        recovered += len(
            element.dequeued[len(element.acknowledged) :][: len(element.tried) - len(element.acknowledged)]
        )
        for row in owed:
            if emptied.get(element.key, -1) > log.returned[row]:
                lost.setdefault(element.key, []).append(element)
            else:
                undecided += 1
        if not element.dequeued:
            continue
        met["no-unexpected-element"] += len(element.dequeued)
        extra = element.dequeued[len(element.tried) :]
        if not element.tried:
            why = f"{element.value!r} was dequeued, and nobody enqueued it"
            broken["no-unexpected-element"].append((element.dequeued[0], why, (element.dequeued[0],), element.key))
            continue
        met["no-duplicate-element"] += len(element.dequeued)
        if extra:
            why = (
                f"{element.value!r} was enqueued {len(element.tried)} times and dequeued {len(element.dequeued)} times"
            )
            rows = tuple(dict.fromkeys((*element.tried[:2], *element.dequeued[:3])))
            broken["no-duplicate-element"].append((extra[0], why.replace(" 1 times", " once"), rows, element.key))
    for key, gone in lost.items():
        excused = min(takers.get(key, 0), len(gone))
        undecided += excused
        for element in gone[excused:] if excused < len(gone) else ():
            why = f"{element.value!r} was enqueued and never dequeued, and the queue was found empty after it"
            if excused:
                why += f"; {len(gone)} are missing, and {excused} dequeues of unknown outcome could have taken as many"
            row = element.acknowledged[-1]
            broken["no-lost-element"].append((row, why, (row,), key))
            met["no-lost-element"] += 1
    work = {
        "operations": len(log), "indeterminate": int((log.outcome == INFO).sum()), "recovered": recovered,
        "seconds": round(time.perf_counter() - started, 6),
    }  # fmt: skip
    verdicts = []
    for law in (law for law in LAWS if not laws or law in laws):
        mine = {"antecedents": met[law], "violations": len(broken[law]), **work}
        left = undecided if law == "no-lost-element" else 0
        notes = tuple(_notes(left))
        if broken[law]:
            _, why, rows, key = min(broken[law], key=lambda one: one[:2])
            witness = QueueAnomaly(why, tuple(log.describe(row) for row in rows), key)
            verdicts.append(Verdict(law, Outcome.VIOLATED, witness, mine, notes))
        elif left:
            verdicts.append(
                Verdict(law, Outcome.UNKNOWN, None, {**mine, "undecided": left, "antecedents": met[law] + left}, notes)
            )
        elif met[law] == 0:
            verdicts.append(Verdict(law, Outcome.UNKNOWN, None, mine, (VACUOUS, *notes)))
        else:
            verdicts.append(Verdict(law, Outcome.HOLDS, None, mine, notes))
    return verdicts


def _notes(undecided: int) -> Iterator[str]:
    if undecided:
        yield (
            f"{undecided} elements were enqueued and not dequeued, and nothing says that they are gone: let the log "
            "end with a drain, or with dequeues until one finds nothing"
        )


def _elements(log: OperationLog, budget: TimeBudget) -> tuple[list[_Element], dict[Any, int], dict[Any, int]]:
    """The elements; per key the invocation of the last operation that found the queue empty; and how many elements
    operations of unknown outcome may have taken.
    """
    functions = MODELS["queue"].functions
    elements: dict[tuple[Any, Typed], _Element] = {}
    emptied: dict[Any, int] = {}
    takers: dict[Any, int] = {}

    def element(key: Any, value: Any) -> _Element:
        return elements.setdefault((key, Typed(value)), _Element(key, value, [], [], []))

    for row, (function_code, code, outcome) in enumerate(
        zip(log.function.tolist(), log.key.tolist(), log.outcome.tolist(), strict=True)
    ):
        budget.check()
        function = functions.get(log.functions[function_code])
        if function is None:
            raise InputError(
                f"row {log.invoked_row[row]}: {MODEL} has no operation {log.functions[function_code]!r};"
                f" it has {', '.join(functions)}; choose another --model"
            )
        key = log.keys[code] if code >= 0 else None
        if function == "enqueue":
            if outcome != FAIL:
                element(key, log.values[log.argument[row]]).tried.append(row)
            if outcome == OK:
                element(key, log.values[log.argument[row]]).acknowledged.append(row)
            continue
        result = log.values[log.result[row]]
        if outcome == INFO:
            takers[key] = takers.get(key, 0) + (1 if function == "dequeue" else len(log))
        if outcome != OK:
            continue
        if function == "drain" and not (result is None or isinstance(result, tuple)):
            raise InputError(f"row {log.returned_row[row]}: a drain returns the values that it took, not {result!r}")
        if function == "drain" or result is None:
            emptied[key] = max(emptied.get(key, -1), int(log.invoked[row]))
        for value in (result or ()) if function == "drain" else (() if result is None else (result,)):
            element(key, value).dequeued.append(row)
    return list(elements.values()), emptied, takers
