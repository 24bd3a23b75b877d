"""Several workers on a search: the report is that of one, byte for byte; what fails in a helper is told as if it had
failed here."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from orderlab.commands.explore_template import Lock
from orderlab.model.classics.dining_philosophers import dining_philosophers
from orderlab.model.classics.increment import Increment
from orderlab.model.classics.two_phase_commit import TwoPhaseCommit
from orderlab.model.errors import WorkerDied
from orderlab.model.explorer.exploration import explore
from orderlab.model.explorer.search import Budget, Options
from orderlab.model.explorer.workers import Workers
from orderlab.model.protocol.handshake import Handshake, HandshakeScope
from orderlab.model.spec.declarations import action, constraint, invariant, require
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.transition_system import TransitionSystem
from orderlab.model.spec.variables import Array, Domain, SpecificationError, State, integer


class Bounded(Specification):
    """Has a constraint, a law with an antecedent, and with `fails` a law that cannot be evaluated deep down."""

    name: ClassVar[str] = "bounded"
    fails: bool = False

    def variables(self) -> Mapping[str, Domain | Array]:
        return {"x": integer(0, 99), "y": integer(0, 99)}

    @action(actor="x")
    def right(self, s: State) -> None:
        s.x += 1

    @action(actor="y")
    def up(self, s: State) -> None:
        require(s.y < 30)
        s.y += 1

    @constraint()
    def near(self, s: State) -> bool:
        return bool(s.x <= 20)

    def high(self, s: State) -> bool:
        return bool(s.y > 12)

    @invariant(when="high")
    def quotient(self, s: State) -> bool:
        return not self.fails or bool(5 // (18 - s.x) < 9)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orderlab.model.explorer.search.SHARE_FROM", 4)
    monkeypatch.setattr("orderlab.model.explorer.workers.FIRST_STRETCH", 8)
    monkeypatch.setattr("orderlab.model.explorer.workers.SHORTEST_STRETCH", 8)


def told(system: TransitionSystem[Any], options: Options, workers: int) -> dict[str, Any]:
    found = explore(system, replace(options, engine="interpreted", workers=workers))
    return {key: value for key, value in found.to_json().items() if key != "run"}


@pytest.mark.parametrize(
    ("system", "options"),
    [
        (TwoPhaseCommit(resource_managers=4), Options()),
        pytest.param(
            TwoPhaseCommit(resource_managers=4, flaw="abort-after-vote"), Options(), marks=pytest.mark.exhaustive
        ),
        (TwoPhaseCommit(resource_managers=4, flaw="abort-after-vote"), Options(keep_going=True)),
        (TwoPhaseCommit(resource_managers=4), Options(symmetry=True)),
        (TwoPhaseCommit(resource_managers=4), Options(budget=Budget(max_states=300))),
        (Increment(threads=3, lock=False), Options()),
        (dining_philosophers(4, one_left_handed=False), Options()),
        (Lock(clients=3), Options()),
        (Bounded(), Options()),
        (Handshake(HandshakeScope()), Options()),
    ],
    ids=lambda value: value.name if isinstance(value, TransitionSystem) else "",
)
def test_two_or_three_workers_say_what_one_says(system: TransitionSystem[Any], options: Options) -> None:
    alone = told(system, options, 1)
    for workers in (2, 3) if options == Options() and system.name == "increment" else (3 if options.keep_going else 2,):
        assert told(system, options, workers) == alone


def test_an_error_in_a_helper_is_told_as_one_here() -> None:
    with pytest.raises(ZeroDivisionError) as alone:
        told(Bounded(fails=True), Options(), 1)
    with pytest.raises(ZeroDivisionError) as shared:
        told(Bounded(fails=True), Options(), 2)
    assert shared.value.__notes__ == alone.value.__notes__


def test_a_value_outside_its_domain_is_told_as_one_here() -> None:
    class Wide(Bounded):
        @constraint()
        def near(self, s: State) -> bool:
            return True

    with pytest.raises(SpecificationError, match="x: 100 is outside its domain"):
        told(Wide(), Options(), 2)


def test_a_helper_that_dies_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Workers.__init__

    def killed(self: Workers, *given: Any) -> None:
        begin(self, *given)
        os.kill(self._processes[0].pid or 0, signal.SIGKILL)
        self._processes[0].join()

    monkeypatch.setattr(Workers, "__init__", killed)
    with pytest.raises(WorkerDied, match="worker 2 of the search"):
        told(TwoPhaseCommit(resource_managers=4), Options(), 2)


def test_who_cannot_share_says_so(tmp_path: Path) -> None:
    found = explore(dining_philosophers(5), Options(reduction=True, workers=2))
    assert "workers: one, for a reduction chooses in order" in found.notes
