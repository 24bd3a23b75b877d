"""A broker: what happens to a message between its publisher's socket and its subscriber's, stage by stage.

Publish → `msg.all` → PUBACK; `msg.all` → subscription trie → `msg.persisted`; `msg.persisted` → one save script per
client and pack → commit → the broker that holds the connection (itself, or another through `msg.downlink.<broker>`) →
socket → the subscriber's PUBACK → remove script. Work is simulated per batch, as it is done per batch; within a batch
each message has its own instants where they differ.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import simpy

from model.history import EventKind
from sim.kafka.broker import Partition
from sim.kafka.consumer_group import Consumer, Polled
from sim.kafka.log import AppendError
from sim.kafka.producer import Producer
from sim.mqtt.fabric import Fabric
from sim.mqtt.pack import Pack
from sim.mqtt.persistence import Call, StoreDriver
from sim.mqtt.population import Arrivals, Ints
from sim.mqtt.saves import Save, saves_of
from sim.mqtt.session import Delivery
from sim.mqtt.stored_sessions import EPOCH_MS
from sim.redis.replies import Reply
from sim.stations import Station
from sim.timers import call_at

SLICE = 64
"""Messages that a consumer thread works on before others see the result."""
BURST = 16
"""Messages that a network thread takes from one socket buffer or event loop turn."""

@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """One broker."""

    tick_us: int = 500
    """How long publishes that arrive are gathered before they are worked on: the simulation's own grain."""
    pack_retries: int = 3
    pack_pause_us: int = 1_000_000


class MqttBroker:
    """One node of the cluster. ``is_dead`` after a crash: nothing that it had begun goes on."""

    def __init__(
        self, fabric: Fabric, number: int, settings: BrokerSettings, producer: Producer, driver: StoreDriver, cpu: Station
    ) -> None:
        self.fabric = fabric
        self.env = fabric.env
        self.number = number
        self.settings = settings
        self.cpu = cpu
        self.producer = producer
        self.driver = driver
        self.is_dead = False
        self._is_listening = True
        self.downlink: Partition | None = None
        self.all_consumers: Sequence[Consumer] = ()
        self.persisted_consumers: Sequence[Consumer] = ()
        self.unacknowledged: dict[int, None] = {}
        """Messages that their publishers have no PUBACK for, in the order in which they came."""
        self.pubacks_to_lose = 0
        self.crash_at_commit: Literal["before", "after"] | None = None
        self._costs = fabric.costs.broker
        self._arrivals = [Arrivals(fabric.schedule, number)]
        self._published = self._on_published  # one object, so that the producer can tell its batches belong together

    def start(self, all_consumers: Sequence[Consumer], persisted: Sequence[Consumer], downlink: Consumer | None) -> None:
        """Begin to listen and to consume."""
        self.all_consumers, self.persisted_consumers = all_consumers, persisted
        self.env.process(self._listen())
        for consumer in all_consumers:
            self.env.process(self._route(consumer))
        for consumer in persisted:
            self.env.process(self._persist(consumer))
        if downlink is not None:
            self.env.process(self._receive_downlink(downlink))

    def burst(self, count: int, each_us: float) -> float:
        """When ``count`` messages are done that the network threads take in bursts from now on."""
        now, serve = self.env.now, self.cpu.serve
        done: float = now
        while count > 0:
            done = max(done, serve(now, min(count, BURST) * each_us))
            count -= BURST
        return done + self._costs.thread_hop_us

    # -- publishers ----------------------------------------------------------------------------------------

    def _listen(self) -> Generator[simpy.Event, Any, None]:
        tick = self.settings.tick_us
        while self._is_listening:
            yield self.env.timeout(tick)
            for arrivals in self._arrivals if not self.is_dead else ():
                messages, _ = arrivals.until(int(self.env.now))
                if len(messages) and self._is_listening:
                    self._ingest(messages)

    def stop_listening(self) -> None:
        """Publishers publish no more."""
        self._is_listening = False

    def crash(self) -> None:
        """The process dies. Clients connect to the next broker; the groups notice after the session timeout."""
        if self.is_dead:
            return
        fabric = self.fabric
        self.is_dead = self.producer.is_dead = True
        self.driver.close()
        for consumer in (*self.all_consumers, *self.persisted_consumers):
            consumer.is_dead = True
            consumer.group.leave(consumer, consumer.group.settings.session_timeout_us)
        mine = np.flatnonzero(fabric.subscribers.broker == self.number).tolist()
        connected = [subscriber for subscriber in mine if fabric.sessions.connected[subscriber]]
        for subscriber in connected:
            fabric.disconnect(subscriber)

        def reconnect() -> None:
            other = fabric.next_broker(self.number)
            other.take_over(self._arrivals, list(self.unacknowledged))
            for subscriber in connected:
                other.connect(subscriber)

        call_at(self.env, self.env.now + fabric.client_reconnect_us, reconnect)

    def take_over(self, arrivals: list[Arrivals], unacknowledged: list[int]) -> None:
        """Publishers of another broker connect here: first they send again what has no PUBACK."""
        self._arrivals += arrivals
        if unacknowledged:
            self._ingest(np.array(unacknowledged, np.int64), int(self.env.now))

    def _ingest(self, messages: Ints, repeated_us: int | None = None) -> None:
        """Publishes have arrived; ``repeated_us``: they were sent again at that instant."""
        fabric = self.fabric
        publisher = messages % fabric.schedule.count
        published = fabric.schedule.published_us(messages)
        self.unacknowledged.update(dict.fromkeys(messages.tolist()))
        if repeated_us is None:
            self._record_subscribers(publisher, messages, published)
            fabric.count("published", len(messages))
        else:
            fabric.count("published_again", len(messages))
        fabric.recorder.add(
            EventKind.PUBLISH, published if repeated_us is None else np.full(len(messages), repeated_us), publisher=publisher,
            topic=fabric.topic_of[publisher], qos=fabric.qos, sequence=messages // fabric.schedule.count, dup=int(repeated_us is not None),
        )  # fmt: skip
        done = self.burst(len(messages), self._costs.ingest_us)
        call_at(self.env, done, lambda: self._to_all(messages, fabric.topic_of[publisher]))

    def _record_subscribers(self, publisher: Ints, messages: Ints, published: Ints) -> None:
        """A subscriber has been connected for long; it enters the history just before the first publish to it."""
        fabric = self.fabric
        first = messages < fabric.schedule.count
        topic = fabric.topic_of[publisher[first]]
        before, subscriber = np.maximum(published[first] - 1, 0), topic + fabric.schedule.count
        if len(topic):
            fabric.recorder.add(EventKind.CONNECT, before, subscriber=subscriber)
            fabric.recorder.add(EventKind.SUBSCRIBE, before, subscriber=subscriber, topic=topic, qos=fabric.qos)

    def _to_all(self, messages: Ints, topics: Ints) -> None:
        if self.is_dead:
            return
        fabric = self.fabric
        split: list[list[int]] = [[] for _ in fabric.all_partitions]
        partition_of = fabric.all_partition_of
        for message, topic in zip(messages.tolist(), topics.tolist(), strict=True):
            split[partition_of[topic]].append(message)
        for number, records in enumerate(split):
            if records:
                self.producer.send(fabric.all_partitions[number], records, self._published)

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
        acknowledged = int(self.burst(len(records), self._costs.puback_us)) + fabric.publishers.latency_us[publisher]
        fabric.recorder.add(
            EventKind.PUBLISH_ACKNOWLEDGED, acknowledged, publisher=publisher, topic=fabric.topic_of[publisher],
            qos=fabric.qos, sequence=messages // fabric.schedule.count,
        )  # fmt: skip
        published = fabric.schedule.published_us(messages)
        fabric.puback_latency.add(published, acknowledged - published)

    def _publish_again(self, messages: list[int]) -> None:
        """Publishers without a PUBACK lose patience, connect anew and publish again (MQTT-4.4.0-1)."""

        def again() -> None:
            if not self.is_dead:
                self._ingest(np.array(messages, np.int64), int(self.env.now))

        call_at(self.env, self.env.now + self.fabric.client_reconnect_us, again)

    # -- msg.all -------------------------------------------------------------------------------------------

    def _route(self, consumer: Consumer) -> Generator[simpy.Event, Any, None]:
        fabric, costs = self.fabric, self._costs
        count = fabric.schedule.count
        while not self.is_dead:
            polled = yield from consumer.poll()
            messages = [record for _, _, records in polled for record in records]
            self._note_stage("msg.all", messages)
            pack = Pack(self.env, len(messages), self._resend)
            yield from self._work(costs.poll_us)
            for start in range(0, len(messages), SLICE):
                part = messages[start : start + SLICE]
                yield from self._work(len(part) * costs.match_us)
                if self.is_dead:
                    return
                split: dict[int, list[int]] = {}
                matched = 0
                for message in part:
                    topic = fabric.topics[fabric.topic_of[message % count]]
                    for _, subscriber in fabric.trie.matching(topic.decode()):
                        record = message * len(fabric.subscribers) + subscriber
                        split.setdefault(fabric.persisted_partition_of[subscriber], []).append(record)
                        matched += 1
                pack.expect(matched - len(part))
                for number, records in split.items():
                    self.producer.send(fabric.persisted_partitions[number], records, pack.answered)
            yield from self._finish(pack, consumer, polled)

    def _resend(self, records: Sequence[int], pack: Pack) -> None:
        """A part of a pack that Kafka did not take goes again."""
        fabric = self.fabric
        for record in records:
            number = fabric.persisted_partition_of[record % len(fabric.subscribers)]
            self.producer.send(fabric.persisted_partitions[number], [record], pack.answered)

    def _finish(self, pack: Pack, consumer: Consumer, polled: Polled) -> Generator[simpy.Event, Any, bool]:
        """Wait for the pack, repeat what failed, commit. False if the member had lost its partitions meanwhile."""
        for _ in range(self.settings.pack_retries + 1):
            yield pack.done
            if not pack.failed or self.is_dead:
                break
            yield self.env.timeout(self.settings.pack_pause_us)
            pack.retry()
        if self.crash_at_commit == "before":
            self.crash()
        if self.is_dead:
            return False
        accepted = yield from consumer.commit(polled)
        if self.crash_at_commit == "after":
            self.crash()
        for partition, _, _ in polled:
            partition.log.retain(int(self.env.now) - 1_000_000)
        if not accepted:
            self.fabric.count("fenced_commits")
            if consumer not in consumer.group.members and not self.is_dead:
                consumer.group.members.append(consumer)
                consumer.group.rebalance()
        return bool(accepted)

    def _work(self, work_us: float) -> Generator[simpy.Event, Any, None]:
        """One thread works; a core is needed for it."""
        yield self.env.timeout(-int(-self.cpu.serve(self.env.now, work_us) // 1) - int(self.env.now))

    # -- msg.persisted -------------------------------------------------------------------------------------

    def _persist(self, consumer: Consumer) -> Generator[simpy.Event, Any, None]:
        costs, subscribers = self._costs, len(self.fabric.subscribers)
        while not self.is_dead:
            polled = yield from consumer.poll()
            saves = saves_of(polled, subscribers, self.fabric.store.needs_open)
            total = sum(len(save.messages) for save in saves)
            self._note_stage("msg.persisted", [message for save in saves for message in save.messages])
            if consumer.pause_us:
                pause_us, consumer.pause_us = consumer.pause_us, 0
                consumer.group.leave(consumer)  # it is silent, and its session timeout passes
                yield self.env.timeout(pause_us)
            yield from self._work(costs.poll_us)
            pack = Pack(self.env, len(saves), None)
            assigned: list[list[tuple[int, int]] | None] = [None] * len(saves)
            for start in range(0, len(saves), SLICE):
                part = saves[start : start + SLICE]
                yield from self._work(sum(len(save.messages) for save in part) * costs.persist_us / 2)
                if self.is_dead:
                    return
                self._save(part, start, pack, assigned)
            for _ in range(self.settings.pack_retries + 1):
                yield pack.done
                if not pack.failed:
                    break
                yield self.env.timeout(self.settings.pack_pause_us)
                again, pack.failed = sorted(pack.failed), []
                pack.renew(len(again))
                for place in again:
                    self._save([saves[place]], place, pack, assigned)
            yield self.env.timeout(int(self.burst(total, costs.persist_us / 2) - self.env.now))
            yield from self._finish(pack, consumer, polled)
            if not self.is_dead:
                self._send_on(saves, assigned)

    def _save(
        self, saves: Sequence[Save], first: int, pack: Pack, assigned: list[list[tuple[int, int]] | None]
    ) -> None:
        """Submit a part of the pack, whose places begin at ``first``."""
        fabric, store = self.fabric, self.fabric.store
        time_ms = EPOCH_MS + int(self.env.now) // 1000
        count, topics, topic_of = fabric.schedule.count, fabric.topics, fabric.topic_of
        requests = []
        for save in saves:
            if store.needs_open:
                fabric.ensure_open(save.subscriber)
            described = [(message, topics[topic_of[message % count]], time_ms) for message in save.messages]
            name = fabric.subscribers.name(save.subscriber)
            request = store.save(name, described, save.producer, save.batch)
            requests.append((fabric.node_of[save.subscriber], request))

        def replied(replies: Sequence[Reply]) -> None:
            failed = []
            for place, reply in enumerate(replies, first):
                given = store.assigned(reply, len(saves[place - first].messages))
                if given is None and store.was_saved_before(reply):
                    fabric.count("saves_known_before")
                    given = []
                assigned[place] = given
                if given is None:
                    failed.append(place)
            pack.count(len(replies), failed)

        self.driver.submit(requests, replied)

    def _send_on(self, saves: Sequence[Save], assigned: Sequence[list[tuple[int, int]] | None]) -> None:
        """What was saved goes to the brokers that hold the connections."""
        fabric = self.fabric
        by_broker: dict[int, list[Delivery]] = {}
        broker_of = fabric.subscribers.broker
        for save, given in zip(saves, assigned, strict=True):
            if given is None:
                fabric.count("saves_given_up", len(save.messages))
            elif given:
                deliveries = by_broker.setdefault(int(broker_of[save.subscriber]), [])
                for message, (packet_id, token) in zip(save.messages, given, strict=True):
                    deliveries.append((message, save.subscriber, packet_id, token))
        for number, deliveries in by_broker.items():
            if number == self.number:
                self.deliver(deliveries)
            else:
                self._send_downlink(fabric.brokers[number], deliveries)

    # -- downlink ------------------------------------------------------------------------------------------

    def _send_downlink(self, other: MqttBroker, deliveries: Sequence[Delivery]) -> None:
        done = self.burst(len(deliveries), self._costs.downlink_us)
        records = self.fabric.in_transit.add(deliveries)

        def send() -> None:
            if not self.is_dead and other.downlink is not None:
                self.producer.send(other.downlink, records, self._downlink_answered)

        call_at(self.env, done, send)

    def _downlink_answered(self, records: Sequence[int], error: AppendError | None) -> None:
        if error is not None:
            self.fabric.count("downlinks_given_up", len(records))

    def _receive_downlink(self, consumer: Consumer) -> Generator[simpy.Event, Any, None]:
        while not self.is_dead:
            polled = yield from consumer.poll()
            records = [record for _, _, records in polled for record in records]
            yield from self._work(self._costs.poll_us)
            done = self.burst(len(records), self._costs.downlink_us)
            yield self.env.timeout(int(done - self.env.now))
            if self.is_dead:
                return
            self.deliver(self.fabric.in_transit.take(records))
            yield from consumer.commit(polled)

    # -- subscribers ---------------------------------------------------------------------------------------

    def connect(self, subscriber: int) -> None:
        """A subscriber connects here with Clean Start 0: its backlog is fetched and sent, then what is new."""
        fabric, sessions = self.fabric, self.fabric.sessions
        fabric.subscribers.broker[subscriber] = self.number
        sessions.connected[subscriber] = 1
        sessions.fetching.add(subscriber)
        connection = sessions.connections.get(subscriber, 0)
        code = np.array([subscriber + fabric.schedule.count])
        fabric.recorder.add(EventKind.CONNECT, np.array([int(self.env.now)]), subscriber=code, node=self.number)
        if fabric.store.needs_open:
            fabric.ensure_open(subscriber)
        request = fabric.store.fetch(fabric.subscribers.name(subscriber))

        def fetched(replies: Sequence[Reply]) -> None:
            if self.is_dead or sessions.connections.get(subscriber, 0) != connection:
                return
            backlog = fabric.store.fetched(replies[0])
            if backlog is None:
                fabric.count("fetches_failed")
                self.driver.submit([(fabric.node_of[subscriber], request)], fetched)
                return
            self.deliver([(message, subscriber, packet_id, token) for message, packet_id, token, _ in backlog], True)
            sessions.fetching.discard(subscriber)
            seen = {message for message, _, _, _ in backlog}
            held_back = sessions.held_back.pop(subscriber, [])
            self.deliver([delivery for delivery in held_back if delivery[0] not in seen])

        self.driver.submit([(fabric.node_of[subscriber], request)], fetched)

    def deliver(self, deliveries: Sequence[Delivery], is_backlog: bool = False) -> None:
        """Write PUBLISH packets to the sockets of those who are connected here."""
        sessions = self.fabric.sessions
        connected, fetching, in_flight = sessions.connected, sessions.fetching, sessions.in_flight
        sent, repeated = [], []
        for delivery in deliveries:
            message, subscriber, packet_id, token = delivery
            if not connected[subscriber]:
                continue  # it stays in the store until the subscriber fetches it
            if subscriber in fetching and not is_backlog:
                sessions.held_back.setdefault(subscriber, []).append(delivery)
                continue
            key = subscriber << 16 | packet_id
            is_repeat = in_flight.get(key) == (message, token)
            if is_repeat and not is_backlog:
                continue  # it went out with the backlog
            in_flight[key] = (message, token)
            sent.append(delivery)
            repeated.append(is_repeat)
        if sent:
            self._write(sent, repeated)

    def _write(self, sent: list[Delivery], repeated: list[bool]) -> None:
        fabric, sessions = self.fabric, self.fabric.sessions
        columns = np.array(sent, np.int64)
        latency = fabric.subscribers.latency_us[columns[:, 1]]
        arrived = int(self.burst(len(sent), self._costs.deliver_us)) + latency
        answered = arrived + fabric.think_us + latency
        losses, connections = sessions.losses, [sessions.connections.get(delivery[1], 0) for delivery in sent]
        dup = np.array(repeated, np.int64)

        def over() -> None:
            if sessions.losses == losses:
                self._record_deliveries(EventKind.DELIVER, columns, arrived, dup)
                self._on_puback(sent, columns, answered)
                return
            there = self._got_through(sent, connections, arrived)
            back = self._got_through(sent, connections, answered)
            self._record_deliveries(EventKind.DELIVER, columns[there], arrived[there], dup[there])
            self._on_puback([sent[place] for place in back], columns[back], answered[back])

        call_at(self.env, float(answered.max()), over)

    def _got_through(self, sent: Sequence[Delivery], connections: Sequence[int], at_us: Ints) -> list[int]:
        check = self.fabric.sessions.got_through
        instants = at_us.tolist()
        return [place for place, each in enumerate(sent) if check(each[1], connections[place], instants[place])]

    def _record_deliveries(self, kind: EventKind, columns: Ints, instants: Ints, dup: Ints | int) -> None:
        fabric = self.fabric
        if not len(columns):
            return
        message = columns[:, 0]
        publisher = message % fabric.schedule.count
        fabric.recorder.add(
            kind, instants, publisher=publisher, topic=fabric.topic_of[publisher], qos=fabric.qos,
            subscriber=columns[:, 1] + fabric.schedule.count, sequence=message // fabric.schedule.count,
            packet_id=columns[:, 2], dup=dup, delivered_qos=fabric.qos, node=self.number,
        )  # fmt: skip
        if kind is EventKind.DELIVER:
            fabric.count("delivered", len(columns))
            published = fabric.schedule.published_us(message)
            fabric.delivery_latency.add(published, instants - published)

    def _on_puback(self, sent: Sequence[Delivery], columns: Ints, answered: Ints) -> None:
        """The subscribers' PUBACKs are here: remove scripts."""
        if self.is_dead or not sent:
            return
        fabric = self.fabric
        self._record_deliveries(EventKind.ACKNOWLEDGE, columns, answered, -1)
        done = self.burst(len(sent), self._costs.acknowledge_us)
        in_flight, store, name = fabric.sessions.in_flight, fabric.store, fabric.subscribers.name
        requests: list[tuple[int, Call]] = []
        for _, subscriber, packet_id, _ in sent:
            found = in_flight.pop(subscriber << 16 | packet_id, None)
            if found is not None:
                request = store.acknowledge(name(subscriber), packet_id, found[1])
                requests.append((fabric.node_of[subscriber], request))
        if requests:
            call_at(self.env, done, lambda: self.driver.submit(requests, self._removed))

    def _removed(self, replies: Sequence[Reply]) -> None:
        absent = sum(1 for reply in replies if reply != 1)
        if absent:
            self.fabric.count("removes_of_nothing", absent)

    def _note_stage(self, stage: str, messages: Sequence[int]) -> None:
        """Latency from publish until a consumer has the message in its hands."""
        published = self.fabric.schedule.published_us(np.asarray(messages, np.int64))
        self.fabric.stage_latency[stage].add(published, int(self.env.now) - published)
