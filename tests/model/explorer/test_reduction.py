"""Partial-order reduction, cross-checked against the unreduced run on generated systems of processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product, takewhile
from typing import Any, ClassVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orderlab.model.classics.die_hard import DieHard
from orderlab.model.classics.increment import Increment
from orderlab.model.classics.termination_detection import TerminationDetection
from orderlab.model.classics.two_phase_commit import TwoPhaseCommit
from orderlab.model.errors import InputError
from orderlab.model.explorer.exploration import Exploration, explore
from orderlab.model.explorer.search import Options
from orderlab.model.spec.declarative import Specification, State, action, require, sometimes
from orderlab.model.spec.processes import Move, Process, ProcessSystem, Shared, Situation
from orderlab.model.spec.transition_system import DEADLOCK, Invariant, LeadsTo, Place, Sometimes, TransitionSystem
from orderlab.model.spec.variables import Array, Domain, boolean, integer
from orderlab.model.verdict import Outcome

VARIABLES = ("x", "y", "z")

Instruction = tuple[tuple[str, int] | None, tuple[str, int] | None, int]
"""(guard variable = value, assignment, next place): one thing that a process may do at a place of its program."""

PLACES = 5


@st.composite
def programs(draw: st.DrawFn) -> dict[int, list[Instruction]]:
    """Mostly straight lines that mostly work on one variable: something to reduce and something to miss."""
    own = draw(st.sampled_from(VARIABLES))
    variables = st.sampled_from([own, own, own, *VARIABLES])
    guard = st.none() | st.none() | st.tuples(variables, st.integers(0, 1))
    put = st.tuples(variables, st.integers(0, 2)) | st.none()
    length = draw(st.integers(1, PLACES - 1))
    return {
        here: [
            (draw(guard), draw(put), draw(st.sampled_from([here + 1, here + 1, here + 1, 0, here])))
            for _ in range(draw(st.sampled_from([1, 1, 2])))
        ]
        for here in range(length)
    }


def process(name: str, program: Mapping[int, list[Instruction]]) -> Process:
    def run(here: int, shared: Shared) -> Iterator[Move]:
        for at, (guard, put, following) in enumerate(program.get(here, [])):
            if guard is None or shared[guard[0]] == guard[1]:
                yield Move(f"{name}{here}{at}", following, {} if put is None else {put[0]: put[1]})

    return Process(name, 0, run)


def system(given_programs: list[Mapping[int, list[Instruction]]], watched: str, may_end: bool) -> ProcessSystem:
    """A goal for each combination of values of the watched variables, looking at the later ones only if need be."""
    values = dict.fromkeys(VARIABLES, 0)
    at = [VARIABLES.index(name) for name in watched]

    def goal(wanted: tuple[int, ...]) -> Sometimes[Situation]:
        def reached(s: Situation) -> bool:
            return all(s.shared[i] == value for i, value in zip(at, wanted, strict=True))

        def reads(s: Situation) -> frozenset[Place]:
            agreeing = len(list(takewhile(lambda pair: s.shared[pair[0]] == pair[1], zip(at, wanted, strict=True))))
            return frozenset(watched[: agreeing + 1])

        return Sometimes(str(wanted), reached, reads)

    laws = [goal(wanted) for wanted in product(range(3), repeat=len(watched))]
    names = "pqr"[: len(given_programs)]
    made = [process(n, p) for n, p in zip(names, given_programs, strict=True)]
    actions = [
        f"{n}{here}{k}" for n, p in zip(names, given_programs, strict=True) for here in p for k in range(len(p[here]))
    ]
    return ProcessSystem("generated", made, values, laws, lambda _: may_end, actions=actions)


def outcomes(found: Exploration) -> dict[str, Outcome]:
    """Every decided law."""
    return {v.law: v.outcome for v in found.verdicts if v.outcome is not Outcome.UNKNOWN}


@settings(max_examples=25, deadline=None)
@given(st.lists(programs(), min_size=2, max_size=3), st.sampled_from(["x", "xy", "zx"]), st.booleans())
@example([{0: [(None, ("x", 1), 1)], 1: [(None, ("x", 0), 2)]}, {0: [(None, ("y", 2), 1)]}], "xy", True)
@example([{0: [(None, ("z", 1), 1)]}, {0: [(("z", 0), ("x", 1), 1)]}], "x", True)
@example([{0: [(("z", 1), ("x", 2), 1), (None, ("y", 2), 1)]}, {0: [(None, ("z", 1), 1)]}], "x", True)
@example([{0: [(None, ("z", 1), 1)]}, {0: [(None, ("y", 1), 1)], 1: [(("z", 0), ("x", 2), 2)]}], "x", True)
@example(
    [
        {0: [(None, ("z", 1), 1)], 1: [(None, None, 2)], 2: [(None, ("x", 0), 3)]},
        {0: [(None, None, 1)], 1: [(None, None, 2), (("z", 0), None, 2)]},
    ],
    "x",
    False,
)
def test_same_verdicts_as_without(
    given_programs: list[Mapping[int, list[Instruction]]], watched: str, may_end: bool
) -> None:
    same_verdicts(given_programs, watched, may_end)


@pytest.mark.exhaustive
@settings(max_examples=1000, deadline=None)
@given(st.lists(programs(), min_size=2, max_size=3), st.sampled_from(["x", "xy", "zx"]), st.booleans())
def test_same_verdicts_as_without_of_many(
    given_programs: list[Mapping[int, list[Instruction]]], watched: str, may_end: bool
) -> None:
    same_verdicts(given_programs, watched, may_end)


def same_verdicts(
    given_programs: list[Mapping[int, list[Instruction]]], watched: str, may_end: bool
) -> None:
    made = system(given_programs, watched, may_end)
    whole = explore(made)
    reduced = explore(made, Options(reduction=True))
    assert whole.outcome is reduced.outcome
    if whole.complete:
        assert reduced.distinct_states <= whole.distinct_states
        whole_laws, reduced_laws = outcomes(whole), outcomes(reduced)
        for law in whole_laws.keys() & reduced_laws.keys():
            assert whole_laws[law] is reduced_laws[law], law
        if whole_laws[DEADLOCK] is Outcome.HOLDS:  # a violation ends the search; what else is known by then may differ
            assert whole_laws == reduced_laws
            fired = {name for name, times in whole.actions.items() if times}
            assert fired == {name for name, times in reduced.actions.items() if times}
    for verdict in reduced.verdicts:
        same = [v for v in whole.verdicts if v.law == verdict.law == DEADLOCK and v.outcome is Outcome.VIOLATED]
        if verdict.outcome is Outcome.VIOLATED and same:
            assert len(verdict.witness.steps) == len(same[0].witness.steps), "shortest in the whole graph"


def workers(count: int, steps: int, late: bool) -> ProcessSystem:
    """Each works for itself for some steps, then adds itself to a sum. `late`: then also writes what others work on."""

    def one(name: str) -> Process:
        def run(here: int, shared: Shared) -> Iterator[Move]:
            if here < steps:
                yield Move("work", here + 1, {name: here})
            elif here == steps:
                yield Move("add", here + 1, {"sum": shared["sum"] + 1})
            elif here == steps + 1 and late:
                yield Move("spoil", here + 1, {"a": 7})

        return Process(name, 0, run)

    names = "abcd"[:count]
    done = steps + 1 + late
    law = Invariant("bounded", lambda s: s.shared[-1] <= count, reads=lambda _: frozenset({"sum"}))
    goal = Sometimes("all-added", lambda s: s.shared[-1] == count, reads=lambda _: frozenset({"sum"}))
    return ProcessSystem(
        "workers",
        [one(name) for name in names],
        {**dict.fromkeys(names, 0), "sum": 0},
        [law, goal],
        may_end=lambda s: all(here == done for here in s.locals),
        actions=("work", "add"),
    )


def test_independent_steps_are_followed_in_one_order() -> None:
    whole = explore(workers(4, 4, late=False))
    reduced = explore(workers(4, 4, late=False), Options(reduction=True))
    assert (whole.distinct_states, whole.outcome) == (6**4, Outcome.HOLDS)
    assert (reduced.distinct_states, reduced.outcome) == (4 * 4 + 2**4, Outcome.HOLDS)
    assert reduced.reductions["states_reduced"] == 16


def test_a_footprint_that_grows_late_is_taken_into_account() -> None:
    """The others' last step writes what the first one works on: that is not known when the first choices are made."""

    def spoiled(made: ProcessSystem) -> bool:
        found = explore(made, Options(reduction=True))
        return found.distinct_states == explore(made).distinct_states

    made = workers(2, 2, late=True)
    law = Invariant(
        "a-is-worked-on", lambda s: s.locals[0] != 2 or s.shared[0] != 7, reads=lambda _: frozenset({"a", ("a",)})
    )
    watched = ProcessSystem("workers", made.processes, made.variables, [law], made.may_end)
    assert explore(watched).outcome is explore(watched, Options(reduction=True)).outcome is Outcome.VIOLATED
    assert explore(made, Options(reduction=True)).outcome is explore(made).outcome is Outcome.HOLDS
    assert not spoiled(workers(2, 2, late=False))


def test_a_reduced_violation_is_told_by_a_shortest_witness() -> None:
    made = workers(3, 3, late=False)
    law = Invariant("nobody-adds", lambda s: s.shared[-1] == 0, reads=lambda _: frozenset({"sum"}))
    bad = ProcessSystem("workers", made.processes, made.variables, [law], made.may_end)
    witness = explore(bad, Options(reduction=True)).verdicts[0].witness
    assert [(step.actor, step.action) for step in witness.steps] == [("a", "work")] * 3 + [("a", "add")]


def test_a_step_is_not_postponed_for_ever() -> None:
    """p turns in a circle that nobody sees; q's step breaks the law and must not be forgotten."""

    def circle(here: int, _: Shared) -> Iterator[Move]:
        yield Move("turn", 1 - here)

    def breaker(here: int, _: Shared) -> Iterator[Move]:
        if here == 0:
            yield Move("break", 1, {"bad": 1})

    law = Invariant("not-bad", lambda s: s.shared[0] == 0, reads=lambda _: frozenset({"bad"}))
    made = ProcessSystem("circle", [Process("p", 0, circle), Process("q", 0, breaker)], {"bad": 0}, [law])
    assert explore(made, Options(reduction=True)).verdicts[0].outcome is Outcome.VIOLATED


class Choosing(Specification):
    """p works, or takes what q offers, if q offers it in time."""

    name: ClassVar[str] = "choosing"

    def variables(self) -> Mapping[str, Domain | Array]:
        return {"place": integer(0, 2), "offered": boolean(), "taken": boolean()}

    @action(actor="p")
    def work(self, s: State) -> None:
        require(s.place == 0)
        s.place = 1

    @action(actor="p")
    def take(self, s: State) -> None:
        require(s.place == 0 and s.offered)
        s.place = 2
        s.taken = True

    @action(actor="q")
    def offer(self, s: State) -> None:
        require(not s.offered)
        s.offered = True

    @sometimes()
    def took(self, s: State) -> bool:
        return bool(s.taken)

    def terminal(self, s: State) -> bool:
        return True


def test_a_disabled_action_keeps_its_chance() -> None:
    """p's only enabled step commutes with q's, but q's step enables another one of p's."""
    assert explore(Choosing(), Options(reduction=True)).outcome is Outcome.HOLDS


@pytest.mark.parametrize(
    "declared",
    [
        TwoPhaseCommit(),
        Increment(threads=3),
        TerminationDetection(),
        DieHard(),
        TwoPhaseCommit(flaw="abort-after-vote"),
    ],
    ids=str,
)
def test_declarative_specifications_agree(declared: TransitionSystem[Any]) -> None:
    whole, reduced = explore(declared), explore(declared, Options(reduction=True))
    assert outcomes(whole) == outcomes(reduced)


def test_laws_that_forbid_a_reduction_are_named() -> None:
    made = workers(2, 2, late=False)
    liveness = LeadsTo[Situation]("ends", made.may_end)
    found = explore(
        ProcessSystem("w", made.processes, made.variables, [liveness], made.may_end), Options(reduction=True)
    )
    assert found.notes[0].startswith("reduction: switched off, for nothing can be left out because of ends")
    assert not found.reductions["partial_order"]
    assert found.outcome is Outcome.HOLDS


def test_reduction_needs_footprints_and_excludes_symmetry() -> None:
    class Bare(TransitionSystem[int]):
        name = "bare"

        def initial_states(self) -> list[int]:
            return [0]

    with pytest.raises(InputError, match="bare records no footprints; leave the option out"):
        explore(Bare(), Options(reduction=True))
    with pytest.raises(InputError, match="exclude each other"):
        explore(Bare(), Options(reduction=True, symmetry=True))
