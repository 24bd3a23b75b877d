"""Symmetry: one representative per orbit, the same verdicts as without, witnesses of concrete processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import permutations
from typing import Any, ClassVar

import pytest

from orderlab.model.classics.die_hard import DieHard
from orderlab.model.classics.increment import Increment
from orderlab.model.classics.two_phase_commit import TwoPhaseCommit
from orderlab.model.errors import InputError
from orderlab.model.explorer.exploration import explore
from orderlab.model.explorer.search import Options
from orderlab.model.spec.declarations import action, invariant, require, sometimes
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.variables import (
    NOBODY,
    Array,
    Domain,
    IndexSet,
    State,
    StateTuple,
    boolean,
    canonical_state,
    element,
    renamed,
    sorts_by_columns,
)
from orderlab.model.verdict import Outcome


class Mailboxes(Specification):
    """Clients send each other payloads; who holds the token may send. Members are values and indices, twice over."""

    name: ClassVar[str] = "mailboxes"
    clients: int = 3
    payloads: int = 2
    flaw: bool = False

    @cached_property
    def senders(self) -> IndexSet:
        return IndexSet("client", self.clients, symmetric=True)

    @cached_property
    def contents(self) -> IndexSet:
        return IndexSet("payload", self.payloads, symmetric=True)

    def variables(self) -> Mapping[str, Domain | Array]:
        return {
            "token": element(self.senders, optional=True),
            "box": Array(self.senders, Array(self.senders, element(self.contents, optional=True))),
            "used": Array(self.contents, boolean()),
        }

    def initial(self, s: State) -> None:
        s.token = NOBODY
        for a in self.senders:
            for b in self.senders:
                s.box[a][b] = NOBODY

    @action(actor="client {a}", a="senders")
    def take_token(self, s: State, a: int) -> None:
        require(s.token == NOBODY)
        s.token = a

    @action(actor="client {a}", a="senders", b="senders", p="contents")
    def send(self, s: State, a: int, b: int, p: int) -> None:
        require(s.token == a and a != b and s.box[a][b] == NOBODY and (self.flaw or not s.used[p]))
        s.box[a][b] = p
        s.used[p] = True
        s.token = NOBODY

    @invariant(p="contents")
    def sent_once(self, s: State, p: int) -> bool:
        return sum(1 for a in self.senders if any(s.box[a][b] == p for b in self.senders)) <= 1

    @sometimes()
    def all_used(self, s: State) -> bool:
        return all(s.used[p] for p in self.contents)

    def terminal(self, s: State) -> bool:
        return True


def reachable(system: Specification) -> Iterator[StateTuple]:
    seen = list(system.initial_states())
    known = set(seen)
    for state in seen:
        for _, after in system.successors(state):
            if after not in known:
                known.add(after)
                seen.append(after)
    yield from seen


SYSTEMS = [TwoPhaseCommit(resource_managers=3), Increment(threads=3), Mailboxes()]


@pytest.mark.parametrize("system", SYSTEMS, ids=str)
def test_representatives_are_exactly_the_orbits(system: Specification) -> None:
    """Two states have the same representative exactly if some renaming, tried one by one, turns one into the other."""
    schema = system.schema_of_state
    sets = [
        s for s in (getattr(system, n, None) for n in ("managers", "workers", "senders", "contents")) if s is not None
    ]
    orbits: dict[frozenset[StateTuple], set[StateTuple]] = {}
    for state in reachable(system):
        orbit = {state}
        for index in sets:
            orbit = {renamed(schema, s, {index: p}) for s in orbit for p in permutations(range(index.size))}
        orbits.setdefault(frozenset(orbit), set()).add(canonical_state(schema, state))
    assert all(len(representatives) == 1 for representatives in orbits.values())
    assert len({r for rs in orbits.values() for r in rs}) == len(orbits)
    assert explore(system, Options(symmetry=True)).distinct_states == len(orbits)


def test_columns_are_sorted_where_that_is_enough() -> None:
    assert sorts_by_columns(TwoPhaseCommit().schema_of_state)
    assert not sorts_by_columns(Mailboxes().schema_of_state)


@pytest.mark.parametrize(
    "system",
    [*SYSTEMS, Mailboxes(flaw=True), TwoPhaseCommit(flaw="abort-after-vote"), Increment(threads=3, lock=False)],
    ids=str,
)
def test_same_verdicts_and_witness_lengths_as_without(system: Specification) -> None:
    whole, quotient = explore(system), explore(system, Options(symmetry=True))
    assert quotient.distinct_states < whole.distinct_states
    for one, other in zip(whole.verdicts, quotient.verdicts, strict=True):
        if one.law.startswith("everyone"):
            continue
        assert (one.law, one.outcome) == (other.law, other.outcome)
        if one.outcome is Outcome.VIOLATED:
            assert len(one.witness.steps) == len(other.witness.steps)
            assert one.witness.switches == other.witness.switches
            check(system, other.witness)


def check(system: Specification, witness: Any) -> None:
    """Each step of the witness is a step of the system."""
    states = [s for s in system.initial_states() if dict(system.describe(s)) == dict(witness.initial)]
    for step in witness.steps:
        states = [
            after
            for state in states
            for label, after in system.successors(state)
            if (label.actor, label.action, dict(label.arguments)) == (step.actor, step.action, dict(step.arguments))
        ]
        assert states


def test_symmetry_of_a_system_without_symmetric_sets_changes_nothing() -> None:
    assert explore(DieHard(), Options(symmetry=True)).distinct_states == 16


def test_what_is_not_columns_is_interpreted() -> None:
    with pytest.raises(InputError, match="symmetric sets whose members are values"):
        explore(Mailboxes(), Options(symmetry=True, engine="compiled"))


class OneName(Specification):
    """Two symmetric sets of one name."""

    name: ClassVar[str] = "one-name"

    @property
    def few(self) -> IndexSet:
        return IndexSet("p", 2, symmetric=True)

    @property
    def many(self) -> IndexSet:
        return IndexSet("p", 3, symmetric=True)

    def variables(self) -> Mapping[str, Domain | Array]:
        return {"a": Array(self.few, boolean()), "b": Array(self.many, boolean()), "last": element(self.few)}

    def starts_anywhere(self) -> list[str]:
        return ["last"]

    @action(actor="p {p}", p="few", q="many")
    def mark(self, s: State, p: int, q: int) -> None:
        require(not s.a[p] and not s.b[q])
        s.a[p] = True
        s.b[q] = True
        s.last = p

    def terminal(self, s: State) -> bool:
        return bool(all(s.a))

    @invariant()
    def last_is_marked(self, s: State) -> bool:
        return bool(s.a[s.last]) or not any(s.b)


def test_two_sets_may_have_one_name() -> None:
    assert explore(OneName(), Options(symmetry=True)).outcome == explore(OneName()).outcome == Outcome.HOLDS
