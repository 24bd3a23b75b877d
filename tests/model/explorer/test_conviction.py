"""Verdicts that nobody should be given: what a specification claims and does not keep is told as the author's error."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orderlab.commands.explore_template import Lock
from orderlab.model.classics.increment import Increment
from orderlab.model.errors import Defect, InputError
from orderlab.model.explorer.compiled.space import CompiledSpace
from orderlab.model.explorer.exploration import Exploration, explore
from orderlab.model.explorer.search import Options
from orderlab.model.explorer.walks import explore_by_walks
from orderlab.model.spec.declarations import (
    FairnessDeclaration,
    LeadsToDeclaration,
    action,
    constraint,
    invariant,
    leads_to,
    require,
    sometimes,
    step_invariant,
    strong_fairness,
    weak_fairness,
)
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.processes import Move, Process, ProcessSystem, Situation
from orderlab.model.spec.transition_system import Invariant, LeadsTo
from orderlab.model.spec.variables import Array, Domain, IndexSet, SpecificationError, State, boolean, integer
from orderlab.model.verdict import Outcome, Verdict


def verdict(found: Exploration, law: str) -> Verdict:
    return next(v for v in found.verdicts if v.law == law)


# -- symmetry ----------------------------------------------------------------------------------------------------------


class Workers(Specification):
    """`told_apart` names what treats the processes differently although the set is declared symmetric."""

    name: ClassVar[str] = "workers"
    told_apart: str = ""

    @cached_property
    def processes(self) -> IndexSet:
        return IndexSet("process", 3, symmetric=True)

    def variables(self) -> Mapping[str, Domain | Array]:
        return {"done": Array(self.processes, boolean()), "work": Array(self.processes, integer(0, 3))}

    def initial(self, s: State) -> None:
        s.work[0] = 1 if self.told_apart == "the initial states" else 0

    @action(actor="process {p}", p="processes")
    def go_on(self, s: State, p: int) -> None:
        require(s.work[p] < 3)
        s.work[p] += 1

    @action(actor="process {p}", p="processes")
    def finish(self, s: State, p: int) -> None:
        require(s.work[p] == 3 and (p == 0 or self.told_apart != "action finish"))
        s.done[p] = True

    @invariant()
    def one_never(self, s: State) -> bool:
        return not (s.done[1] and s.done[2]) if self.told_apart in ("action finish", "one-never") else True

    @step_invariant()
    def quick(self, before: State, after: State) -> bool:
        return self.told_apart != "quick" or after.work[2] < 3

    def terminal(self, s: State) -> bool:
        return self.told_apart == "terminal" and bool(s.done[2])


@pytest.mark.parametrize("told_apart", ["action finish", "the initial states", "one-never", "quick", "terminal"])
def test_a_symmetry_that_is_none_is_an_error_of_its_author(told_apart: str) -> None:
    with pytest.raises(InputError, match=rf"--symmetry: {told_apart} tells? process . and process . apart"):
        explore(Workers(told_apart=told_apart), Options(symmetry=True))


def test_a_symmetry_that_is_one_passes() -> None:
    assert explore(Workers(), Options(symmetry=True)).distinct_states < explore(Workers()).distinct_states


Rule = tuple[int, int, int, int]


class Ruled(Specification):
    """Symmetric by construction: a rule (from, others, at_most, to) moves a process when few enough others are
    there."""

    name: ClassVar[str] = "ruled"
    rules: tuple[Rule, ...]
    crowd: int
    together: tuple[int, int]

    @cached_property
    def processes(self) -> IndexSet:
        return IndexSet("process", 3, symmetric=True)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        return tuple(range(len(self.rules)))

    def variables(self) -> Mapping[str, Domain | Array]:
        return {"at": Array(self.processes, integer(0, 3)), "flag": boolean()}

    @action(actor="process {p}", p="processes", r="numbers")
    def follow(self, s: State, p: int, r: int) -> None:
        start, others, at_most, to = self.rules[r]
        require(s.at[p] == start and sum(s.at[q] == others for q in self.processes) <= at_most)
        s.at[p] = to
        s.flag = not s.flag

    @invariant()
    def not_crowded(self, s: State) -> bool:
        return sum(s.at[p] == self.crowd for p in self.processes) < 3

    @sometimes()
    def met(self, s: State) -> bool:
        return any(s.at[p] == self.together[0] for p in self.processes) and any(
            s.at[p] == self.together[1] for p in self.processes
        )

    def terminal(self, s: State) -> bool:
        return bool(s.flag)


rules = st.lists(st.tuples(*[st.integers(0, 3)] * 4), min_size=1, max_size=5).map(tuple)


symmetric_systems = given(rules, st.integers(0, 3), st.tuples(st.integers(0, 3), st.integers(0, 3)))


@settings(max_examples=20, deadline=None)
@symmetric_systems
def test_symmetric_searches_say_what_the_whole_one_says(
    chosen: tuple[Rule, ...], crowd: int, together: tuple[int, int]
) -> None:
    symmetric_as_whole(chosen, crowd, together)


@pytest.mark.exhaustive
@settings(max_examples=600, deadline=None)
@symmetric_systems
def test_many_symmetric_searches_say_what_the_whole_one_says(
    chosen: tuple[Rule, ...], crowd: int, together: tuple[int, int]
) -> None:
    symmetric_as_whole(chosen, crowd, together)


def symmetric_as_whole(chosen: tuple[Rule, ...], crowd: int, together: tuple[int, int]) -> None:
    system = Ruled(rules=chosen, crowd=crowd, together=together)
    for keep_going in (False, True):
        whole = explore(system, Options(engine="interpreted", keep_going=keep_going))
        quotient = explore(system, Options(engine="interpreted", symmetry=True, keep_going=keep_going))
        for one, other in zip(whole.verdicts, quotient.verdicts, strict=True):
            assert (one.law, one.outcome) == (other.law, other.outcome)
            if one.law in ("not-crowded", "no-deadlock") and one.outcome is Outcome.VIOLATED:
                assert len(one.witness.steps) == len(other.witness.steps)


# -- randomness, laws that write ---------------------------------------------------------------------------------------


class Unsteady(Specification):
    """`where` does not depend on the state alone."""

    name: ClassVar[str] = "unsteady"
    where: str

    def variables(self) -> Mapping[str, Domain | Array]:
        return {"x": integer(0, 9), "y": integer(0, 1)}

    @action(actor="clock")
    def tick(self, s: State) -> None:
        require(s.x < 9)
        s.x += 1

    @action(actor="dice")
    def throw(self, s: State) -> None:
        require(self.where != "guard" or random.random() < 0.3)
        s.y = 1

    def late(self, s: State) -> bool:
        if self.where == "predicate that assigns":
            s.y = 1
        return bool(s.x > 3)

    @invariant(when="late")
    def lucky(self, s: State) -> Any:
        if self.where == "law that assigns":
            s.y = 0
        if self.where == "nothing returned":
            return None
        if self.where == "require":
            require(s.x < 3)
        return self.where != "law" or random.random() < 0.7

    def terminal(self, s: State) -> bool:
        return True


@pytest.mark.parametrize("where", ["guard", "law"])
def test_what_draws_at_random_gets_no_verdict(where: str) -> None:
    with pytest.raises(InputError, match="the same twice"):
        explore(Unsteady(where=where))


class Counting(Specification):
    """What one step counts in a list, beside the state, a law or a guard looks at later."""

    name: ClassVar[str] = "counting"
    looks: str
    steps: ClassVar[list[int]] = []

    def variables(self) -> Mapping[str, Domain | Array]:
        return {"x": integer(0, 30), "y": boolean()}

    @action(actor="clock")
    def tick(self, s: State) -> None:
        require(s.x < 30)
        s.x += 1
        if s.x == 20:
            self.steps.append(1)

    @action(actor="clock")
    def late(self, s: State) -> None:
        require(s.x == 10)
        s.y = self.looks == "guard" and len(self.steps) > 3

    @invariant()
    def once(self, s: State) -> bool:
        return self.looks != "law" or len(self.steps) < 3

    @sometimes()
    def half(self, s: State) -> bool:
        return bool(s.x == 15)

    def terminal(self, s: State) -> bool:
        return True


@pytest.mark.parametrize(("looks", "named"), [("law", "once"), ("guard", "action late")])
def test_what_the_search_has_found_must_be_so_when_asked_again(looks: str, named: str) -> None:
    Counting.steps.clear()
    with pytest.raises(InputError, match=f"{named} does not do the same twice"):
        explore(Counting(looks=looks), Options(engine="interpreted"))


def test_what_is_counted_and_not_looked_at_does_not_matter() -> None:
    Counting.steps.clear()
    assert explore(Counting(looks="nowhere"), Options(engine="interpreted")).outcome == Outcome.HOLDS


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("law that assigns", "y: assigned in a law"),
        ("predicate that assigns", "y: assigned in a law"),
        ("nothing returned", "lucky: returned None"),
        ("require", "lucky: require in a law"),
    ],
)
@pytest.mark.parametrize("engine", ["interpreted", "auto"])
def test_a_law_only_reads_and_answers(where: str, message: str, engine: Any) -> None:
    with pytest.raises(SpecificationError, match=message):
        explore(Unsteady(where=where), Options(engine=engine))


def test_its_neighbour_is_judged() -> None:
    assert explore(Unsteady(where="")).outcome is Outcome.HOLDS


def test_a_violation_that_the_engine_made_up_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def note(self: CompiledSpace) -> None:
        if self.count > 3:
            self.found["no-lost-update"] = 3

    monkeypatch.setattr(CompiledSpace, "_note_findings", note)
    with pytest.raises(Defect, match="the compiled engine is wrong"):
        explore(Increment(), Options(engine="compiled"))


# -- footprints --------------------------------------------------------------------------------------------------------


def counting(me: str, other: str) -> Process:
    def program(here: int, shared: Any) -> Sequence[Move]:
        return [Move("count", here + 1, {me: here + 1})] if here < 2 else []

    return Process(me, 0, program)


def pair(law: Invariant[Situation]) -> ProcessSystem:
    done = ProcessSystem(
        "pair", [counting("a", "b"), counting("b", "a")], {"a": 0, "b": 0}, [law], lambda s: s.locals == (2, 2)
    )
    return done


def test_reads_that_leave_a_place_out_are_an_error_of_their_author() -> None:
    """a = 2 and b = 0 lies on one order only: a search that believes the law looks at nothing may miss it."""
    told = Invariant[Situation](
        "not-ahead", lambda s: s.shared != (2, 0), reads=lambda s: frozenset({"a", "b", ("a",), ("b",)})
    )
    blind = Invariant[Situation]("not-ahead", lambda s: s.shared != (2, 0), reads=lambda s: frozenset())
    assert explore(pair(told), Options(reduction=True)).outcome is Outcome.VIOLATED
    with pytest.raises(InputError, match="--reduction: not-ahead changed with count"):
        explore(pair(blind), Options(reduction=True))


def test_a_reduction_that_leaves_nothing_out_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orderlab.model.explorer.search.REDUCE_IN_VAIN_UP_TO", 5)
    seen = frozenset({"a", "b", ("a",), ("b",)})
    found = explore(pair(Invariant("calm", lambda s: s.shared[0] < 9, reads=lambda s: seen)), Options(reduction=True))
    assert found.notes == ("reduction: switched off, for nothing could be left out in 6 states",)
    assert (found.outcome, found.distinct_states) == (Outcome.HOLDS, 9)


# -- all laws, some laws, constraints ----------------------------------------------------------------------------------


def test_going_on_decides_every_law_as_if_it_were_the_only_one() -> None:
    whole = explore(Lock(broken=True), Options(keep_going=True))
    outcomes = {one.law: one.outcome for one in whole.verdicts}
    assert [law for law, outcome in outcomes.items() if outcome is Outcome.VIOLATED] == [
        "mutual-exclusion",
        "owner-is-inside",
    ]
    assert Outcome.UNKNOWN not in outcomes.values()
    for law, outcome in outcomes.items():
        alone = explore(Lock(broken=True), Options(laws=(law,)))
        assert [(one.law, one.outcome) for one in alone.verdicts] == [(law, outcome)]


def test_a_law_may_be_named_without_its_binding_and_must_exist() -> None:
    found = explore(Lock(), Options(laws=("no-starvation",)))
    assert [one.law for one in found.verdicts] == ["no-starvation(c=0)", "no-starvation(c=1)"]
    with pytest.raises(InputError, match='no law "no-starvatoin"; did you mean "no-starvation"'):
        explore(Lock(), Options(laws=("no-starvatoin",)))


class Endless(Specification):
    """Counts far beyond what can be visited; `near` bounds it as a constraint of TLC does."""

    name: ClassVar[str] = "endless"
    most: int = 7

    def variables(self) -> Mapping[str, Domain | Array]:
        return {"x": integer(0, 2**70), "y": integer(0, 1)}

    @action(actor="clock")
    def tick(self, s: State) -> None:
        s.x += 1

    @action(actor="switch")
    def turn(self, s: State) -> None:
        s.y = 1 - s.y

    @constraint()
    def near(self, s: State) -> bool:
        return bool(s.x <= 5)

    def odd(self, s: State) -> bool:
        return bool(s.y == 0)

    @invariant()
    def small(self, s: State) -> bool:
        return bool(s.x <= self.most)

    @sometimes()
    def far(self, s: State) -> bool:
        return bool(s.x == 9)

    def always(self, s: State) -> bool:
        return True

    comes: ClassVar[LeadsToDeclaration] = leads_to("always", "odd")


def test_states_beyond_a_constraint_are_judged_and_not_gone_on_from() -> None:
    """As TLC does: 12 states meet the constraint; those with x = 6 are generated and judged, and not counted."""
    found = explore(Endless())
    assert (found.distinct_states, found.complete) == (12, True)
    assert verdict(found, "small").outcome is Outcome.HOLDS
    assert verdict(found, "far").outcome is Outcome.UNKNOWN
    assert "what lies beyond the constraint" in verdict(found, "small").not_covered[0]
    at_the_edge = verdict(explore(Endless(most=5)), "small")
    assert len(at_the_edge.witness.steps) == 6


def test_a_named_predicate_is_a_constraint_too() -> None:
    assert explore(Endless(), Options(constraints=("odd",))).distinct_states == 6
    with pytest.raises(InputError, match='--constraint od: Endless: no predicate "od"; did you mean "odd"'):
        explore(Endless(), Options(constraints=("od",)))


def test_liveness_within_a_constraint_is_violated_by_a_lasso_and_else_unknown() -> None:
    assert verdict(explore(Endless()), "comes").outcome is Outcome.VIOLATED

    class Fair(Endless):
        both: ClassVar[FairnessDeclaration] = weak_fairness("turn")

    assert verdict(explore(Fair()), "comes").outcome is Outcome.UNKNOWN


# -- fairness of a group -----------------------------------------------------------------------------------------------


class Ferry(Specification):
    """A ferry goes back and forth; who waits may board on one bank only, so weak fairness lets it wait for ever."""

    name: ClassVar[str] = "ferry"

    @cached_property
    def people(self) -> IndexSet:
        return IndexSet("person", 2)

    def variables(self) -> Mapping[str, Domain | Array]:
        return {"bank": integer(0, 1), "across": Array(self.people, boolean())}

    @action(actor="ferry", fair=True)
    def cross(self, s: State) -> None:
        s.bank = 1 - s.bank

    @action(actor="person {p}", p="people")
    def board(self, s: State, p: int) -> None:
        require(s.bank == 0 and not s.across[p])
        s.across[p] = True

    @action(actor="person {p}", p="people")
    def swim(self, s: State, p: int) -> None:
        require(s.bank == 1 and not s.across[p])
        s.across[p] = True

    def is_across(self, s: State, p: int) -> bool:
        return bool(s.across[p])

    arrives: ClassVar[LeadsToDeclaration] = leads_to("is_across_or_not", "is_across", p="people")

    def is_across_or_not(self, s: State, p: int) -> bool:
        return True


class Boards(Ferry):
    fair_boarding: ClassVar[FairnessDeclaration] = weak_fairness("board", p="people")


class BoardsStrongly(Ferry):
    fair_boarding: ClassVar[FairnessDeclaration] = strong_fairness("board", p="people")


class BoardsOrSwims(Ferry):
    fair_passage: ClassVar[FairnessDeclaration] = weak_fairness("board", "swim", p="people")


class SomebodyBoards(Ferry):
    fair_boarding: ClassVar[FairnessDeclaration] = strong_fairness("board")


@pytest.mark.parametrize(
    ("kind", "outcomes"),
    [
        (Ferry, [Outcome.VIOLATED, Outcome.VIOLATED]),
        (Boards, [Outcome.VIOLATED, Outcome.VIOLATED]),
        (BoardsStrongly, [Outcome.HOLDS, Outcome.HOLDS]),
        (BoardsOrSwims, [Outcome.HOLDS, Outcome.HOLDS]),
        (SomebodyBoards, [Outcome.HOLDS, Outcome.HOLDS]),
    ],
)
@pytest.mark.parametrize("engine", ["interpreted", "compiled"])
def test_a_group_is_enabled_where_one_of_it_is(kind: type[Ferry], outcomes: list[Outcome], engine: Any) -> None:
    """Boarding or swimming together are always enabled, each alone is not."""
    found = explore(kind(), Options(engine=engine, laws=("arrives",)))
    assert [one.outcome for one in found.verdicts] == outcomes
    if kind is Boards:
        assert "weak fairness asks nothing of what is enabled only now and then" in found.verdicts[0].witness.why


def test_a_group_names_known_actions_and_their_parameters() -> None:
    class Unknown(Ferry):
        boarding: ClassVar[FairnessDeclaration] = weak_fairness("bord")

    class NoParameter(Ferry):
        boarding: ClassVar[FairnessDeclaration] = weak_fairness("cross", p="people")

    with pytest.raises(SpecificationError, match='no action "bord"; did you mean "board"'):
        explore(Unknown())
    with pytest.raises(SpecificationError, match="action cross has no parameter p"):
        explore(NoParameter())


# -- random walks ------------------------------------------------------------------------------------------------------


def test_walks_find_and_shorten_what_a_search_finds() -> None:
    searched = verdict(explore(Increment(threads=3, lock=False)), "no-lost-update")
    walked = verdict(explore_by_walks(Increment(threads=3, lock=False), Options(seed=1), 200, 50), "no-lost-update")
    assert walked.outcome is Outcome.VIOLATED
    assert len(walked.witness.steps) == len(searched.witness.steps)


def test_walks_that_find_nothing_know_nothing() -> None:
    found = explore_by_walks(Increment(), Options(), 50, 50)
    assert {one.outcome for one in found.verdicts if one.law != "coverage"} == {Outcome.UNKNOWN}
    assert found.outcome is Outcome.UNKNOWN


def test_a_seed_draws_the_same_walks_and_another_others() -> None:
    def told(seed: int) -> dict[str, Any]:
        found = explore_by_walks(Lock(clients=4), Options(seed=seed), 5, 12).to_json()
        return {key: value for key, value in found.items() if key not in ("run", "notes", "verdicts")}

    assert told(1) == told(1)
    assert told(1) != told(2)


def test_a_long_way_round_is_shortened_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orderlab.model.explorer.walks.SHORTEN_WITHIN", 1)
    found = verdict(explore_by_walks(Endless(most=3), Options(seed=3, laws=("small",)), 50, 90), "small")
    assert found.outcome is Outcome.VIOLATED
    assert [step.action for step in found.witness.steps] == ["tick"] * 4


def test_liveness_is_not_decided_by_walks() -> None:
    walked = explore_by_walks(Ferry(), Options(), 5, 5)
    assert "do not decide what must happen in the end" in verdict(walked, "arrives(p=0)").not_covered[0]


def test_a_leads_to_of_a_process_system_says_why() -> None:
    law = LeadsTo[Situation]("both-end", lambda s: s.locals == (2, 2))
    made = pair(Invariant("calm", lambda s: True))
    lazy = [Process(one.name, one.start, one.program, fair=False) for one in made.processes]
    found = explore(ProcessSystem("pair", lazy, made.variables, [law], made.may_end))
    assert verdict(found, "both-end").witness.why.endswith("nothing more need happen, for no action is declared fair")


class Vector(Specification):
    """Compares an array as a whole, and walks along it."""

    name: ClassVar[str] = "vector"

    @cached_property
    def places(self) -> IndexSet:
        return IndexSet("place", 2)

    def variables(self) -> Mapping[str, Domain | Array]:
        return {"at": Array(self.places, integer(0, 2))}

    @action(actor="place {p}", p="places")
    def go_on(self, s: State, p: int) -> None:
        require(s.at[p] < 2)
        s.at[p] += 1

    @invariant()
    def not_both_done(self, s: State) -> bool:
        return bool(s.at != [2, 2])

    @invariant()
    def sum_is_small(self, s: State) -> bool:
        return sum(s.at) < 4

    def terminal(self, s: State) -> bool:
        return all(value == 2 for value in s.at)


@pytest.mark.parametrize("engine", ["interpreted", "auto"])
def test_an_array_is_compared_and_walked_along_element_by_element(engine: Any) -> None:
    found = explore(Vector(), Options(engine=engine, keep_going=True))
    assert [one.outcome for one in found.verdicts[:3]] == [Outcome.VIOLATED, Outcome.VIOLATED, Outcome.HOLDS]
    assert len(found.verdicts[0].witness.steps) == 4
