"""From publishers to Kafka: PUBLISH packets come in, go to `msg.all`, and are acknowledged when Kafka has them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy

from model.history import EventKind
from sim.kafka.log import AppendError
from sim.mqtt.population import Arrivals, Ints
from sim.timers import call_at

if TYPE_CHECKING:
    from sim.mqtt.broker import MqttBroker


class Ingest:
    """The publishers of one broker."""

    def __init__(self, broker: MqttBroker) -> None:
        self.broker = broker
        self.fabric = broker.fabric
        self.env = broker.env
        self.unacknowledged: dict[int, None] = {}
        """Messages that their publishers have no PUBACK for, in the order in which they came."""
        self.pubacks_to_lose = 0
        self._is_listening = True
        self._arrivals = [Arrivals(broker.fabric.schedule, broker.number)]
        self._published = self._on_published  # one object, so that the producer can tell its batches belong together

    def listen(self) -> Generator[simpy.Event, Any, None]:
        """Take in what arrives, tick by tick."""
        tick = self.broker.settings.tick_us
        while self._is_listening:
            yield self.env.timeout(tick)
            for arrivals in self._arrivals if not self.broker.is_dead else ():
                messages, _ = arrivals.until(int(self.env.now))
                if len(messages) and self._is_listening:
                    self._ingest(messages)

    def stop(self) -> None:
        """Publishers publish no more."""
        self._is_listening = False

    def take_over(self, other: Ingest) -> None:
        """Publishers of another broker connect here: first they send again what has no PUBACK."""
        self._arrivals += other._arrivals
        if other.unacknowledged:
            self._ingest(np.array(list(other.unacknowledged), np.int64), int(self.env.now))

    def _ingest(self, messages: Ints, repeated_us: int | None = None) -> None:
        """Publishes have arrived; ``repeated_us``: they were sent again at that instant."""
        fabric = self.fabric
        publisher = messages % fabric.schedule.count
        sequence = messages // fabric.schedule.count
        topic = fabric.topic_of[publisher]
        self.unacknowledged.update(dict.fromkeys(messages.tolist()))
        if repeated_us is None:
            instants = fabric.schedule.published_us(messages)
            self._record_subscribers(topic, sequence, instants)
            fabric.count("published", len(messages))
        else:
            instants = np.full(len(messages), repeated_us)
            fabric.count("published_again", len(messages))
        fabric.recorder.add(
            EventKind.PUBLISH, instants, publisher=publisher, topic=topic, qos=fabric.qos, sequence=sequence,
            dup=int(repeated_us is not None), **({} if fabric.expiry_us is None else {"expiry_interval_us": fabric.expiry_us}),
        )  # fmt: skip
        done = self.broker.burst(len(messages), self.broker.costs.ingest_us)
        call_at(self.env, done, lambda: self._to_all(messages, topic))

    def _record_subscribers(self, topics: Ints, sequence: Ints, published: Ints) -> None:
        """A subscriber has been connected for long; it enters the history just before the first publish to it."""
        if not sequence.any() or not sequence.all():
            fabric, first = self.fabric, sequence == 0
            topic, before = topics[first], np.maximum(published[first] - 1, 0)
            subscriber = topic + fabric.schedule.count
            fabric.recorder.add(EventKind.CONNECT, before, subscriber=subscriber)
            fabric.recorder.add(EventKind.SUBSCRIBE, before, subscriber=subscriber, topic=topic, qos=fabric.qos)

    def _to_all(self, messages: Ints, topics: Ints) -> None:
        if self.broker.is_dead:
            return
        fabric = self.fabric
        split: dict[int, list[int]] = {}
        for message, partition in zip(messages.tolist(), fabric.all_partition_of[topics].tolist(), strict=True):
            records = split.get(partition)
            if records is None:
                split[partition] = [message]
            else:
                records.append(message)
        for number in sorted(split):
            self.broker.producer.send(fabric.all_partitions[number], split[number], self._published)

    def _on_published(self, records: Sequence[int], error: AppendError | None) -> None:
        """Kafka has the records: PUBACK. If it has not, the publisher hears nothing."""
        fabric = self.fabric
        if error is not None:
            fabric.count("publishes_given_up", len(records))
            self._publish_again(list(records))
            return
        if self.pubacks_to_lose:
            lost = records[: self.pubacks_to_lose]
            self.pubacks_to_lose -= len(lost)
            records = records[len(lost) :]
            fabric.count("pubacks_lost", len(lost))
            self._publish_again(list(lost))
        for record in records:
            self.unacknowledged.pop(record, None)
        messages = np.asarray(records, np.int64)
        publisher = messages % fabric.schedule.count
        done = int(self.broker.burst(len(records), self.broker.costs.puback_us))
        acknowledged = done + fabric.publishers.latency_us[publisher]
        fabric.recorder.add(
            EventKind.PUBLISH_ACKNOWLEDGED, acknowledged, publisher=publisher, topic=fabric.topic_of[publisher],
            qos=fabric.qos, sequence=messages // fabric.schedule.count,
        )  # fmt: skip
        published = fabric.schedule.published_us(messages)
        fabric.puback_latency.add(published, acknowledged - published)

    def _publish_again(self, messages: list[int]) -> None:
        """Publishers without a PUBACK lose patience, connect anew and publish again (MQTT-4.4.0-1)."""

        def again() -> None:
            if not self.broker.is_dead:
                self._ingest(np.array(messages, np.int64), int(self.env.now))

        call_at(self.env, self.env.now + self.fabric.client_reconnect_us, again)
