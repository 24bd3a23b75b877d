"""Dijkstra's termination detection on a ring (EWD 840): a token tells node 0 that every node has become inactive.

After Dijkstra, Feijen and van Gasteren, "Derivation of a termination detection algorithm for distributed
computations" (IPL 16(5), 1983), and module EWD840 of the TLA+ examples, of which TLC reports 302 distinct states with 3
nodes and 1,566 with 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import ClassVar, Literal

from pydantic import Field

from orderlab.model.spec.declarations import LeadsToDeclaration, action, invariant, leads_to, require, sometimes
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.transition_system import Fairness
from orderlab.model.spec.variables import Array, Domain, IndexSet, State, boolean, choice, element


class Colour(IntEnum):
    WHITE = 0
    BLACK = 1


class TerminationDetection(Specification):
    """Nodes form a ring, so they are ordered, not symmetric. `flaw`: senders stay white, or nothing makes the token
    move on."""

    name: ClassVar[str] = "termination-detection"
    nodes: int = Field(3, ge=2, le=7)
    flaw: Literal["none", "sender-stays-white", "token-may-stop"] = "none"

    @cached_property
    def ring(self) -> IndexSet:
        return IndexSet("node", self.nodes)

    @cached_property
    def others(self) -> tuple[int, ...]:
        """All nodes but node 0."""
        return tuple(range(1, self.nodes))

    def variables(self) -> Mapping[str, Domain | Array]:
        return {
            "active": Array(self.ring, boolean()),
            "colour": Array(self.ring, choice(Colour)),
            "token_at": element(self.ring),
            "token": choice(Colour),
        }

    def starts_anywhere(self) -> Sequence[str]:
        return ("active", "colour", "token_at")

    def initial(self, s: State) -> None:
        s.token = Colour.BLACK

    @action(actor="node 0", fair=True)
    def initiate_probe(self, s: State) -> None:
        require(s.token_at == 0 and (s.token == Colour.BLACK or s.colour[0] == Colour.BLACK))
        s.token_at = self.nodes - 1
        s.token = Colour.WHITE
        s.colour[0] = Colour.WHITE

    @action(actor="node {i}", fair=True, i="others")
    def pass_token(self, s: State, i: int) -> None:
        require(s.token_at == i)
        require(not s.active[i] or s.colour[i] == Colour.BLACK or s.token == Colour.BLACK)
        s.token_at = i - 1
        if s.colour[i] == Colour.BLACK:
            s.token = Colour.BLACK
        s.colour[i] = Colour.WHITE

    @action(actor="node {i}", i="ring", j="ring")
    def send_message(self, s: State, i: int, j: int) -> None:
        require(s.active[i] and i != j)
        s.active[j] = True
        if j > i and self.flaw != "sender-stays-white":
            s.colour[i] = Colour.BLACK

    @action(actor="node {i}", i="ring")
    def deactivate(self, s: State, i: int) -> None:
        require(s.active[i])
        s.active[i] = False

    def detected(self, s: State) -> bool:
        """Node 0 may conclude that all have terminated."""
        white = s.token == Colour.WHITE and s.colour[0] == Colour.WHITE
        return s.token_at == 0 and white and not s.active[0]

    def terminated(self, s: State) -> bool:
        return all(not s.active[i] for i in self.ring)

    @invariant(when="detected")
    def detection_is_correct(self, s: State) -> bool:
        return self.terminated(s)

    @sometimes()
    def detection_happens(self, s: State) -> bool:
        return self.detected(s)

    detection_follows: ClassVar[LeadsToDeclaration] = leads_to(
        "terminated", "detected", "Termination is detected in the end."
    )

    def terminal(self, s: State) -> bool:
        return self.detected(s)

    def fairness(self) -> Sequence[Fairness]:
        return () if self.flaw == "token-may-stop" else super().fairness()
