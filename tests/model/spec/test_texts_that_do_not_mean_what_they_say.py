"""Texts that Python runs without a word, but that do not do what they say: each is an error, and its neighbour is
not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import IntEnum
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from orderlab.model.classics.catalogue import entries_of_file
from orderlab.model.errors import InputError
from orderlab.model.explorer.exploration import explore
from orderlab.model.explorer.search import Budget, Options
from orderlab.model.spec.declarations import LeadsToDeclaration, action, invariant, leads_to, require
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.processes import Process, ProcessSystem
from orderlab.model.spec.variables import NOBODY, Array, IndexSet, SpecificationError, boolean, choice, element, integer
from orderlab.model.verdict import Outcome
from tests.model.explorer.engines import compared

INTERPRETED = Options(engine="interpreted")


class Counts(Specification):
    name: ClassVar[str] = "counts"

    def variables(self) -> Any:
        return {"x": integer(0, 3), "a": Array(IndexSet("two", 2), boolean())}

    @action(actor="clock")
    def tick(self, s: Any) -> None:
        require(s.x < 3)
        s.x += 1

    @invariant()
    def small(self, s: Any) -> bool:
        return bool(s.x < 2)

    def is_low(self, s: Any) -> bool:
        return bool(s.x < 2)


class Yields(Counts):
    @action(actor="clock")
    def tick(self, s: Any) -> Any:
        require(s.x < 3)
        s.x += 1
        yield


class Awaits(Counts):
    @action(actor="clock")
    async def tick(self, s: Any) -> None:
        s.x = 3


class BeginsWithYield(Counts):
    def initial(self, s: Any) -> Any:
        s.x = 3
        yield


class ForgetsAll(Counts):
    @action(actor="clock")
    def tick(self, s: Any) -> None:
        require(s.a[i] for i in range(2))
        s.x += 1


class ForgetsToCall(Counts):
    @action(actor="clock")
    def tick(self, s: Any) -> None:
        require(self.is_low)
        s.x += 1


class AsksAnArray(Counts):
    @action(actor="clock")
    def tick(self, s: Any) -> None:
        require(s.a)
        s.x += 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (Yields, "tick: yields or awaits, so a call runs none of it"),
        (Awaits, "tick: yields or awaits, so a call runs none of it"),
        (BeginsWithYield, "initial: yields or awaits"),
        (ForgetsAll, r"require: its guard is a generator, which is true in every state"),
        (ForgetsToCall, r"require: its guard is a method, which is true in every state"),
        (AsksAnArray, r"require: its guard is a array, which is true in every state"),
    ],
)
def test_what_would_not_run_or_not_guard_is_an_error(text: type[Specification], said: str) -> None:
    with pytest.raises(SpecificationError, match=said):
        explore(text(), INTERPRETED)
    with pytest.raises(SpecificationError, match=said):
        _ = [*text().initial_states(), text().expansion((0, (0, 0)))]


def test_an_action_may_return_and_a_guard_may_be_any_data() -> None:
    class Returns(Counts):
        @action(actor="clock")
        def tick(self, s: Any) -> Any:
            require([1] and all(v == 0 for v in s.a) and self.is_low(s))
            s.x += 1
            return s.x

    assert [str(v.outcome) for v in explore(Returns(), INTERPRETED).verdicts][:1] == ["violated"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([0.5, 1.5], "0.5 is no integer"),
        (2.5, "2.5 is no integer"),
        ((i for i in range(3)), "an iterator, which is empty after its first use"),
    ],
)
def test_what_parameters_range_over_is_integers_that_stay(values: Any, said: str) -> None:
    class Ranges(Counts):
        @cached_property
        def steps(self) -> Any:
            return values

        @action(actor="clock", n="steps")
        def tick(self, s: Any, n: int) -> None:
            s.x = min(3, s.x + n)

    with pytest.raises(SpecificationError, match=said):
        explore(Ranges(), INTERPRETED)


def test_whole_numbers_of_other_types_are_integers() -> None:
    class Ranges(Counts):
        @cached_property
        def steps(self) -> Any:
            return [1.0, True, 2]

        @action(actor="clock", n="steps")
        def tick(self, s: Any, n: int) -> None:
            s.x = min(3, s.x + n)

    assert [one.arguments for one in Ranges().action_instances] == [(1,), (1,), (2,)]


@pytest.mark.parametrize("name", ["no_deadlock", "coverage"])
def test_a_law_may_not_be_called_as_one_that_is_always_judged(name: str) -> None:
    def law(self: Any, s: Any) -> bool:
        return bool(s.x < 2)

    law.__name__ = name
    with pytest.raises(SpecificationError, match="every specification has a law"):
        type("Named", (Counts,), {name: invariant()(law), "__annotations__": {}})


@pytest.mark.parametrize("name", ["terminal", "initial", "laws"])
def test_a_law_may_not_replace_what_is_asked_by_name(name: str) -> None:
    def law(self: Any, s: Any) -> bool:
        return bool(s.x < 2)

    law.__name__ = name
    with pytest.raises(SpecificationError, match="has a method of this name"):
        type("Named", (Counts,), {name: invariant()(law), "__annotations__": {}})


@pytest.mark.parametrize("name", ["_reads", "_values", "_schema", "__class__", "__dict__"])
def test_a_variable_may_not_be_called_as_what_every_state_has(name: str) -> None:
    class Reserved(Counts):
        def variables(self) -> Any:
            return {"x": integer(0, 3), name: integer(0, 3)}

    with pytest.raises(SpecificationError, match="is a name that every state has already"):
        explore(Reserved(), INTERPRETED)


def test_match_takes_arrays_apart() -> None:
    class Matches(Specification):
        name: ClassVar[str] = "matches"
        both: ClassVar[IndexSet] = IndexSet("two", 2)

        def variables(self) -> Any:
            return {"a": Array(self.both, boolean()), "m": Array(self.both, Array(self.both, boolean()))}

        @action(actor="{p}", p="both")
        def put(self, s: Any, p: int) -> None:
            require(not s.a[p])
            s.a[p] = True
            s.m[p][p] = True

        @invariant()
        def never_both(self, s: Any) -> bool:
            match s.a:
                case [1, 1]:
                    return False
            return True

        @invariant()
        def never_the_diagonal(self, s: Any) -> bool:
            match s.m:
                case [[1, _], [_, 1]]:
                    return False
            return True

        @invariant()
        def sequence(self, s: Any) -> bool:
            return s.a.count(1) + s.a.count(0) == 2 and s.a[:1] == [s.a[0]] and s.m[::-1][0] == s.m[1]

        def terminal(self, s: Any) -> bool:
            return all(s.a)

    found = explore(Matches(), Options(engine="interpreted", keep_going=True))
    outcomes = {v.law: v.outcome for v in found.verdicts}
    assert outcomes["never-both"] == outcomes["never-the-diagonal"] == Outcome.VIOLATED
    assert outcomes["sequence"] == Outcome.HOLDS


def test_processes_have_names_of_their_own() -> None:
    def idle(local: Any, shared: Any) -> Iterator[Any]:
        yield from ()

    with pytest.raises(SpecificationError, match="two processes are called a"):
        ProcessSystem("twice", [Process("a", 0, idle), Process("a", 0, idle)], {"x": 0})


class Strange(IntEnum):
    A = 0
    B = 2

    def __rand__(self, other: int) -> int:
        return 7

    def __rxor__(self, other: int) -> int:
        return 5


class Plain(IntEnum):
    A = 0
    B = 2


class Holds(tuple):  # type: ignore[type-arg]
    def __contains__(self, member: object) -> bool:
        return True


SOME = Holds((1, 2))
SAME = (1, 2)


class WithStrange(Counts):
    @action(actor="clock")
    def tick(self, s: Any) -> None:
        require(s.x < 3)
        s.x = (s.x & Strange.B) % 4


class WithPlain(Counts):
    @action(actor="clock")
    def tick(self, s: Any) -> None:
        require(s.x < 3)
        s.x = ((s.x & Plain.B) + (s.x ^ Plain.B)) % 4


class InStrange(Counts):
    @invariant()
    def small(self, s: Any) -> bool:
        return s.x in SOME


class InPlain(Counts):
    @invariant()
    def small(self, s: Any) -> bool:
        return s.x in SAME


class Hides(Counts):
    @invariant()
    def small(self, s: Any) -> bool:
        k = s.x
        return all(k < 5 for k in range(k, 6)) or s.x < 2


@pytest.mark.parametrize(
    ("text", "end"),
    [(WithStrange, "refused"), (WithPlain, "agreed"), (InStrange, "refused"), (InPlain, "agreed"), (Hides, "refused")],
)
def test_constants_that_do_not_compute_as_pythons_own_are_not_compiled(text: type[Specification], end: str) -> None:
    assert compared(text()).partition(":")[0] == end


SPLIT = """\
from orderlab.specification import Specification, action, invariant, require
from orderlab.model.spec.variables import integer
{imported}

{constant}

class Split(Specification):
    name = "split"

    def variables(self):
        return {{"x": integer(0, 200)}}

    @action(actor="clock")
    def tick(self, s):
        require(s.x < 200)
        s.x += 1

    @invariant()
    def never_bad(self, s):
        return s.x != BAD

    def terminal(self, s):
        return s.x == 200
"""


@pytest.mark.parametrize("beside", [False, True])
def test_a_checkpoint_is_refused_where_a_constant_or_an_imported_text_has_changed(
    beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    kept = tmp_path / "kept"

    def run(bad: int, states: int | None) -> Any:
        constant = f"BAD = {bad}"
        (tmp_path / "beside_it.py").write_text(constant if beside else "BAD = 0")
        monkeypatch.delitem(sys.modules, "beside_it", raising=False)
        imported = "from beside_it import *\nimport beside_it" if beside else ""
        (tmp_path / "split.py").write_text(SPLIT.format(imported=imported, constant="" if beside else constant))
        system = entries_of_file(tmp_path / "split.py")["Split"].parameters()
        return explore(system, Options(engine="interpreted", budget=Budget(max_states=states), checkpoint=kept))

    assert run(150, 100).outcome == Outcome.UNKNOWN
    with pytest.raises(InputError, match="another scope, text or reduction"):
        run(50, None)
    resumed = run(150, None)
    assert resumed.run["resumed"]
    assert resumed.outcome == Outcome.VIOLATED


def test_a_checkpoint_of_processes_knows_a_partial_program(tmp_path: Path) -> None:
    def program(most: int, local: Any, shared: Any) -> Iterator[Any]:
        from orderlab.model.spec.processes import Move

        if local < most:
            yield Move("go", local + 1)

    system = ProcessSystem("partial", [Process("a", 0, partial(program, 50))], {}, may_end=lambda s: True)
    kept = tmp_path / "kept"
    explore(system, Options(budget=Budget(max_states=20), checkpoint=kept))
    assert explore(system, Options(checkpoint=kept)).distinct_states == 51


class AsksWithout(Counts):
    both: ClassVar[IndexSet] = IndexSet("two", 2)

    def is_set(self, s: Any, i: int) -> bool:
        return bool(s.a[i])

    @invariant(when="is_low")
    def is_asked(self, s: Any) -> bool:
        return bool(s.x < 3)


def test_a_predicate_is_asked_with_the_parameters_that_it_takes() -> None:
    class Antecedent(AsksWithout):
        @invariant(when="is_set")
        def small(self, s: Any) -> bool:
            return True

    class Obligation(AsksWithout):
        live: ClassVar[LeadsToDeclaration] = leads_to("is_low", "is_low", i="both")

    with pytest.raises(SpecificationError, match="is_set is asked of a state with the parameters none, but takes i"):
        explore(Antecedent(), INTERPRETED)
    with pytest.raises(SpecificationError, match="is_low is asked of a state with the parameters i, but takes none"):
        explore(Obligation(), INTERPRETED)
    with pytest.raises(InputError, match=r"--constraint is_set: .* but takes i"):
        explore(AsksWithout(), Options(constraints=("is_set",)))
    found = explore(AsksWithout(), Options(engine="interpreted", constraints=("is_low",), keep_going=True))
    assert {v.law: v.outcome for v in found.verdicts}["is-asked"] == Outcome.HOLDS


class Light(IntEnum):
    RED = 0
    GREEN = 1


class Owned(Specification):
    """Whoever holds the token; the neighbours below compare it in other words."""

    name: ClassVar[str] = "owned"
    limit: int | None = None

    @cached_property
    def clients(self) -> IndexSet:
        return IndexSet("client", 2)

    def variables(self) -> Any:
        return {
            "owner": element(self.clients, optional=True),
            "wants": Array(self.clients, element(self.clients, optional=True)),
            "flag": boolean(),
            "mode": choice(Light),
        }

    def initial(self, s: Any) -> None:
        s.owner = NOBODY

    @action(actor="client {c}", c="clients")
    def take(self, s: Any, c: int) -> None:
        require(s.owner == NOBODY)
        s.owner = c

    @action(actor="client {c}", c="clients")
    def give(self, s: Any, c: int) -> None:
        require(s.owner == c)
        s.owner = NOBODY


class IsNone(Owned):
    @invariant()
    def free(self, s: Any) -> bool:
        return s.owner is not None


class EqualsNone(Owned):
    def free(self, s: Any) -> bool:
        return bool(s.wants[0] == None or s.owner == 1)  # noqa: E711


class AmongNone(Owned):
    def free(self, s: Any) -> bool:
        return s.owner in (None, 1)


class NamedNone(Owned):
    def free(self, s: Any) -> bool:
        holder = s.owner
        return holder is None


class AnyNone(Owned):
    def free(self, s: Any) -> bool:
        return any(one is None for one in s.wants)


class IsTrue(Owned):
    def free(self, s: Any) -> bool:
        return s.flag is True


class IsMember(Owned):
    def free(self, s: Any) -> bool:
        return s.mode is Light.RED


class MatchesNone(Owned):
    def free(self, s: Any) -> bool:
        match s.owner:
            case None | 1:
                return True
        return False


class OfOthers(Owned):
    """What may be None is no value of the state."""

    def free(self, s: Any, wanted: int | None = None) -> bool:
        first = s.owner if s.flag else None
        return self.limit is None and wanted is None and first is None and s.owner == NOBODY and s.mode == Light.RED

    @invariant()
    def fits(self, s: Any) -> bool:
        return self.free(s) or s.owner != NOBODY


@pytest.mark.parametrize("text", [IsNone, EqualsNone, AmongNone, NamedNone, AnyNone, IsTrue, IsMember, MatchesNone])
def test_values_of_the_state_are_integers_and_never_none(text: type[Specification]) -> None:
    with pytest.raises(SpecificationError, match=r"free: .*: values of the state are integers") as told:
        explore(text(), INTERPRETED)
    assert told.value.place is not None


def test_what_is_no_value_of_the_state_may_be_none() -> None:
    assert explore(OfOthers(), INTERPRETED).outcome is Outcome.HOLDS


class Catches(Counts):
    """An `except` for other errors: a guard is none of them."""

    @action(actor="clock")
    def tick(self, s: Any) -> None:
        try:
            require(s.x < 1)
        except Exception:
            return
        s.x += 1


class CatchesAll(Counts):
    @action(actor="clock")
    def tick(self, s: Any) -> None:
        try:
            require(s.x < 1)
        except:  # noqa: E722
            s.x = 0
        s.x += 1


class LawCatchesAll(Counts):
    @invariant()
    def small(self, s: Any) -> bool:
        try:
            require(s.x < 0)
        except BaseException:
            return True
        return False


def test_a_guard_is_not_swallowed_by_an_except() -> None:
    found = explore(Catches(), INTERPRETED)
    assert found.distinct_states == 2
    assert found.transitions == 1
    for text, where in ((CatchesAll, "tick"), (LawCatchesAll, "small")):
        with pytest.raises(SpecificationError, match=f"{where}: catches what an unmet require raises"):
            explore(text(), INTERPRETED)
    with pytest.raises(SpecificationError, match="tick: catches"):
        CatchesAll().expansion((2, (0, 0)))
