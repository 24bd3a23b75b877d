"""Sequential objects: what a register, a queue, a set and a key-value entry do, one operation at a time.

An object is a starting state (hashable) and a step: the state after an operation that returned what it returned, or
None if it cannot have. `UNKNOWN` stands for the result of an operation whose outcome is unknown; such a step gives the
state if it happened with an effect (without one it may as well not have). A failed operation has no step, except a
compare-and-set that reported a mismatch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

UNKNOWN = object()
MISMATCH = object()
"""The result of a compare-and-set that found another value."""

Step = Callable[[Any, str, Any, Any], Any]
IMPOSSIBLE = None


@dataclass(frozen=True)
class ObjectModel:
    """`functions` maps every spelling to the one that `step` knows; states are never None."""

    name: str
    initial: Any
    step: Step
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
        return state if result is UNKNOWN or ("" if result is None else result) == state else IMPOSSIBLE
    if function == "put":
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
    "kv": ObjectModel("kv", "", _entry_step, {name: name for name in ("get", "put", "append")}),
}
"""Every object by the name that `--model` takes."""
