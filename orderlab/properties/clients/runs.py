"""A scenario carried out once, along the choices of a chooser: its outcome, and what is wrong with it."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import gc
import inspect
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import redis
import redis.asyncio

from orderlab.model.errors import InputError
from orderlab.properties.clients import event_loop, executors, straight, virtual, wiring
from orderlab.properties.clients.execution import Chooser, Execution, current, lane_here
from orderlab.properties.clients.lane import Choice, Killed
from orderlab.properties.clients.marks import ClientMarks, Marks, MarkViolation
from orderlab.properties.clients.module_state import ModuleState
from orderlab.properties.clients.nodes import HOST
from orderlab.properties.clients.places import place_of
from orderlab.properties.clients.scenario import Scenario, called
from orderlab.properties.clients.straight import fresh_client
from orderlab.sim.redis.cluster import FIRST_PORT
from orderlab.sim.redis.versions import DEFAULT

_NO_OUTCOME: Final = re.compile(
    r"(?<!\d)(?:17000\d{5}(?:\.\d+|\d{3}|\d{6}|\d{9})?"
    r"|2023-?11-?1[4-6][T ]?\d\d:?\d\d:?\d\d(?:[.,]\d+)?"  # ISO 8601, and what is like it
    r"|(?:Tue|Wed|Thu),? (?:1[4-6] Nov 2023 \d\d:\d\d:\d\d|Nov 1[4-6] \d\d:\d\d:\d\d 2023)"  # mail, ctime
    r"|127\.0\.0\.1:3[23]\d{3})(?!\d)| at 0x[0-9a-f]+"
)
"""What outcomes do not differ by: what the virtual clock says, in seconds or finer, or as a date; the address of a
connection, which is the number in which it came; that of an object."""


@dataclass(frozen=True)
class Ending:
    """What is seen of one execution when it is over."""

    ends: tuple[str, ...]
    """For each client what it returned, or the exception that it died of."""
    keys: tuple[tuple[str, str], ...]
    deadlines: tuple[int | None, ...] | None = None
    """When those keys end; None where time went by while the clients ran, as it does so otherwise in another order."""
    lapsed: frozenset[str] = frozenset()
    """Keys that were there and have ended by now."""

    def leaves_the_same(self, other: Ending) -> bool:
        """Whether the keys are those of another ending, but for what has ended in either."""
        lapsed = self.lapsed | other.lapsed
        mine, its = ([key for key in keys if key[0] not in lapsed] for keys in (self.keys, other.keys))
        return mine == its and (None in (self.deadlines, other.deadlines) or self.deadlines == other.deadlines)


@dataclass
class FinishedRun:
    """One execution that is over."""

    execution: Execution
    outcome: Ending | None
    violation: MarkViolation | None
    marks: Marks


_states: Final[dict[str, ModuleState]] = {}


def state_of(scenario: Scenario) -> ModuleState:
    """What the modules beside a scenario held when the first of its executions began."""
    if scenario.folder not in _states:
        _states[scenario.folder] = ModuleState(scenario.folder)
    return _states[scenario.folder]


@contextmanager
def controlled() -> Iterator[None]:
    """Within it lanes meet the virtual library, and redis-py leads to the kernel."""
    fresh_client()  # whose template draws an identity, which no lane shall
    changes = [
        *(*wiring.replacements(), *straight.replacements()),
        *(*event_loop.replacements(), *executors.pools_replaced(lambda: current.execution, lane_here)),
        (concurrent.futures.thread, "_global_shutdown_lock", virtual.LaneLock()),
    ]
    with virtual.installed(changes), _ended_by_signals(), _real_waits_told():
        outer, current.is_controlled = current.is_controlled, True
        try:
            yield
        finally:
            gc.collect()  # what clients left behind and nobody refers to finds no server any more
            current.is_controlled = outer
            _states.clear()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Within it a signal that ends the run ends it whatever the code of a lane catches."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def ending(number: int, frame: Any) -> None:
        execution, handler = current.execution, before[signal.Signals(number)]
        assert callable(handler)
        try:
            handler(number, frame)
        except BaseException as error:
            if execution is None or execution.lane is None:
                raise
            execution.forsake(error)

    for number, handler in before.items():
        if callable(handler):
            signal.signal(number, ending)
    try:
        yield
    finally:
        for number, handler in before.items():
            if callable(handler):
                signal.signal(number, handler)


_processor_s: Final = time.process_time
"""The real one: a signal finds a lane running, whose clocks are virtual."""
ENDLESS_TIMES: Final = 6
"""Times ``STILL_S`` for which a lane may compute without a step."""
STILL_S: Final = 5.0
"""A lane that twice in a row for so long makes no step and takes no processor time waits for what no lane brings."""


@contextmanager
def _real_waits_told() -> Iterator[None]:
    """Within it a lane that waits in C code, for ever perhaps, is an error that names its place."""
    is_free = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
    if not is_free or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
        yield
        return
    seen: tuple[Any, int, bool] = (None, 0, False)
    count, taken_s = 0, 0.0

    def look(number: int, frame: Any) -> None:
        nonlocal seen, count, taken_s
        execution = current.execution
        used_s, taken_s = _processor_s() - taken_s, _processor_s()
        is_endless = used_s > STILL_S / 100
        here = (execution and execution.lane, len(execution.choices) if execution is not None else 0, is_endless)
        count = count + 1 if here == seen and here[0] is not None else 0
        seen = here
        if count < (ENDLESS_TIMES if is_endless else 2):
            return
        outer, beneath = place_of(frame, execution.folder)
        beneath = beneath or f"{frame.f_code.co_filename}:{frame.f_lineno}"
        execution.refused = InputError(
            f"client {here[0].name} computes at {outer or beneath}, and made no step for {count * STILL_S:.0f} s; let "
            "it ask Redis, sleep or end in its loop, or leave that call out"
            if is_endless
            else f"client {here[0].name} waits at {outer or beneath} for what no scheduler sees: a "
            "lock that was made before the scenario was loaded, or C code; make the lock within the scenario, or "
            "leave that call out"
        )
        execution.forsake(execution.refused)

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, STILL_S, STILL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def carried_out(
    scenario: Scenario,
    choose: Chooser,
    troubles: Sequence[str] = (),
    budget: int = 0,
    prefix: Sequence[Choice] = (),
    **how: Any,
) -> FinishedRun:
    """Carry a scenario out once, along ``prefix`` to begin with."""
    execution = Execution(
        troubles=troubles, budget=budget, folder=scenario.folder, masters=scenario.cluster,
        server=scenario.server or DEFAULT, **how,
    )  # fmt: skip
    state_of(scenario).put_back()
    marks = Marks(execution, scenario.contract)
    marks.checks_always = lambda: _check(execution, marks)
    if scenario.setup is not None:
        try:
            _alone(execution, partial(_completed, scenario.setup, ClientMarks(marks, -1)))
        except Exception as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{scenario.name}: setup: {type(error).__name__}: {error}; correct it") from error
    for number, function in enumerate(scenario.clients):
        execution.add(_client(function, marks, number), str(number))
    execution.choices.clear()
    execution.used.clear()
    execution.sync()
    began_us = execution.now_us
    execution.checks_always = marks.checks_always if marks.invariants else None
    execution.run(choose, prefix)
    outcome = None
    if not execution.is_cut:
        outcome = _outcome(execution, began_us)
        if not execution.is_stuck:
            _at_the_end(scenario, execution, marks)
    execution.let_go()
    marks.checks_always = None
    if execution.refused is not None:
        raise execution.refused
    if marks.history is not None:
        if marks.history.failure is not None:
            raise marks.history.failure
        marks.used |= marks.history.laws()
    return FinishedRun(execution, outcome, marks.violation, marks)


def _completed(function: Callable[..., Any], at: ClientMarks | None) -> Any:
    """What a function of a scenario returns; of one that is ``async def``, what its event loop brings about."""
    execution = current.execution
    if execution.nodes is not None:
        kind: Any = redis.asyncio.RedisCluster if _is_async(function) else redis.RedisCluster
        client = kind(host=HOST, port=FIRST_PORT)
    else:
        client = redis.asyncio.Redis() if _is_async(function) else fresh_client()
    result = called(function, client, at)
    return asyncio.run(result) if _is_async(function) else result


@lru_cache(maxsize=256)
def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function)


def _client(function: Callable[..., Any], marks: Marks, number: int) -> Callable[[], Any]:
    def run() -> Any:
        result = _completed(function, ClientMarks(marks, number))
        executors.finished(current.execution, str(number))
        return result

    return run


def _alone(execution: Execution, function: Callable[[], Any]) -> None:
    """Run a function with no other lane, and leave no trace of its steps. Raises InputError where it fails."""
    kept, execution.lanes = execution.lanes, {}
    added = execution.add(function, "setup")
    troubles, execution.troubles = execution.troubles, ()
    recording, execution.recording = execution.recording, False
    keeps, execution.keeps_last_write = execution.keeps_last_write, False
    always, execution.checks_always = execution.checks_always, None
    choices, execution.choices = execution.choices, []
    execution.ending = False
    try:
        execution.run(lambda _, enabled: enabled[0])
    finally:
        execution.lanes, execution.troubles, execution.recording = kept, troubles, recording
        execution.ending, execution.idle, execution.choices = False, 0, choices
        execution.checks_always, execution.keeps_last_write = always, keeps
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
    outer, current.execution = current.execution, execution
    hub, touched, is_stuck = execution.hub, execution.touched, execution.is_stuck
    try:
        gathered: list[Any] = []
        _alone(execution, lambda: gathered.append(_completed(check, None)))
        if gathered and gathered[0] is False:
            marks.violate(law, f"{check.__name__} is false")
    except AssertionError as error:
        marks.violate(law, f"{check.__name__}: {str(error) or 'assertion failed'}")
    except Killed:
        pass
    finally:
        current.execution = outer
        execution.hub, execution.touched, execution.is_stuck = hub, touched, is_stuck


def _at_the_end(scenario: Scenario, execution: Execution, marks: Marks) -> None:
    for item in marks.produced:
        if marks.violation is None and marks.consumed[item] < marks.produced[item]:
            marks.violate("no-loss", f"{item} was produced, and nobody consumed it")
    if marks.violation is not None:
        return
    for check in [*marks.at_end.values(), *([scenario.finally_] if scenario.finally_ else [])]:
        _judge(execution, marks, "finally", check)


def _outcome(execution: Execution, began_us: int) -> Ending:
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
    frozen = execution.shard.freeze()
    keys, deadlines = [], []
    for key, (kind, value, deadline) in sorted(frozen.items()):
        keys.append((_named(key), _plain((str(kind), value, deadline is not None))))
        deadlines.append(deadline and deadline - began_us // 1000)
    return Ending(
        tuple(ends),
        tuple(keys),
        tuple(deadlines) if execution.now_us == began_us else None,
        frozenset(_named(key) for key in execution.lapsed if key not in frozen),
    )


def _named(key: bytes) -> str:
    return _without_chance(repr(key))


def _plain(value: Any) -> str:
    if value is None:
        return "None"
    try:
        text = repr(sorted(value, key=repr)) if isinstance(value, (set, frozenset)) else repr(value)
    except Exception as error:
        raise InputError(
            f"a client returned what cannot be shown ({type(error).__name__}); return plain data"
        ) from None
    return _without_chance(text)


@lru_cache(maxsize=4096)
def _without_chance(text: str) -> str:
    return _NO_OUTCOME.sub("<...>", text)
