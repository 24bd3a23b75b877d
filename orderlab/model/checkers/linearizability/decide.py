"""`linearizability`: every operation took effect at one moment between its invocation and its return.

Linearizability is local (Herlihy and Wing 1990): a history is linearizable if it is so on each object, so the history
is split by key and each object decided by the fastest algorithm that is exact for it: forbidden patterns for queues
with distinct values, levels for sets that only grow, a compiled search for registers, the general search for the rest.

Assumes one clock for all events, as in the order of the recording. A failed operation did not happen, except a failed
compare-and-set that returned its own arguments, which reports that the values differed; if it can fail for another
reason, `violated` can be wrong. Holds and violated are exact otherwise; unknown says that the budget ran out.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from orderlab.model.checkers.findings import VACUOUS
from orderlab.model.checkers.linearizability.objects import MODELS, Call, ObjectModel, calls_by_key
from orderlab.model.checkers.linearizability.operations import FAIL, INFO, OK, OperationLog
from orderlab.model.checkers.linearizability.register_search import search_register
from orderlab.model.checkers.linearizability.search import Decision, search
from orderlab.model.checkers.linearizability.special_cases import decide_queue, decide_set
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


def _distinct_adds(calls: Iterable[Call]) -> bool:
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
