"""Searches for a step that no state of the contract explains: every interleaving of a small scope, and random walks.

Both count their work in steps of the store, so that the same effort finds the same on any machine.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from orderlab.model.contracts.base import ALL_OR_NOTHING, SPECIFICATION, Discrepancy, Opening
from orderlab.model.contracts.client_steps import REPLY_LOST, Begin, ClientStep, Die, Fault, Resume, Wait, fault_of
from orderlab.model.contracts.judge import TooManyStates
from orderlab.model.contracts.sequential import BOUNDED, ONE_SLOT, WAKE_UP, Scope
from orderlab.properties.engine.noted_moments import noted_ms
from orderlab.properties.engine.run import ContractRun, Core, Report, RunState
from orderlab.properties.engine.witness import ContractReruns
from orderlab.properties.validation.effort import CORE_STEPS, SCOPE_STEPS
from orderlab.properties.validation.findings import Explored, Findings
from orderlab.sim.redis.error_conditions import (
    CRASHED,
    KILLED,
    OUT_OF_MEMORY,
    READ_ONLY,
    SLOT_MIGRATES,
    WRONG_TYPE_FOUND,
    expects_a_type,
    foreign_type,
    strikes,
)
from orderlab.sim.redis.hash_slots import hash_slot
from orderlab.sim.redis.registry import SCRIPT_CALLS, find
from orderlab.sim.redis.shard import Effect
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.bound import CpuBudget
from orderlab.sim.stores.records import record_of

CLIENT_DIES = "client-dies"
SHAPES_MAX = 500
"""Of what operations call, those that are looked at."""
CALLS_MAX = 8
"""Calls of one client that exhaustive scopes try in one state; random walks draw from all."""
CUT = (
    "{}: not carried on {} times, where operations had overlapped for so long that more states explained them than "
    "are kept"
)
WAITS_MAX = 8
"""Moments that are visited from one state."""
REFUSALS = (OUT_OF_MEMORY, READ_ONLY)
"""Conditions that refuse a write: all of a script, or a later call of an operation that has several."""


class Beginning(NamedTuple):
    """A state of a store and what brings it about."""

    steps: tuple[ClientStep, ...]
    state: RunState


@dataclass
class Met:
    """States that longer runs begin in."""

    situations: list[Beginning] = field(default_factory=list)
    """In which something was as never before: random walks may begin there."""
    raced: list[Beginning] = field(default_factory=list)
    """Where operations that overlapped have led, and no order of the same does."""
    stopped: list[Beginning] = field(default_factory=list)
    """Where what was stopped has led, and it is open whether it took effect."""


@dataclass
class Search:
    """The searches of one store: what they find goes to ``findings``."""

    reruns: ContractReruns
    findings: Findings
    budget: CpuBudget = field(default_factory=CpuBudget)
    met: Met = field(default_factory=Met)
    _shapes: set[tuple[object, ...]] = field(default_factory=set)

    def note(self, steps: Sequence[ClientStep], report: Report, name: str) -> None:
        """Keep a violation, unless the store's owner accepts it."""
        found = report.discrepancies
        if found and self.reruns.binding.accepted:
            found = [each for each in found if not is_accepted(self.reruns.binding, self.findings, each.law, steps)]
        if found:
            self.findings.add(found, self.reruns.trace(steps), name)

    def note_effects(
        self, operation: str, effects: Sequence[Effect], steps: Callable[[], Sequence[ClientStep]]
    ) -> None:
        """Look at what an operation called, once for each shape: the keys of one operation in one slot, and
        declared."""
        shape = (operation, *[(one.argv[0], len(one.keys), one.line) for one in effects])
        if not effects or shape in self._shapes or len(self._shapes) >= SHAPES_MAX:
            return
        self._shapes.add(shape)
        self.findings.coverage[ONE_SLOT] += 1
        record = record_of(operation, b"", list(effects))
        slots = {hash_slot(key) for key in record.used}
        if len(slots) > 1:
            shown = ", ".join(f"{key.decode('latin-1')} ({hash_slot(key)})" for key in sorted(record.used))
            text = f"{operation} uses keys of {len(slots)} slots: {shown}"
            self.findings.add([Discrepancy(ONE_SLOT, text)], self.reruns.trace(steps()), "the keys of each operation")
        if record.undeclared:
            example = sorted(record.undeclared)[0].decode("latin-1")
            self.findings.examples.setdefault(f"{operation} uses a key that is not in KEYS, such as ", example)

    def count_tests(self, run: ContractRun, steps: int) -> None:
        """Of so many steps of ``run``, what each law was tested by."""
        findings = self.findings
        findings.work["steps"] += steps
        findings.coverage[BOUNDED] += steps
        findings.coverage[SPECIFICATION] += run.judge.explained
        run.judge.explained = 0
        findings.coverage[ALL_OR_NOTHING] = findings.work["stopped"]
        findings.coverage[WAKE_UP] += run.waits_seen
        run.waits_seen = 0
        findings.coverage.update(run.judge.tested)
        run.judge.tested = dict.fromkeys(run.judge.tested, 0)


def is_accepted(binding: Binding, findings: Findings, law: str, steps: Sequence[ClientStep]) -> bool:
    """Whether the store's owner accepts a violation of ``law`` at the end of ``steps``; it is noted that it occurs."""
    seen = (law, *befallen(steps))
    if any((each.law, each.operation, each.trouble) == seen for each in binding.accepted):
        findings.accepted.add(seen)
        return True
    return False


def befallen(steps: Sequence[ClientStep]) -> tuple[str, str]:
    """The operation that trouble befell last, and the trouble; without any the last operation, and nothing."""
    for at in reversed(range(len(steps))):
        step = steps[at]
        fault = fault_of(step)
        if fault is not None or isinstance(step, Die):
            kind = CLIENT_DIES if fault is None else fault.kind
            begun = (each for each in reversed(steps[: at + 1]) if isinstance(each, Begin))
            client = step.client if isinstance(step, Begin | Resume | Die) else 0
            return next((each.call.name for each in begun if each.client == client), ""), kind
    return operation_of(steps), ""


def operation_of(steps: Sequence[ClientStep]) -> str:
    """The operation that the last step carries out."""
    last = steps[-1]
    for step in reversed(steps):
        if isinstance(step, Begin) and isinstance(last, Begin | Resume) and step.client == last.client:
            return step.call.name
    return ""


def moments(run: ContractRun) -> list[int]:
    """How long to wait from here: to just before, at and just after whatever time alone changes, and to just after
    what the store has noted, the nearest first."""
    now = run.judge.now_ms
    waits = {at + by - now for at in run.deadlines_ms for by in (-1, 0, 1) if at + by > now}
    return sorted(waits | {at + 1 - now for at in noted_ms(run)})[:WAITS_MAX]


def troubles_of(effects: Sequence[Effect], is_over: bool) -> Iterator[Fault]:
    """What can befall a call that did ``effects`` when nothing befell it."""
    if is_over:
        yield Fault(REPLY_LOST)
    inner = [one for one in effects if one.argv[0].lower() not in SCRIPT_CALLS]
    if not inner:
        return
    yield Fault(CRASHED.name, at=len(inner) - 1)
    if not inner[0].is_write:
        yield Fault(KILLED.name, at=0)
    wrote = False
    for condition in (*REFUSALS, SLOT_MIGRATES):
        wrote = False
        for one in inner:
            if strikes(condition, one.argv, wrote):
                yield Fault(condition.name)
                break
            wrote = wrote or one.is_write
    typed: dict[bytes, list[bytes]] = {}
    for one in inner:
        command = find(one.argv)
        if command is not None and expects_a_type(command):
            for key in one.keys:
                typed.setdefault(key, []).append(command.name)
    for key, names in typed.items():
        yield Fault(WRONG_TYPE_FOUND.name, key=key, found=foreign_type(names))


def moves(run: ContractRun, scope: Scope, troubled: int, calls_max: int | None = CALLS_MAX) -> Iterator[ClientStep]:
    """What clients can do next, without what goes wrong: see ``explore`` for that."""
    is_full = scope.operations is not None and sum(one.begun for one in run.clients) >= scope.operations
    for number, client in enumerate(run.clients[: scope.clients]):
        if client.pending is not None:
            if client.waits is None:
                yield Resume(number)
            if troubled < scope.faults:
                yield Die(number)
        elif client.begun < scope.steps_per_client and not is_full:
            calls = run.judge.asked.calls(number, client.seen)[:calls_max]
            again = run.repeated(number)
            if again is not None and again not in calls:
                calls.insert(0, again)
            versions = run.versions if len(run.versions) > 1 else ("",)
            yield from (Begin(number, call, None, version) for call in calls for version in versions)


class Node(NamedTuple):
    """A state of the exploration and how it was reached."""

    state: RunState
    waits: int
    troubled: int
    parent: int
    step: ClientStep | None


def opened(
    run: ContractRun, opening: Opening | None, note: Callable[[Sequence[ClientStep], Report], None]
) -> tuple[ClientStep, ...] | None:
    """What brings about ``opening``, carried out; None where the store does not get there. What is wrong on the way is
    noted."""
    steps: list[ClientStep] = []
    for one in opening.steps if opening is not None else ():
        if isinstance(one, int):
            steps.append(Wait(one))
            run.perform(steps[-1])
            continue
        client, operation, fields = one
        calls = run.judge.asked.calls(client, run.clients[client].seen)
        call = next(
            (
                each
                for each in calls
                if each.name == operation and all(each[name] == value for name, value in fields.items())
            ),
            None,
        )
        if call is None:
            return None
        report = run.carry_out(Begin(client, call), steps)
        if report.violation is not None:
            note(steps, report)
            return None
    run.clients = [client._replace(begun=0) for client in run.clients]
    return tuple(steps)


def is_idle_step(run: ContractRun, before: RunState, after: RunState, step: ClientStep) -> bool:
    """Whether an operation was begun and ended and all is as before, what its client finds worth trying included: then
    whatever may follow may follow without it."""
    if not isinstance(step, Begin) or after.clients[step.client].pending is not None:
        return False
    if before.beside_clients != after.beside_clients:
        return False
    asked = run.judge.asked
    then, now = (list(asked.calls(step.client, one.clients[step.client].seen)) for one in (before, after))
    return then == now


class Interleavings:
    """Every interleaving of one scope from where its opening leads, breadth first, so that what is found first is
    shortest."""

    def __init__(self, run: ContractRun, scope: Scope, search: Search, opening: tuple[ClientStep, ...]) -> None:
        self.run, self.scope, self.search, self.opening = run, scope, search, opening
        self.nodes = [Node(run.state, 0, 0, -1, None)]
        self.queue = deque([0])
        """Nodes that are to be carried on from."""
        self.steps = self.cut = 0
        """Steps carried out, and nodes not carried on from where too many states explained what was seen."""
        self._known: set[Hashable] = {(run.state.key, 0, 0)}
        self.in_turn: set[Core] = set()
        """Where operations that did not overlap have led."""
        self.raced: dict[Core, Beginning] = {}
        """And where others have."""
        self.stopped: dict[Hashable, Beginning] = {}
        """Where trouble has led, and more than one state explains it."""

    def path(self, at: int, *more: ClientStep) -> tuple[ClientStep, ...]:
        """The steps to a node, and what comes after."""
        back: list[ClientStep] = []
        while self.nodes[at].parent >= 0:
            taken = self.nodes[at].step
            assert taken is not None
            back.append(taken)
            at = self.nodes[at].parent
        return (*self.opening, *reversed(back), *more)

    def reach(self, at: int, step: ClientStep, waits: int, troubled: int) -> Report:
        """One step out of a node."""
        run, search = self.run, self.search
        self.steps += 1
        run.go_to(self.nodes[at].state)
        try:
            report = run.perform(step)
        except TooManyStates:
            self.cut += 1
            return Report()
        self.steps += report.work - 1
        search.findings.work["stopped"] += bool(report.stopped)
        if isinstance(step, Begin | Resume):
            search.note_effects(operation_of(self.path(at, step)), report.effects, lambda: self.path(at, step))
        if report.violation is not None:
            search.note(self.path(at, step), report, f"every interleaving of {self.scope.name}")
            return report
        if all(client.pending is None for client in run.clients):
            if self.scope.is_smallest:
                self._note_end(self.path(at, step))
            elif self.scope.is_solitary and report.stopped:
                self._note_stop(self.path(at, step))
        if isinstance(step, Begin | Resume) and report.is_over and not self._is_followed(self.nodes[at], step):
            return report
        state = run.state
        key = (state.key, waits, troubled)
        is_new = key not in self._known
        if is_new and not (self.scope.faults == 0 and is_idle_step(run, self.nodes[at].state, state, step)):
            self._known.add(key)
            self.queue.append(len(self.nodes))
            self.nodes.append(Node(state, waits, troubled, at, step))
        return report

    def _note_end(self, way: tuple[ClientStep, ...]) -> None:
        """Keep where an operation that ended has led."""
        is_in_turn = all(
            isinstance(step, Begin | Wait) or step.client == before.client  # type: ignore[union-attr]
            for before, step in pairwise(way)
        )
        if is_in_turn:
            self.in_turn.add(self.run.core)
        else:
            self.raced.setdefault(self.run.core, Beginning(way, self.run.state))

    def _note_stop(self, way: tuple[ClientStep, ...]) -> None:
        """Keep where an operation was stopped, unless by a value that no store puts there."""
        trouble = fault_of(way[-1])
        is_foreign = trouble is not None and trouble.kind == WRONG_TYPE_FOUND.name
        states = frozenset(self.run.judge.states())
        if not is_foreign and len(states) > 1:  # how it was stopped makes no difference
            key = self.run.core.now_ms, states, frozenset(self.run.core.keyspace.items())
            self.stopped.setdefault(key, Beginning(way, self.run.state))

    def carry_on(self, at: int) -> None:
        """Every step out of a node, each with all that can befall it."""
        run, scope, node = self.run, self.scope, self.nodes[at]
        run.go_to(node.state)
        try:
            ahead = list(moves(run, scope, node.troubled))
            is_waited_for = node.waits < scope.waits and any(isinstance(step, Begin | Resume) for step in ahead)
            waits = moments(run) if is_waited_for else []
        except TooManyStates:
            self.cut += 1
            return
        for step in ahead:
            report = self.reach(at, step, node.waits, node.troubled + isinstance(step, Die))
            if node.troubled < scope.faults and isinstance(step, Begin | Resume) and self._is_followed(node, step):
                for trouble in troubles_of(report.effects, report.is_over):
                    self.reach(at, replace(step, trouble=trouble), node.waits, node.troubled + 1)
        for ms in waits:
            self.reach(at, Wait(ms), node.waits + 1, node.troubled)

    @property
    def operations_seen(self) -> int:
        """All runs of so many operations were seen: whatever is left to carry on begins a further one."""
        if self.cut:
            return 0
        left = [self.nodes[at].state.clients for at in self.queue]
        return min(
            (sum(one.begun for one in clients) - any(one.pending is not None for one in clients) for clients in left),
            default=0,
        )

    def _is_followed(self, node: Node, step: Begin | Resume) -> bool:
        """Whether anything comes after the step's operation that could show what befell it: nobody hears its reply."""
        scope, clients = self.scope, node.state.clients[: self.scope.clients]
        begun = [one.begun + (number == step.client and isinstance(step, Begin)) for number, one in enumerate(clients)]
        if scope.operations is not None and sum(begun) >= scope.operations:
            begun = [scope.steps_per_client]
        if any(count < scope.steps_per_client for count in begun):
            return True
        return any(one.pending is not None for number, one in enumerate(clients) if number != step.client)


def explore(run: ContractRun, scope: Scope, search: Search, effort: float) -> None:
    """Every interleaving of ``scope``. Work is counted in steps carried out; beyond what ``effort`` allows the rest is
    left out, which the gaps tell. Raises BudgetExceeded once what was found is noted."""
    name, findings = f"every interleaving of {scope.name}", search.findings
    steps_max = max(int(SCOPE_STEPS * effort * scope.share), CORE_STEPS if scope.is_core else 0)
    opening = opened(run, scope.opening, lambda way, report: search.note(way, report, name))
    if opening is None:
        findings.explored.append(Explored(scope.level, True, 0, scope.is_core))
        return
    part = Interleavings(run, scope, search, opening)
    while part.queue and part.steps < steps_max and not search.budget.is_past:
        part.carry_on(part.queue.popleft())
    findings.work["states"] += len(part.nodes)
    search.met.raced += [end for core, end in part.raced.items() if core not in part.in_turn]
    search.met.stopped += part.stopped.values()
    search.count_tests(run, part.steps)
    findings.explored.append(
        Explored(scope.level, not (part.queue or part.cut), part.steps, scope.is_core, part.operations_seen)
    )
    if part.cut:
        findings.gaps.append(CUT.format(name, part.cut))
    if part.queue:
        findings.gaps.append(f"{name}: {min(part.steps, steps_max):,} steps ran out after {len(part.nodes):,} states")
        search.budget.check()


def walk(run: ContractRun, search: Search, seed: int, walks: int, length: int) -> None:
    """Random walks of several clients, longer than any scope, with trouble now and then: from the empty store, and
    every other one from a situation that was found, or that the contract names. Raises BudgetExceeded."""
    taken = 0
    openings = run.contract.openings()
    scope = Scope("random walks", len(run.clients), length, length, length)
    start, cut = run.state, 0
    for number in range(walks):
        if search.budget.is_past:
            break
        draw = random.Random(f"{seed}:{number}")
        rate = draw.choice((0.0, 0.0, 0.05, 0.2))
        run.go_to(start)
        way: tuple[ClientStep, ...] | None = None
        if search.met.situations and (number % 4 == 3 or (number % 4 == 1 and not openings)):
            way, state = draw.choice(search.met.situations)
            run.go_to(state)
            run.clients = [client._replace(begun=0) for client in run.clients]
        elif openings and number % 2:
            with suppress(TooManyStates):
                way = opened(
                    run,
                    openings[number // 2 % len(openings)],
                    lambda way, report: search.note(way, report, "random walks"),
                )
        if way is None:
            run.go_to(start)
        steps: list[ClientStep] = list(way or ())
        for _ in range(length):
            try:
                step = _drawn(run, scope, draw, rate)
                if step is None:
                    break
                steps.append(step)
                report = run.perform(step)
            except TooManyStates:
                cut += 1
                break
            taken += 1
            search.findings.work["stopped"] += bool(report.stopped)
            if report.violation is not None:
                search.note(steps, report, "random walks")
                break
        search.findings.work["walks"] += 1
    if cut:
        search.findings.gaps.append(CUT.format("random walks", cut))
    search.count_tests(run, taken)
    search.budget.check()


def _drawn(run: ContractRun, scope: Scope, draw: random.Random, rate: float) -> ClientStep | None:
    if draw.random() < 0.25:
        waits = moments(run)
        return Wait(draw.choice(waits) if waits and draw.random() < 0.7 else draw.choice((1, 10, 100, 1000)))
    ahead = list(moves(run, scope, 0 if rate else scope.faults, None))
    if not ahead:
        return None
    step = draw.choice([one for one in ahead if not isinstance(one, Die) or draw.random() < rate] or ahead)
    if isinstance(step, Die | Wait) or draw.random() >= rate:
        return step
    before = run.state
    report = run.perform(step)
    run.go_to(before)
    troubles = list(troubles_of(report.effects, report.is_over))
    if not troubles:
        return step
    return replace(step, trouble=draw.choice(troubles))
