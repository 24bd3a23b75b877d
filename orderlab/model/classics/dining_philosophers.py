"""Dining philosophers as a system of processes: each takes one fork, then the other, eats, and puts both back.

After Dijkstra, "Hierarchical ordering of sequential processes" (Acta Informatica 1, 1971). When all take the left fork
first they can deadlock; when one takes the right fork first they cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from orderlab.model.spec.processes import Move, Process, ProcessSystem, Shared, Situation
from orderlab.model.spec.transition_system import Invariant, Law, Place, Sometimes

FREE = "free"


def dining_philosophers(philosophers: int = 3, one_left_handed: bool = True) -> ProcessSystem:
    """`one_left_handed`: the last philosopher takes the forks in the other order, which prevents deadlock."""
    names = [f"philosopher {at}" for at in range(philosophers)]
    forks = [f"fork {at}" for at in range(philosophers)]
    seated = []
    for at, name in enumerate(names):
        left, right = forks[at], forks[(at + 1) % philosophers]
        first, second = (right, left) if one_left_handed and at == philosophers - 1 else (left, right)
        seated.append(Process(name, "thinking", _program(name, first, second)))
    return ProcessSystem(
        "dining-philosophers",
        seated,
        dict.fromkeys(forks, FREE),
        _laws(names),
        scope={"philosophers": philosophers, "one_left_handed": one_left_handed},
        actions=("get_hungry", "take_first", "take_second", "put_back"),
    )


def _program(name: str, first: str, second: str) -> Callable[[str, Shared], Iterator[Move]]:
    def program(here: str, shared: Shared) -> Iterator[Move]:
        if here == "thinking":
            yield Move("get_hungry", "hungry")
        elif here == "hungry" and shared[first] == FREE:
            yield Move("take_first", "waiting", {first: name})
        elif here == "waiting" and shared[second] == FREE:
            yield Move("take_second", "eating", {second: name})
        elif here == "eating":
            yield Move("put_back", "thinking", {first: FREE, second: FREE})

    return program


def _laws(names: list[str]) -> list[Law]:
    def neighbours(situation: Situation) -> bool:
        ring = [*situation.locals, situation.locals[0]]
        return not any(one == other == "eating" for one, other in pairwise(ring))

    looked_at = frozenset[Place]((name,) for name in names)

    def first_eats(situation: Situation) -> bool:
        return situation.locals[0] == "eating"

    return [
        Invariant("neighbours-do-not-eat-together", neighbours, reads=lambda _: looked_at),
        Sometimes("first-philosopher-eats", first_eats, reads=lambda _: frozenset({(names[0],)})),
    ]
