"""Sets, records and sequences as values of a specification's variables: published counts, both engines, errors,
stories."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import pytest

from orderlab.model.explorer.exploration import explore
from orderlab.model.explorer.search import Budget, Options
from orderlab.model.explorer.witness import Behaviour, story
from orderlab.model.spec.compounds import RecordDomain, record, sequence_of, set_of
from orderlab.model.spec.declarations import action, invariant, require
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
from tests.model.explorer.engines import compared


class At(IntEnum):
    WORKING = 0
    PREPARED = 1
    COMMITTED = 2
    ABORTED = 3


class Kind(IntEnum):
    PREPARED = 0
    COMMIT = 1
    ABORT = 2


class TwoPhaseCommit(Specification):
    """As in TLA+ (Gray and Lamport, "Consensus on Transaction Commit"): `msgs` is a set of records."""

    name: ClassVar[str] = "two-phase commit"
    managers: int = 3

    @cached_property
    def rms(self) -> IndexSet:
        return IndexSet("rm", self.managers, symmetric=True)

    @cached_property
    def message(self) -> RecordDomain:
        return record(kind=choice(Kind), rm=element(self.rms, optional=True))

    def variables(self) -> Mapping[str, Domain | Array]:
        decided = Domain(0, 2, ("init", "committed", "aborted"))
        prepared, messages = set_of(element(self.rms)), set_of(self.message)
        return {"at": Array(self.rms, choice(At)), "tm": decided, "prepared": prepared, "msgs": messages}

    @action(actor="tm", rm="rms")
    def hear_prepared(self, s: State, rm: int) -> None:
        require(s.tm == 0 and self.message(kind=Kind.PREPARED, rm=rm) in s.msgs)
        s.prepared |= {rm}

    @action(actor="tm")
    def commit(self, s: State) -> None:
        require(s.tm == 0 and len(s.prepared) == self.managers)
        s.tm = 1
        s.msgs |= {self.message(kind=Kind.COMMIT, rm=NOBODY)}

    @action(actor="tm")
    def abort(self, s: State) -> None:
        require(s.tm == 0)
        s.tm = 2
        s.msgs |= {self.message(Kind.ABORT, NOBODY)}

    @action(actor="rm {rm}", rm="rms")
    def prepare(self, s: State, rm: int) -> None:
        require(s.at[rm] == At.WORKING)
        s.at[rm] = At.PREPARED
        s.msgs |= {self.message(kind=Kind.PREPARED, rm=rm)}

    @action(actor="rm {rm}", rm="rms")
    def choose_abort(self, s: State, rm: int) -> None:
        require(s.at[rm] == At.WORKING)
        s.at[rm] = At.ABORTED

    @action(actor="rm {rm}", rm="rms")
    def hear_commit(self, s: State, rm: int) -> None:
        require(any(m.kind == Kind.COMMIT for m in s.msgs))
        s.at[rm] = At.COMMITTED

    @action(actor="rm {rm}", rm="rms")
    def hear_abort(self, s: State, rm: int) -> None:
        require(self.message(kind=Kind.ABORT, rm=NOBODY) in s.msgs)
        s.at[rm] = At.ABORTED

    def terminal(self, s: State) -> bool:
        return True

    @invariant()
    def consistent(self, s: State) -> bool:
        return not (any(s.at[i] == At.COMMITTED for i in self.rms) and any(s.at[i] == At.ABORTED for i in self.rms))


@pytest.mark.parametrize(
    ("managers", "states", "orbits"), [(3, 288, 80), pytest.param(5, 8832, 314, marks=pytest.mark.exhaustive)]
)
def test_a_network_of_messages_has_as_many_states_as_published(managers: int, states: int, orbits: int) -> None:
    """Stateright's example 2pc counts these; orbits as of the specification without sets
    (`test_published_counts.py`)."""
    made = TwoPhaseCommit(managers=managers)
    found = explore(made)
    assert (found.distinct_states, str(found.outcome)) == (states, "holds")
    assert explore(made, Options(symmetry=True)).distinct_states == orbits


def test_both_engines_agree_on_a_network_of_messages() -> None:
    assert compared(TwoPhaseCommit(managers=2)) == "agreed"


class Line(Specification):
    """Clients stand in a line of bounded length, each at most once unless `pushy`; what each got is kept apart."""

    name: ClassVar[str] = "line"
    clients: int = 2
    room: int = 2
    pushy: bool = False

    @cached_property
    def everyone(self) -> IndexSet:
        return IndexSet("client", self.clients, symmetric=True)

    def variables(self) -> Mapping[str, Domain | Array]:
        turn = record(of=element(self.everyone, optional=True), again=boolean())
        line = sequence_of(element(self.everyone), self.room)
        return {"line": line, "last": turn, "served": Array(self.everyone, set_of(integer(1, 2)))}

    def initial(self, s: State) -> None:
        s.last = (NOBODY, False)

    @action(actor="client {c}", c="everyone")
    def stand(self, s: State, c: int) -> None:
        require(c not in s.line or self.pushy)
        s.line += (c,)

    @action(actor="clerk", c="everyone")
    def serve(self, s: State, c: int) -> None:
        require(s.line and s.line[0] == c)
        s.served[c] |= {2 if s.last.of == c else 1}
        s.last = s.last.replace(again=s.last.of == c)
        s.last = s.last.replace(of=c)
        s.line = s.line[1:]

    @invariant()
    def once_each(self, s: State) -> bool:
        """Nobody stands in the line twice."""
        return len(s.line) < 2 or s.line[0] != s.line[1]

    @invariant()
    def never_twice(self, s: State) -> bool:
        """Nobody is served twice in a row."""
        return not s.last.again


def reached_by_hand(clients: int, room: int) -> int:
    """The states of `Line`, by a plain search over its rules."""
    start = ((), (-1, False), (frozenset(),) * clients)
    seen, waiting = {start}, [start]
    while waiting:
        line, last, served = waiting.pop()
        following: list[Any] = [
            ((*line, c), last, served) for c in range(clients) if c not in line and len(line) < room
        ]
        if line:
            c = line[0]
            got = tuple(one | {2 if last[0] == c else 1} if k == c else one for k, one in enumerate(served))
            following.append((line[1:], (c, last[0] == c), got))
        new = [one for one in following if one not in seen]
        seen.update(new)
        waiting += new
    return len(seen)


@pytest.mark.parametrize("clients", [1, 2, 3])
def test_a_line_has_as_many_states_as_a_plain_search_finds(clients: int) -> None:
    made = Line(clients=clients, room=clients)
    assert explore(made, Options(keep_going=True)).distinct_states == reached_by_hand(clients, clients)
    assert compared(made) == "agreed"


def test_a_story_shows_sets_records_and_sequences() -> None:
    found = explore(Line(), Options(keep_going=True, symmetry=True))
    (witness,) = (one.witness for one in found.verdicts if one.law == "never-twice")
    assert isinstance(witness, Behaviour)
    told = story(witness)
    assert told[0] == "0. initially: line = [], last = {of: none, again: false}, served = [{}, {}]"
    assert "     line: [] -> [0]" in told
    assert "     last.again: false -> true" in told
    assert "     served[0]: {1} -> {1, 2}" in told
    assert "last = {of: 0, again: true}" in witness.why
    json.dumps(found.to_json())


@pytest.mark.parametrize("engine", ["interpreted", "compiled"])
def test_a_bound_that_was_exceeded_is_named(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from orderlab.model.explorer.compiled import space
    from tests.model.explorer.engines import loaded_as_it_is

    monkeypatch.setattr(space, "load_kernel", loaded_as_it_is)
    with pytest.raises(
        SpecificationError, match=r"line: a sequence of 3 elements, and its domain has at most 2; widen"
    ):
        explore(Line(pushy=True), Options(keep_going=True, engine=engine))


class Wrong(Specification):
    """What an action gets wrong is a parameter."""

    name: ClassVar[str] = "wrong"
    text: str = ""

    @property
    def message(self) -> RecordDomain:
        return record(kind=integer(0, 1), to=integer(0, 2))

    def variables(self) -> Mapping[str, Domain | Array]:
        log = Array(IndexSet("box", 2), sequence_of(self.message, 2))
        return {"w": set_of(integer(0, 2)), "head": self.message, "log": log}

    @action(actor="one")
    def do(self, s: State) -> None:
        exec(self.text, {"s": s, "message": self.message})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("s.w |= {3}", "a member of w: 3 is outside its domain 0..2"),
        ("s.w = [1]", r"w: \[1\] is no set; write {value}"),
        (
            "s.w.add(1)",
            'a set of the state is a value and has no "add": s.w |= {value}'.replace("s.w", "s.x").replace("|", r"\|"),
        ),
        ("s.log[1] += (message(0, 2), message(0, 3))", "record.to: 3 is outside its domain 0..2"),
        ("s.log[1] = ((0, 2), (0, 3))", r"log\[1\]\[1\].to: 3 is outside its domain 0..2"),
        ("s.log[1].append(1)", r"s.x \+= \(value,\) appends"),
        ("s.log[0] = 7", r"log\[0\]: 7 is no sequence"),
        ("s.log[0] = ({},)", r"cannot be compared by value"),
        ("s.head.kind = 1", r"write s.x = s.x.replace\(kind=...\)"),
        ("s.head = s.head.replace(knd=1)", "no field knd; the fields are kind, to"),
        ("s.head = s.head.replace(kind=2)", "head.kind: 2 is outside its domain 0..1"),
        ("s.head = (1,)", r"head: \(1,\) is no record with the fields kind, to"),
        ("s.head = message(1)", "its fields are kind, to; give each of them once"),
        ("s.head = message(0.5, 1)", "record.kind: 0.5 is no integer"),
    ],
)
def test_what_is_no_value_of_the_domain_is_told_with_its_place(text: str, said: str) -> None:
    with pytest.raises(SpecificationError, match=said):
        explore(Wrong(text=text), Options(keep_going=True))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: set_of(integer(0, 5000)), "5,001 values may be members"),
        (lambda: set_of(set_of(integer(0, 40))), "about 2.41 values may be members"),
        (lambda: record(), "has no fields"),
        (lambda: record(count=integer(0, 1)), "count is a name that every record has already"),
        (lambda: sequence_of(integer(0, 1), -1), "give a number from 0 on"),
        (lambda: sequence_of(integer(0, 1), 10**9), "take more than 4,096 bits"),
        (lambda: set_of(3), "3 is no domain"),  # type: ignore[arg-type]
    ],
)
def test_a_domain_that_is_none_is_refused(make: Any, said: str) -> None:
    with pytest.raises(SpecificationError, match=said):
        make()


def domains() -> list[Any]:
    members = IndexSet("m", 2, symmetric=True)
    message = record(kind=integer(3, 4), to=element(members, optional=True))
    plain = [integer(-1, 1), element(members, optional=True), message]
    made = [*plain, *map(set_of, plain[:2]), *(sequence_of(one, 2) for one in plain)]
    return [
        *made,
        record(a=set_of(integer(2, 3)), b=sequence_of(integer(5, 6), 1)),
        set_of(sequence_of(integer(0, 1), 1)),
        set_of(set_of(integer(1, 2))),
    ]


@pytest.mark.parametrize("domain", domains(), ids=str)
def test_every_code_stands_for_one_value(domain: Domain) -> None:
    codes = list(domain.codes())
    values = [domain.value(code) for code in codes]
    assert len(set(codes)) == len(set(values)) == len(codes) == domain.values()
    assert [domain.code(value, "") for value in values] == codes
    assert all(domain.low <= code <= domain.high for code in codes)


@pytest.mark.parametrize("domain", domains(), ids=str)
def test_renaming_twice_is_renaming_once(domain: Domain) -> None:
    for one, other in product([(0, 1), (1, 0)], repeat=2):
        for members in domain.mentioned():
            both = tuple(other[k] for k in one)
            for code in domain.codes():
                renamed = domain.renamed(domain.renamed(code, {members: one}), {members: other})
                assert renamed == domain.renamed(code, {members: both})


def test_a_checkpoint_and_workers_keep_them(tmp_path: Path) -> None:
    made, file = TwoPhaseCommit(managers=3), tmp_path / "at"
    first = explore(made, Options(Budget(max_states=100), checkpoint=file, engine="interpreted"))
    assert first.stopped_by
    assert explore(made, Options(checkpoint=file, engine="interpreted")).distinct_states == 288
    assert explore(made, Options(workers=2, engine="interpreted")).distinct_states == 288
