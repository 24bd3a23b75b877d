"""Sequential objects (register, queue, set, key-value entry), one operation at a time, and the calls that a decision is
about.

An object is a starting state (hashable) and a step: the state after an operation that returned what it returned, or
None if it cannot have. `UNKNOWN` stands for the result of an operation whose outcome is unknown; such a step gives the
state if it happened with an effect (without one it may as well not have). A failed operation has no step, except a
compare-and-set that reported a mismatch. What cannot matter to a decision is left out of its calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from orderlab.model.checkers.linearizability.operations import FAIL, INFO, NEVER, OK, OperationLog
from orderlab.model.errors import InputError

UNKNOWN = object()
MISMATCH = object()
"""The result of a compare-and-set that found another value."""

ABSENT = ("absent",)
"""The state of an entry that was never put. A register that was never written holds nil."""

ObjectStep = Callable[[Any, str, Any, Any], Any]
IMPOSSIBLE = None


@dataclass(frozen=True)
class ObjectModel:
    """`functions` maps every spelling to the one that `step` knows; states are never None."""

    name: str
    initial: Any
    step: ObjectStep
    functions: dict[str, str]


def _register_step(state: Any, function: str, argument: Any, result: Any) -> Any:
    (value,) = state
    if function == "read":
        return state if result is UNKNOWN or result == value else IMPOSSIBLE
    if function == "write":
        return (argument,)
    expected, new = argument
    if result is MISMATCH:
        return state if value != expected else IMPOSSIBLE
    return (new,) if value == expected else IMPOSSIBLE


def _queue_step(state: Any, function: str, argument: Any, result: Any) -> Any:
    if function == "enqueue":
        return (*state, argument)
    if result is UNKNOWN:
        return state[1:] if state else IMPOSSIBLE
    if result is None:
        return IMPOSSIBLE if state else state
    return state[1:] if state and state[0] == result else IMPOSSIBLE


def _set_step(state: Any, function: str, argument: Any, result: Any) -> Any:
    if function == "add":
        return state | {argument}
    if function == "remove":
        return state - {argument}
    if result is UNKNOWN:
        return state
    if function == "contains":
        return state if (argument in state) == result else IMPOSSIBLE
    return state if frozenset(result or ()) == state else IMPOSSIBLE


def _entry_step(state: Any, function: str, argument: Any, result: Any) -> Any:
    if function == "get":
        # Some stores give the empty string for a key that is not there; none gives nil for an empty string that is.
        fits = (
            result is UNKNOWN or (state is ABSENT and result in (None, "")) or (state is not ABSENT and result == state)
        )
        return state if fits else IMPOSSIBLE
    if function == "put":
        return argument
    if state is ABSENT:
        return argument
    return state + argument if isinstance(state, str) else IMPOSSIBLE


_READ_WRITE = {"read": "read", "r": "read", "write": "write", "w": "write"}
MODELS = {
    "register": ObjectModel("register", (None,), _register_step, _READ_WRITE),
    "cas-register": ObjectModel("cas-register", (None,), _register_step, {**_READ_WRITE, "cas": "cas"}),
    "queue": ObjectModel(
        "queue",
        (),
        _queue_step,
        {"enqueue": "enqueue", "enq": "enqueue", "dequeue": "dequeue", "deq": "dequeue", "drain": "drain"},
    ),
    "set": ObjectModel("set", frozenset(), _set_step, {name: name for name in ("add", "remove", "contains", "read")}),
    "kv": ObjectModel("kv", ABSENT, _entry_step, {name: name for name in ("get", "put", "append")}),
}
"""Every object by the name that `--model` takes."""


class ObjectCall(NamedTuple):
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
    "enqueue": _Data("a value (nil is what a dequeue of an empty queue returns)", lambda value: value is not None),
}
"""By function, for the objects that have it."""
GIVES = {
    ("queue", "drain"): _Data(
        "the values that it took, in order", lambda value: value is None or isinstance(value, tuple)
    ),
    ("set", "read"): _Data("the elements", lambda value: value is None or isinstance(value, (tuple, frozenset))),
    ("set", "contains"): _Data("true or false", lambda value: isinstance(value, bool)),
}
"""By object and function."""


def calls_by_key(model: ObjectModel, log: OperationLog) -> dict[Any, list[ObjectCall]]:
    """The calls on each object, in order of invocation: linearizability is local, so each is decided alone.

    Left out: failed operations (they did not happen) and reads without a result. A failed compare-and-set that
    returned its own arguments reports a mismatch and is kept as such. A drain becomes a dequeue for each value that it
    returned and one that found nothing, which is why it ended. Raises InputError for a function that the object does
    not have, an argument that it cannot take, or a result that it cannot give.
    """
    by_key: dict[Any, list[ObjectCall]] = {}
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
            calls.append(ObjectCall(function, argument, result, invoked, returned, row))
    return by_key


def _drained(result: Any, invoked: int, returned: int, row: int, at_most: int) -> list[ObjectCall]:
    if result is UNKNOWN:  # it may have taken anything, so it counts as a dequeue for each operation that there is
        return [ObjectCall("dequeue", None, UNKNOWN, invoked, NEVER, row)] * at_most
    taken = (*(result or ()), None)
    return [ObjectCall("dequeue", None, value, invoked, returned, row, place) for place, value in enumerate(taken, 1)]
