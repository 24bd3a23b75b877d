"""Several processes that share an interpreted search: they step and judge states ahead, one process numbers the results.

The one that searches takes the results in the order in which it would have found them itself, so numbers, counts, verdicts
and witnesses are those of a search without help. A state travels at most once from each helper: afterwards it is named by
the place that it had there. What fails in a helper is left for the searching process to do again, where the error is told.
"""

from __future__ import annotations

import multiprocessing
import signal
from array import array
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from orderlab.model.errors import WorkerDied
from orderlab.model.spec.transition_system import Constraint, Invariant, Sometimes, StepInvariant, TransitionSystem

AHEAD = 256
"""States for each helper in one delivery."""


class Judgement(NamedTuple):
    """What the laws say of a state, by name."""

    broken: tuple[str, ...]
    met: tuple[str, ...]
    reached: tuple[str, ...]
    cut: bool


@dataclass(frozen=True)
class Judges:
    """Everything that is asked of a state or a step."""

    system: TransitionSystem[Any]
    canonical: Callable[[Any], Any] | None
    invariants: Sequence[Invariant[Any]]
    step_laws: Sequence[StepInvariant[Any]]
    goals: Sequence[Sometimes[Any]]
    constraints: Sequence[Constraint[Any]]

    def judge(self, state: Any) -> Judgement:
        met = [law for law in self.invariants if law.antecedent is None or law.antecedent(state)]
        return Judgement(
            tuple(law.name for law in met if not law.holds(state)),
            tuple(law.name for law in met if law.antecedent is not None),
            tuple(goal.name for goal in self.goals if goal.reached(state)),
            not all(one.holds(state) for one in self.constraints),
        )


@dataclass
class Delivery:
    """The steps out of some states: for each state `counts` steps, of which each has a label and leads to a state, both
    named by their places in this helper's tables; what is new in the tables; `failed` is the place of the state that
    could not be stepped."""

    counts: array[int] = field(default_factory=lambda: array("q"))
    labels: array[int] = field(default_factory=lambda: array("q"))
    targets: array[int] = field(default_factory=lambda: array("q"))
    new_labels: list[tuple[Any, ...]] = field(default_factory=list)
    new_states: list[Any] = field(default_factory=list)
    judged: array[int] = field(default_factory=lambda: array("q"))
    new_judgements: list[Judgement] = field(default_factory=list)
    stuck: list[int] = field(default_factory=list)
    broken_steps: list[tuple[int, str]] = field(default_factory=list)
    failed: int | None = None


class _Helper:
    """The other end: steps what it is sent, and remembers what it has told."""

    def __init__(self, judges: Judges):
        self.judges = judges
        self.states: dict[Hashable, int] = {}
        self.labels: dict[tuple[Any, ...], int] = {}
        self.judgements: dict[Judgement, int] = {}

    def deliver(self, states: Sequence[Any]) -> Delivery:
        told = Delivery()
        for at, state in enumerate(states):
            try:
                self._step(told, at, state)
            except Exception:
                told.failed = at
                break
        return told

    def _step(self, told: Delivery, at: int, state: Any) -> None:
        judges, canonical = self.judges, self.judges.canonical
        steps = list(judges.system.successors(state))
        reached = [canonical(after) for _, after in steps] if canonical is not None else [after for _, after in steps]
        judgements = [None if after in self.states else judges.judge(after) for after in reached]
        broken = [law.name for law in judges.step_laws for label, after in steps if not law.holds(state, label, after)]
        is_stuck = not steps and not judges.system.is_terminal(state)
        for (label, _), after, judgement in zip(steps, reached, judgements, strict=True):
            kind = self.labels.get(label[:3])
            if kind is None:
                kind = self.labels[label[:3]] = len(self.labels)
                told.new_labels.append(label[:3])
            told.labels.append(kind)
            place = self.states.get(after)
            if place is None:
                assert judgement is not None
                place = self.states[after] = len(self.states)
                told.new_states.append(after)
                said = self.judgements.get(judgement)
                if said is None:
                    said = self.judgements[judgement] = len(self.judgements)
                    told.new_judgements.append(judgement)
                told.judged.append(said)
            told.targets.append(place)
        told.counts.append(len(steps))
        told.broken_steps += [(at, name) for name in broken]
        if is_stuck:
            told.stuck.append(at)


def _serve(judges: Judges, pipe: Connection, others: Sequence[Connection]) -> None:
    """Answer until the other end is closed. Ctrl-C is the searching process's to hear."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for other in others:
        other.close()
    helper = _Helper(judges)
    try:
        while True:
            pipe.send(helper.deliver(pipe.recv()))
    except (EOFError, OSError):
        return


@dataclass
class Tables:
    """What one helper has told so far; `numbers` has the number of each state, -1 before it is numbered."""

    states: list[Any] = field(default_factory=list)
    numbers: array[int] = field(default_factory=lambda: array("q"))
    judged: array[int] = field(default_factory=lambda: array("q"))
    judgements: list[Judgement] = field(default_factory=list)
    labels: list[tuple[Any, ...]] = field(default_factory=list)

    def take(self, told: Delivery) -> None:
        self.states += told.new_states
        self.numbers.extend([-1] * len(told.new_states))
        self.judged.extend(told.judged)
        self.judgements += told.new_judgements
        self.labels += told.new_labels


class Expanded(NamedTuple):
    """The steps out of one state, as its helper told them."""

    tables: Tables
    labels: array[int]
    targets: array[int]
    is_stuck: bool
    broken: tuple[str, ...]


class Crew:
    """The helpers. Ask for states in the order of their numbers; what comes next is asked for ahead of time."""

    def __init__(self, judges: Judges, helpers: int):
        context = multiprocessing.get_context("fork")
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        self._tables = [Tables() for _ in range(helpers)]
        self._asked: list[list[int]] = [[] for _ in range(helpers)]
        self._ready: dict[int, Expanded | None] = {}
        self._next = 0
        for _ in range(helpers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(judges, theirs, [*self._pipes, ours]), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def expanded(self, number: int, known: Callable[[int], tuple[list[int], list[Any]]]) -> Expanded | None:
        """The steps out of a state; None if its helper failed there. `known` gives the numbers and the states that are to
        be stepped from a number on."""
        if number not in self._ready:
            if number not in {one for asked in self._asked for one in asked}:
                self._collect()
                self._next = number
                self._ask(known)
            self._collect()
            self._ask(known)
        return self._ready.pop(number)

    def _ask(self, known: Callable[[int], tuple[list[int], list[Any]]]) -> None:
        numbers, states = known(self._next)
        most = AHEAD * len(self._pipes)
        numbers, states = numbers[:most], states[:most]
        if not numbers:
            return
        share = -(-len(numbers) // len(self._pipes))
        for helper, pipe in enumerate(self._pipes):
            mine = slice(helper * share, (helper + 1) * share)
            self._asked[helper] = numbers[mine]
            if numbers[mine]:
                self._talk(helper, lambda p=pipe, s=states[mine]: p.send(s))  # type: ignore[misc]
        self._next = numbers[-1] + 1

    def _collect(self) -> None:
        for helper, pipe in enumerate(self._pipes):
            if self._asked[helper]:
                self._take(helper, self._talk(helper, pipe.recv))
                self._asked[helper] = []

    def _talk(self, helper: int, how: Callable[[], Any]) -> Any:
        try:
            return how()
        except (EOFError, OSError):
            process = self._processes[helper]
            process.join(1)
            raise WorkerDied(
                f"worker {helper + 1} of the search ended with exit code {process.exitcode}: killed, or out of memory;"
                " give less --workers"
            ) from None

    def _take(self, helper: int, told: Delivery) -> None:
        tables = self._tables[helper]
        tables.take(told)
        stuck, broken = set(told.stuck), dict[int, list[str]]()
        for at, name in told.broken_steps:
            broken.setdefault(at, []).append(name)
        begin = 0
        for at, number in enumerate(self._asked[helper]):
            if told.failed is not None and at >= told.failed:
                self._ready[number] = None
                continue
            end = begin + told.counts[at]
            labels, targets = told.labels[begin:end], told.targets[begin:end]
            self._ready[number] = Expanded(tables, labels, targets, at in stuck, tuple(broken.get(at, ())))
            begin = end

    def close(self) -> None:
        """End the helpers."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(1)
            if process.is_alive():
                process.terminate()

