"""Two-phase commit: a coordinator and its resource managers agree to commit or to abort.

After Gray and Lamport, "Consensus on Transaction Commit" (ACM TODS 31(1), 2006), section 3, and its TLA+ module
TwoPhase. Messages are never lost and never removed: each is a flag that once set stays set. Stateright's example of
the same protocol publishes the counts that tests pin: 288 distinct states with 3 managers, 8,832 with 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property
from typing import ClassVar, Literal

from pydantic import Field

from orderlab.model.spec.declarations import action, invariant, require, sometimes
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.variables import Array, Domain, IndexSet, State, boolean, choice


class Manager(IntEnum):
    WORKING = 0
    PREPARED = 1
    COMMITTED = 2
    ABORTED = 3


class Coordinator(IntEnum):
    INIT = 0
    COMMITTED = 1
    ABORTED = 2


class TwoPhaseCommit(Specification):
    """`flaw` exchanges one guard for a wrong one: the law that then fails shows that the law is not vacuous."""

    name: ClassVar[str] = "two-phase-commit"
    resource_managers: int = Field(3, ge=1, le=10)
    flaw: Literal["none", "commit-without-all-votes", "abort-after-vote"] = "none"

    @cached_property
    def managers(self) -> IndexSet:
        return IndexSet("manager", self.resource_managers, symmetric=True)

    def variables(self) -> Mapping[str, Domain | Array]:
        managers = self.managers
        return {
            "manager": Array(managers, choice(Manager)),
            "coordinator": choice(Coordinator),
            "heard": Array(managers, boolean()),
            "vote_sent": Array(managers, boolean()),
            "commit_sent": boolean(),
            "abort_sent": boolean(),
        }

    @action(actor="coordinator", rm="managers")
    def receive_vote(self, s: State, rm: int) -> None:
        """TMRcvPrepared(rm)."""
        require(s.coordinator == Coordinator.INIT and s.vote_sent[rm])
        s.heard[rm] = True

    @action(actor="coordinator")
    def commit(self, s: State) -> None:
        """TMCommit: every manager has voted."""
        require(s.coordinator == Coordinator.INIT)
        if self.flaw == "commit-without-all-votes":
            require(any(s.heard[rm] for rm in self.managers))
        else:
            require(all(s.heard[rm] for rm in self.managers))
        s.coordinator = Coordinator.COMMITTED
        s.commit_sent = True

    @action(actor="coordinator")
    def abort(self, s: State) -> None:
        """TMAbort: the coordinator may give up at any time before it has decided."""
        require(s.coordinator == Coordinator.INIT)
        s.coordinator = Coordinator.ABORTED
        s.abort_sent = True

    @action(actor="manager {rm}", rm="managers")
    def prepare(self, s: State, rm: int) -> None:
        """RMPrepare(rm)."""
        require(s.manager[rm] == Manager.WORKING)
        s.manager[rm] = Manager.PREPARED
        s.vote_sent[rm] = True

    @action(actor="manager {rm}", rm="managers")
    def choose_to_abort(self, s: State, rm: int) -> None:
        """RMChooseToAbort(rm): allowed only before the vote."""
        if self.flaw == "abort-after-vote":
            require(s.manager[rm] == Manager.WORKING or s.manager[rm] == Manager.PREPARED)
        else:
            require(s.manager[rm] == Manager.WORKING)
        s.manager[rm] = Manager.ABORTED

    @action(actor="manager {rm}", rm="managers")
    def receive_commit(self, s: State, rm: int) -> None:
        """RMRcvCommitMsg(rm)."""
        require(s.commit_sent)
        s.manager[rm] = Manager.COMMITTED

    @action(actor="manager {rm}", rm="managers")
    def receive_abort(self, s: State, rm: int) -> None:
        """RMRcvAbortMsg(rm)."""
        require(s.abort_sent)
        s.manager[rm] = Manager.ABORTED

    def some_committed(self, s: State) -> bool:
        return any(s.manager[rm] == Manager.COMMITTED for rm in self.managers)

    @invariant(when="some_committed")
    def consistent(self, s: State) -> bool:
        """TCConsistent: when one manager has committed, none has aborted."""
        return not any(s.manager[rm] == Manager.ABORTED for rm in self.managers)

    @sometimes()
    def all_commit(self, s: State) -> bool:
        return all(s.manager[rm] == Manager.COMMITTED for rm in self.managers)

    @sometimes()
    def all_abort(self, s: State) -> bool:
        return all(s.manager[rm] == Manager.ABORTED for rm in self.managers)
