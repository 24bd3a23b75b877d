"""From publishers to Kafka: PUBLISH packets come in, go to `msg.all`, and are acknowledged when Kafka has them.

QoS 0 gets no answer; QoS 1 a PUBACK; QoS 2 a PUBREC, and until its PUBREL comes the broker knows the message again and does
not send it on twice. That knowledge is in the broker's memory, and a crash ends it, or in the store (``receiving``). Who
gets no answer sends again (``republishing``).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy

from orderlab.model.history.events import EventKind
from orderlab.sim.engine.clock import call_at
from orderlab.sim.kafka.broker import AppendError
from orderlab.sim.kafka.producer import OnAnswered
from orderlab.sim.mqtt.broker.qos2_receiver import Receiving
from orderlab.sim.mqtt.clients.population import Ints
from orderlab.sim.mqtt.clients.republishing import FIRST, Republishing
from orderlab.sim.mqtt.rules.qos import where

if TYPE_CHECKING:
    from orderlab.sim.mqtt.broker.broker import MqttBroker


class Ingest:
    """The publishers of one broker."""

    def __init__(self, broker: MqttBroker) -> None:
        self.broker = broker
        self.fabric = broker.fabric
        self.env = broker.env
        self.unacknowledged: dict[int, None] = {}
        """Messages that their publishers have no PUBACK for, in the order in which they came."""
        self.received: dict[int, bool] = {}
        """QoS 2: messages whose PUBREL is not here yet, and whether Kafka has them (MQTT-4.3.3-10). In memory only."""
        self.remembers_received = True
        inbound = broker.fabric.inbound
        self.receiving = None if inbound is None else Receiving(broker, inbound, self._to_all)
        self.republishing = Republishing(self, self._ingest_again, self._on_published)
        self.pubacks_to_lose = 0
        self._is_listening = True
        self._ready_us = 0.0
        """When the last publish that has come is worked on: none of a connection overtakes."""
        self._arrivals = [broker.fabric.schedule.arrivals(broker.number)]
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
        if self.receiving is not None and other.receiving is not None:
            waiting = [message for message in other.unacknowledged if message in other.received]
            released = [message for message in other.received if message not in other.unacknowledged]
            self.receiving.resume(waiting, [*released, *other.receiving.releasing])
        if other.unacknowledged:
            self._ingest_again(np.array(list(other.unacknowledged), np.int64), self._published)

    def _ingest_again(self, messages: Ints, on_answered: OnAnswered) -> None:
        """Publishes are sent again now."""
        self._ingest(messages, int(self.env.now), on_answered)

    def _ingest(self, messages: Ints, repeated_us: int | None = None, on_answered: OnAnswered | None = None) -> None:
        """Publishes have arrived; ``repeated_us``: they were sent again at that instant. ``on_answered`` hears from Kafka."""
        fabric = self.fabric
        publisher = messages % fabric.schedule.count
        sequence = messages // fabric.schedule.count
        topic = fabric.topic_of[publisher]
        qos = fabric.qos.of_publishers(publisher)
        self.unacknowledged.update(dict.fromkeys(where(qos > 0, messages).tolist()))
        if repeated_us is None:
            instants = fabric.schedule.published_us(messages)
            self._record_subscribers(topic, sequence, instants)
            fabric.count("published", len(messages))
        else:
            instants = np.full(len(messages), repeated_us)
            fabric.count("published_again", len(messages))
        fabric.recorder.add(
            EventKind.PUBLISH, instants, publisher=publisher, topic=topic, qos=qos, sequence=sequence,
            dup=int(repeated_us is not None), **({} if fabric.expiry_us is None else {"expiry_interval_us": fabric.expiry_us}),
            **({} if fabric.retaining is None else {"retained": fabric.retaining.by_publisher[publisher]}),
        )  # fmt: skip
        done = self._ready_us = max(self._ready_us, self.broker.burst(len(messages), self.broker.costs.ingest_us))
        new = self._not_received(messages, where(qos == 2, messages))
        call_at(self.env, done, lambda: self._taken_in(new, on_answered or self._published))

    def _taken_in(self, messages: Ints, on_answered: OnAnswered) -> None:
        if self.receiving is None:
            self._to_all(messages, on_answered)
        elif not self.broker.is_dead:
            of_qos_2 = self.fabric.qos.of_publishers(messages % self.fabric.schedule.count) == 2
            self._to_all(where(~np.asarray(of_qos_2), messages), on_answered)
            self.receiving.receive(where(of_qos_2, messages).tolist())

    def _not_received(self, messages: Ints, of_qos_2: Ints) -> Ints:
        """Those that go to Kafka. Of the others, which have QoS 2, those that Kafka has get another PUBREC."""
        if not len(of_qos_2):
            return messages
        received = self.received
        if self.remembers_received:
            known = [message for message in messages.tolist() if message in received]
            if known:
                self.fabric.count("received_before", len(known))
                self._acknowledge([message for message in known if received[message]])
                messages, of_qos_2 = messages[~np.isin(messages, known)], of_qos_2[~np.isin(of_qos_2, known)]
        received.update(dict.fromkeys(of_qos_2.tolist(), False))
        return messages

    def _record_subscribers(self, topics: Ints, sequence: Ints, published: Ints) -> None:
        """A subscriber has been connected for long; it enters the history just before the first publish to it."""
        if not sequence.any() or not sequence.all():
            first = sequence == 0
            self.introduce(topics[first], np.maximum(published[first] - 1, 0))

    def introduce(self, subscribers: Ints, at_us: Ints) -> None:
        """Those whom the history does not know are connected, and subscribed to the topic of their own number."""
        fabric = self.fabric
        new = ~fabric.introduced[subscribers]
        fabric.introduced[subscribers] = True
        code = subscribers[new] + fabric.schedule.count
        fabric.recorder.add(EventKind.CONNECT, at_us[new], subscriber=code, **fabric.windows.columns)
        granted = fabric.qos.granted_to(subscribers[new])
        fabric.recorder.add(EventKind.SUBSCRIBE, at_us[new], subscriber=code, topic=subscribers[new], qos=granted)

    def _to_all(self, messages: Ints, on_answered: OnAnswered | None = None) -> None:
        if self.broker.is_dead:
            return
        fabric = self.fabric
        topics = fabric.topic_of[messages % fabric.schedule.count]
        split: dict[int, list[int]] = {}
        for message, partition in zip(messages.tolist(), fabric.all_partition_of[topics].tolist(), strict=True):
            records = split.get(partition)
            if records is None:
                split[partition] = [message]
            else:
                records.append(message)
        for number in sorted(split):
            self.broker.producer.send(fabric.all_partitions[number], split[number], on_answered or self._published)

    def _on_published(self, records: Sequence[int], error: AppendError | None, connection: int = FIRST) -> None:
        """Kafka has the records, which came over ``connection``: PUBACK or PUBREC. If it has not, the publisher hears nothing."""
        fabric = self.fabric
        sole = fabric.qos.sole
        if sole is None:
            messages = np.asarray(records, np.int64)
            qos = fabric.qos.of_publishers(messages % fabric.schedule.count)
            of_qos_2, answered = where(qos == 2, messages).tolist(), where(qos > 0, messages).tolist()
        else:
            of_qos_2, answered = records if sole == 2 else (), records if sole else ()
        if self.republishing.is_used:
            answered = self.republishing.owed(answered, connection)
        if error is not None:
            fabric.count("publishes_given_up", len(records))
            for record in of_qos_2:
                self.received.pop(record, None)
            self.republishing.lose(answered)
            return
        if of_qos_2:
            self.received.update(dict.fromkeys(of_qos_2, True))
        self._acknowledge(answered)

    def _acknowledge(self, records: Sequence[int]) -> None:
        """PUBACK or PUBREC, which arrives unless the connection is lost."""
        fabric, broker = self.fabric, self.broker
        if self.pubacks_to_lose or self.republishing.away:
            heard = self.republishing.heard(records, self.pubacks_to_lose)
            lost = len(records) - len(heard)
            if lost:
                fabric.count("pubacks_lost", lost)
            self.pubacks_to_lose = max(self.pubacks_to_lose - lost, 0)
            records = heard
        if not records:
            return
        for record in records:
            self.unacknowledged.pop(record, None)
        messages = np.asarray(records, np.int64)
        publisher = messages % fabric.schedule.count
        latency = fabric.publishers.latency_us[publisher]
        qos = fabric.qos.of_publishers(publisher)
        acknowledged = int(broker.burst(len(records), broker.costs.puback_us)) + latency
        fabric.recorder.add(
            EventKind.PUBLISH_ACKNOWLEDGED, acknowledged, publisher=publisher, topic=fabric.topic_of[publisher],
            qos=qos, sequence=messages // fabric.schedule.count,
        )  # fmt: skip
        published = fabric.schedule.published_us(messages)
        fabric.puback_latency.add(published, acknowledged - published)
        of_qos_2 = where(qos == 2, messages)
        if len(of_qos_2):
            back = float(where(qos == 2, acknowledged + latency).max())
            call_at(self.env, back, lambda: self._on_pubrel(of_qos_2.tolist()))

    def _on_pubrel(self, records: Sequence[int]) -> None:
        """The publishers' PUBRELs are here: PUBCOMP, and the messages are forgotten."""
        if not self.broker.is_dead:
            self.broker.burst(len(records), self.broker.costs.puback_us)
            for record in records:
                self.received.pop(record, None)
            if self.receiving is not None:
                self.receiving.release(records)
