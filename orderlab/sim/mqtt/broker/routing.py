"""To whom a message goes: from `msg.all` to `msg.persisted`, by who has subscribed to its topic.

QoS 0 goes straight to the broker that holds the connection (``downlink``): nothing stores it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import simpy

from orderlab.model.errors import InputError
from orderlab.sim.engine.clock import call_at
from orderlab.sim.kafka.consumer_group import Consumer
from orderlab.sim.mqtt.broker.downlink import Downlink
from orderlab.sim.mqtt.broker.node import BrokerNode, InFlightBatch
from orderlab.sim.mqtt.clients import Ints
from orderlab.sim.mqtt.connections import ConnectionTable, unstored
from orderlab.sim.mqtt.parts import KafkaTopics, Traffic

_SHIFT = 51
SESSIONS_MAX = 1 << 12
"""Of one subscriber."""


class RoutedRecords(NamedTuple):
    """Records of `msg.persisted`: messages, the subscriber that each was routed to, and the session that it was routed
    for.

    Kafka carries each as one integer and nothing else: the session's number less one, then message times subscribers
    plus subscriber. 10^9 messages of two million subscribers fit, and 4096 sessions of each.
    """

    messages: Ints
    subscribers: Ints
    sessions: Ints

    def packed(self, population: int) -> list[int]:
        """The records as Kafka carries them. ``population``: subscribers in all. Raises InputError for a subscriber
        that begins more sessions than there are numbers."""
        if len(self.sessions) and int(self.sessions.max()) > SESSIONS_MAX:
            raise InputError(f"a subscriber began more than {SESSIONS_MAX} sessions; set online_s or offline_s higher")
        records: list[int] = ((self.sessions - 1 << _SHIFT) + self.messages * population + self.subscribers).tolist()
        return records

    @classmethod
    def unpack(cls, records: Sequence[int], population: int) -> RoutedRecords:
        """Records as Kafka carries them, by column."""
        packed = np.array(records, np.int64)
        messages, subscribers = np.divmod(packed & (1 << _SHIFT) - 1, population)
        return cls(messages, subscribers, (packed >> _SHIFT) + 1)


SLICE = 64
"""Messages that a consumer thread works on before others see the result."""


class Routing:
    """The consumers of `msg.all` of one broker."""

    def __init__(
        self, node: BrokerNode, traffic: Traffic, kafka: KafkaTopics, table: ConnectionTable, downlink: Downlink
    ) -> None:
        self.node = node
        self.env = node.env
        self.measured = node.measured
        self.traffic = traffic
        self.kafka = kafka
        self.table = table
        self.downlink = downlink

    def consume(self, consumer: Consumer) -> Generator[simpy.Event, Any, None]:
        """Poll, match, send on, commit."""
        node, costs = self.node, self.node.costs
        traffic, table = self.traffic, self.table
        while not node.is_dead:
            polled = yield from consumer.poll()
            messages = np.array([record for _, _, records in polled for record in records], np.int64)
            self.measured.note_stage("msg.all", messages)
            batch = InFlightBatch(self.env, len(messages), self._resend)
            yield node.work(costs.poll_us)
            places, subscribers = traffic.matches.of(traffic.topic_of[messages % traffic.schedule.count])
            if table.may_end:  # whose session is over has no subscription, until it subscribes anew
                places, subscribers = places[table.exists[subscribers]], subscribers[table.exists[subscribers]]
            copied = messages[places]
            is_stored = traffic.qos.of_deliveries(copied % traffic.schedule.count, subscribers) > 0
            if traffic.retaining is not None:
                traffic.retaining.published(messages)
            routed = RoutedRecords(copied, subscribers, table.session_number[subscribers])
            records = routed.packed(len(traffic.subscribers))
            partitions = self.kafka.persisted_partition_of[subscribers].tolist()
            ends = np.searchsorted(places, np.arange(SLICE, len(messages) + SLICE, SLICE)).tolist()

            def hand_on(
                begin: int,
                end: int,
                count: int,
                copied: Ints = copied,
                subscribers: Ints = subscribers,
                batch: InFlightBatch = batch,
                records: list[int] = records,
                partitions: list[int] = partitions,
                is_stored: Any = is_stored,
            ) -> None:
                if node.is_dead:
                    return
                batch.expect(end - begin - count)
                if is_stored is True:
                    self._send(records[begin:end], partitions[begin:end], batch)
                elif is_stored is False:
                    self._pass_on(copied[begin:end], subscribers[begin:end], batch)
                else:
                    stays, goes = is_stored[begin:end], slice(begin, end)
                    self._send(list(compress(records[goes], stays)), list(compress(partitions[goes], stays)), batch)
                    self._pass_on(copied[goes][~stays], subscribers[goes][~stays], batch)

            begin, ready_us = 0, 0.0
            for start, end in zip(range(0, len(messages), SLICE), ends, strict=True):
                count = min(SLICE, len(messages) - start)
                # In order, whichever thread is first.
                ready_us = max(ready_us, (yield from node.dispatch(count, costs.match_us)))
                if node.is_dead:
                    return
                call_at(self.env, ready_us, partial(hand_on, begin, end, count))
                begin = end
            yield from node.complete(batch)
            yield from node.commit(consumer, polled)

    def _pass_on(self, messages: Ints, subscribers: Ints, batch: InFlightBatch) -> None:
        """Send on with QoS 0, to the brokers that hold the connections."""
        table = self.table
        table.note_queued(messages.tolist(), subscribers.tolist(), table.session_number[subscribers].tolist())
        self.downlink.hand_on(unstored(messages, subscribers))
        batch.count(len(messages))

    def _send(self, records: Sequence[int], partitions: Sequence[int], batch: InFlightBatch) -> None:
        self.node.producer.send_each(self.kafka.persisted_partitions, records, partitions, batch.answered)

    def _resend(self, records: Sequence[int], batch: InFlightBatch) -> None:
        """Send a part of a batch again that Kafka did not take."""
        subscribers = RoutedRecords.unpack(records, len(self.traffic.subscribers)).subscribers
        partitions = self.kafka.persisted_partition_of[subscribers].tolist()
        for record, number in zip(records, partitions, strict=True):
            self.node.producer.send(self.kafka.persisted_partitions[number], [record], batch.answered)
