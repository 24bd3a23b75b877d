"""Between brokers: what was saved at one broker and is to be sent by another goes through `msg.downlink.<broker>`."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy

from orderlab.sim.engine.clock import call_at
from orderlab.sim.kafka.broker import AppendError
from orderlab.sim.kafka.consumer_group import Consumer
from orderlab.sim.kafka.producer import OnAnswered
from orderlab.sim.mqtt.broker.inflight_batch import Pack
from orderlab.sim.mqtt.clients.population import Ints
from orderlab.sim.mqtt.connections import NO_DELIVERIES, Deliveries

if TYPE_CHECKING:
    from orderlab.sim.mqtt.broker.broker import MqttBroker


class Transit:
    """What Kafka's downlink records hold, by record number."""

    def __init__(self) -> None:
        self._held: dict[int, list[int]] = {}
        self._next = 0

    def add(self, deliveries: Deliveries) -> list[int]:
        """Records for ``deliveries``."""
        records = list(range(self._next, self._next + len(deliveries)))
        self._next += len(deliveries)
        self._held.update(zip(records, deliveries.tolist(), strict=True))
        return records

    def subscriber(self, record: int) -> int:
        """Whom a record is for; 0 if it was taken."""
        return self._held.get(record, [0, 0])[1]

    def take(self, records: Sequence[int]) -> Deliveries:
        """What ``records`` hold; a record that is read again is not there any more."""
        held = [row for record in records if (row := self._held.pop(record, None)) is not None]
        return np.array(held, np.int64) if held else NO_DELIVERIES


class Downlink:
    """Both ends of the downlink topics at one broker."""

    def __init__(self, broker: MqttBroker) -> None:
        self.broker = broker
        self.fabric = broker.fabric
        self.leaving = 0
        """Calls of ``send`` that wait for the processor."""

    def hand_on(self, deliveries: Deliveries, pack: Pack | None = None) -> None:
        """Each delivery goes to the broker that holds the subscriber's connection. ``pack``: who waits for Kafka to have those
        for other brokers."""
        if not len(deliveries):
            return
        fabric = self.fabric
        for number, mine in by_value(fabric.subscribers.broker[deliveries[:, 1]]):
            if number == self.broker.number:
                self.broker.delivery.deliver(deliveries[mine])
            else:
                if pack is not None:
                    pack.left += len(mine)
                self.send(fabric.brokers[number], deliveries[mine], None if pack is None else pack.answered)

    def send(self, other: MqttBroker, deliveries: Deliveries, on_answered: OnAnswered | None = None) -> None:
        """Hand ``deliveries`` to the broker that holds the connections."""
        broker = self.broker
        done = broker.burst(len(deliveries), broker.costs.downlink_us)
        records = self.fabric.in_transit.add(deliveries)
        self.leaving += 1

        def send() -> None:
            self.leaving -= 1
            if not broker.is_dead and other.downlink is not None:
                broker.producer.send(other.downlink, records, on_answered or self._answered)

        call_at(broker.env, done, send)

    def _answered(self, records: Sequence[int], error: AppendError | None) -> None:
        if error is not None:
            self.fabric.count("downlinks_given_up", len(records))

    def consume(self, consumer: Consumer) -> Generator[simpy.Event, Any, None]:
        """Poll, hand to the sockets, commit."""
        broker = self.broker
        while not broker.is_dead:
            polled = yield from consumer.poll()
            records = [record for _, _, records in polled for record in records]
            yield broker.work(broker.costs.poll_us)
            done = broker.burst(len(records), broker.costs.downlink_us)
            yield broker.env.timeout(int(done - broker.env.now))
            if broker.is_dead:
                return
            broker.delivery.deliver(self.fabric.in_transit.take(records))
            yield from consumer.commit(polled)
            broker.drop_old(consumer, polled)


def by_value(values: Ints) -> list[tuple[int, Ints]]:
    """(value, its places in order) for each value, in the order of their first places."""
    first = int(values[0])
    if (values == first).all():
        return [(first, np.arange(len(values)))]
    distinct, places = np.unique(values, return_index=True)
    return [(int(value), np.flatnonzero(values == value)) for value in distinct[np.argsort(places)]]
