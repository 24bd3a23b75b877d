"""Witnesses: shortest, and among the shortest with the fewest switches; judged against all paths, enumerated."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orderlab.model.classics.increment import Increment
from orderlab.model.classics.two_phase_commit import TwoPhaseCommit
from orderlab.model.explorer.exploration import explore
from orderlab.model.explorer.search import Options
from orderlab.model.explorer.witness import Behaviour, story
from orderlab.model.spec.transition_system import Invariant, Label, Law, StepInvariant, TransitionSystem
from orderlab.model.verdict import Outcome

Edge = tuple[int, str, int]


class Graph(TransitionSystem[int]):
    """A system given by its edges; state 0 is initial."""

    name = "graph"
    deadlock_is_violation = False

    def __init__(self, edges: Iterable[Edge], laws: Iterable[Law]):
        self.edges = list(edges)
        self._laws = list(laws)

    def initial_states(self) -> list[int]:
        return [0]

    def successors(self, state: int) -> list[tuple[Label, int]]:
        return [(Label(actor, "go", (("to", to),)), to) for source, actor, to in self.edges if source == state]

    def laws(self) -> list[Law]:
        return self._laws

    def describe(self, state: int) -> dict[str, int]:
        return {"at": state}


edges = st.lists(st.tuples(st.integers(0, 6), st.sampled_from("pqr"), st.integers(0, 6)), max_size=16)


def paths(graph: Graph, length: int) -> list[list[Edge]]:
    found: list[list[Edge]] = [[]]
    for _ in range(length):
        found = [[*p, e] for p in found for e in graph.edges if e[0] == (p[-1][2] if p else 0)]
    return found


def switches(path: list[Edge]) -> int:
    return sum(one[1] != other[1] for one, other in pairwise(path))


def best(graph: Graph, is_bad: object) -> tuple[int, int] | None:
    """(length, fewest switches) of the shortest bad paths, by trying all paths of growing length."""
    for length in range(8):
        bad = [switches(p) for p in paths(graph, length) if is_bad(p)]  # type: ignore[operator]
        if bad:
            return length, min(bad)
    return None


@settings(max_examples=200, deadline=None)
@given(edges)
def test_invariant_witness_is_shortest_with_fewest_switches(edges: list[Edge]) -> None:
    graph = Graph(edges, [Invariant("not-six", lambda s: s != 6)])
    verdict = explore(graph).verdicts[0]
    expected = best(graph, lambda p: (p[-1][2] if p else 0) == 6)
    if expected is None:
        assert verdict.outcome is Outcome.HOLDS
    else:
        assert (len(verdict.witness.steps), verdict.witness.switches) == expected


@settings(max_examples=200, deadline=None)
@given(edges)
def test_step_witness_is_shortest_with_fewest_switches(edges: list[Edge]) -> None:
    graph = Graph(edges, [StepInvariant("never-to-three-from-above", lambda s, _, t: not (s > t == 3))])
    verdict = explore(graph).verdicts[0]
    expected = best(graph, lambda p: bool(p) and p[-1][0] > p[-1][2] == 3)
    if expected is None:
        assert verdict.outcome is (Outcome.UNKNOWN if verdict.vacuous else Outcome.HOLDS)
    else:
        assert (len(verdict.witness.steps), verdict.witness.switches) == expected


def test_fewest_switches_beats_the_first_path_found() -> None:
    """p q p reaches 3 through lower numbers; q q q is as long and has no switch."""
    detour = [(0, "p", 1), (1, "q", 2), (2, "p", 6), (0, "q", 4), (4, "q", 5), (5, "q", 6)]
    witness = explore(Graph(detour, [Invariant("not-six", lambda s: s != 6)])).verdicts[0].witness
    assert [step.actor for step in witness.steps] == ["q", "q", "q"]


def test_violation_in_an_initial_state() -> None:
    verdict = explore(Graph([], [Invariant("not-zero", lambda s: s != 0)])).verdicts[0]
    assert verdict.witness == Behaviour({"at": 0}, (), why="initially it is false")


@pytest.mark.parametrize("symmetry", [False, True])
def test_lost_update_witness_is_pinned(symmetry: bool) -> None:
    """Under symmetry the witness is still a run of concrete threads."""
    found = explore(Increment(threads=2, lock=False), Options(symmetry=symmetry))
    verdict = next(v for v in found.verdicts if v.outcome is Outcome.VIOLATED)
    assert verdict.law == "no-lost-update"
    assert [str(step) for step in verdict.witness.steps] == [
        "thread 1: read(t=1)",
        "thread 0: read(t=0)",
        "thread 0: write(t=0)",
        "thread 1: write(t=1)",
    ]
    assert verdict.witness.switches == 2


def test_story_tells_each_step_and_what_it_changed() -> None:
    found = explore(TwoPhaseCommit(flaw="commit-without-all-votes", resource_managers=2))
    witness = next(v.witness for v in found.verdicts if v.law == "consistent")
    assert story(witness) == [
        "0. initially: manager = [working, working], coordinator = init, heard = [false, false],"
        " vote_sent = [false, false], commit_sent = false, abort_sent = false",
        "1. manager 0: prepare(rm=0)",
        "     manager[0]: working -> prepared",
        "     vote_sent[0]: false -> true",
        "2. coordinator: receive_vote(rm=0)",
        "     heard[0]: false -> true",
        "3. coordinator: commit",
        "     coordinator: init -> committed",
        "     commit_sent: false -> true",
        "4. manager 1: choose_to_abort(rm=1)",
        "     manager[1]: working -> aborted",
        "5. manager 0: receive_commit(rm=0)",
        "     manager[0]: prepared -> committed",
    ]
    assert Behaviour.from_json(witness.to_json()) == witness
