"""The situations in which operations of a store with a sequential contract are measured.

Crowds of the contract are its ways of holding much. A contract that names none is filled by the call, of those that it
finds worth trying, that makes the keys grow most, made by one client after the other; limits among its fields are set
out of reach then, for a store that refuses what comes beyond two hits tells nothing of a hundred.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from orderlab.model.contracts.base import Call, Contract, Failed
from orderlab.model.contracts.client_steps import Begin, ClientStep, Die, Wait
from orderlab.properties.contracts.sequential.side_by_side import Metered
from orderlab.properties.costs.readings import BATCH, LENGTH, PAYLOAD, SIZES, CallMeter, CostReading
from orderlab.sim.redis.shard import Effect
from orderlab.sim.stores.binding.binding import Binding

SEEN_MAX = 24
"""Replies that a client remembers while a store is filled."""
LIMITS = ("limit", "max", "capacity", "burst", "quota")
OUT_OF_REACH = 1_000_000
PAYLOADS = ("payload", "value", "data", "body", "content", "text")
TRIED = 5
FEW = 10
"""Things in a store whose batches and payloads are measured."""


def readings(binding: Binding, contract: Contract, now_ms: int) -> Iterator[CostReading]:
    """Every call worth trying, by how much the store holds, by how many things it is about, and by bytes of payload."""
    crowds = [(crowd.name, crowd.steps) for crowd in contract.crowds()]
    for size in SIZES[LENGTH]:
        for name, steps in crowds:
            store = _Filled(binding, contract, now_ms)
            for step in steps(size):
                store.take(Wait(step) if isinstance(step, int) else Begin(0, step[1]))
            yield from store.read_all(LENGTH, size, name)
        if not crowds:
            yield from _repeated(binding, contract, now_ms, size).read_all(LENGTH, size, "")
    for axis, changed in ((BATCH, _of_many), (PAYLOAD, _with_payload)):
        for size in SIZES[axis]:
            store = _Filled(binding, contract, now_ms)
            held = size if axis == BATCH else FEW
            if crowds:
                for step in crowds[0][1](held):
                    store.take(Wait(step) if isinstance(step, int) else Begin(0, step[1]))
            yield from store.read_all(axis, size, "", changed)


def _repeated(binding: Binding, contract: Contract, now_ms: int, size: int) -> _Filled:
    """A store that has been filled by ``size`` calls."""
    grown = []
    for number in range(len(_calls(contract, 0, ()))):
        store = _Filled(binding, contract, now_ms)
        for client in range(TRIED):
            store.fill(client, number)
        grown.append(store.meter.held())
    store = _Filled(binding, contract, now_ms)
    for client in range(size if grown else 0):
        store.fill(client, grown.index(max(grown)))
    return store


def _calls(contract: Contract, client: int, seen: Sequence[Any]) -> list[Call]:
    return [_unlimited(call) for call in contract.calls(client, seen)]


def _unlimited(call: Call) -> Call:
    return replace(
        call,
        fields=tuple(
            (name, OUT_OF_REACH if name in LIMITS and isinstance(value, int) else value) for name, value in call.fields
        ),
    )


def _of_many(call: Call, size: int) -> Call | None:
    """The call about so many things; None where it is about one."""
    fields = dict(call.fields)
    for name, value in call.fields:
        if isinstance(value, tuple) and value:
            fields[name] = tuple(_renamed(value[0], number) for number in range(size))
        elif name == "count" and isinstance(value, int):
            fields[name] = size
    return (
        Call(call.name, tuple(fields.items()))
        if fields != dict(call.fields) or (size == 1 and _has_many(call))
        else None
    )


def _has_many(call: Call) -> bool:
    return any(name == "count" or (isinstance(value, tuple) and value) for name, value in call.fields)


def _renamed(thing: Any, number: int) -> Any:
    return (f"b{number}", *thing[1:]) if isinstance(thing, tuple) else f"b{number}"


def _with_payload(call: Call, size: int) -> Call | None:
    """The call with payloads of so many bytes; None where it has none."""
    fields = dict(call.fields)
    for name, value in call.fields:
        if name in PAYLOADS and isinstance(value, str):
            fields[name] = "." * size
        elif isinstance(value, tuple) and value and all(isinstance(one, tuple) and len(one) == 2 for one in value):
            fields[name] = tuple((first, "." * size) for first, _ in value)
    return Call(call.name, tuple(fields.items())) if fields != dict(call.fields) else None


class _Filled:
    """A store that holds much, whose operations are measured and not judged."""

    def __init__(self, binding: Binding, contract: Contract, now_ms: int) -> None:
        self.run = Metered(binding, contract, now_ms)
        self.contract = contract
        self.meter = CallMeter(self.run.backend)

    def take(self, step: ClientStep) -> None:
        """On the way; nobody measures."""
        if self.run.carry_out(step).waits:
            self.run.perform(Die(0))
        client = self.run.clients[0]
        self.run.clients[0] = client._replace(
            seen=client.seen
            if len(client.seen) <= SEEN_MAX
            else (*client.seen[: SEEN_MAX // 2], *client.seen[-SEEN_MAX // 2 :])
        )

    def fill(self, client: int, number: int) -> None:
        """The call of that number that ``client`` finds worth trying when it has seen nothing."""
        calls = _calls(self.contract, client, ())
        if number < len(calls):
            self.take(Begin(0, calls[number]))

    def read_all(self, axis: str, size: int, crowd: str, changed: Any = None) -> Iterator[CostReading]:
        """Every call worth trying from here, each from the same state."""
        reached = self.run.state
        for call in _calls(self.contract, 0, self.run.clients[0].seen):
            asked = changed(call, size) if changed is not None else call
            if asked is None:
                continue
            self.run.go_to(reached)
            situation = f"{call.name}, {crowd}" if crowd else call.name
            yield self.meter.read(situation, axis, size, partial(self._perform, asked))

    def _perform(self, call: Call, effects: list[Effect]) -> str:
        report = self.run.carry_out(Begin(0, call))
        effects += report.effects
        if report.waits:
            self.run.perform(Die(0))
            return "it waits in a blocking command"
        return report.reply.text if isinstance(report.reply, Failed) else ""
