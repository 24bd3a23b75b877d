"""A session store on the kernel as a transition system: writers, a reader, time and trouble, every interleaving.

A state is the frozen keyspace with everything that the run remembers. Each step runs the real scripts and is judged;
what it breaks goes to ``found`` with the state it happened in, and a step after which nothing can be judged leads
nowhere. The explorer visits states breadth first, so the first state told for a law is one of the nearest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import ClassVar, NamedTuple

from orderlab.model.contracts.session.contract import Scope
from orderlab.model.contracts.session.refinement.account import RunState
from orderlab.model.contracts.session.steps import (
    Acknowledge,
    Clear,
    DrainQueue,
    Fetch,
    Interleave,
    Open,
    Quiesce,
    Release,
    Retry,
    Save,
    Step,
    Wait,
    kind_of_step,
)
from orderlab.model.contracts.steps import Fault
from orderlab.model.explorer.space import Space
from orderlab.model.spec.transition_system import Label, TransitionSystem
from orderlab.properties.contracts.session.run import StepReport
from orderlab.properties.contracts.session.steps import SessionRun
from orderlab.sim.stores.faults import NODE_CONDITIONS
from orderlab.sim.stores.memo import MemoStore

Faultable = Save | Fetch | Acknowledge | Release | Clear | Open
WRITERS = "writer"
READER = "reader"
TIME = "time"


class Used(NamedTuple):
    """How much of the scope a path has used up."""

    positions: tuple[int, ...]
    waits: int = 0
    clears: int = 0
    repeats: int = 0
    faults: int = 0


class StoreState(NamedTuple):
    """One moment. ``keyspace`` is the number of a frozen keyspace (``MemoStore``)."""

    keyspace: int
    now_ms: int
    run: RunState
    used: Used


class StoreSystem(TransitionSystem[StoreState]):
    """A store within a scope. ``make_run`` gives a run on an empty kernel; ``found`` hears what each step breaks."""

    name: ClassVar[str] = "session-store"
    deadlock_is_violation: ClassVar[bool] = False

    def __init__(
        self,
        run: SessionRun,
        scope: Scope,
        found: Callable[[StoreState, Step, StepReport], None],
    ) -> None:
        assert isinstance(run.store, MemoStore)
        self.scope = scope
        self.run = run
        self.store = run.store
        self.found = found
        self._gaps = [name for name, bound in self.store.binding.operations.items() if not bound.is_atomic]
        self._initial = self._now(Used((0,) * len(scope.programs)))

    def initial_states(self) -> Iterable[StoreState]:
        return [self._initial]

    def is_terminal(self, state: StoreState) -> bool:
        return True

    def successors(self, state: StoreState) -> Iterator[tuple[Label, StoreState]]:
        for label, _, after in self.steps(state):
            yield label, after

    def steps(self, state: StoreState) -> Iterator[tuple[Label, Step, StoreState]]:
        """Every step out of a state that the store survives, with its label and the state after it."""
        self._go_to(state)
        for actor, step, used in list(self._offers(state)):
            report = self.run.perform(step)
            if report.result is not None:
                if report.discrepancies:
                    self.found(state, step, report)
                if not report.diverges and not isinstance(step, DrainQueue | Quiesce):
                    yield Label(actor, kind_of_step(step)), step, self._now(used)
            self._go_to(state)

    # -- moments -------------------------------------------------------------------------------------------------------

    def _now(self, used: Used) -> StoreState:
        return StoreState(self.store.keyspace, self.store.now_ms, self.run.state, used)

    def _go_to(self, state: StoreState) -> None:
        self.store.keyspace = state.keyspace
        self.store.set_now(state.now_ms)
        self.run.state = state.run

    # -- what can happen -----------------------------------------------------------------------------------------------

    def _offers(self, state: StoreState) -> Iterator[tuple[str, Step, Used]]:
        yield from self._offers_of_writers(state)
        yield from self._offers_of_reader(state)
        yield from self._offers_of_time(state)
        yield from self._offers_of_sessions(state)
        if self.scope.drains:
            for client, account in enumerate(state.run.accounts):
                drain = [DrainQueue(client, count) for count in (1, 2)]
                yield from ((READER, one, state.used) for one in (drain if account.queue else [Quiesce(client)]))

    def _offers_of_writers(self, state: StoreState) -> Iterator[tuple[str, Step, Used]]:
        scope, used = self.scope, state.used
        for writer, program in enumerate(scope.programs):
            actor = f"{WRITERS} {writer + 1}"
            if used.repeats < scope.repeats and state.run.batches[writer].step is not None:
                yield actor, Retry(writer), used._replace(repeats=used.repeats + 1)
                yield actor, Retry(writer, older=True), used._replace(repeats=used.repeats + 1)
            if used.positions[writer] == len(program):
                continue
            step = program[used.positions[writer]]
            moved = used._replace(positions=tuple(p + (w == writer) for w, p in enumerate(used.positions)))
            yield actor, step, moved
            if state.run.connections[step.client].cleared_epoch:
                yield actor, _stale(step), moved
            for fault in self._faults(state, step):
                yield actor, _faulted(step, fault), moved._replace(faults=used.faults + 1)
            if scope.overlaps:
                yield from self._overlaps(state, writer, step, moved)

    def _overlaps(self, state: StoreState, writer: int, step: Save, moved: Used) -> Iterator[tuple[str, Step, Used]]:
        """The other writer's next save between two calls of this one."""
        other = 1 - writer
        if "save" in self._gaps and moved.positions[other] < len(self.scope.programs[other]):
            during = self.scope.programs[other][moved.positions[other]]
            both = moved._replace(positions=tuple(p + (w == other) for w, p in enumerate(moved.positions)))
            for at in (1, 2, 3):
                yield f"{WRITERS} {writer + 1}", Interleave(step, during, at), both
        for at in (1, 2, 3):
            if "save" in self._gaps:
                died = moved._replace(faults=moved.faults + 1)
                yield f"{WRITERS} {writer + 1}", _faulted(step, Fault("client-dies", at)), died

    def _offers_of_reader(self, state: StoreState) -> Iterator[tuple[str, Step, Used]]:
        used = state.used
        for client in range(len(self.run.clients)):
            for count in self.scope.pages:
                yield READER, Fetch(client, count), used
                if count is not None and state.run.cursors[client].passed:
                    yield READER, Fetch(client, count, True), used
        for label, _ in state.run.sendings:
            yield READER, Acknowledge(label), used
            if self.run.publications[label][1].qos == 2:
                yield READER, Release(label), used
        answers: list[Faultable] = [Acknowledge(label) for label, _ in state.run.sendings]
        answers += [Release(label) for label, _ in state.run.sendings if self.run.publications[label][1].qos == 2]
        for step in [Fetch(), *answers]:
            for fault in self._faults(state, step):
                yield READER, _faulted(step, fault), used._replace(faults=used.faults + 1)

    def _offers_of_time(self, state: StoreState) -> Iterator[tuple[str, Step, Used]]:
        """To the next deadline: just before it, and at it."""
        if state.used.waits >= self.scope.waits:
            return
        used = state.used._replace(waits=state.used.waits + 1)
        now_ms = state.run.accounts[0].session.now_ms
        deadlines_ms = {entry.latest_ms for account in state.run.accounts for entry in account.queue}
        for deadline_ms in sorted(deadlines_ms)[:2]:
            left_ms = deadline_ms - now_ms
            if left_ms > 1 << 40:
                continue
            for ms in (left_ms - 1, left_ms) if left_ms > 0 else (1,):
                if ms > 0:
                    yield TIME, Wait(ms), used

    def _offers_of_sessions(self, state: StoreState) -> Iterator[tuple[str, Step, Used]]:
        used = state.used
        if used.clears >= self.scope.clears:
            return
        used = used._replace(clears=used.clears + 1)
        for client in range(len(self.run.clients)):
            yield READER, Clear(client), used
            yield READER, Clear(client, stale=True), used
            yield READER, Open(client, True), used
            yield READER, Open(client, False), used
            if self.store.capabilities.tells_connects:
                for late in (Open(client, True, stale=True), Open(client, False, stale=True), Open(client, again=True)):
                    yield READER, late, used
            for fault in self._faults(state, Clear(client)):
                yield READER, Clear(client, fault), used._replace(faults=used.faults + 1)
            for fault in self._faults(state, Open(client, True)):
                yield READER, Open(client, True, fault), used._replace(faults=used.faults + 1)

    def _faults(self, state: StoreState, step: Faultable) -> Iterator[Fault]:
        """Every condition that can stop an operation: those of the node, and another type at each key it may touch."""
        if state.used.faults >= self.scope.faults:
            return
        for kind in NODE_CONDITIONS:
            yield Fault(kind)
        before = self.store.frozen(state.keyspace)
        self.run.perform(step)
        keys = before | self.store.frozen(self.store.keyspace)
        self._go_to(state)
        for key, (kind, _, _) in sorted(keys.items()):
            yield Fault("wrong-type", key=key, found="list" if kind == "string" else "string")
            if key not in before:
                yield Fault("wrong-type", key=key, found="hash" if kind != "hash" else "list")


def _stale(step: Save) -> Save:
    return Save(step.messages, step.client, step.producer, step.limit, True)


def _faulted(step: Faultable, fault: Fault) -> Step:
    return replace(step, fault=fault)


def path_to(system: StoreSystem, space: Space, state: StoreState) -> tuple[Step, ...]:
    """The steps by which the search first reached a state."""
    number = space.number_of(state)
    assert number is not None
    chain = [number]
    while space.parent(chain[-1]) >= 0:
        chain.append(space.parent(chain[-1]))
    chain.reverse()
    steps: list[Step] = []
    for before, after in pairwise(chain):
        wanted = space.state(after)
        steps.append(next(step for _, step, reached in system.steps(space.state(before)) if reached == wanted))
    return tuple(steps)
