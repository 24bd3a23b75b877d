"""The water jugs of "Die Hard 3": measure four gallons with a jug of three and a jug of five.

After Lamport, "Specifying Systems" lectures and the TLA+ examples, module DieHard; TLC reports 16 distinct states. The
shortest way to four gallons has six steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from orderlab.model.spec.declarations import action, invariant
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.variables import Array, Domain, State, integer


class DieHard(Specification):
    """The puzzle is posed as a law, that the big jug never holds `goal`: the counterexample is the solution.

    A goal of -1 asks nothing and explores everything.
    """

    name: ClassVar[str] = "die-hard"
    small_jug: int = Field(3, ge=1, le=50)
    big_jug: int = Field(5, ge=1, le=50)
    goal: int = Field(-1, ge=-1, le=50)

    def variables(self) -> Mapping[str, Domain | Array]:
        return {"small": integer(0, self.small_jug), "big": integer(0, self.big_jug)}

    @action(actor="hero")
    def fill_small(self, s: State) -> None:
        s.small = self.small_jug

    @action(actor="hero")
    def fill_big(self, s: State) -> None:
        s.big = self.big_jug

    @action(actor="hero")
    def empty_small(self, s: State) -> None:
        s.small = 0

    @action(actor="hero")
    def empty_big(self, s: State) -> None:
        s.big = 0

    @action(actor="hero")
    def small_to_big(self, s: State) -> None:
        poured = min(s.small, self.big_jug - s.big)
        s.small -= poured
        s.big += poured

    @action(actor="hero")
    def big_to_small(self, s: State) -> None:
        poured = min(s.big, self.small_jug - s.small)
        s.big -= poured
        s.small += poured

    @invariant()
    def goal_not_met(self, s: State) -> bool:
        return bool(s.big != self.goal)
