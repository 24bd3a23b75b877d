"""Searches for a step that no state of the contract explains: every interleaving of a small scope, and random walks.

Both count their work in steps of the store, so that the same effort finds the same on any machine.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from orderlab.model.contracts.judge import Violation
from orderlab.model.contracts.sequential import Scope
from orderlab.model.contracts.steps import REPLY_LOST, Begin, ClientStep, Die, Fault, Resume, Wait
from orderlab.properties.contracts.sequential.run import ContractRun, Report, RunState
from orderlab.properties.harness.recording import SCRIPT_CALLS
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
from orderlab.sim.redis.registry import find
from orderlab.sim.redis.shard import Effect

PER_LAW = 4
"""Traces kept for each law and search, the shortest."""
CALLS_MAX = 8
"""Calls of one client that are tried in one state."""
WAITS_MAX = 8
"""Moments that are visited from one state."""
REFUSALS = (OUT_OF_MEMORY, READ_ONLY)
"""Conditions that refuse a write: all of a script, or a later call of an operation that has several."""


class Found(NamedTuple):
    """Steps whose last one no state explains."""

    steps: tuple[ClientStep, ...]
    violation: Violation
    search: str


@dataclass
class Searched:
    """What the searches of one store have found, and with how much work."""

    found: list[Found] = field(default_factory=list)
    work: Counter[str] = field(default_factory=Counter)
    tested: Counter[str] = field(default_factory=Counter)
    gaps: list[str] = field(default_factory=list)
    effects: list[tuple[str, tuple[Effect, ...]]] = field(default_factory=list)
    """Distinct shapes of what operations called: (operation, its effects)."""
    _known: Counter[str] = field(default_factory=Counter)
    _shapes: set[tuple[object, ...]] = field(default_factory=set)

    def note(self, steps: Sequence[ClientStep], violation: Violation, search: str) -> None:
        """Keep a violation, unless there are shorter ones of all its laws."""
        key = f"{violation.laws}{operation_of(steps)}"
        if self._known[key] < PER_LAW:
            self._known[key] += 1
            self.found.append(Found(tuple(steps), violation, search))

    def note_effects(self, operation: str, effects: Sequence[Effect]) -> None:
        """Keep what an operation called, once for each shape."""
        shape = (operation, *[(one.argv[0], len(one.keys), one.line) for one in effects])
        if shape not in self._shapes and len(self._shapes) < 500:
            self._shapes.add(shape)
            self.effects.append((operation, tuple(effects)))


def operation_of(steps: Sequence[ClientStep]) -> str:
    """The operation that the last step carries out."""
    last = steps[-1]
    for step in reversed(steps):
        if isinstance(step, Begin) and isinstance(last, Begin | Resume) and step.client == last.client:
            return step.call.name
    return ""


def moments(run: ContractRun) -> list[int]:
    """How long to wait from here: to just before, at and just after whatever time alone changes, the nearest first."""
    now = run.judge.now_ms
    deadlines = set(run.backend.shard.all_deadlines_ms()) if hasattr(run.backend, "shard") else set()
    for state in run.judge.states():
        deadlines.update(run.judge.asked.deadlines_ms(state))
    waits = sorted({at + by - now for at in deadlines for by in (-1, 0, 1) if at + by > now})
    return waits[:WAITS_MAX]


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


def moves(run: ContractRun, scope: Scope, troubled: int) -> Iterator[ClientStep]:
    """What clients can do next, without what goes wrong: see ``explore`` for that."""
    for number, client in enumerate(run.clients):
        if client.pending is not None:
            yield Resume(number)
            if troubled < scope.faults:
                yield Die(number)
        elif client.begun < scope.steps_per_client:
            calls = run.judge.asked.calls(number, client.seen)[:CALLS_MAX]
            if client.retry is not None and client.retry not in calls:
                calls.insert(0, client.retry)
            for call in calls:
                yield Begin(number, call)


class Node(NamedTuple):
    """A state of the exploration and how it was reached."""

    state: RunState
    waits: int
    troubled: int
    parent: int
    step: ClientStep | None


def never() -> bool:
    """Whether the time is over, where there is no end to it."""
    return False


def explore(
    run: ContractRun, scope: Scope, searched: Searched, steps_max: int, name: str, is_over: Callable[[], bool] = never
) -> None:
    """Every interleaving of ``scope``, breadth first, so that what is found first is shortest.

    Work is counted in steps carried out; beyond ``steps_max`` the rest is left out, which ``searched.gaps`` tells. Once it
    ``is_over`` the search ends with what it has.
    """
    nodes = [Node(run.state, 0, 0, -1, None)]
    numbers = {(nodes[0].state.key, 0, 0): 0}
    queue = deque([0])
    steps = 0

    def path(at: int, *more: ClientStep) -> tuple[ClientStep, ...]:
        back: list[ClientStep] = []
        while nodes[at].parent >= 0:
            taken = nodes[at].step
            assert taken is not None
            back.append(taken)
            at = nodes[at].parent
        return (*reversed(back), *more)

    def reach(at: int, step: ClientStep, waits: int, troubled: int) -> Report:
        nonlocal steps
        steps += 1
        run.go_to(nodes[at].state)
        report = run.perform(step)
        searched.work["stopped"] += bool(report.stopped)
        if isinstance(step, Begin | Resume):
            searched.note_effects(operation_of(path(at, step)), report.effects)
        if report.violation is not None:
            searched.note(path(at, step), report.violation, name)
            return report
        state = run.state
        key = (state.key, waits, troubled)
        if key not in numbers:
            numbers[key] = len(nodes)
            nodes.append(Node(state, waits, troubled, at, step))
            queue.append(numbers[key])
        return report

    while queue and steps < steps_max and not is_over():
        at = queue.popleft()
        node = nodes[at]
        run.go_to(node.state)
        ahead = list(moves(run, scope, node.troubled))
        waits = moments(run) if node.waits < scope.waits and any(isinstance(step, Begin | Resume) for step in ahead) else []
        for step in ahead:
            report = reach(at, step, node.waits, node.troubled + isinstance(step, Die))
            if node.troubled < scope.faults and isinstance(step, Begin | Resume):
                for trouble in troubles_of(report.effects, report.is_over):
                    struck = (
                        Begin(step.client, step.call, trouble)
                        if isinstance(step, Begin)
                        else Resume(step.client, trouble)
                    )
                    reach(at, struck, node.waits, node.troubled + 1)
        for ms in waits:
            reach(at, Wait(ms), node.waits + 1, node.troubled)
    searched.work["steps"] += steps
    searched.work["states"] += len(nodes)
    searched.tested.update(run.judge.tested)
    run.judge.tested = dict.fromkeys(run.judge.tested, 0)
    if queue:
        searched.gaps.append(f"{name}: {min(steps, steps_max):,} steps ran out after {len(nodes):,} states")


def walk(
    run: ContractRun, searched: Searched, seed: int, walks: int, length: int, is_over: Callable[[], bool] = never
) -> None:
    """Random walks of several clients, longer than any scope, with trouble now and then; until it ``is_over``."""
    scope = Scope("random walks", len(run.clients), length, length, length)
    start = run.state
    for number in range(walks):
        if is_over():
            break
        draw = random.Random(f"{seed}:{number}")
        rate = draw.choice((0.0, 0.0, 0.05, 0.2))
        run.go_to(start)
        steps: list[ClientStep] = []
        for _ in range(length):
            step = _drawn(run, scope, draw, rate)
            if step is None:
                break
            steps.append(step)
            report = run.perform(step)
            searched.work["steps"] += 1
            searched.work["stopped"] += bool(report.stopped)
            if report.violation is not None:
                searched.note(steps, report.violation, "random walks")
                break
        searched.work["walks"] += 1
    searched.tested.update(run.judge.tested)
    run.judge.tested = dict.fromkeys(run.judge.tested, 0)


def _drawn(run: ContractRun, scope: Scope, draw: random.Random, rate: float) -> ClientStep | None:
    if draw.random() < 0.25:
        waits = moments(run)
        return Wait(draw.choice(waits) if waits and draw.random() < 0.7 else draw.choice((1, 10, 100, 1000)))
    ahead = list(moves(run, scope, 0 if rate else scope.faults))
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
    trouble = draw.choice(troubles)
    return Begin(step.client, step.call, trouble) if isinstance(step, Begin) else Resume(step.client, trouble)
