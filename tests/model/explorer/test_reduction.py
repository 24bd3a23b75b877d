"""Partial-order reduction, cross-checked against the unreduced run on generated systems of processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import product, takewhile
from typing import Any, ClassVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orderlab.commands.explore_template import Lock
from orderlab.model.classics.die_hard import DieHard
from orderlab.model.classics.increment import Increment
from orderlab.model.classics.termination_detection import TerminationDetection
from orderlab.model.classics.two_phase_commit import TwoPhaseCommit
from orderlab.model.errors import InputError
from orderlab.model.explorer.exploration import Exploration, explore
from orderlab.model.explorer.reduction import Reduction
from orderlab.model.explorer.search import Budget, Options
from orderlab.model.explorer.witness import Behaviour
from orderlab.model.spec.compounds import set_of
from orderlab.model.spec.declarations import action, invariant, require, sometimes
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.processes import Move, Process, ProcessSystem, Shared, Situation
from orderlab.model.spec.transition_system import DEADLOCK, Invariant, LeadsTo, Place, Sometimes, TransitionSystem
from orderlab.model.spec.variables import Array, Domain, IndexSet, State, boolean, integer
from orderlab.model.verdict import Outcome
from tests.in_process import ROOT, orderlab

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


def system(
    given_programs: list[Mapping[int, list[Instruction]]], watched: str, may_end: bool, broken: bool = False
) -> ProcessSystem:
    """A goal for each combination of values of the watched variables, looking at the later ones only if need be; with
    `broken` also the law that it is never reached."""
    values = dict.fromkeys(VARIABLES, 0)
    at = [VARIABLES.index(name) for name in watched]

    def goal(wanted: tuple[int, ...]) -> Sometimes[Situation]:
        def reached(s: Situation) -> bool:
            return all(s.shared[i] == value for i, value in zip(at, wanted, strict=True))

        def reads(s: Situation) -> frozenset[Place]:
            agreeing = len(list(takewhile(lambda pair: s.shared[pair[0]] == pair[1], zip(at, wanted, strict=True))))
            return frozenset(watched[: agreeing + 1])

        return Sometimes(str(wanted), reached, reads)

    def never(goal: Sometimes[Situation]) -> Invariant[Situation]:
        return Invariant(f"never {goal.name}", lambda s: not goal.reached(s), reads=goal.reads)

    goals = [goal(wanted) for wanted in product(range(3), repeat=len(watched))]
    laws = [*goals, *(map(never, goals) if broken else ())]
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


def same_verdicts(given_programs: list[Mapping[int, list[Instruction]]], watched: str, may_end: bool) -> None:
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


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(programs(), min_size=2, max_size=3), st.sampled_from(["x", "xy", "zx"]), st.booleans())
@example([{0: [(None, ("z", 1), 1)]}, {0: [(None, ("y", 1), 1)], 1: [(("z", 0), ("x", 2), 2)]}], "x", True)
def test_every_law_is_decided_as_without_after_a_violation(
    given_programs: list[Mapping[int, list[Instruction]]], watched: str, may_end: bool
) -> None:
    decided_alike(given_programs, watched, may_end)


@pytest.mark.exhaustive
@settings(max_examples=5000, deadline=None)
@given(st.lists(programs(), min_size=2, max_size=3), st.sampled_from(["x", "xy", "zx"]), st.booleans())
def test_every_law_of_many_is_decided_as_without_after_a_violation(
    given_programs: list[Mapping[int, list[Instruction]]], watched: str, may_end: bool
) -> None:
    decided_alike(given_programs, watched, may_end)


def decided_alike(given_programs: list[Mapping[int, list[Instruction]]], watched: str, may_end: bool) -> None:
    """`--continue` decides all; a reduction that believed its first, too small round said that broken laws hold."""
    made = system(given_programs, watched, may_end, broken=True)
    whole = explore(made, Options(keep_going=True))
    reduced = explore(made, Options(keep_going=True, reduction=True))
    assert [(v.law, v.outcome) for v in whole.verdicts] == [(v.law, v.outcome) for v in reduced.verdicts]
    assert [a for a, n in whole.actions.items() if n] == [a for a, n in reduced.actions.items() if n]
    for one, other in zip(whole.verdicts, reduced.verdicts, strict=True):
        if isinstance(one.witness, Behaviour):
            assert len(one.witness.steps) == len(other.witness.steps)
    ended = explore(made, Options(reduction=True))
    for one, other in zip(whole.verdicts, ended.verdicts, strict=True):
        assert other.outcome in (one.outcome, Outcome.UNKNOWN)


def test_what_an_early_round_found_is_told_when_the_budget_ends_a_later_one() -> None:
    """The first round breaks the law with three states; the second, with more to visit, comes to the end of its
    budget."""
    made = system(
        [{0: [(None, ("z", 1), 1)]}, {0: [(None, ("y", 1), 1)], 1: [(("z", 0), ("x", 2), 2)]}], "y", True, True
    )
    for states in range(1, 8):
        found = explore(made, Options(budget=Budget(max_states=states), keep_going=True, reduction=True))
        verdict = next(v for v in found.verdicts if v.law == "never (1,)")
        assert verdict.outcome is (Outcome.VIOLATED if states > 1 else Outcome.UNKNOWN) or states < 3
        assert found.complete or Outcome.HOLDS not in {v.outcome for v in found.verdicts if v.law.startswith("never")}


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


def test_reduction_needs_footprints() -> None:
    class Bare(TransitionSystem[int]):
        name = "bare"

        def initial_states(self) -> list[int]:
            return [0]

    with pytest.raises(InputError, match="bare records no footprints; leave the option out"):
        explore(Bare(), Options(reduction=True))
    with pytest.raises(InputError, match="bare has no symmetry; leave the option out"):
        explore(Bare(), Options(reduction=True, symmetry=True))


class Runners(Specification):
    """Each runner goes its own way, and the last step of each is seen by all."""

    name: ClassVar[str] = "runners"
    runners: int = 4

    @cached_property
    def everyone(self) -> IndexSet:
        return IndexSet("runner", self.runners, symmetric=True)

    def variables(self) -> Mapping[str, Domain | Array]:
        bags = Array(self.everyone, set_of(integer(0, 2)))
        return {"at": Array(self.everyone, integer(0, 4)), "bag": bags, "arrived": integer(0, self.runners)}

    @action(actor="runner {r}", r="everyone")
    def run(self, s: State, r: int) -> None:
        require(s.at[r] < 3)
        s.bag[r] |= {s.at[r]}
        s.at[r] += 1

    @action(actor="runner {r}", r="everyone")
    def finish(self, s: State, r: int) -> None:
        require(s.at[r] == 3)
        s.at[r] = 4
        s.arrived += 1

    def terminal(self, s: State) -> bool:
        return True

    @invariant()
    def nobody_is_second(self, s: State) -> bool:
        return s.arrived < 2


class Coached(Runners):
    """Each process is a runner, and one of two coaches, who are no runners."""

    name: ClassVar[str] = "coached"

    @property
    def coaches(self) -> range:
        return range(2)

    @action(actor="runner {k}", k="coaches")
    def shout(self, s: State, k: int) -> None:
        require(s.arrived == k)


def test_reduction_and_symmetry_go_together() -> None:
    whole = explore(Runners(runners=3), Options(keep_going=True))
    orbits = explore(Runners(runners=3), Options(keep_going=True, symmetry=True))
    both = explore(Runners(runners=3), Options(keep_going=True, symmetry=True, reduction=True))
    reduced = explore(Runners(runners=3), Options(keep_going=True, reduction=True))
    assert both.reductions["states_reduced"] > 0
    assert both.distinct_states < min(orbits.distinct_states, reduced.distinct_states) < whole.distinct_states
    for one in (whole, orbits, both, reduced):
        assert {v.law: (v.outcome, v.how) for v in one.verdicts} == {v.law: (v.outcome, "") for v in whole.verdicts}
        assert one.actions.keys() == {name for name, times in one.actions.items() if times}
    (witness,) = (one.witness for one in both.verdicts if one.law == "nobody-is-second")
    assert len(witness.steps) == 8  # four steps of one runner, then of another
    assert witness.switches == 1


def test_processes_that_are_not_renamed_with_the_members_are_not_reduced_under_symmetry() -> None:
    coached = Coached(runners=2)
    found = explore(coached, Options(keep_going=True, symmetry=True, reduction=True))
    assert not found.reductions["partial_order"]
    assert 'switched off under symmetry, for coached: the process "runner 0" takes steps of several' in found.notes[0]
    assert found.distinct_states == explore(coached, Options(keep_going=True, symmetry=True)).distinct_states


def test_what_was_seen_of_one_member_counts_for_all() -> None:
    """Else a representative, in which members have other names, would be judged by what its names did elsewhere."""
    reduction = Reduction(Runners(runners=3), symmetry=True)
    first = Runners(runners=3).initial_states()
    reduction.choose(next(iter(first)), lambda _: True)
    reads = {actor: {place for place in places if place[0] == "at"} for actor, places in reduction._reads.items()}
    assert reads == {f"runner {r}": {("at", r)} for r in range(3)}


def test_a_verdict_says_which_reductions_it_was_decided_without() -> None:
    made = Lock(clients=2)
    told = {v.law: v.how for v in explore(made, Options(symmetry=True, reduction=True)).verdicts}
    assert told["mutual-exclusion"] == told["coverage"] == "without reduction"
    assert told["no-starvation(c=0)"] == "without symmetry and reduction, on all 28 states"
    alone = explore(made, Options(symmetry=True)).verdicts
    assert {v.how for v in alone} == {"", "without symmetry, on all 28 states"}
    done = orderlab("explore", ROOT / "orderlab/commands/explore_template.py", "--symmetry")
    assert "; no-starvation(c=0), no-starvation(c=1) (without symmetry, on all 28 states)" in done.stdout
    done = orderlab("explore", ROOT / "orderlab/commands/explore_template.py", "--reduction")
    assert "8 hold, without reduction: mutual-exclusion, " in done.stdout
