"""A machine over any specification: one rule for each of its actions, its invariants judged after every step.

The explorer visits every state of a small scope; the machine walks far into a large one. ``machine_of`` makes the class;
a failing walk shrinks to the actions that matter and prints as a program of rule calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition

from model.transition_system import Invariant, Label, Law, StepInvariant, TransitionSystem
from properties.machines.tally import Tally, rule, tally_of


class SystemMachine(RuleBasedStateMachine):
    """A walk through ``system``. Raises AssertionError naming the law, with the labels that led there."""

    system: ClassVar[TransitionSystem[Any]]
    laws: ClassVar[Sequence[Law]] = ()

    def __init__(self) -> None:
        super().__init__()
        self.tally = Tally(examples=1)
        (self.state, *_) = self.system.initial_states()
        self.taken: list[Label] = []
        self._offered: tuple[Any, list[tuple[Label, Any]]] | None = None
        self.judge(None, self.state, self.state)

    def offers(self, action: str) -> list[tuple[Label, Any]]:
        """The steps of that action that the present state allows."""
        if self._offered is None or self._offered[0] is not self.state:
            self._offered = self.state, list(self.system.successors(self.state))
        return [step for step in self._offered[1] if step[0].action == action]

    def fire(self, action: str, which: int) -> None:
        """One of them."""
        offers = self.offers(action)
        label, after = offers[which % len(offers)]
        before, self.state = self.state, after
        self.taken.append(label)
        self.tally.steps[action] += 1
        self.judge(label, before, after)

    def judge(self, label: Label | None, before: Any, after: Any) -> None:
        """Every law of a state or of a step. What is promised for later is the explorer's."""
        for law in self.laws:
            if isinstance(law, Invariant):
                is_met = law.antecedent is None or law.antecedent(after)
                self.tally.met[law.name] += is_met
                holds = not is_met or law.holds(after)
            elif isinstance(law, StepInvariant) and label is not None:
                self.tally.met[law.name] += 1
                holds = law.holds(before, label, after)
            else:
                continue
            assert holds, f"{law.name} is violated after {', '.join(map(str, self.taken))}"

    @rule()
    def nothing(self) -> None:
        """Nobody moves: where every action has had its turn, there is nothing else to do."""

    def teardown(self) -> None:
        """Count."""
        tally_of(type(self).__name__).add(self.tally)


def machine_of(system: TransitionSystem[Any], name: str) -> type[SystemMachine]:
    """The machine of one specification in one scope. Its actions become rules under their own names."""
    body: dict[str, Any] = {"system": system, "laws": tuple(system.laws()), "__module__": __name__, "__qualname__": name}
    for action in system.action_names():
        body[action.replace(" ", "_").replace("-", "_").lower()] = _rule_of(action)
    return type(name, (SystemMachine,), body)


def _rule_of(action: str) -> Any:
    def fire(machine: SystemMachine, which: int) -> None:
        machine.fire(action, which)

    fire.__name__ = fire.__qualname__ = action.replace(" ", "_").replace("-", "_").lower()
    return precondition(lambda machine: bool(machine.offers(action)))(rule(which=st.integers(0, 9))(fire))
