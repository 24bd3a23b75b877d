"""From the broker that has saved a message to the one that holds the subscriber's connection: to its own sockets, or to
another broker through `msg.downlink.<broker>`."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Protocol

import numpy as np
import simpy

from orderlab.sim.engine.clock import call_at
from orderlab.sim.engine.packs import grouped
from orderlab.sim.kafka.broker import AppendError
from orderlab.sim.kafka.consumer_group import Consumer
from orderlab.sim.kafka.producer import OnAnswered
from orderlab.sim.mqtt.broker.node import BrokerNode, InFlightBatch
from orderlab.sim.mqtt.clients import Ints
from orderlab.sim.mqtt.connections import SUBSCRIBER, Deliveries, Transit
from orderlab.sim.mqtt.parts import KafkaTopics
from orderlab.sim.mqtt.ports import Broker


class Sockets(Protocol):
    """Where deliveries go that are for clients of this broker."""

    def deliver(self, deliveries: Deliveries, *, sessions: Ints | None = None) -> None:
        """Write them to the sockets of those who are connected here."""


class Downlink:
    """Both ends of the downlink topics at one broker."""

    def __init__(self, node: BrokerNode, kafka: KafkaTopics, in_transit: Transit, delivery: Sockets) -> None:
        self.node = node
        self.measured = node.measured
        self.brokers = node.peers
        self.kafka = kafka
        self.in_transit = in_transit
        self.delivery = delivery
        self.leaving = 0
        """Calls of ``send`` that wait for the processor."""

    def hand_on(self, deliveries: Deliveries, batch: InFlightBatch | None = None, sessions: Ints | None = None) -> None:
        """Bring each delivery to the broker that holds the subscriber's connection. ``batch``: who waits for Kafka to
        have those for other brokers. ``sessions``: for which they were routed, where sessions end; it travels along."""
        if not len(deliveries):
            return
        owners = self.brokers.owners(self.node.number, deliveries[:, SUBSCRIBER]).tolist()
        for number, mine in grouped(range(len(owners)), owners).items():
            if number == self.node.number:
                self.delivery.deliver(deliveries[mine], sessions=None if sessions is None else sessions[mine])
            elif number >= 0:
                if batch is not None:
                    batch.left += len(mine)
                self.send(
                    self.brokers[number],
                    deliveries[mine],
                    None if batch is None else batch.answered,
                    None if sessions is None else sessions[mine],
                )

    def send(
        self, other: Broker, deliveries: Deliveries, on_answered: OnAnswered | None = None, sessions: Ints | None = None
    ) -> None:
        """Hand ``deliveries`` to the broker that holds the connections."""
        node = self.node
        done = node.burst(len(deliveries), node.costs.downlink_us)
        records = self.in_transit.add(deliveries, sessions)
        self.leaving += 1

        def send() -> None:
            self.leaving -= 1
            if node.is_dead:
                return
            partitions = self.kafka.downlink_partition_of[deliveries[:, SUBSCRIBER]].tolist()
            node.producer.send_each(other.downlink, records, partitions, on_answered or self._answered)

        call_at(node.env, done, send)

    def send_again(self, records: Sequence[int], batch: InFlightBatch) -> None:
        """Hand on again, each by itself, what Kafka did not take: to the broker that has the client now."""
        for record in records:
            subscriber = self.in_transit.subscriber(record)
            owner = int(self.brokers.owners(self.node.number, np.array([subscriber]))[0])
            to = self.brokers[owner]
            if owner < 0 or not to.downlink or to.is_dead:
                batch.count(1)  # who connects elsewhere fetches it there
            else:
                partition = to.downlink[int(self.kafka.downlink_partition_of[subscriber])]
                self.node.producer.send(partition, [record], batch.answered)

    def _answered(self, records: Sequence[int], error: AppendError | None) -> None:
        if error is not None:
            self.measured.count("downlinks_given_up", len(records))

    def consume(self, consumer: Consumer) -> Generator[simpy.Event, Any, None]:
        """Poll, hand to the sockets, commit."""
        node = self.node
        while not node.is_dead:
            polled, records = yield from node.taken(consumer)
            if node.is_dead:
                return
            sessions = self.in_transit.sessions_of(records)
            self.delivery.deliver(self.in_transit.take(records), sessions=sessions)
            yield from consumer.commit(polled)
            self.measured.note_pack(consumer, len(records))
            node.drop_old(consumer, polled)
