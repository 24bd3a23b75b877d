"""Declarative specifications and systems of processes: domains, drafts, footprints, overriding, mistakes named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, ClassVar

import pytest

from orderlab.model.classics.termination_detection import TerminationDetection
from orderlab.model.spec.declarations import action, require
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.processes import Move, Process, ProcessSystem, Shared, Situation
from orderlab.model.spec.transition_system import Footprint, Label
from orderlab.model.spec.variables import (
    NOBODY,
    Array,
    Domain,
    Draft,
    IndexSet,
    Schema,
    SpecificationError,
    State,
    boolean,
    choice,
    element,
    integer,
)


class Colour(IntEnum):
    RED = 2
    GREEN = 3


PEOPLE = IndexSet("person", 2)
SCHEMA = Schema(
    {
        "colour": choice(Colour),
        "count": integer(-1, 4),
        "done": boolean(),
        "leader": element(PEOPLE, optional=True),
        "knows": Array(PEOPLE, Array(PEOPLE, boolean())),
    }
)


def draft(recording: bool = False) -> Draft:
    return Draft(SCHEMA, tuple(SCHEMA.lowest()), recording)


def test_states_are_described_in_words() -> None:
    assert SCHEMA.describe(tuple(SCHEMA.lowest())) == {
        "colour": "red",
        "count": -1,
        "done": False,
        "leader": None,
        "knows": [[False, False], [False, False]],
    }


def test_a_draft_reads_what_it_was_assigned() -> None:
    s = draft()
    s.colour, s.count, s.leader = Colour.GREEN, 4, 1
    s.knows[1][0] = True
    assert (s.colour, s.count, s.leader, s.knows[1][0], s.knows[0][1]) == (3, 4, 1, 1, 0)
    assert (len(s.knows), len(s.knows[0])) == (2, 2)


def test_a_recording_draft_notes_places() -> None:
    s = draft(recording=True)
    if s.leader == NOBODY:
        s.knows[0][1] = s.done
    assert s._reads == {("leader",), ("done",)}
    assert s._writes == {("knows", 0, 1)}


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda s: s.coulour, 'unknown variable "coulour"; did you mean "colour"?'),
        (lambda s: setattr(s, "cuont", 1), 'unknown variable "cuont"; did you mean "count"?'),
        (lambda s: setattr(s, "count", 5), "count: 5 is outside its domain -1..4"),
        (lambda s: setattr(s, "knows", 1), "knows is an array: assign its elements"),
        (lambda s: s.knows.__setitem__(0, 1), r"knows\[0\] is an array: assign its elements"),
        (lambda s: s.knows[0].__setitem__(1, 2), r"knows\[0\]\[1\]: 2 is outside its domain 0..1"),
        (lambda s: s.knows[2], "knows: index 2 is outside 0..1"),
        (lambda s: s.knows[0][-1], "knows: index -1 is outside 0..1"),
    ],
)
def test_mistakes_are_named(mistake: Any, message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        mistake(draft())


def test_domains_must_not_be_empty_nor_have_gaps() -> None:
    class Gap(IntEnum):
        ONE = 1
        THREE = 3

    with pytest.raises(SpecificationError, match="empty domain"):
        integer(2, 1)
    with pytest.raises(SpecificationError, match="must be consecutive"):
        choice(Gap)


class Lamp(Specification):
    name: ClassVar[str] = "lamp"
    lamps: int = 2

    @property
    def room(self) -> IndexSet:
        return IndexSet("lamp", self.lamps)

    def variables(self) -> Mapping[str, Domain | Array]:
        return {"lit": Array(self.room, boolean()), "presses": integer(0, 2)}

    @action(actor="finger {lamp}", lamp="room")
    def press(self, s: State, lamp: int) -> None:
        require(s.presses < 2)
        s.presses += 1
        s.lit[lamp] = not s.lit[lamp]

    @action(actor="clock")
    def reset(self, s: State) -> None:
        require(s.presses == 2)
        s.presses = 0


class BrokenLamp(Lamp):
    """Overrides one action; the order stays."""

    name: ClassVar[str] = "broken-lamp"

    @action(actor="finger {lamp}", lamp="room")
    def press(self, s: State, lamp: int) -> None:
        require(s.presses < 2)
        s.presses += 1


def test_actions_come_in_order_with_their_bindings() -> None:
    assert [label for label, _ in Lamp().successors(((0, 0), 0))] == [
        Label("finger 0", "press", (("lamp", 0),)),
        Label("finger 1", "press", (("lamp", 1),)),
    ]
    assert list(Lamp().successors(((1, 0), 2))) == [(Label("clock", "reset"), ((1, 0), 0))]


def test_an_override_takes_the_place_of_what_it_overrides() -> None:
    assert BrokenLamp().action_names() == ["press", "reset"]
    assert [after for _, after in BrokenLamp().successors(((0, 0), 0))] == [((0, 0), 1)] * 2
    assert BrokenLamp().source_text() != Lamp().source_text()


def test_expansion_gives_footprints_and_what_disabled_actions_looked_at() -> None:
    steps, waiting = Lamp(lamps=1).expansion(((0,), 0))
    assert [label.footprint for label, _ in steps] == [
        Footprint(frozenset({("presses",), ("lit", 0)}), frozenset({("presses",), ("lit", 0)}))
    ]
    assert waiting == {"finger 0": {("presses",), ("lit", 0)}, "clock": {("presses",)}}


def test_several_initial_states() -> None:
    starts = list(TerminationDetection(nodes=2).initial_states())
    assert len(starts) == len(set(starts)) == 2**2 * 2**2 * 2


def test_a_system_of_processes_records_what_its_programs_read() -> None:
    def program(here: int, shared: Shared) -> Iterator[Move]:
        if here == 0 and shared["open"]:
            yield Move("enter", 1, {"count": shared["count"] + 1}, (("door", "front"),))

    system = ProcessSystem("door", [Process("p", 0, program), Process("q", 1, program)], {"open": True, "count": 0})
    (start,) = system.initial_states()
    ((label, after),), waiting = system.expansion(start)
    assert label[:3] == ("p", "enter", (("door", "front"),))
    assert label.footprint == Footprint(frozenset({"open", "count", ("p",)}), frozenset({"count", ("p",)}))
    assert after == Situation((True, 1), (1, 1))
    assert waiting == {"p": {"open", "count", ("p",)}, "q": {("q",)}}
    assert system.describe(after) == {"open": True, "count": 1, "p": 1, "q": 1}
