"""Operations: what was invoked, what came back, and between which two events, as columns.

An operation that failed did not happen. One whose outcome is unknown (`info`, or no completion at all) may have
happened at any time after its invocation, or never.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from orderlab.model.errors import InputError
from orderlab.model.history.events import STORE_KINDS, EventBatch, EventKind, Names
from orderlab.model.machine_code import njit

OK, FAIL, INFO = 0, 1, 2
OUTCOMES = ("ok", "fail", "info")
DEEPEST = 100
"""Levels of nesting that a value may have: each costs whoever walks through it some levels of Python's stack."""
NEVER = 2**62
"""The return of an operation that never returned: after everything."""

IntArray = npt.NDArray[np.int64]
_COLUMNS = (
    "process",
    "function",
    "key",
    "argument",
    "result",
    "outcome",
    "invoked",
    "returned",
    "invoked_row",
    "returned_row",
)


@dataclass(frozen=True)
class OperationLog:
    """Columns of equal length, one row an operation, in order of invocation.

    `invoked` and `returned` are positions in the history (every event its own), `argument` and `result` index
    `values`, `function` indexes `functions`, `key` is -1 where operations have none. Rows of the source (lines of a
    log, rows of a history) are kept for witnesses.
    """

    process: IntArray
    function: IntArray
    key: IntArray
    argument: IntArray
    result: IntArray
    outcome: IntArray
    invoked: IntArray
    returned: IntArray
    invoked_row: IntArray
    returned_row: IntArray
    functions: Sequence[str]
    keys: Sequence[Any]
    values: Sequence[Any]

    def __len__(self) -> int:
        return len(self.process)

    def used(self) -> set[str]:
        """The functions that some operation has."""
        return {self.functions[code] for code in np.unique(self.function).tolist()}

    def select(self, rows: Any) -> OperationLog:
        """The operations of a mask or an index array."""
        return OperationLog(
            **{name: getattr(self, name)[rows] for name in _COLUMNS},
            functions=self.functions,
            keys=self.keys,
            values=self.values,
        )

    def describe(self, row: int) -> dict[str, Any]:
        """One operation as a witness shows it; `rows` are where its two events stand in the source."""
        described = {
            "process": int(self.process[row]),
            "function": self.functions[self.function[row]],
            "argument": self.values[self.argument[row]],
            "outcome": OUTCOMES[self.outcome[row]],
            "rows": [int(self.invoked_row[row])],
        }
        if self.key[row] >= 0:
            described["key"] = self.keys[self.key[row]]
        told = self.values[self.result[row]]
        if self.outcome[row] == OK or (told is not None and told != described["argument"]):
            described["result"] = told  # what failed may still have been told something, and a law may go by it
        if self.returned_row[row] >= 0:
            described["rows"].append(int(self.returned_row[row]))
        return described


@njit(cache=True)
def _pair(process: Any, kind: Any, open_at: Any, partner: Any) -> Any:
    """Fill `partner` (invocation → completion); the position of the first event that fits nowhere, or -1."""
    for position in range(len(process)):
        who = process[position]
        if kind[position] == 15:
            if open_at[who] >= 0:
                return position
            open_at[who] = position
        else:
            if open_at[who] < 0:
                return position
            partner[open_at[who]] = position
            open_at[who] = -1
    return -1


def pair_events(
    place: str,
    process: IntArray,
    kind: IntArray,
    function: IntArray,
    key: IntArray,
    value: IntArray,
    row: IntArray,
    functions: Sequence[str],
    keys: Sequence[Any],
    values: Sequence[Any],
) -> OperationLog:
    """Pair invocations with completions. `kind` holds EventKinds, `row` what messages call the event's place.

    Raises InputError if a process invokes while its last operation is open, completes what it did not invoke, or
    completes another function than it invoked.
    """
    known, who = np.unique(process, return_inverse=True)
    partner = np.full(len(process), -1, np.int64)
    stuck = int(_pair(who, kind, np.full(len(known), -1, np.int64), partner))
    if stuck >= 0:
        name = functions[function[stuck]]
        if kind[stuck] == EventKind.INVOKE:
            raise InputError(
                f"{place}{row[stuck]}: process {process[stuck]} invokes {name} before its last operation"
                " has returned; a process does one thing at a time"
            )
        raise InputError(f"{place}{row[stuck]}: process {process[stuck]} completes {name} without an invocation")
    invoked = np.flatnonzero(kind == EventKind.INVOKE)
    returned = partner[invoked]
    complete = returned >= 0
    changed = np.flatnonzero(complete & (function[invoked] != function[returned]))
    if len(changed):
        at = returned[changed[0]]
        raise InputError(
            f"{place}{row[at]}: process {process[at]} completes {functions[function[at]]},"
            f" it had invoked {functions[function[invoked[changed[0]]]]}"
        )
    outcome = np.where(complete, kind[returned] - int(EventKind.OK), INFO)
    return OperationLog(
        process=process[invoked],
        function=function[invoked],
        key=key[invoked],
        argument=value[invoked],
        result=np.where(complete, value[returned], -1),
        outcome=outcome,
        invoked=invoked,
        returned=np.where(outcome == INFO, NEVER, returned),
        invoked_row=row[invoked],
        returned_row=np.where(complete, row[returned], -1),
        functions=functions,
        keys=keys,
        values=values,
    )


class EventCollector:
    """Collects the events of a log that is read one by one."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int, int, int]] = []
        self._functions: dict[str, int] = {}
        self._keys: dict[Typed, int] = {}
        self._values: dict[Typed, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, process: int, kind: EventKind, function: str, key: Any, value: Any, row: int) -> None:
        """One event; value and key are plain data (lists are taken as tuples)."""
        self._rows.append(
            (
                process,
                int(kind),
                self._functions.setdefault(function, len(self._functions)),
                -1 if key is None else self._keys.setdefault(Typed(key), len(self._keys)),
                self._values.setdefault(Typed(value), len(self._values)),
                row,
            )
        )

    def log(self, place: str) -> OperationLog:
        """The operations. `place` goes before the row in messages. Raises InputError as pair_events does."""
        table = np.array(self._rows, dtype=np.int64).reshape(-1, 6)
        process, kind, function, key, value, row = (np.ascontiguousarray(table[:, word]) for word in range(6))
        keys, values = ([typed.value for typed in table] for table in (self._keys, self._values))
        return pair_events(place, process, kind, function, key, value, row, list(self._functions), keys, values)


class Typed:
    """A value as a dictionary key that keeps 1, 1.0 and true apart, within collections too."""

    __slots__ = ("_key", "value")

    def __init__(self, value: Any) -> None:
        self.value = hashable(value)
        self._key = _told_apart(self.value)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Typed) and self._key == other._key


def _told_apart(value: Any) -> Any:
    items = type(value)(map(_told_apart, value)) if isinstance(value, (tuple, frozenset)) else value
    return type(value), items


def is_deep(value: Any) -> bool:
    """Whether plain data is nested deeper than DEEPEST, found out without recursion."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [
            item
            for one in level
            if isinstance(one, (list, tuple, frozenset, dict))
            for item in (*one, *(one.values() if isinstance(one, dict) else ()))
        ]
        if not level:
            return False
    return True


def hashable(value: Any) -> Any:
    """Plain data as a hashable value: lists become tuples, sets frozen sets, mappings sorted tuples of pairs."""
    if isinstance(value, (list, tuple)):
        return tuple(hashable(item) for item in value)
    if isinstance(value, (set, frozenset)):
        return frozenset(hashable(item) for item in value)
    if isinstance(value, dict):
        return tuple(sorted((str(name), hashable(item)) for name, item in value.items()))
    return value


def operations_of_history(place: str, batches: Iterable[EventBatch], names: Names) -> OperationLog:
    """The store operations among the rows of a history. Raises InputError as pair_events does."""
    parts = []
    for batch in batches:
        rows = np.flatnonzero((batch.kind >= STORE_KINDS[0]) & (batch.kind <= STORE_KINDS[-1]))
        columns = [batch.process, batch.kind, batch.operation, batch.key, batch.value, batch.event_id]
        parts.append(np.stack([column[rows].astype(np.int64) for column in columns]))
    process, kind, function, key, value, row = np.concatenate(parts, axis=1) if parts else np.zeros((6, 0), np.int64)
    values: list[Any] = []
    for text in names.values.names:
        try:
            loaded = json.loads(text)
        except ValueError as error:
            raise InputError(f"{place}: value {text[:40]!r} is not JSON; strings carry their quotes") from error
        except RecursionError as error:
            raise InputError(f"{place}: value {text[:40]!r} is nested deeper than {DEEPEST} levels") from error
        if is_deep(loaded):
            raise InputError(f"{place}: value {text[:40]!r} is nested deeper than {DEEPEST} levels")
        values.append(hashable(loaded))
    values.append(None)  # an absent value, code -1
    return pair_events(
        f"{place}: event_id ",
        process,
        kind,
        function,
        key,
        value,
        row,
        names.operations.names,
        names.keys.names,
        values,
    )
