"""A machine over any specification: one rule for each of its actions, its invariants judged after every step.

The explorer visits every state of a small scope; the machine walks far into a large one. ``machine_of`` makes the
class; a failing walk shrinks to the actions that matter and prints as a program of rule calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition

from orderlab.model.spec.transition_system import Invariant, Label, Law, StepInvariant, TransitionSystem
from orderlab.properties.machines.tally import Tally, rule, tally_of

WHICH = st.one_of(st.integers(0, 2), st.integers(-2, -1), st.integers(0, 99))
"""Of the steps offered: often one of the first or of the last, and now and then any, also where there are many."""


class SpecificationViolated(AssertionError):
    """A law of a specification is broken after ``taken``."""

    def __init__(self, law: str, taken: Sequence[Label]) -> None:
        super().__init__(f"{law} is violated after {', '.join(map(str, taken))}")
        self.law = law
        self.taken = tuple(taken)


class SystemMachine(RuleBasedStateMachine):
    """A walk through ``system``. Raises SpecificationViolated."""

    system: ClassVar[TransitionSystem[Any]]
    laws: ClassVar[Sequence[Law]] = ()

    def __init__(self) -> None:
        super().__init__()
        self.tally = Tally(examples=1)
        (self.state, *_) = self.system.initial_states()
        self.taken: list[Label] = []
        self._offered: tuple[Any, list[tuple[Label, Any]]] | None = None
        self.judge(None, self.state, self.state)

    def offers(self) -> list[tuple[Label, Any]]:
        """The steps that the present state allows."""
        if self._offered is None or self._offered[0] is not self.state:
            self._offered = self.state, list(self.system.successors(self.state))
        return self._offered[1]

    def fire(self, offers: list[tuple[Label, Any]], which: int) -> None:
        """One of these steps, and every law."""
        label, after = offers[which % len(offers)]
        before, self.state = self.state, after
        self.taken.append(label)
        self.tally.steps[label.action] += 1
        self.judge(label, before, after)

    def judge(self, label: Label | None, before: Any, after: Any) -> None:
        """Every law of a state or of a step. What is promised for later is the explorer's."""
        for law in self.laws:
            if isinstance(law, Invariant):
                is_met = law.antecedent is None or law.antecedent(after)
                self.tally.coverage[law.name] += is_met
                holds = not is_met or law.holds(after)
            elif isinstance(law, StepInvariant) and label is not None:
                self.tally.coverage[law.name] += 1
                holds = law.holds(before, label, after)
            else:
                continue
            if not holds:
                raise SpecificationViolated(law.name, self.taken)

    def take(self, actions: Sequence[str], **named: int) -> None:
        """The first step of these actions with these arguments, if it is offered. What an action does not take is not
        asked of it."""
        for step in self.offers():
            label = step[0]
            if label.action in actions and all(value == named.get(name, value) for name, value in label.arguments):
                self.fire([step], 0)
                return

    def teardown(self) -> None:
        """Add this example to the tally of its machine."""
        tally_of(type(self).__name__).add(self.tally)


def machine_of(system: TransitionSystem[Any], name: str) -> type[SystemMachine]:
    """The machine of one specification in one scope. Its actions become rules under their own names."""
    body: dict[str, Any] = {
        "system": system,
        "laws": tuple(system.laws()),
        "__module__": __name__,
        "__qualname__": name,
    }
    for action in system.action_names():
        body[action.replace(" ", "_").replace("-", "_").lower()] = _rule_of(action)
    return type(name, (SystemMachine,), body)


def _rule_of(action: str) -> Any:
    def fire(machine: SystemMachine, which: int) -> None:
        offers = [step for step in machine.offers() if step[0].action == action]
        machine.fire(offers, which)

    def is_offered(machine: SystemMachine) -> bool:
        return any(label.action == action for label, _ in machine.offers())

    fire.__name__ = fire.__qualname__ = action.replace(" ", "_").replace("-", "_").lower()
    return precondition(is_offered)(rule(which=WHICH)(fire))
