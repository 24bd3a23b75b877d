"""Drawn runs on the two tables of PostgreSQL, simulated or real, and where two of them part on the same run.

What the runs break is for the judge of every session store (``orderlab validate postgres``); here one is held against
the other, in every reply and in the rows after every step.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from orderlab.sim.engine.packs import NUMBER_BYTES
from orderlab.sim.servers.session_tables import Fault, Incoming, SessionTables

CLIENTS = (b"s1", b"s2")
MODULUS = 7
LIMIT = 4
INTERVALS_S = (None, None, 0, 1, 5, 4_294_967_295)
DRAINS = 3

Do = Literal[
    "save", "retry", "fetch", "acknowledge", "release", "clear", "wait", "clean-up", "settle", "crash", "drain"
]


class Step(NamedTuple):
    """One step of a run; ``label`` is the message that an answer is for, as last fetched."""

    do: Do
    client: int = 0
    messages: tuple[Incoming, ...] = ()
    label: int = 0
    ms: int = 0
    fault: Fault | None = None

    def __str__(self) -> str:
        """As a witness tells it."""
        told = (
            f"client {self.client + 1}: {self.do}"
            if self.do not in ("wait", "clean-up", "settle", "crash")
            else self.do
        )
        if self.do == "save":
            told += " " + ", ".join(_told(one) for one in self.messages)
        elif self.do in ("acknowledge", "release"):
            told += f" m{self.label}"
        elif self.do == "wait":
            told += f" {self.ms} ms"
        return told + (f" [{self.fault}]" if self.fault else "")


def _told(one: Incoming) -> str:
    interval = "" if one.interval_s is None else f" (expires in {one.interval_s} s)"
    return f"m{one.number}{'' if one.qos == 1 else f' QoS {one.qos}'}{interval}"


KINDS: tuple[Do, ...] = ("retry", "fetch", "acknowledge", "release", "clear", "wait", "clean-up", "settle", "crash")
FAULTS: tuple[Fault, ...] = ("serialization", "deadlock", "lost-request", "lost-reply")


def draw_run(draw: random.Random, length: int) -> tuple[Step, ...]:
    """A run of ``length`` steps; in some, the identifiers come round in its course; at its end a drain of every
    queue."""
    kinds = [kind for kind in KINDS if draw.random() < 0.6]
    faults = [kind for kind in FAULTS if draw.random() < 0.3]
    intervals = INTERVALS_S if draw.random() < 0.5 else (None,)
    clients = draw.choice((1, 2))
    comes_round = draw.random() < 0.3
    saved = 0
    steps: list[Step] = []
    for at in range(length):
        if comes_round and at == length // 3:
            for _ in range(MODULUS - 1):
                saved += 1
                steps += [Step("save", 0, (Incoming(saved),)), Step("fetch", 0), Step("acknowledge", 0, label=saved)]
        do = draw.choice(("save", "save", *kinds))
        client = draw.randrange(clients)
        fault = draw.choice(faults) if faults and draw.random() < 0.3 else None
        label = draw.randint(max(1, saved - 9), max(1, saved))
        match do:
            case "save":
                size = draw.choice((1, 1, 2, 3))
                batch = [
                    Incoming(saved + nth, b"t", draw.choice((1, 1, 2)), draw.choice(intervals))
                    for nth in range(1, size + 1)
                ]
                saved += size
                steps.append(Step("save", client, tuple(batch), fault=fault))
            case "acknowledge" | "release":
                steps.append(Step(do, client, label=label, fault=fault))
            case "clear":
                steps.append(Step(do, client, fault=fault))
            case "wait":
                steps.append(Step(do, ms=draw.choice((1, 999, 1000, 5000))))
            case _:
                steps.append(Step(do, client))
    return (*steps, *(Step("drain", client) for client in range(clients)))


@dataclass
class Caller:
    """What a caller of the tables knows."""

    tables: SessionTables
    replies: list[Any] = field(default_factory=list)
    """What each operation replied, and what each fetch returned."""
    _sent: dict[tuple[int, int], int] = field(default_factory=dict)
    """(client, message) -> packet identifier under which it was last fetched."""
    _serials: dict[tuple[int, int], int] = field(default_factory=dict)
    """(client, serial number) -> message, for a PUBREL carries no payload."""
    _last: dict[int, Step] = field(default_factory=dict)

    def step(self, step: Step) -> None:
        """Take one step."""
        tables, client, name = self.tables, step.client, CLIENTS[step.client]
        match step.do:
            case "save":
                self._last[client] = step
                self.replies.append(tables.save(name, step.messages, step.fault))
            case "retry" if client in self._last:
                self.replies.append(tables.save(name, self._last[client].messages))
            case "fetch":
                self._fetch(client)
            case "acknowledge" | "release":
                self._answer(step)
            case "clear":
                self.replies.append(tables.clear(name, step.fault))
                self._last.pop(client, None)
            case "wait":
                tables.now_ms += step.ms
            case "clean-up":
                self.replies.append(tables.clean_up())
            case "settle":
                tables.settle()
            case "crash":
                tables.crash()
            case "drain":
                for _ in range(DRAINS):
                    for label in self._fetch(client):
                        self._answer(Step("release", client, label=label))
                        self._answer(Step("acknowledge", client, label=label))

    def _fetch(self, client: int) -> list[int]:
        rows = self.tables.fetch(CLIENTS[client])
        self.replies.append(rows)
        labels = []
        for row in rows:
            number = row.payload[:NUMBER_BYTES]
            label = int(number) if number else self._serials.get((client, row.serial_number))
            if label is not None:
                self._serials[client, row.serial_number] = label
                self._sent[client, label] = row.packet_id
                labels.append(label)
        return labels

    def _answer(self, step: Step) -> None:
        packet_id = self._sent.get((step.client, step.label))
        if packet_id is not None:
            answer = self.tables.release if step.do == "release" else self.tables.acknowledge
            self.replies.append(answer(CLIENTS[step.client], packet_id, step.fault))


def disagreement(one: SessionTables, other: SessionTables, steps: Sequence[Step]) -> str | None:
    """Where two tables part on the same run: in a reply, or in their rows after a step; None where they agree
    throughout."""
    runs = Caller(one), Caller(other)
    for at, step in enumerate(steps):
        for run in runs:
            run.replies.clear()
            run.step(step)
        if runs[0].replies != runs[1].replies:
            return f"step {at + 1}, {step}: replies {runs[0].replies} and {runs[1].replies}"
        if one.contents() != other.contents():
            return f"step {at + 1}, {step}: rows {one.contents()} and {other.contents()}"
    return None
