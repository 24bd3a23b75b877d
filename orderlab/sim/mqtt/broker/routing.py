"""From `msg.all` to `msg.persisted`: who has subscribed to the topic of a message, and on which partition its copy goes.

QoS 0 goes straight to the broker that holds the connection: nothing stores it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy

from orderlab.sim.kafka.consumer_group import Consumer
from orderlab.sim.mqtt.broker.inflight_batch import Pack
from orderlab.sim.mqtt.broker.routed_record import copies, read_copies
from orderlab.sim.mqtt.clients.population import Ints
from orderlab.sim.mqtt.connections import unstored

if TYPE_CHECKING:
    from orderlab.sim.mqtt.broker.broker import MqttBroker

SLICE = 64
"""Messages that a consumer thread works on before others see the result."""


class Routing:
    """The consumers of `msg.all` of one broker."""

    def __init__(self, broker: MqttBroker) -> None:
        self.broker = broker
        self.fabric = broker.fabric
        self.env = broker.env

    def consume(self, consumer: Consumer) -> Generator[simpy.Event, Any, None]:
        """Poll, match, send on, commit."""
        broker, fabric, costs = self.broker, self.fabric, self.broker.costs
        while not broker.is_dead:
            polled = yield from consumer.poll()
            messages = np.array([record for _, _, records in polled for record in records], np.int64)
            fabric.note_stage("msg.all", messages)
            pack = Pack(self.env, len(messages), self._resend)
            yield broker.work(costs.poll_us)
            places, subscribers = fabric.matches.of(fabric.topic_of[messages % fabric.schedule.count])
            sessions = fabric.sessions
            if sessions.may_end:  # whose session is over has no subscription, until it subscribes anew
                places, subscribers = places[sessions.exists[subscribers]], subscribers[sessions.exists[subscribers]]
            copied = messages[places]
            is_stored = fabric.qos.of_deliveries(copied % fabric.schedule.count, subscribers) > 0
            if fabric.retaining is not None:
                fabric.retaining.published(messages)
            records = copies(copied, subscribers, sessions.number[subscribers], len(fabric.subscribers))
            partitions = fabric.persisted_partition_of[subscribers].tolist()
            ends = np.searchsorted(places, np.arange(SLICE, len(messages) + SLICE, SLICE)).tolist()
            begin = 0
            for start, end in zip(range(0, len(messages), SLICE), ends, strict=True):
                count = min(SLICE, len(messages) - start)
                yield broker.work(count * costs.match_us)
                if broker.is_dead:
                    return
                pack.expect(end - begin - count)
                if is_stored is True:
                    self._send(records[begin:end], partitions[begin:end], pack)
                elif is_stored is False:
                    self._pass_on(copied[begin:end], subscribers[begin:end], pack)
                else:
                    stays, goes = is_stored[begin:end], slice(begin, end)
                    self._send(list(compress(records[goes], stays)), list(compress(partitions[goes], stays)), pack)
                    self._pass_on(copied[goes][~stays], subscribers[goes][~stays], pack)
                begin = end
            yield from broker.complete(pack)
            yield from broker.commit(consumer, polled)

    def _pass_on(self, messages: Ints, subscribers: Ints, pack: Pack) -> None:
        """With QoS 0 to the brokers that hold the connections."""
        sessions = self.fabric.sessions
        sessions.note_queued(messages.tolist(), subscribers.tolist(), sessions.number[subscribers].tolist())
        self.broker.downlinks.hand_on(unstored(messages, subscribers))
        pack.count(len(messages))

    def _send(self, records: Sequence[int], partitions: Sequence[int], pack: Pack) -> None:
        split: dict[int, list[int]] = {}
        for record, partition in zip(records, partitions, strict=True):
            found = split.get(partition)
            if found is None:
                split[partition] = [record]
            else:
                found.append(record)
        for number, of_partition in split.items():
            self.broker.producer.send(self.fabric.persisted_partitions[number], of_partition, pack.answered)

    def _resend(self, records: Sequence[int], pack: Pack) -> None:
        """A part of a pack that Kafka did not take goes again."""
        _, subscribers, _ = read_copies(records, len(self.fabric.subscribers))
        partitions = self.fabric.persisted_partition_of[subscribers].tolist()
        for record, number in zip(records, partitions, strict=True):
            self.broker.producer.send(self.fabric.persisted_partitions[number], [record], pack.answered)
