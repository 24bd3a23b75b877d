"""A scenario carried out once, along the choices of a chooser: its outcome, and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import redis as redis_py

from orderlab.model.errors import InputError
from orderlab.properties.clients.lanes import Chooser, Execution, Killed, Lane
from orderlab.properties.clients.marks import ClientMarks, Marks, MarkViolation
from orderlab.properties.clients.scenario import Scenario, called

_CLOCK: Final = re.compile(r"\b17000\d{5}(?:\.\d+|\d{3}|\d{6}|\d{9})?\b")
"""What the virtual clock says, in seconds or finer: outcomes do not differ by it."""


@dataclass(frozen=True)
class Ending:
    """What is seen of one execution when it is over."""

    ends: tuple[str, ...]
    """For each client what it returned, or the exception that it died of."""
    keys: tuple[tuple[str, str], ...]


@dataclass
class FinishedRun:
    """One execution that is over."""

    execution: Execution
    outcome: Ending | None
    violation: MarkViolation | None
    marks: Marks


def carried_out(
    scenario: Scenario, choose: Chooser, troubles: Sequence[str] = (), budget: int = 0, **how: Any
) -> FinishedRun:
    """Carry a scenario out once."""
    execution = Execution(troubles=troubles, budget=budget, **how)
    marks = Marks(execution)
    if scenario.setup is not None:
        _alone(execution, lambda: called(scenario.setup, redis_py.Redis(), ClientMarks(marks, -1)))  # type: ignore[arg-type]
    for number, function in enumerate(scenario.clients):
        execution.add(_client(function, marks, number), str(number))
    execution.choices.clear()
    execution.used.clear()
    execution.checks_always = lambda: _check(execution, marks)
    execution.run(choose)
    if execution.is_cut:
        return FinishedRun(execution, None, marks.violation, marks)
    outcome = _outcome(execution)
    if not execution.is_stuck:
        _at_the_end(scenario, execution, marks)
    return FinishedRun(execution, outcome, marks.violation, marks)


def _client(function: Callable[..., Any], marks: Marks, number: int) -> Callable[[], Any]:
    return lambda: called(function, redis_py.Redis(), ClientMarks(marks, number))


def _alone(execution: Execution, function: Callable[[], Any]) -> None:
    """Run a function with no other lane, and leave no trace of its steps. Raises InputError where it fails."""
    lane = Lane("setup", "setup", function)
    kept, execution.lanes = execution.lanes, {}
    added = execution.add(function, "setup")
    troubles, execution.troubles = execution.troubles, ()
    recording, execution.recording = execution.recording, False
    always, execution.checks_always = execution.checks_always, None
    choices, execution.choices = execution.choices, []
    execution.ending = False
    try:
        execution.run(lambda _, enabled: enabled[0])
    finally:
        execution.lanes, execution.troubles, execution.recording = kept, troubles, recording
        execution.ending, execution.idle, execution.choices = False, 0, choices
        execution.checks_always = always
    del lane
    if added.error is not None:
        raise added.error


def _check(execution: Execution, marks: Marks) -> None:
    if not marks.invariants or marks.violation is not None:
        return
    execution.shard.effects = None
    for check in list(marks.invariants.values()):
        _judge(execution, marks, "always", check)
    execution.shard.effects = execution.effects


def _judge(execution: Execution, marks: Marks, law: str, check: Callable[..., Any]) -> None:
    """Ask ``check``, in a connection of its own that no lane sees."""
    from orderlab.properties.clients import lanes

    outer, lanes.current[0] = lanes.current[0], execution
    hub, touched, is_stuck = execution.hub, execution.touched, execution.is_stuck
    try:
        gathered: list[Any] = []
        _alone(execution, lambda: gathered.append(called(check, redis_py.Redis(), None)))
        if gathered and gathered[0] is False:
            marks.violate(law, f"{check.__name__} is false")
    except AssertionError as error:
        marks.violate(law, f"{check.__name__}: {str(error) or 'assertion failed'}")
    except Killed:
        pass
    finally:
        lanes.current[0] = outer
        execution.hub, execution.touched, execution.is_stuck = hub, touched, is_stuck


def _at_the_end(scenario: Scenario, execution: Execution, marks: Marks) -> None:
    for item in marks.produced:
        if marks.violation is None and marks.consumed and marks.consumed[item] < marks.produced[item]:
            marks.violate("no-loss", f"{item} was produced, and nobody consumed it")
    if marks.violation is not None:
        return
    for check in [*marks.at_end.values(), *([scenario.finally_] if scenario.finally_ else [])]:
        _judge(execution, marks, "finally", check)


def _outcome(execution: Execution) -> Ending:
    ends = []
    for lane in execution.lanes.values():
        if "." in lane.name:
            continue
        if lane.error is not None:
            ends.append(f"raised {type(lane.error).__name__}")
        elif lane.is_killed or not lane.is_done:
            ends.append("killed" if lane.is_killed and not execution.is_stuck else "stuck")
        else:
            ends.append(_plain(lane.result))
    keys = []
    for key, (kind, value, deadline) in sorted(execution.shard.freeze().items()):
        keys.append((repr(key), _plain((str(kind), value, deadline is not None))))
    return Ending(tuple(ends), tuple(keys))


def _plain(value: Any) -> str:
    try:
        text = repr(sorted(value, key=repr)) if isinstance(value, (set, frozenset)) else repr(value)
    except Exception as error:
        raise InputError(
            f"a client returned what cannot be shown ({type(error).__name__}); return plain data"
        ) from None
    return _CLOCK.sub("<time>", re.sub(r" at 0x[0-9a-f]+", "", text))
