"""The space of states seen so far: numbered in breadth-first order, each with the state that it was first reached from.

The search drives one of two spaces through the same interface: the interpreted one below, for any transition system,
and the compiled one for declarative specifications. Both number states alike.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from orderlab.model.explorer.crew import Crew, Judges, Tables
from orderlab.model.explorer.reduction import Reduction
from orderlab.model.spec.transition_system import (
    Constraint,
    Invariant,
    Label,
    Law,
    LeadsTo,
    Sometimes,
    StepInvariant,
    TransitionSystem,
)

DEADLOCK = "no-deadlock"
LOOK_AHEAD = 1 << 14
"""Known states that are offered to helpers at once."""


@dataclass(frozen=True)
class Edges:
    """Steps between known states, as parallel columns; `label` indexes `labels`."""

    source: NDArray[np.int64]
    label: NDArray[np.int64]
    target: NDArray[np.int64]
    labels: tuple[Label, ...]


class Space(Protocol):
    """`found` holds for each law the number of the first state at fault (or, for a goal, that meets it); `cut` the
    states that a constraint keeps from being gone on from."""

    engine: str
    count: int
    steps: int
    found: dict[str, int]
    cut: set[int]

    @property
    def system(self) -> TransitionSystem[Any]: ...

    @property
    def compiles(self) -> bool:
        """Whether the compiled space can go on from here."""

    def start(self) -> None:
        """Enter the initial states."""

    def expand(self, first: int, last: int) -> int:
        """Expand the states first..last-1; return the first that is not expanded yet (`last`, or less when
        interrupted).
        """

    def edges(self, first: int, last: int) -> Edges:
        """All steps from these expanded states to known states."""

    def state(self, number: int) -> Any: ...

    def number_of(self, state: Any) -> int | None:
        """The number of a state's representative, if it is known."""

    def parent(self, number: int) -> int:
        """The state that this one was first reached from; -1 for initial states."""

    def truth(self, law: LeadsTo[Any], side: str, first: int, last: int) -> NDArray[np.bool_]:
        """The predicate `when` or `then` of a liveness law, for a stretch of states."""

    def fired(self) -> Mapping[str, int]:
        """How many steps each action has taken."""

    def met(self) -> Mapping[str, int]:
        """In how many states each antecedent held."""

    def bytes_held(self) -> int: ...

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to go on later, as plain values."""

    def restore(self, saved: Mapping[str, Any]) -> None: ...


class InterpretedSpace:
    """States as Python values in a dictionary. `reduction` chooses which steps of a state to follow, if given."""

    engine = "interpreted"

    def __init__(
        self,
        system: TransitionSystem[Any],
        symmetry: bool = False,
        reduction: Reduction | None = None,
        laws: Sequence[Law] | None = None,
        constraints: Sequence[Constraint[Any]] = (),
    ):
        self.system = system
        self.count = 0
        self.steps = 0
        self.found: dict[str, int] = {}
        self._canonical: Callable[[Any], Any] | None = system.canonical if symmetry else None
        self._reduction = reduction
        self._numbers: dict[Hashable, int] = {}
        self._states: list[Any] = []
        self._parents = array("q")
        self._fired: dict[str, int] = dict.fromkeys(system.action_names(), 0)
        self.cut: set[int] = set()
        self._constraints = constraints
        laws = system.laws() if laws is None else laws
        self._invariants = [law for law in laws if isinstance(law, Invariant)]
        self._step_laws = [law for law in laws if isinstance(law, StepInvariant)]
        self._goals = [law for law in laws if isinstance(law, Sometimes)]
        self._met = {law.name: 0 for law in self._invariants if law.antecedent is not None}
        self._crew: Crew | None = None
        self._baseline = resident_bytes()

    @property
    def compiles(self) -> bool:
        return self._reduction is None and not self._constraints

    def share(self, workers: int) -> None:
        """Have other processes step states ahead from now on, until `close`."""
        self._crew = Crew(
            Judges(self.system, self._canonical, self._invariants, self._step_laws, self._goals, self._constraints), workers
        )

    @property
    def is_shared(self) -> bool:
        return self._crew is not None

    def close(self) -> None:
        """End the processes that help."""
        if self._crew is not None:
            self._crew.close()
            self._crew = None

    def stop_reducing(self) -> None:
        """Follow all steps from now on."""
        self._reduction = None

    def start(self) -> None:
        for state in self.system.initial_states():
            representative = self._canonical(state) if self._canonical else state
            if representative not in self._numbers:
                self._enter(representative, -1)

    def _enter(self, state: Any, parent: int) -> None:
        number = self.count
        self._numbers[state] = number
        self._states.append(state)
        self._parents.append(parent)
        self.count = number + 1
        for law in self._invariants:
            if law.antecedent is not None:
                if not law.antecedent(state):
                    continue
                self._met[law.name] += 1
            if law.name not in self.found and not law.holds(state):
                self.found[law.name] = number
        for goal in self._goals:
            if goal.name not in self.found and goal.reached(state):
                self.found[goal.name] = number
        if self._constraints and not all(one.holds(state) for one in self._constraints):
            self.cut.add(number)
        if self._reduction is not None:
            self._reduction.saw_state(state)

    def _expand_shared(self, crew: Crew, first: int, last: int) -> int:
        for source in range(first, last):
            if source in self.cut:
                continue
            found = crew.expanded(source, self._still_to_step)
            if found is None:  # whatever failed there fails here, and is told
                self._expand_alone(source, source + 1)
                continue
            tables, labels, targets = found.tables, found.labels, found.targets
            for name in found.broken:
                self.found.setdefault(name, source)
            for kind in labels:
                action = tables.labels[kind][1]
                self._fired[action] = self._fired.get(action, 0) + 1
            numbers = tables.numbers
            for place in targets:
                if numbers[place] < 0:
                    numbers[place] = self._enter_judged(tables, place, source)
            self.steps += len(targets)
            if found.is_stuck and DEADLOCK not in self.found:
                self.found[DEADLOCK] = source
        return last

    def _still_to_step(self, first: int) -> tuple[list[int], list[Any]]:
        numbers = [number for number in range(first, min(self.count, first + LOOK_AHEAD)) if number not in self.cut]
        return numbers, [self._states[number] for number in numbers]

    def _enter_judged(self, tables: Tables, place: int, parent: int) -> int:
        """Enter a state that a helper has judged, if it is new; its number."""
        state = tables.states[place]
        known = self._numbers.get(state)
        if known is not None:
            return known
        number = self._numbers[state] = self.count
        self._states.append(state)
        self._parents.append(parent)
        self.count = number + 1
        judged = tables.judgements[tables.judged[place]]
        for name in (*judged.broken, *judged.reached):
            self.found.setdefault(name, number)
        for name in judged.met:
            self._met[name] += 1
        if judged.cut:
            self.cut.add(number)
        return number

    def expand(self, first: int, last: int) -> int:
        if self._crew is not None:
            return self._expand_shared(self._crew, first, last)
        return self._expand_alone(first, last)

    def _expand_alone(self, first: int, last: int) -> int:
        """The hot loop. Attribute look-ups are hoisted; everything rare is behind a test that is usually false."""
        successors, canonical, numbers, fired = self.system.successors, self._canonical, self._numbers, self._fired
        reduction, step_laws, states, cut = self._reduction, self._step_laws, self._states, self.cut
        for source in range(first, last):
            if source in cut:
                continue
            state = states[source]
            chosen = successors(state) if reduction is None else reduction.choose(state, partial(self._is_open, source))
            steps = 0
            for label, after in chosen:
                steps += 1
                action = label.action
                fired[action] = fired.get(action, 0) + 1
                if step_laws:
                    self._judge_step(source, state, label, after)
                if canonical is not None:
                    after = canonical(after)
                if after not in numbers:
                    self._enter(after, source)
            self.steps += steps
            if steps == 0 and DEADLOCK not in self.found and not self.system.is_terminal(state):
                self.found[DEADLOCK] = source
        return last

    def _judge_step(self, source: int, state: Any, label: Label, after: Any) -> None:
        for law in self._step_laws:
            if law.name not in self.found and not law.holds(state, label, after):
                self.found[law.name] = source

    def _is_open(self, expanding: int, state: Any) -> bool:
        """Whether a successor has still to be expanded (the proviso against postponing a step for ever)."""
        representative = self._canonical(state) if self._canonical else state
        number = self._numbers.get(representative)
        return number is None or number > expanding

    def edges(self, first: int, last: int) -> Edges:
        source, kind, target = array("q"), array("q"), array("q")
        table: dict[tuple[Any, ...], int] = {}
        labels: list[Label] = []
        for number in range(first, last):
            if number in self.cut:
                continue
            for label, after in self.system.successors(self._states[number]):
                reached = self.number_of(after)
                if reached is None:
                    continue
                at = table.setdefault(label[:3], len(labels))
                if at == len(labels):
                    labels.append(label)
                source.append(number)
                kind.append(at)
                target.append(reached)
        return Edges(column(source), column(kind), column(target), tuple(labels))

    def state(self, number: int) -> Any:
        return self._states[number]

    def number_of(self, state: Any) -> int | None:
        return self._numbers.get(self._canonical(state) if self._canonical else state)

    def parent(self, number: int) -> int:
        return self._parents[number]

    def truth(self, law: LeadsTo[Any], side: str, first: int, last: int) -> NDArray[np.bool_]:
        predicate = law.then if side == "then" else law.when
        assert predicate is not None
        return np.fromiter((predicate(s) for s in self._states[first:last]), np.bool_, last - first)

    def fired(self) -> Mapping[str, int]:
        return self._fired

    def met(self) -> Mapping[str, int]:
        return self._met

    def bytes_held(self) -> int:
        return max(0, resident_bytes() - self._baseline)

    def snapshot(self) -> dict[str, Any]:
        return {
            "states": self._states,
            "parents": self._parents.tobytes(),
            "steps": self.steps,
            "found": self.found,
            "fired": self._fired,
            "met": self._met,
            "cut": self.cut,
            "reduction": self._reduction.snapshot() if self._reduction else None,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        self._states = list(saved["states"])
        self._numbers = {state: number for number, state in enumerate(self._states)}
        self._parents = array("q", saved["parents"])
        self.count, self.steps = len(self._states), saved["steps"]
        self.found, self._fired, self._met = dict(saved["found"]), dict(saved["fired"]), dict(saved["met"])
        self.cut = set(saved["cut"])
        if self._reduction is not None:
            self._reduction.restore(saved["reduction"])


def column(numbers: array[int]) -> NDArray[np.int64]:
    return np.array(numbers, np.int64)


def resident_bytes() -> int:
    """Memory that this process holds now; where the system does not tell, the most that it ever held."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * 4096
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
