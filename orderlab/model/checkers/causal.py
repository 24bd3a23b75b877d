"""`causal`: nobody receives an effect before its cause.

A message is a cause of another if the same client published it earlier, or if the other's publisher had received it by
then; and so on through further messages. The law is broken where a subscriber receives a message and only later a
cause of it. MQTT promises this within one logical FIFO only, so it is judged when it is asked for.

Algorithm: vector clocks. A message carries, per publisher, how many of its publishes lie in the message's past; a
subscriber keeps the least clock above all that it has received. A first delivery that this clock already covers is a
cause that came too late. Exact, O(deliveries × publishers in a message's past) time, one clock a message.

The witness is a cycle in the happens-before graph: from the publish of the cause to the delivery of the effect,
on to the late delivery of the cause, which should have come before it.

Assumes that publishers and subscribers of one name are one client, which does one thing at a time in recorded order.
A cause that never arrives is a loss, not a causal violation.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np

from orderlab.model.checkers.findings import VACUOUS
from orderlab.model.history.events import EventBatch, EventKind, Names, describe_event
from orderlab.model.verdict import UNFINISHED, Outcome, Verdict

LAW = "causal"
Message = tuple[int, int, int, int]
_CLOCK_EVERY = 4096


@dataclass(frozen=True)
class CausalCycle:
    """`events`: each happened before the next, and the last, the late delivery of the cause, had to come before the one
    before it.
    """

    why: str
    event_id: int
    events: tuple[dict[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"why": self.why, "event_id": self.event_id, "events": [dict(event) for event in self.events]}


class _Clocks:
    """The state of the algorithm: clocks of messages, of clients, and of what each subscriber has received."""

    def __init__(self) -> None:
        self.published: dict[int, int] = {}
        self.position: dict[Message, int] = {}
        self.of_message: dict[Message, dict[int, int]] = {}
        self.of_client: dict[int, dict[int, int]] = {}
        self.received_clock: dict[int, dict[int, int]] = {}
        self.received: set[tuple[int, Message]] = set()

    def publish(self, client: int, message: Message) -> None:
        if message in self.of_message:
            return  # the publisher sent it again
        position = self.published[client] = self.published.get(client, 0) + 1
        clock = self.of_client.setdefault(client, {})
        clock[client] = position
        self.position[message] = position
        self.of_message[message] = clock.copy()

    def is_late(self, subscriber: int, message: Message) -> bool | None:
        """Take in a delivery: whether an effect of it came before; None unless it is the first of a known message."""
        clock = self.of_message.get(message)
        if clock is None or (subscriber, message) in self.received:
            return None
        self.received.add((subscriber, message))
        mine = self.received_clock.setdefault(subscriber, {})
        if mine.get(message[0], 0) >= self.position[message]:
            return True
        own = self.of_client.setdefault(subscriber, {})
        for publisher, count in clock.items():
            if count > mine.get(publisher, 0):
                mine[publisher] = count
            if count > own.get(publisher, 0):
                own[publisher] = count
        return False


def _messages(batch: EventBatch) -> Iterable[tuple[int, int, int, Message]]:
    """(row, kind, subscriber, message) of the publishes and deliveries."""
    rows = np.flatnonzero(
        ((batch.kind == EventKind.PUBLISH) | (batch.kind == EventKind.DELIVER)) & (batch.retained <= 0)
    )
    columns = (batch.kind, batch.subscriber, batch.publisher, batch.topic, batch.qos, batch.sequence)
    kinds, subscribers, *message = (column[rows].tolist() for column in columns)
    return zip(rows.tolist(), kinds, subscribers, zip(*message, strict=True), strict=True)


def check_causal(batches: Iterable[EventBatch], names: Names, budget_s: float | None = None) -> Verdict:
    """The verdict on `causal`. `batches` is gone through again for the witness if the law is violated."""
    started, clocks = time.perf_counter(), _Clocks()
    met, violations, first, rows = 0, 0, None, 0
    for batch in batches:
        for row, kind, subscriber, message in _messages(batch):
            rows += 1
            if rows % _CLOCK_EVERY == 0 and budget_s is not None and time.perf_counter() - started > budget_s:
                work = _work(met, violations, rows, started)
                return _verdict(first, work, batches, names, f"the budget ran out after event {batch.event_id[row]}")
            if kind == EventKind.PUBLISH:
                clocks.publish(message[0], message)
                continue
            late = clocks.is_late(subscriber, message)
            met += late is not None
            if late:
                violations += 1
                first = first or (int(batch.event_id[row]), subscriber, message)
    return _verdict(first, _work(met, violations, rows, started), batches, names, None)


def _work(met: int, violations: int, rows: int, started: float) -> dict[str, float]:
    seconds = round(time.perf_counter() - started, 6)
    return {"antecedents": met, "violations": violations, "events": rows, "seconds": seconds}


def _verdict(
    first: tuple[int, int, Message] | None,
    work: dict[str, float],
    batches: Iterable[EventBatch],
    names: Names,
    ran_out: str | None,
) -> Verdict:
    notes = () if ran_out is None else (ran_out,)
    if first is not None:
        return Verdict(LAW, Outcome.VIOLATED, _cycle(first, batches, names), work, notes)
    if ran_out is not None:
        work = {**work, UNFINISHED: 1}
    elif work["antecedents"] == 0:
        return Verdict(LAW, Outcome.UNKNOWN, None, work, (VACUOUS,))
    return Verdict(LAW, Outcome.HOLDS if ran_out is None else Outcome.UNKNOWN, None, work, notes)


def _cycle(first: tuple[int, int, Message], batches: Iterable[EventBatch], names: Names) -> CausalCycle:
    """The shortest chain of causes, from the happens-before graph of the events up to the late delivery."""
    late_id, late_subscriber, cause = first
    graph = nx.DiGraph()
    last: dict[int, int] = {}
    publish_of: dict[Message, int] = {}
    publish_of_delivery: dict[int, int] = {}  # at the subscriber of the late delivery
    place: dict[int, tuple[EventBatch, int]] = {}
    for batch in batches:
        for row, kind, subscriber, message in _messages(batch):
            event_id = int(batch.event_id[row])
            if event_id > late_id or (kind == EventKind.PUBLISH and message in publish_of):
                continue
            client = message[0] if kind == EventKind.PUBLISH else subscriber
            place[event_id] = (batch, row)
            if client in last and event_id != late_id:
                graph.add_edge(last[client], event_id)
            last[client] = event_id
            if kind == EventKind.PUBLISH:
                publish_of[message] = event_id
                graph.add_node(event_id)
            elif message in publish_of:
                if event_id != late_id:
                    graph.add_edge(publish_of[message], event_id)
                if subscriber == late_subscriber and event_id != late_id:
                    publish_of_delivery[event_id] = publish_of[message]
    paths = nx.single_source_shortest_path(graph, publish_of[cause])
    chains = [[*paths[sent], received] for received, sent in publish_of_delivery.items() if sent in paths]
    chain = min(chains, key=lambda path: (len(path), path))
    events = tuple(describe_event(*place[event_id], names) for event_id in [*chain, late_id])
    why = f"{cause[3]} is a cause of what event {chain[-1]} delivered, and was delivered after it"
    return CausalCycle(why, late_id, events)
