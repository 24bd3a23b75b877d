"""Between brokers: what was saved at one broker and is to be sent by another goes through `msg.downlink.<broker>`."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Protocol

import numpy as np
import simpy

from orderlab.sim.engine.clock import call_at
from orderlab.sim.kafka.broker import AppendError
from orderlab.sim.kafka.consumer_group import Consumer
from orderlab.sim.kafka.producer import OnAnswered
from orderlab.sim.mqtt.broker.node import BrokerNode, InFlightBatch
from orderlab.sim.mqtt.clients import Ints
from orderlab.sim.mqtt.connections import SUBSCRIBER, Deliveries
from orderlab.sim.mqtt.ports import Broker


class Sockets(Protocol):
    """Where deliveries go that are for clients of this broker."""

    def deliver(self, deliveries: Deliveries) -> None:
        """Write them to the sockets of those who are connected here."""


class Downlink:
    """Both ends of the downlink topics at one broker."""

    def __init__(self, node: BrokerNode, delivery: Sockets) -> None:
        self.node = node
        self.world = node.world
        self.delivery = delivery
        self.leaving = 0
        """Calls of ``send`` that wait for the processor."""

    def hand_on(self, deliveries: Deliveries, batch: InFlightBatch | None = None) -> None:
        """Bring each delivery to the broker that holds the subscriber's connection. ``batch``: who waits for Kafka to have those
        for other brokers."""
        if not len(deliveries):
            return
        world = self.world
        for number, mine in by_value(world.traffic.subscribers.broker[deliveries[:, SUBSCRIBER]]):
            if number == self.node.number:
                self.delivery.deliver(deliveries[mine])
            else:
                if batch is not None:
                    batch.left += len(mine)
                self.send(world.brokers[number], deliveries[mine], None if batch is None else batch.answered)

    def send(self, other: Broker, deliveries: Deliveries, on_answered: OnAnswered | None = None) -> None:
        """Hand ``deliveries`` to the broker that holds the connections."""
        node = self.node
        done = node.burst(len(deliveries), node.costs.downlink_us)
        records = self.world.delivery.in_transit.add(deliveries)
        self.leaving += 1

        def send() -> None:
            self.leaving -= 1
            if not node.is_dead and other.downlink is not None:
                node.producer.send(other.downlink, records, on_answered or self._answered)

        call_at(node.env, done, send)

    def _answered(self, records: Sequence[int], error: AppendError | None) -> None:
        if error is not None:
            self.world.count("downlinks_given_up", len(records))

    def consume(self, consumer: Consumer) -> Generator[simpy.Event, Any, None]:
        """Poll, hand to the sockets, commit."""
        node = self.node
        while not node.is_dead:
            polled = yield from consumer.poll()
            records = [record for _, _, records in polled for record in records]
            yield node.work(node.costs.poll_us)
            done = node.burst(len(records), node.costs.downlink_us)
            yield node.env.timeout(int(done - node.env.now))
            if node.is_dead:
                return
            self.delivery.deliver(self.world.delivery.in_transit.take(records))
            yield from consumer.commit(polled)
            node.drop_old(consumer, polled)


def by_value(values: Ints) -> list[tuple[int, Ints]]:
    """(value, its places in order) for each value, in the order of their first places."""
    first = int(values[0])
    if (values == first).all():
        return [(first, np.arange(len(values)))]
    distinct, places = np.unique(values, return_index=True)
    return [(int(value), np.flatnonzero(values == value)) for value in distinct[np.argsort(places)]]
