"""Who is connected where, as each broker has heard it: every CONNECT and every end of a connection is a record of the
topic `client.sessions`, which each broker reads with a group of its own. Until a record is there, brokers act on what
they knew.

A broker knows its own sockets at once. What it sends on for a client goes to the broker that it believes in: to one
that has the client no more, or to none, it reaches nobody and stays in the store. Two brokers believe to own a session
from a CONNECT at one until the other has read of it.

- ``last-event``: whatever comes last counts. The end of an old connection, told by the old broker, undoes the CONNECT
  at the new one.
- ``by-connection``: an event of an older connection undoes nothing. What was sent on to the wrong broker stays in the
  store until the next CONNECT.
- ``woken``: whoever sent something on to the wrong one remembers that, and has the session read anew when it hears
  where the client is. Records are sent until Kafka has them. Publishers who connect anew are let in when the old broker
  has closed their old connections.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Literal

import numpy as np
import simpy

from orderlab.sim.kafka.broker import AppendError, Partition
from orderlab.sim.kafka.consumer_group import Consumer
from orderlab.sim.mqtt.broker.node import BrokerNode
from orderlab.sim.mqtt.clients import Ints
from orderlab.sim.mqtt.parts import Measurements
from orderlab.sim.mqtt.presence import Presence

Rule = Literal["last-event", "by-connection", "woken"]
NOBODY = -1


class LateOwnership:
    """What every broker believes."""

    def __init__(self, rule: Rule, partition: Partition, presence: Presence, measured: Measurements) -> None:
        self.presence = presence
        self.brokers = presence.brokers
        self.measured = measured
        self.rule = rule
        self.partition = partition
        self.events: list[tuple[int, int, int, bool]] = []
        """By record: subscriber, broker, the number of the connection, whether it begins."""
        owners, count = presence.broker_of, len(presence.brokers)
        self.owner = np.tile(owners, (count, 1))
        """Per broker and subscriber, where it believes the client to be connected."""
        self.number = np.zeros((count, len(owners)), np.int64)
        """Of the connection that it believes in."""
        self.leaving: dict[int, Callable[[], None]] = {}
        """By record, what the broker that publishers have left does when it hears of it."""
        self.misled: list[set[int]] = [set() for _ in range(count)]
        """Per broker, for whom it sent something on to where the client may not be."""
        presence.on_notice.append(self._ended)

    # -- what brokers tell -----------------------------------------------------------------------------------

    def connected(self, subscriber: int, broker: int) -> None:
        """A client has connected at a broker."""
        number = int(self.presence.table.connection_number[subscriber])
        self.owner[broker, subscriber], self.number[broker, subscriber] = broker, number
        self._tell(self._node(broker), (subscriber, broker, number, True))

    def _ended(self, subscriber: int, broker: int, connection: int) -> None:
        if not self.brokers[broker].is_dead:
            self._tell(self._node(broker), (subscriber, broker, connection, False))

    @property
    def awaits_old(self) -> bool:
        """Whether a broker lets publishers in only when the old one has closed their connections."""
        return self.rule == "woken"

    def publishers_left(self, old: int, new: int, then: Callable[[], None]) -> None:
        """The publishers of a broker connect to another one, which tells so; ``then`` when the old one hears of it."""
        self.leaving[len(self.events)] = then
        self._tell(self._node(new), (NOBODY, old, 0, True))

    def _node(self, broker: int) -> BrokerNode:
        node = self.brokers[broker]
        assert isinstance(node, BrokerNode), "brokers of one system are of one kind"
        return node

    def _tell(self, node: BrokerNode, event: tuple[int, int, int, bool]) -> None:
        record = len(self.events)
        self.events.append(event)
        self.measured.count("session_events")

        def answered(records: Sequence[int], error: AppendError | None) -> None:
            if error is None:
                return
            self.measured.count("session_events_lost" if self.rule != "woken" else "session_events_again", len(records))
            if self.rule == "woken" and not node.is_dead:
                node.producer.send(self.partition, records, answered)

        node.burst(1, node.costs.downlink_us)
        node.producer.send(self.partition, [record], answered)

    # -- what brokers hear -----------------------------------------------------------------------------------

    def consume(self, node: BrokerNode, consumer: Consumer) -> Generator[simpy.Event, Any, None]:
        """Poll, believe, commit."""
        while not node.is_dead:
            polled, records = yield from node.taken(consumer)
            if node.is_dead:
                return
            for record in records:
                if record not in self.leaving:
                    self._hear(node.number, *self.events[record])
                elif self.events[record][1] == node.number:
                    self.leaving[record]()
            yield from consumer.commit(polled)

    def _hear(self, here: int, subscriber: int, broker: int, number: int, begins: bool) -> None:
        owner, known = self.owner[here], self.number[here]
        if begins and broker != here:
            self.presence.notice(subscriber, number - 1, here)
        if self.rule != "last-event" and number < known[subscriber]:
            return
        if begins or self.rule == "last-event" or owner[subscriber] == broker:
            owner[subscriber] = broker if begins else NOBODY
        known[subscriber] = number
        is_misled = begins and self.rule == "woken" and subscriber in self.misled[here]
        if is_misled and self.presence.is_at(broker, subscriber):
            self.misled[here].discard(subscriber)
            self.brokers[broker].wake(subscriber)

    # -- what brokers ask ------------------------------------------------------------------------------------

    def owners(self, here: int, subscribers: Ints) -> Ints:
        """Where a broker believes these to be connected; NOBODY: nowhere."""
        connected, broker_of = self.presence.table.connected, self.presence.broker_of
        mine = connected[subscribers] & (broker_of[subscribers] == here)
        believed: Ints = self.owner[here][subscribers]
        believed[believed == here] = NOBODY
        believed[mine] = here
        there = believed[~mine]
        if len(there):
            self.measured.count("sent_on_to_nobody", int((there == NOBODY).sum()))
            others = subscribers[~mine]
            wrong = (there != NOBODY) & (there != np.where(connected[others], broker_of[others], NOBODY))
            self.measured.count("sent_on_to_former_owners", int(wrong.sum()))
            if self.rule == "woken":
                self.misled[here].update(others.tolist())
        return believed

    def knows_newer(self, here: int, subscriber: int, connection: int) -> bool:
        """Whether a broker has heard of a later connection of the client, were it over."""
        return bool(self.number[here, subscriber] > connection)
