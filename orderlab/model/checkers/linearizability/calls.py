"""Calls: the operations that a decision is about, with what cannot matter left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from orderlab.model.checkers.linearizability.objects import MISMATCH, UNKNOWN, ObjectModel
from orderlab.model.checkers.linearizability.operations import FAIL, INFO, NEVER, OK, OperationLog
from orderlab.model.errors import InputError


class Call(NamedTuple):
    """One operation on one object. `returned` is NEVER where it need not have happened; `row` is its row in the log.

    `place` orders the dequeues that one drain stands for; it is 0 elsewhere.
    """

    function: str
    argument: Any
    result: Any
    invoked: int
    returned: int
    row: int
    place: int = 0


_WITHOUT_EFFECT = ("read", "get", "contains")


class _Data(NamedTuple):
    """What an argument or a result has to be."""

    what: str
    fits: Callable[[Any], bool]


TAKES = {
    "cas": _Data("[expected new]", lambda value: isinstance(value, tuple) and len(value) == 2),
    "put": _Data("a value", lambda value: value is not None),
    "append": _Data("a string", lambda value: isinstance(value, str)),
}
"""By function, for the objects that have it."""
GIVES = {
    ("queue", "drain"): _Data("the values that it took, in order", lambda value: value is None or isinstance(value, tuple)),
    ("set", "read"): _Data("the elements", lambda value: value is None or isinstance(value, (tuple, frozenset))),
    ("set", "contains"): _Data("true or false", lambda value: isinstance(value, bool)),
}
"""By object and function."""


def calls_by_key(model: ObjectModel, log: OperationLog) -> dict[Any, list[Call]]:
    """The calls on each object, in order of invocation: linearizability is local, so each is decided alone.

    Left out: failed operations (they did not happen) and reads without a result. A failed compare-and-set that
    returned its own arguments reports a mismatch and is kept as such. A drain becomes a dequeue for each value that it
    returned and one that found nothing, which is why it ended. Raises InputError for a function that the object does
    not have, an argument that it cannot take, or a result that it cannot give.
    """
    by_key: dict[Any, list[Call]] = {}
    for row, (function_code, key, outcome) in enumerate(
        zip(log.function.tolist(), log.key.tolist(), log.outcome.tolist(), strict=True)
    ):
        name = log.functions[function_code]
        function = model.functions.get(name)
        if function is None:
            raise InputError(
                f"row {log.invoked_row[row]}: {model.name} has no operation {name!r};"
                f" it has {', '.join(model.functions)}; choose another --model"
            )
        argument, result = log.values[log.argument[row]], log.values[log.result[row]]
        taken = TAKES.get(function)
        if taken is not None and not taken.fits(argument):
            raise InputError(f"row {log.invoked_row[row]}: {name} takes {taken.what}, not {argument!r}")
        given = GIVES.get((model.name, function))
        if given is not None and outcome == OK and not given.fits(result):
            raise InputError(f"row {log.returned_row[row]}: {name} returns {given.what}, not {result!r}")
        if outcome == FAIL:
            if not (function == "cas" and result == argument):
                continue
            result = MISMATCH
        elif outcome == INFO:
            if function in _WITHOUT_EFFECT:
                continue
            result = UNKNOWN
        calls = by_key.setdefault(log.keys[key] if key >= 0 else None, [])
        invoked, returned = int(log.invoked[row]), int(log.returned[row])
        if function == "drain":
            calls += _drained(result, invoked, returned, row, len(log))
        else:
            calls.append(Call(function, argument, result, invoked, returned, row))
    return by_key


def _drained(result: Any, invoked: int, returned: int, row: int, at_most: int) -> list[Call]:
    if result is UNKNOWN:  # it may have taken anything, so it counts as a dequeue for each operation that there is
        return [Call("dequeue", None, UNKNOWN, invoked, NEVER, row)] * at_most
    taken = (*(result or ()), None)
    return [Call("dequeue", None, value, invoked, returned, row, place) for place, value in enumerate(taken, 1)]


def rows_of(calls: Sequence[Call]) -> tuple[int, ...]:
    """The log rows of some calls, each once, in order."""
    return tuple(sorted({call.row for call in calls}))
