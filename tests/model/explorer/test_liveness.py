"""Liveness under weak fairness, against an independent decision that enumerates fair cycles on small graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from orderlab.model.classics.increment import Increment
from orderlab.model.classics.termination_detection import TerminationDetection
from orderlab.model.explorer.exploration import explore
from orderlab.model.explorer.search import Budget, Options
from orderlab.model.explorer.walks import explore_by_walks
from orderlab.model.explorer.witness import story
from orderlab.model.spec.transition_system import (
    Fairness,
    Label,
    Law,
    LeadsTo,
    StrongFairness,
    TransitionSystem,
    WeakFairness,
)
from orderlab.model.verdict import Outcome, Verdict

Edge = tuple[int, str, int]


class Graph(TransitionSystem[int]):
    name = "graph"
    deadlock_is_violation = False

    def __init__(
        self,
        edges: Iterable[Edge],
        fair: Iterable[str],
        when: Iterable[int] | None,
        then: Iterable[int],
        strong: Iterable[str] = (),
    ):
        self.edges, self.fair, self.strong = sorted(set(edges)), sorted(fair), sorted(strong)
        self.when, self.then = None if when is None else set(when), set(then)

    def initial_states(self) -> list[int]:
        return [0]

    def successors(self, state: int) -> list[tuple[Label, int]]:
        return [(Label(actor, "go", (("to", to),)), to) for source, actor, to in self.edges if source == state]

    def laws(self) -> list[Law]:
        when = None if self.when is None else self.when.__contains__
        return [LeadsTo("answered", self.then.__contains__, when)]

    def fairness(self) -> Sequence[Fairness]:
        weak = [WeakFairness(actor, lambda label, actor=actor: label.actor == actor) for actor in self.fair]
        return [
            *weak,
            *(StrongFairness(actor, lambda label, actor=actor: label.actor == actor) for actor in self.strong),
        ]

    def describe(self, state: int) -> dict[str, int]:
        return {"at": state}


def decided(graph: Graph) -> Verdict:
    return explore(graph).verdicts[0]


def breaks(graph: Graph) -> bool:
    """Second algorithm: over all subsets of states that can be visited for ever, is one fair?

    A set of states can be visited for ever when it is one state (stutter) or strongly connected inside itself; it is
    fair when each weakly fair process has a step inside or a state inside where it has no changing step, and each
    strongly fair one a step inside or no changing step in any state inside.
    """
    moves = [(s, a, t) for s, a, t in graph.edges if s != t]
    whole = nx.MultiDiGraph()
    whole.add_nodes_from(range(7))
    whole.add_edges_from((s, t) for s, _, t in moves)
    reachable = {0} | nx.descendants(whole, 0)
    begins = {s for s in reachable if (s == 0 if graph.when is None else s in graph.when) and s not in graph.then}
    calm = whole.subgraph([s for s in range(7) if s not in graph.then])
    stays = {t for s in begins for t in {s} | nx.descendants(calm, s)}
    members = sorted(stays)
    for mask in range(1, 2 ** len(members)):
        inside = {s for at, s in enumerate(members) if mask >> at & 1}
        if len(inside) > 1 and not nx.is_strongly_connected(nx.DiGraph(whole.subgraph(inside))):
            continue
        weak = all(is_respected(actor, inside, moves) for actor in graph.fair)
        if weak and all(is_respected(actor, inside, moves, strong=True) for actor in graph.strong):
            return True
    return False


def is_respected(actor: str, inside: set[int], moves: list[Edge], strong: bool = False) -> bool:
    taken = any(a == actor and s in inside and t in inside for s, a, t in moves)
    rests = [not any(a == actor and s == state for s, a, _ in moves) for state in inside]
    return taken or (all(rests) if strong else any(rests))


def check_lasso(graph: Graph, verdict: Verdict) -> None:
    """The witness is a run of the graph, stays out of `then` after an obligation, and its loop is closed and fair."""
    states, actors = [0], []
    for step in verdict.witness.steps:
        after = step.arguments["to"]
        assert (states[-1], step.actor, after) in graph.edges
        states.append(after)
        actors.append(step.actor)
    loop = verdict.witness.loop_start
    assert states[-1] == states[loop]
    inside = set(states[loop:])
    begun = [i for i, s in enumerate(states) if (i == 0 if graph.when is None else s in graph.when)]
    assert any(not graph.then & set(states[i:]) and not graph.then & inside for i in begun)
    moves = [(s, a, t) for s, a, t in graph.edges if s != t]
    for actor in graph.fair:
        rested = any(not any(a == actor and s == state for s, a, _ in moves) for state in inside)
        assert rested or actor in actors[loop:]
    for actor in graph.strong:
        enabled = any(a == actor and s in inside for s, a, _ in moves)
        assert not enabled or actor in actors[loop:]


@settings(max_examples=600, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from("pqr"), st.integers(0, 6)), max_size=16),
    st.sets(st.sampled_from("pqr")),
    st.sets(st.sampled_from("pqr")),
    st.none() | st.sets(st.integers(0, 6), min_size=1),
    st.sets(st.integers(0, 6)),
)
def test_agrees_with_enumeration(
    edges: list[Edge], fair: set[str], strong: set[str], when: set[int] | None, then: set[int]
) -> None:
    graph = Graph(edges, fair - strong, when, then, strong)
    verdict = decided(graph)
    assert verdict.outcome is (Outcome.VIOLATED if breaks(graph) else HELD[verdict.vacuous])
    if verdict.outcome is Outcome.VIOLATED:
        check_lasso(graph, verdict)


HELD = {False: Outcome.HOLDS, True: Outcome.UNKNOWN}
"""What a law is that nothing breaks, by whether it was not tested."""


def test_a_strongly_fair_step_that_is_enabled_now_and_then_is_taken() -> None:
    around = [(0, "p", 1), (1, "p", 0), (0, "q", 2)]
    assert decided(Graph(around, "p", None, {2}, "q")).outcome is Outcome.HOLDS
    verdict = decided(Graph([*around, (0, "q", 3), (3, "p", 0)], "p", None, {2}, "q"))
    assert verdict.outcome is Outcome.VIOLATED
    assert "q" in [step.actor for step in verdict.witness.steps]


def test_what_a_strongly_fair_step_forbids_may_leave_a_part_that_is_fair() -> None:
    """States 0 to 2 are one component that neglects q; without state 0, which enables it, 1 and 2 still go round."""
    around = [(0, "p", 1), (1, "p", 2), (2, "p", 1), (2, "p", 0), (0, "q", 3)]
    verdict = decided(Graph(around, "p", None, {3}, "q"))
    assert [(step.arguments["to"]) for step in verdict.witness.steps[verdict.witness.loop_start :]] == [2, 1]


def test_a_fair_step_that_is_always_enabled_is_taken() -> None:
    around = [(0, "p", 1), (1, "p", 0), (0, "q", 2), (1, "q", 2)]
    assert decided(Graph(around, "pq", None, {2})).outcome is Outcome.HOLDS


def test_a_fair_step_that_is_disabled_now_and_then_may_be_neglected() -> None:
    """The near miss: q is not enabled in state 1, and weak fairness asks nothing of it there."""
    around = [(0, "p", 1), (1, "p", 0), (0, "q", 2)]
    verdict = decided(Graph(around, "pq", None, {2}))
    assert story(verdict.witness) == [
        "0. initially: at = 0",
        "   from here on, for ever:",
        "1. p: go(to=1)",
        "     at: 0 -> 1",
        "2. p: go(to=0)",
        "     at: 1 -> 0",
        "   then again from step 1",
    ]


def test_without_fairness_nothing_need_happen() -> None:
    verdict = decided(Graph([(0, "p", 1)], "", None, {1}))
    assert (verdict.witness.steps, verdict.witness.loop_start) == ((), 0)
    assert decided(Graph([(0, "p", 1)], "p", None, {1})).outcome is Outcome.HOLDS


def test_a_step_that_changes_nothing_is_no_progress() -> None:
    """p's only step leaves the state as it is: it is not enabled in the sense of fairness."""
    assert decided(Graph([(0, "p", 0)], "p", None, {1})).outcome is Outcome.VIOLATED


def test_termination_is_detected_only_if_the_token_moves() -> None:
    assert law(TerminationDetection(), "detection-follows").outcome is Outcome.HOLDS
    verdict = law(TerminationDetection(flaw="token-may-stop"), "detection-follows")
    assert verdict.outcome is Outcome.VIOLATED
    assert verdict.witness.loop_start == len(verdict.witness.steps)


class Symmetric(Graph):
    """0 and 1 are one member and the other at work; they take turns, or one works for ever."""

    def canonical(self, state: int) -> int:
        return 0 if state == 1 else state


def test_liveness_under_symmetry_is_decided_on_all_states() -> None:
    """On representatives 0 -> 1 is a step that changes nothing; in truth both take turns for ever, and 2 is not
    reached."""
    turns = Symmetric([(0, "p", 1), (1, "p", 0)], "p", None, {1})
    found = explore(turns, Options(symmetry=True))
    assert (found.distinct_states, found.verdicts[0].outcome) == (1, Outcome.HOLDS)
    assert found.notes[0].startswith("answered: decided without symmetry, on all 2 states")
    neglecting = Symmetric([(0, "p", 1), (1, "p", 0)], "p", None, {2})
    assert explore(neglecting, Options(symmetry=True)).verdicts[0].outcome is Outcome.VIOLATED


def test_liveness_under_symmetry_is_unknown_where_the_budget_ends_on_the_way_to_all_states() -> None:
    long = Symmetric([(s, "p", s + 1) for s in range(6)], "p", None, {6})
    found = explore(long, Options(symmetry=True, budget=Budget(max_states=7)))
    assert found.complete
    assert found.verdicts[0].outcome is Outcome.UNKNOWN
    assert "stopped by the budget of 7 states" in found.verdicts[0].not_covered[0]


def test_an_obligation_that_never_begins_is_vacuous() -> None:
    verdict = decided(Graph([(0, "p", 1)], "p", {5}, {1}))
    assert (verdict.vacuous, verdict.outcome) == (True, Outcome.UNKNOWN)
    assert explore(Graph([(0, "p", 1)], "p", {5}, {1}), Options(allow_vacuous=True)).outcome is Outcome.HOLDS


def law(system: TransitionSystem[tuple[int, ...]], name: str) -> Verdict:
    return next(v for v in explore(system).verdicts if v.law == name)


def test_coverage_does_not_speak_of_a_law_that_was_not_decided() -> None:
    """Another law is violated first, and every action has fired by then; to the end, the law is tested."""
    broken = Increment(lock=False)
    assert law(broken, "everyone-writes").outcome is law(broken, "coverage").outcome is Outcome.UNKNOWN
    assert "everyone-writes was not decided" in law(broken, "coverage").not_covered[-1]
    whole = {v.law: v.outcome for v in explore(broken, Options(keep_going=True)).verdicts}
    assert whole["coverage"] is whole["everyone-writes"] is Outcome.HOLDS
    walked = explore_by_walks(broken, Options(keep_going=True), 50, 20)
    assert next(v for v in walked.verdicts if v.law == "coverage").outcome is Outcome.UNKNOWN
