"""The interpreted and the compiled engine read the same text: same states, order, findings and witnesses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pytest

from orderlab.model.classics.die_hard import DieHard
from orderlab.model.classics.increment import Increment
from orderlab.model.classics.termination_detection import TerminationDetection
from orderlab.model.classics.two_phase_commit import TwoPhaseCommit
from orderlab.model.errors import InputError
from orderlab.model.explorer.compiled.layout import layout_of
from orderlab.model.explorer.compiled.space import CompiledSpace
from orderlab.model.explorer.exploration import Exploration, explore
from orderlab.model.explorer.search import Options
from orderlab.model.explorer.space import InterpretedSpace
from orderlab.model.spec.declarations import (
    LeadsToDeclaration,
    action,
    eventually,
    invariant,
    leads_to,
    require,
    sometimes,
    step_invariant,
)
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.variables import (
    NOBODY,
    Array,
    Domain,
    IndexSet,
    SpecificationError,
    State,
    boolean,
    choice,
    element,
    integer,
)
from tests.model.explorer.engines import loaded_as_it_is

LIMITS = (0, 2, 1)


class Mode(IntEnum):
    IDLE = 1
    BUSY = 2


def halved(number: int) -> int:
    if number > 3:
        return number // 2
    return number


class Medley(Specification):
    """Uses every form that the compiled engine knows: wide and nested arrays, loops, locals, helpers, quantifiers."""

    name: ClassVar[str] = "medley"
    size: int = 2
    strict: bool = True

    @cached_property
    def workers(self) -> IndexSet:
        return IndexSet("worker", self.size)

    @cached_property
    def cells(self) -> IndexSet:
        return IndexSet("cell", 40)

    def variables(self) -> Mapping[str, Domain | Array]:
        return {
            "mode": Array(self.workers, choice(Mode)),
            "owner": element(self.workers, optional=True),
            "sent": Array(self.workers, Array(self.workers, integer(0, 2))),
            "wide": Array(self.cells, integer(-1, 6)),
            "level": integer(-3, 7),
        }

    def initial(self, s: State) -> None:
        s.owner = NOBODY
        s.level = -3

    @action(actor="worker {w}", fair=True, w="workers")
    def grab(self, s: State, w: int) -> None:
        require(s.owner == NOBODY and w in (0, 1, 2) and s.level not in {6, 7} and self.size not in (5, 6))
        s.owner = w
        s.mode[w] = Mode.BUSY

    @action(actor="worker {w}", w="workers", to="workers")
    def send(self, s: State, w: int, to: int) -> None:
        require(s.owner == w and w != to)
        if s.sent[w][to] < LIMITS[1]:
            s.sent[w][to] += 1
        else:
            s.sent[w][to] = 0
        total = 0
        for other in self.workers:
            total += s.sent[w][other]
        s.wide[total * 13 + 1] = total if self.strict else -1

    @action(actor="worker {w}", fair=True, w="workers")
    def drop(self, s: State, w: int) -> None:
        require(s.owner == w)
        s.mode[w] = Mode.IDLE
        s.owner = NOBODY
        s.level = min(7, max(-3, s.level + 1)) if s.wide[14] > 0 or not self.strict else s.level

    @action(actor="clock")
    def tick(self, s: State) -> None:
        require(
            s.level > halved(6) and any(s.sent[w][v] == 2 for w in self.workers for v in [0]) if False else s.level > 3
        )
        for i in range(s.level):
            if i == 2:
                break
            s.wide[39 - i] = halved(i + 4)

    def owned(self, s: State) -> bool:
        return s.owner != NOBODY

    def free(self, s: State) -> bool:
        return not self.owned(s)

    def prefix_clear(self, s: State, w: int) -> bool:
        """A quantifier over a set that is only known during the run."""
        return all(s.sent[w][j] <= 2 for j in range(w + 1))

    @invariant(when="owned")
    def one_busy(self, s: State) -> bool:
        return sum(1 for w in self.workers if s.mode[w] == Mode.BUSY) == 1

    @invariant(w="workers")
    def prefixes(self, s: State, w: int) -> bool:
        return self.prefix_clear(s, w)

    @invariant()
    def low(self, s: State) -> bool:
        return s.level < 6

    @step_invariant()
    def level_never_falls(self, before: State, after: State) -> bool:
        return after.level >= before.level

    @sometimes(w="workers")
    def some_pair(self, s: State, w: int) -> bool:
        return s.wide[27] == 2

    freed: ClassVar[LeadsToDeclaration] = leads_to("owned", "free")
    freed_at_first: ClassVar[LeadsToDeclaration] = eventually("owned")


SYSTEMS = [
    TwoPhaseCommit(resource_managers=4),
    TwoPhaseCommit(flaw="abort-after-vote"),
    TerminationDetection(flaw="sender-stays-white", nodes=3),
    TerminationDetection(flaw="token-may-stop", nodes=3),
    Increment(threads=3, lock=False),
    DieHard(goal=4),
    Medley(),
]


@pytest.fixture(autouse=True)
def uncompiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels run as plain Python but where a test says otherwise: numba takes seconds for each."""
    if request.node.get_closest_marker("exhaustive") is None and "by_numba" not in request.node.name:
        monkeypatch.setattr("orderlab.model.explorer.compiled.space.load_kernel", loaded_as_it_is)


def compared(found: Exploration) -> Mapping[str, Any]:
    return {key: value for key, value in found.to_json().items() if key != "run"}


@pytest.mark.parametrize("system", SYSTEMS, ids=str)
def test_same_report(system: Specification) -> None:
    same_report(system)


def test_same_report_by_numba() -> None:
    same_report(Medley())


@pytest.mark.exhaustive
@pytest.mark.parametrize("system", SYSTEMS, ids=str)
def test_every_report_by_numba(system: Specification) -> None:
    same_report(system)


def same_report(system: Specification) -> None:
    interpreted = explore(system, Options(engine="interpreted"))
    compiled = explore(system, Options(engine="compiled"))
    assert compiled.run["engine"] == "compiled"
    assert compared(interpreted) == compared(compiled)


def whole(space: InterpretedSpace | CompiledSpace) -> None:
    space.start()
    expanded = 0
    while expanded < space.count:
        expanded = space.expand(expanded, min(space.count, expanded + 100))


@pytest.mark.parametrize(
    ("system", "symmetry"), [(Medley(), False), (TwoPhaseCommit(resource_managers=4), True)], ids=str
)
def test_same_numbering_and_edges(system: Specification, symmetry: bool) -> None:
    one, other = InterpretedSpace(system, symmetry), CompiledSpace(system, symmetry)
    whole(one)
    whole(other)
    assert one.count == other.count
    assert all(one.state(n) == other.state(n) and one.parent(n) == other.parent(n) for n in range(one.count))
    assert (one.steps, one.found, one.met(), one.fired()) == (other.steps, other.found, other.met(), other.fired())
    mine, theirs = one.edges(0, one.count), other.edges(0, other.count)
    assert np.array_equal(mine.source, theirs.source)
    assert np.array_equal(mine.target, theirs.target)
    assert [mine.labels[k] for k in mine.label] == [theirs.labels[k] for k in theirs.label]
    assert one.steps == other.steps, "recording edges must not count steps"


def test_layout_brings_every_state_back() -> None:
    system = Medley(size=3)
    layout = layout_of(system.schema_of_state)
    assert layout.words > 2
    states = [after for state in system.initial_states() for _, after in system.successors(state)]
    for state in [*system.initial_states(), *states]:
        assert layout.unpack(np.array(layout.pack(state))) == state


class Overflowing(Specification):
    name: ClassVar[str] = "overflowing"
    by_index: bool = False

    def variables(self) -> Mapping[str, Domain | Array]:
        return {"count": integer(0, 3), "cells": Array(IndexSet("cell", 3), boolean())}

    @action(actor="clock")
    def tick(self, s: State) -> None:
        if self.by_index:
            s.cells[s.count] = True
            s.count = min(3, s.count + 1)
        else:
            s.count += 1


@pytest.mark.parametrize("engine", ["interpreted", "compiled"])
@pytest.mark.parametrize(
    ("by_index", "message"), [(False, "count: 4 is outside its domain 0..3"), (True, "cells: index 3 is outside 0..2")]
)
def test_values_outside_their_domain_are_named(engine: Any, by_index: bool, message: str) -> None:
    with pytest.raises(SpecificationError) as error:
        explore(Overflowing(by_index=by_index), Options(engine=engine))
    assert str(error.value).partition(";")[0] == message


class Dictionaries(Overflowing):
    """Uses a form that only the interpreter knows."""

    name: ClassVar[str] = "dictionaries"

    @action(actor="clock")
    def tick(self, s: State) -> None:
        s.count = {0: 1}.get(s.count, 2)

    def action_names(self) -> Sequence[str]:
        return ["tick"]


def test_what_cannot_be_compiled_is_refused_and_interpreted() -> None:
    with pytest.raises(InputError, match=r"cannot be compiled \(Dictionaries.tick: .*use --engine interpreted"):
        explore(Dictionaries(), Options(engine="compiled"))
    found = explore(Dictionaries(), Options())
    assert found.run["engine"] == "interpreted"
    assert found.distinct_states == 3
