"""Sets, sequences and records in the state of a process system: by value, told in order, refused where they can
change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from orderlab.model.explorer.witness import story
from orderlab.specification import Invariant, Move, Process, ProcessSystem, Shared, SpecificationError, explore


class Message(NamedTuple):
    kind: str
    number: int


def send(here: int, shared: Shared) -> Iterator[Move]:
    if here < 2:
        yield Move("send", here + 1, {"network": shared["network"] | {Message("hello", here)}})


def receive(log: tuple[Message, ...], shared: Shared) -> Iterator[Move]:
    for message in sorted(shared["network"]):
        yield Move("receive", (*log, message), {"network": shared["network"] - {message}})


def network(start: object = frozenset()) -> ProcessSystem:
    """Messages on their way in a set, received ones in a sequence."""
    in_order = Invariant("in-order", lambda s: s.locals[1] == tuple(sorted(s.locals[1])))
    processes = [Process("sender", 0, send), Process("receiver", (), receive)]
    return ProcessSystem("network", processes, {"network": start}, [in_order], may_end=lambda _: True)  # type: ignore[dict-item]


def test_a_set_on_the_wire_is_received_in_any_order() -> None:
    found = explore(network())
    assert found.distinct_states == 8
    assert story(found.verdicts[0].witness)[3:6] == [
        "     sender: 0 -> 1",
        "2. sender: send",
        "     network: {Message(kind='hello', number=0)} -> {Message(kind='hello', number=0), Message(kind='hello', "
        "number=1)}",
    ]


def test_what_can_change_is_no_state() -> None:
    with pytest.raises(
        SpecificationError, match=r'network: variable "network": set\(\) can change .* a frozenset for a set'
    ):
        explore(network(set()))

    def listing(here: list[int] | int, _: Shared) -> Iterator[Move]:
        yield Move("go", [1])  # type: ignore[arg-type]

    with pytest.raises(SpecificationError, match=r"local state of p: \[1\] can change"):
        explore(ProcessSystem("lists", [Process("p", 0, listing)], {}))
