"""The state counts that others have published for the same specifications."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orderlab.model.classics.die_hard import DieHard
from orderlab.model.classics.increment import Increment
from orderlab.model.classics.termination_detection import TerminationDetection
from orderlab.model.classics.two_phase_commit import TwoPhaseCommit
from orderlab.model.explorer.exploration import explore
from orderlab.model.explorer.search import Engine, Options
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.variables import StateTuple
from orderlab.model.verdict import Outcome
from tests.model.explorer.engines import loaded_as_it_is


@pytest.mark.parametrize(
    ("system", "states"),
    [
        (TwoPhaseCommit(resource_managers=3), 288),
        (TwoPhaseCommit(resource_managers=5), 8_832),
        (TerminationDetection(nodes=3), 302),
        (TerminationDetection(nodes=4), 1_566),
        (DieHard(), 16),
        (Increment(threads=2, lock=True), 17),
        (Increment(threads=3, lock=True), 61),
    ],
    ids=lambda value: str(value),
)
def test_interpreted(system: Specification, states: int) -> None:
    found = explore(system, Options(engine="interpreted"))
    assert found.outcome is Outcome.HOLDS
    assert found.complete
    assert found.distinct_states == states


@pytest.mark.parametrize(
    ("managers", "states"), [(7, 296_448), pytest.param(8, 1_745_408, marks=pytest.mark.exhaustive)]
)
def test_compiled(managers: int, states: int) -> None:
    found = explore(TwoPhaseCommit(resource_managers=managers), Options(engine="compiled"))
    assert found.outcome is Outcome.HOLDS
    assert found.distinct_states == states


def everything(system: Specification) -> int:
    """All reachable states, whatever breaks on the way."""
    return len(visited(system, lambda state: state))


def visited(system: Specification, representative: Callable[[StateTuple], StateTuple]) -> set[StateTuple]:
    """Depth-first, following concrete states and remembering representatives, as Stateright does with symmetry."""
    stack = list(system.initial_states())
    seen = {representative(state) for state in stack}
    while stack:
        for _, after in system.successors(stack.pop()):
            if representative(after) not in seen:
                seen.add(representative(after))
                stack.append(after)
    return seen


def test_increment_without_a_lock() -> None:
    system = Increment(threads=2, lock=False)
    assert everything(system) == 13
    assert len(visited(system, system.canonical)) == 8


@pytest.mark.parametrize("engine", ["interpreted", "compiled"])
@pytest.mark.parametrize(("threads", "states"), [(2, 9), (3, 13)])
def test_increment_with_a_lock_up_to_symmetry(
    threads: int, states: int, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orderlab.model.explorer.compiled.space.load_kernel", loaded_as_it_is)
    found = explore(Increment(threads=threads, lock=True), Options(symmetry=True, engine=engine))
    assert found.distinct_states == states


def test_two_phase_commit_up_to_symmetry() -> None:
    """True orbits: the sorted columns of 8,832 states."""
    system = TwoPhaseCommit(resource_managers=5)
    found = explore(system, Options(symmetry=True))
    orbits = {
        (tuple(sorted(zip(s[0], s[2], s[3], strict=True))), s[1], s[4], s[5]) for s in visited(system, lambda s: s)
    }
    assert found.distinct_states == len(orbits) == 314


def test_stateright_counts_more_because_it_sorts_by_manager_state_alone() -> None:
    """Its 665 depends on the order of a depth-first search; that order and the same partial sort give it here."""

    def sorted_by_manager_state(state: StateTuple) -> StateTuple:
        order = sorted(range(5), key=lambda rm: state[0][rm])

        def moved(column: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(column[rm] for rm in order)

        return (moved(state[0]), state[1], moved(state[2]), moved(state[3]), state[4], state[5])

    class Listed(TwoPhaseCommit):
        """The coordinator's steps first, then manager by manager."""

        def successors(self, state: StateTuple) -> list[tuple[object, StateTuple]]:
            offered = list(super().successors(state))
            coordinator = [s for s in offered if s[0].actor == "coordinator"]
            managers = [s for s in offered if s[0].actor != "coordinator"]
            return coordinator + sorted(managers, key=lambda s: s[0].arguments)

    assert len(visited(Listed(resource_managers=5), sorted_by_manager_state)) == 665
