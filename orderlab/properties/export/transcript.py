"""What a trace does, step by step: who acts, what reaches the store, what comes back, what the keys are then.

A ``Transcript`` is what ``orderlab replay`` tells and what every export is made of. It comes from taking the steps of a
trace on a backend (``recorded``: every call of the store's own is noted, and none of the judge's), or from a behaviour
of a specification and the events of a history, which have states and no calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from orderlab.model.contracts.base import AnyTrace
from orderlab.model.contracts.client_steps import Fault, lane_of
from orderlab.properties.contracts.kind import Kind
from orderlab.properties.harness.keyspace import shown_value
from orderlab.properties.harness.recording import shown_bytes
from orderlab.sim.redis.backends import Backend
from orderlab.sim.redis.backends.dump import rebuild
from orderlab.sim.redis.conditions import NodeCrashed, ScriptTimeout
from orderlab.sim.redis.replies import Reply
from orderlab.sim.redis.shard import FrozenKeyspace, GrowthLimit
from orderlab.sim.stores.binding.binding import OLD, Binding

Argv = tuple[bytes, ...]
STORE, FAULTS = "store", "faults"
"""Lanes besides those of clients, producers and time."""
NOTED_MAX = 200
"""Calls of one step that are noted; of a step that makes more only the keys after it are."""
CRASHED, STOPPED = "crashed", "stopped"
"""How a call may end without a reply: the node crashes, or the script is stopped at the limits of the sandbox."""


class SentCall(NamedTuple):
    """One call that reached the store."""

    argv: Argv
    reply: Reply = None
    condition: str = ""
    """What was wrong with the node meanwhile (``orderlab.sim.redis.error_conditions``)."""
    ended: str = ""
    """``CRASHED`` or ``STOPPED`` where it has no reply."""
    placed: tuple[Argv, ...] = ()
    """Commands for what befell the keys just before the call without any call: a foreign value under a key."""
    passed_ms: int = 0
    """Virtual time since the call or step before it."""
    before: FrozenKeyspace = {}  # noqa: RUF012
    after: FrozenKeyspace = {}  # noqa: RUF012
    """The keys around it."""
    connection: int = 0
    """Of the client that keeps to a connection of its own, from 1; 0: the one that all others share."""


@dataclass(frozen=True)
class Move:
    """One step of a trace and what it did."""

    lane: str
    action: str
    answer: str = ""
    fault: str = ""
    broken: tuple[tuple[str, str], ...] = ()
    """Laws that it broke, with what is wrong."""
    state: Mapping[str, str] = field(default_factory=dict)
    """What there is after it: keys or variables, as text."""
    calls: tuple[SentCall, ...] = ()
    call_count: int = 0
    """How many calls there were: more than ``NOTED_MAX`` are not noted."""
    passed_ms: int = 0
    """Virtual time since its last call."""
    placed: tuple[Argv, ...] = ()
    """Commands for what befell the keys after its last call without any call."""
    keys: FrozenKeyspace = field(default_factory=dict)


@dataclass(frozen=True)
class Transcript:
    """A whole trace. ``start`` is what there was before its first step: of a store, the calls that bring it there."""

    title: str
    law: str
    start: Move
    moves: tuple[Move, ...]
    store: str = ""
    scripts: Mapping[str, bytes] = field(default_factory=dict)
    seed: int | None = None
    loop_start: int | None = None
    """Of a lasso: the steps from this index on repeat for ever."""

    @property
    def lanes(self) -> list[str]:
        """Who takes part, the store and the faults last."""
        actors = list(dict.fromkeys(one.lane for one in self.moves))
        has_calls = any(one.call_count for one in self.moves)
        return [*actors, *([STORE] if has_calls else []), *([FAULTS] if any(one.fault for one in self.moves) else [])]

    @property
    def runs(self) -> bool:
        """Whether it is of a store, whose calls can be made again."""
        return bool(self.store)


class Change(NamedTuple):
    """A place of a state with its value; ``sign``: ``+`` new, ``-`` gone, ``~`` changed, or nothing."""

    sign: str
    name: str
    value: str
    was: str = ""


def changes_between(before: Mapping[str, str], after: Mapping[str, str]) -> list[Change]:
    """Every place of two states, in the order of their names."""
    found = []
    for name in sorted({*before, *after}):
        was, now = before.get(name), after.get(name)
        sign = "" if was == now else "+" if was is None else "-" if now is None else "~"
        found.append(Change(sign, name, (was if now is None else now) or "", was or ""))
    return found


def shown_keys(keyspace: FrozenKeyspace, start_ms: int = 0) -> dict[str, str]:
    """Each key with its type, value and deadline, long ones cut; deadlines as ms after ``start_ms`` where that is
    given."""
    return {
        shown_bytes(name[:80]): f"{kind} {shown_value(kind, value)}" + _until(deadline, start_ms)
        for name, (kind, value, deadline) in sorted(keyspace.items())
    }


def _until(deadline: int | None, start_ms: int) -> str:
    if deadline is None:
        return ""
    return f" until {deadline - start_ms:,} ms" if start_ms else f" until {deadline}"


# -- stores
# ----------------------------------------------------------------------------------------------------------------


def recorded(kind: Kind, trace: AnyTrace, binding: Binding, backend: Backend, drift_ms: int = 0) -> Iterator[Move]:
    """What there was before the first step, then each step as it is taken. ``drift_ms``: what a call takes, on the
    kernel."""
    with noted(backend, drift_ms) as notes:
        start_ms = backend.now_ms
        steps = iter(kind.replay(trace, binding, backend))
        yield notes.move(Move("", "the store is empty"), start_ms)
        for number, told in enumerate(steps):
            step = trace.steps[number]
            fault = getattr(getattr(step, "step", step), "fault", None) or getattr(step, "trouble", None)
            broken = tuple((law, text) for law, text in told["broken"])
            move = Move(lane_of(step, trace.steps), told["step"], told["result"], _named(fault), broken)
            yield notes.move(move, start_ms)


def _named(fault: Fault | None) -> str:
    return "" if fault is None else str(fault)


class Notes:
    """What reaches a backend while ``noted`` is in force."""

    def __init__(self, backend: Backend, drift_ms: int) -> None:
        self.backend = backend
        self.drift_ms = drift_ms
        self.calls: list[SentCall] = []
        self.count = 0
        self.last = backend.keyspace()
        self.now_ms = backend.now_ms
        self.connections: dict[int, int] = {}
        """Numbers of the connections by which clients have called, in the order in which they did."""
        self.is_inside = False
        """A call is being carried out: one of a backend's two ways of calling may be made of the other."""

    def execute(self, plain: Any, argv: Argv, connection: int = 0) -> Reply:
        """Make a call, and note it unless it is the judge's own or loads a script."""
        if self.is_inside or self.backend.is_aside or argv[:2] in ((b"SCRIPT", b"LOAD"), (b"FUNCTION", b"LOAD")):
            return self._carried_out(plain, argv)
        self.count += 1
        if self.count > NOTED_MAX or not self.backend.shows_calls:
            self.calls += [SentCall(argv, connection=connection)] if self.count <= NOTED_MAX else []
            return self._carried_out(plain, argv)
        placed, before, passed_ms = self.placed(), self.last, self.passed()
        condition = self.backend.condition()
        reply, ended = None, ""
        try:
            reply = plain(*argv)
        except NodeCrashed:
            ended = CRASHED
            raise
        except (ScriptTimeout, GrowthLimit):
            ended = STOPPED
            raise
        finally:
            self.last = self.backend.keyspace()
            self.calls.append(
                SentCall(
                    argv,
                    reply,
                    condition if ended != CRASHED else CRASHED,
                    ended,
                    placed,
                    passed_ms,
                    before,
                    self.last,
                    connection,
                )
            )
            self.backend.advance(self.drift_ms)
            self.now_ms += self.drift_ms
        return reply

    def _carried_out(self, plain: Any, argv: Argv) -> Reply:
        was, self.is_inside = self.is_inside, True
        try:
            return plain(*argv)
        finally:
            self.is_inside = was

    def placed(self) -> tuple[Argv, ...]:
        """Commands for how the keys differ from those after the last call, other than by time."""
        now, now_ms = self.backend.keyspace(), self.backend.now_ms
        was = {key: value for key, value in self.last.items() if value[2] is None or value[2] > now_ms}
        self.last = now
        return commands_between(was, now)

    def move(self, told: Move, start_ms: int) -> Move:
        """The step that has just been taken, with all that was noted of it."""
        placed = self.placed() if self.backend.shows_calls and self.count <= NOTED_MAX else ()
        self.last = keys = self.backend.keyspace()
        calls = tuple(self.calls) if self.count <= NOTED_MAX else ()
        move = replace(
            told, calls=calls, call_count=self.count, passed_ms=self.passed(), placed=placed, keys=keys,
            state=shown_keys(keys, start_ms),
        )  # fmt: skip
        self.calls, self.count = [], 0
        return move

    def passed(self) -> int:
        """Virtual time since this was asked last, what the calls took left out; on the kernel alone."""
        if not self.backend.shows_calls:
            return 0
        now_ms = self.backend.now_ms
        passed_ms, self.now_ms = now_ms - self.now_ms, now_ms
        return passed_ms


@contextmanager
def noted(backend: Backend, drift_ms: int = 0) -> Iterator[Notes]:
    """Within it the calls of ``backend`` are noted."""
    notes, execute, pipeline, execute_as = (
        Notes(backend, drift_ms),
        backend.execute,
        backend.pipeline,
        backend.execute_as,
    )
    vars(backend)["execute"] = lambda *argv: notes.execute(execute, argv)
    vars(backend)["execute_as"] = lambda client, *argv: notes.execute(
        partial(execute_as, client), argv, notes.connections.setdefault(id(client), len(notes.connections) + 1)
    )
    vars(backend)["pipeline"] = lambda commands: (
        pipeline(commands)
        if notes.is_inside or backend.is_aside
        else [notes.execute(execute, tuple(argv)) for argv in commands]
    )
    try:
        yield notes
    finally:
        del vars(backend)["execute"], vars(backend)["execute_as"], vars(backend)["pipeline"]


def commands_between(before: FrozenKeyspace, after: FrozenKeyspace) -> tuple[Argv, ...]:
    """Commands that make the one set of keys of the other."""
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    gone = [key for key in before if key not in after or key in changed]
    return (*(((b"DEL", *sorted(map(bytes, gone))),) if gone else ()), *rebuild(changed))


def transcript_of_store(trace: AnyTrace, binding: Binding, moves: Sequence[Move]) -> Transcript:
    """The transcript of what ``recorded`` gave."""
    broken = [(law, text) for move in moves for law, text in move.broken]
    shown = [text for law, text in broken if law == trace.law] or [text for _, text in broken]
    law = trace.law or (broken[0][0] if broken else "")
    title = (
        f"{binding.name}: {law} is violated: {shown[0]}" if shown else f"{binding.name}: no step of these breaks a law"
    )
    scripts = {script.name: script.source for script in binding.scripts}
    for script in binding.base.scripts if binding.base is not None else ():
        if scripts.get(script.name) != script.source:
            scripts[f"{OLD} {script.name}"] = script.source
    return Transcript(title, law, moves[0], tuple(moves[1:]), binding.name, scripts, trace.seed)


# -- specifications and histories
# ----------------------------------------------------------------------------------------------


def transcript_of_behaviour(law: str, name: str, behaviour: Mapping[str, Any]) -> Transcript:
    """The transcript of a behaviour of a specification (``Behaviour.to_json``)."""
    state = _flat("", behaviour["initial"])
    start = Move("", "initially", state=dict(state))
    moves = []
    for step in behaviour["steps"]:
        for change in step["changes"]:
            place = str(change["place"])
            state = {name: value for name, value in state.items() if not _is_within(name, place)}
            state |= _flat(place, change["after"]) if change["after"] is not None else {}
        given = ", ".join(f"{name}={value}" for name, value in step["arguments"].items())
        moves.append(
            Move(
                step["actor"], f"{step['actor']}: {step['action']}" + (f"({given})" if given else ""), state=dict(state)
            )
        )
    why = behaviour.get("why") or f"{law} is broken"
    if moves:
        moves[-1] = replace(moves[-1], broken=((law, why),))
    return Transcript(
        f"{name}: {law} is violated: {why}", law, start, tuple(moves), loop_start=behaviour.get("loop_start")
    )


def transcript_of_events(law: str, headline: str, steps: Sequence[tuple[str, str]]) -> Transcript:
    """The transcript of events of a history: (who, what) for each."""
    moves = [Move(lane, action) for lane, action in steps]
    if moves:
        moves[-1] = replace(moves[-1], broken=((law, headline),))
    return Transcript(f"{law} is violated: {headline}", law, Move("", "the history"), tuple(moves))


def _flat(place: str, value: Any) -> dict[str, str]:
    """Places of a described state with their values, as deep as ``Behaviour`` tells changes: maps and lists are
    opened."""
    if isinstance(value, Mapping) and value:
        return {
            n: v
            for key, inner in value.items()
            for n, v in _flat(f"{place}.{key}" if place else str(key), inner).items()
        }
    if isinstance(value, list) and value and place:
        return {n: v for at, inner in enumerate(value) for n, v in _flat(f"{place}[{at}]", inner).items()}
    return {place: value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)}


def _is_within(name: str, place: str) -> bool:
    return name == place or name.startswith((f"{place}.", f"{place}["))
