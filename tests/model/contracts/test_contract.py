"""The judge of contracts against brute force, and what it says of mistakes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

import pytest

from orderlab.model.contracts.base import (
    ALL_OR_NOTHING,
    SPECIFICATION,
    AnyOf,
    Call,
    Contract,
    Failed,
    above,
    law,
    shown,
)
from orderlab.model.contracts.judge import Judge, is_same
from orderlab.model.errors import InputError


class Register(Contract):
    """write(value) -> None, read() -> value, draw() -> any integer above the value, which becomes it."""

    operations = {"write": ("value",), "read": (), "draw": ()}  # noqa: RUF012

    def initial(self):
        return 0

    def outcomes(self, state, call, now_ms):
        if call.name == "write":
            yield None, call["value"]
        elif call.name == "read":
            yield state, state
        else:
            yield above(state), lambda reply: reply

    def calls(self, client, seen):
        yield Call.of("read")

    @law("fresh", "a read returns the last write")
    def fresh(self, before, call, reply, now_ms):
        return reply == before if call.name == "read" else None


def history(draw: random.Random) -> list[tuple]:
    """Events of five operations of three clients. Draws are not stopped: a read would show what was drawn (AnyOf)."""
    events, under_way, number = [], {}, 0
    while number < 5 or under_way:
        if number < 5 and len(under_way) < 3 and draw.random() < 0.5:
            name = draw.choice(["write", "read", "draw"])
            call = Call.of("write", value=draw.randint(0, 3)) if name == "write" else Call.of(name)
            under_way[number] = call
            events.append(("begin", number, call))
            number += 1
        elif under_way:
            one = draw.choice(sorted(under_way))
            call = under_way.pop(one)
            if draw.random() < 0.25 and call.name != "draw":
                events.append(("stop", one, None))
            else:
                reply = None if call.name == "write" else draw.randint(0, 4)
                events.append(("finish", one, reply))
    return events


def sequences(events: list[tuple]) -> Iterator[tuple[int, ...]]:
    """Every order of effects that real time allows, with and without each operation that was stopped."""
    begun = {number: at for at, (kind, number, _) in enumerate(events) if kind == "begin"}
    ended = {number: at for at, (kind, number, _) in enumerate(events) if kind != "begin"}
    finished = [number for kind, number, _ in events if kind == "finish"]
    stopped = [number for kind, number, _ in events if kind == "stop"]
    for chosen in range(1 << len(stopped)):
        members = finished + [one for bit, one in enumerate(stopped) if chosen >> bit & 1]
        for order in permutations(members):
            if all(ended[b] > begun[a] for at, a in enumerate(order) for b in order[at + 1 :]):
                yield order


def is_explained_plainly(events: list[tuple]) -> bool:
    """By trying every order."""
    calls = {number: call for kind, number, call in events if kind == "begin"}
    heard = {number: reply for kind, number, reply in events if kind == "finish"}

    def fits(order: tuple[int, ...], state: int) -> bool:
        if not order:
            return True
        call, rest = calls[order[0]], order[1:]
        if call.name == "write":
            return fits(rest, call["value"])
        if call.name == "read":
            return heard.get(order[0], state) == state and fits(rest, state)
        return heard[order[0]] > state and fits(rest, heard[order[0]])

    return any(fits(order, 0) for order in sequences(events))


def is_explained(events: list[tuple], of_clients: bool) -> bool:
    """By the judge; ``of_clients``: numbers are those of clients, which begin one operation after the other."""
    judge, numbers = Judge(Register(), 0), {}
    for kind, operation, value in events:
        if kind == "begin":
            free = next(one for one in range(len(events)) if one not in numbers.values())
            numbers[operation] = free if of_clients else operation
            judge.begin(numbers[operation], value)
            continue
        number = numbers.pop(operation)
        if kind == "stop":
            judge.stop(number, "died", part_way=True)
        elif judge.finish(number, value) is not None:
            return False
    return True


@pytest.mark.parametrize("of_clients", [False, True])
def test_overlapping_operations_are_explained_as_by_brute_force(of_clients: bool) -> None:
    agreed = {True: 0, False: 0}
    for seed in range(400):
        events = history(random.Random(seed))
        expected = is_explained_plainly(events)
        assert is_explained(events, of_clients) == expected, (seed, events)
        agreed[expected] += 1
    assert min(agreed.values()) > 50, agreed


def test_a_wrong_reply_is_named_by_the_law_that_it_breaks() -> None:
    judge = Judge(Register(), 0)
    judge.begin(1, Call.of("read"))
    violation = judge.finish(1, 3)
    assert violation is not None
    assert violation.laws == ("fresh",)
    assert "allowed: 0" in violation.text
    assert judge.tested == {"fresh": 1}


@pytest.mark.parametrize(
    ("reply", "laws"), [(Failed("ERR no"), (SPECIFICATION,)), (True, (SPECIFICATION,)), (0, (SPECIFICATION,))]
)
def test_what_no_law_names_breaks_the_specification(reply: object, laws: tuple[str, ...]) -> None:
    judge = Judge(Register(), 0)
    judge.begin(1, Call.of("draw"))
    violation = judge.finish(1, reply)
    assert violation is not None
    assert violation.laws == laws


def test_what_was_stopped_is_as_before_or_as_after_and_never_a_third() -> None:
    for read, is_allowed in ((0, True), (2, True), (1, False)):
        judge = Judge(Register(), 0)
        judge.begin(1, Call.of("write", value=2))
        judge.stop(1, "the node crashed", part_way=True)
        judge.begin(1, Call.of("read"))
        violation = judge.finish(1, read)
        assert (violation is None) == is_allowed
        if violation is not None:
            assert violation.laws[0] == ALL_OR_NOTHING


def test_an_answer_that_was_heard_once_settles_what_was_stopped() -> None:
    judge = Judge(Register(), 0)
    judge.begin(1, Call.of("write", value=2))
    judge.stop(1, "the reply was lost", part_way=False)
    for reply, is_allowed in ((2, True), (0, False)):
        judge.begin(1, Call.of("read"))
        assert (judge.finish(1, reply) is None) == is_allowed


def test_a_state_that_was_kept_comes_back() -> None:
    judge = Judge(Register(), 0)
    judge.begin(1, Call.of("write", value=2))
    kept = judge.frozen
    judge.begin(2, Call.of("read"))
    assert judge.finish(2, 2) is None
    judge.thaw(kept, 0)
    judge.begin(2, Call.of("read"))
    assert judge.finish(2, 0) is None


def test_an_overlap_is_gone_through_once_for_each_thing_that_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what one operation has heard is not worked out again when another hears something."""
    judge, times, asked = Judge(Register(), 0), [], []
    explaining, after = Judge._explaining, Judge._after
    monkeypatch.setattr(Judge, "_explaining", lambda self, events: times.append(1) or explaining(self, events))
    monkeypatch.setattr(Judge, "_after", lambda self, *given: asked.append(given) or after(self, *given))
    for number in range(3):
        judge.begin(number, Call.of("draw"))
    assert judge.states() == judge.states()
    assert len(times) == 1
    for number, reply in ((0, 1), (1, 2)):
        assert judge.finish(number, reply) is None
        judge.states()
    assert len(times) == 5  # before and after each
    heard = [(state, reply) for state, _, is_heard, reply, *_ in asked if is_heard]
    assert heard
    assert len(heard) == len(set(heard))


class Wrong(Register):
    def outcomes(self, state, call, now_ms):
        yield state, state.missing


def test_a_mistake_of_the_author_is_one_line_with_its_place() -> None:
    judge = Judge(Wrong(), 0)
    judge.begin(1, Call.of("read"))
    with pytest.raises(InputError, match=r"test_contract\.py:\d+: Wrong\.outcomes: AttributeError") as raised:
        judge.finish(1, 0)
    assert "\n" not in str(raised.value)


class Open(Register):
    def outcomes(self, state, call, now_ms):
        for value in range(5000):
            yield AnyOf(lambda reply: True, value), value


def test_a_contract_that_leaves_everything_open_is_refused() -> None:
    judge = Judge(Open(), 0)
    judge.begin(1, Call.of("read"))
    with pytest.raises(InputError, match="leave fewer choices open"):
        judge.finish(1, 0)


def test_replies_are_compared_with_their_types() -> None:
    assert is_same((1, ("a", None)), (1, ("a", None)))
    assert not is_same(1, True)
    assert not is_same(1, "1")
    assert not is_same((1,), (True,))


def test_a_wrong_reply_is_held_against_the_states_before_it_alone() -> None:
    judge = Judge(Register(), 0)
    judge.begin(0, Call.of("draw"))
    violation = judge.finish(0, 0)
    assert violation is not None
    assert "an integer above 0" in violation.text
    assert "above 1" not in violation.text


class Pair(NamedTuple):
    """A state with names."""

    holders: frozenset[str]
    token: int


@dataclass(frozen=True)
class Record:
    """Another."""

    holders: frozenset[str]
    waiting: tuple[str, ...] = ()


class Terse(Pair):
    """One that shows itself."""

    def __repr__(self) -> str:
        return "terse"


def test_a_state_is_shown_alike_in_every_process() -> None:
    """The order of a set of texts depends on PYTHONHASHSEED; beside that, states are shown as repr shows them."""
    many = frozenset("abcdefgh")
    ordered = "frozenset({'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'})"
    assert shown(many) == ordered
    assert shown((many, 1)) == f"({ordered}, 1)"
    assert shown(frozenset({(1, many)})) == f"frozenset({{(1, {ordered})}})"
    assert shown(Pair(many, 3)) == f"Pair(holders={ordered}, token=3)"
    assert shown(Record(many)) == f"Record(holders={ordered})"  # not what is as by default
    for plain in (
        None,
        7,
        "x",
        (),
        (1,),
        (1, "b"),
        frozenset(),
        frozenset({5}),
        Pair(frozenset(), 1),
        Record(frozenset(), ("a",)),
        Terse(many, 1),
    ):
        assert shown(plain) == repr(plain)
