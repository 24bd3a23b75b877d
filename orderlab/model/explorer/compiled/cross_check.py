"""The compiled engine held against the interpreter during a run, and its errors told in the interpreter's words.

Some hundred of the states that a run expands are expanded by the interpreter as well: steps, what they lead to, laws,
goals, antecedents, deadlock, the predicates of liveness laws. A difference is a defect of the engine (`EngineError`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, MutableMapping
from math import log2
from typing import TYPE_CHECKING, Any

from orderlab.model.errors import EngineError
from orderlab.model.explorer.space import DEADLOCK, InterpretedSpace
from orderlab.model.spec.transition_system import Invariant, Label, LeadsTo, Sometimes, StepInvariant
from orderlab.model.spec.variables import StateTuple

if TYPE_CHECKING:
    from orderlab.model.explorer.compiled.space import CompiledSpace

ALL_UP_TO = 128
PER_DOUBLING = 32


def drawn(seed: int, first: int, last: int) -> list[int]:
    """The states first..last-1 that are to be checked: all of the first 128, then 32 for each doubling."""

    def wanted(states: int) -> int:
        return states if states <= ALL_UP_TO else ALL_UP_TO + int(PER_DOUBLING * log2(states / ALL_UP_TO))

    if last <= ALL_UP_TO:
        return list(range(first, last))
    count = min(last - first, wanted(last) - wanted(first))
    return sorted(random.Random(f"{seed}:{first}:{last}").sample(range(first, last), count))


def check_state(space: CompiledSpace, number: int) -> None:
    """Compare both engines on an expanded state. Raises EngineError where they differ."""
    state = space.state(number)
    told = space.observed(number)
    expected = _Observed(space, state)
    if told.raised or expected.raised:
        if told.raised != bool(expected.raised):
            raise disagreement(space, state, f"{expected.raised or 'nothing'} raised", "the opposite")
        return
    for what, one, other in (
        ("steps", expected.steps, told.steps),
        ("laws broken and goals reached", expected.found, told.found),
        ("antecedents met", expected.met, told.met),
        ("predicates of liveness laws", expected.predicates, told.predicates),
    ):
        if one != other:
            raise disagreement(space, state, f"{what} {_difference(one, other)}", _difference(other, one))


def disagreement(space: CompiledSpace, state: StateTuple, interpreted: str, compiled: str) -> EngineError:
    shown = ", ".join(f"{name} = {value}" for name, value in space.system.describe(state).items())
    return EngineError(
        f"{space.system.name}: the engines disagree in the state {shown}: interpreted, {interpreted}; compiled,"
        f" {compiled}; this is a defect of the compiled engine: report it, and use --engine interpreted"
    )


def _difference(one: Any, other: Any) -> str:
    if isinstance(one, set):
        return ", ".join(sorted(map(str, one - other))) or "none beyond"
    at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return f"{one[at][0]} to {one[at][1]}" if at < len(one) else "no further step"


class Observation:
    """What one engine says of one state: steps and where they lead, names of laws broken and goals reached, antecedents
    met, predicates that are true, whether anything raised.
    """

    def __init__(self) -> None:
        self.steps: list[tuple[str, StateTuple]] = []
        self.found: set[str] = set()
        self.met: set[str] = set()
        self.predicates: set[tuple[str, str]] = set()
        self.raised: str | bool | None = None


class _Observed(Observation):
    """The interpreter's observation."""

    def __init__(self, space: CompiledSpace, state: StateTuple):
        super().__init__()
        self._attempt(lambda: self._look(space, state))
        for law in space.laws:
            self._attempt(lambda law=law: self._judge(law, state))  # type: ignore[misc]

    def _attempt(self, look: Callable[[], None]) -> None:
        try:
            look()
        except Exception as error:  # whatever the text raises
            self.raised = type(error).__name__

    def _look(self, space: CompiledSpace, state: StateTuple) -> None:
        system = space.system
        step_laws = [law for law in space.laws if isinstance(law, StepInvariant)]
        steps: list[tuple[Label, StateTuple]] = list(system.successors(state))
        for label, after in steps:
            for law in step_laws:
                if law.name not in self.found and not law.holds(state, label, after):
                    self.found.add(law.name)
            self.steps.append((str(label), space.representative(after)))
        if not steps and not system.is_terminal(state):
            self.found.add(DEADLOCK)

    def _judge(self, law: Any, state: StateTuple) -> None:
        if isinstance(law, Invariant):
            if law.antecedent is not None:
                if not law.antecedent(state):
                    return
                self.met.add(law.name)
            if not law.holds(state):
                self.found.add(law.name)
        elif isinstance(law, Sometimes) and law.reached(state):
            self.found.add(law.name)
        elif isinstance(law, LeadsTo):
            for side, predicate in (("when", law.when), ("then", law.then)):
                if predicate is not None and predicate(state):
                    self.predicates.add((law.name, side))


class _KnownBefore(MutableMapping[Any, int]):
    """The numbers of the states that were known when an expansion began, and of those entered since."""

    def __init__(self, space: CompiledSpace, count: int):
        self._space, self._count = space, count
        self._since: dict[Any, int] = {}

    def __getitem__(self, state: Any) -> int:
        number = self._space.number_of(state)
        return number if number is not None and number < self._count else self._since[state]

    def __setitem__(self, state: Any, number: int) -> None:
        self._since[state] = number

    def __delitem__(self, state: Any) -> None:
        raise NotImplementedError

    def __iter__(self) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


def tell_error(space: CompiledSpace, number: int, known: int) -> None:
    """Raise what the interpreter raises when it expands a state while the first `known` states are known; where that
    is nothing, EngineError.
    """
    twin = InterpretedSpace(space.system, space.symmetry, laws=space.laws)
    twin._states = [space.state(number)]
    twin._numbers = _KnownBefore(space, known)  # type: ignore[assignment]
    twin.count = 1
    by_state = {law.name for law in space.laws if isinstance(law, Invariant | Sometimes)}
    earlier = {law for law, at in space.findings().items() if at < (known if law in by_state else number)}
    twin.found = dict.fromkeys(earlier, 0)
    twin.expand(0, 1)
    raise disagreement(space, space.state(number), "no error", "one")


def tell_error_at_start(space: CompiledSpace, number: int) -> None:
    """The same for an initial state that was just entered."""
    twin = InterpretedSpace(space.system, space.symmetry, laws=space.laws)
    twin.found = {law: at for law, at in space.findings().items() if at < number}
    twin._enter(space.state(number), -1)
    raise disagreement(space, space.state(number), "no error", "one")


def tell_error_of_predicate(space: CompiledSpace, law: LeadsTo[Any], side: str, first: int, last: int) -> None:
    """The same for a predicate of a liveness law."""
    predicate = law.then if side == "then" else law.when
    assert predicate is not None
    for number in range(first, last):
        predicate(space.state(number))
    raise disagreement(space, space.state(first), f"no error of {law.name}", "one")

