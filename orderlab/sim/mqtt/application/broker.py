"""A broker whose subscribers are applications, with the stages that differ from those of devices, assembled.

Delivery goes from the queues of applications to their sockets: poll, send, wait for all acknowledgements, commit.
Routing appends to the queues; the life cycle takes places in them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import compress
from typing import Any

import numpy as np
import simpy

from orderlab.model.history.events import EventKind
from orderlab.sim.engine.clock import Station, call_at
from orderlab.sim.engine.packs import grouped
from orderlab.sim.kafka.broker import AppendError
from orderlab.sim.kafka.consumer_group import Consumer, ConsumerGroup, Polled
from orderlab.sim.kafka.producer import OnAnswered, Producer
from orderlab.sim.mqtt.application.sessions import Application, Applications, Exchange, Place, Queue, places_of
from orderlab.sim.mqtt.broker.broker import MqttBroker
from orderlab.sim.mqtt.broker.delivery import RECORDED_WITHIN_US, Delivery
from orderlab.sim.mqtt.broker.downlink import Downlink
from orderlab.sim.mqtt.broker.node import BrokerNode, BrokerSettings, InFlightBatch
from orderlab.sim.mqtt.broker.qos2 import Completion, Qos2Sender
from orderlab.sim.mqtt.broker.routing import RoutedRecords, Routing
from orderlab.sim.mqtt.broker.session_lifecycle import SessionLifecycle, Subscriptions
from orderlab.sim.mqtt.clients import Ints
from orderlab.sim.mqtt.connections import (
    MESSAGE,
    PACKET_ID,
    SUBSCRIBER,
    TOKEN,
    ConnectionTable,
    Deliveries,
    as_deliveries,
)
from orderlab.sim.mqtt.parts import DeliveryState, KafkaTopics, Storage, Traffic
from orderlab.sim.mqtt.ports import StoreDriver
from orderlab.sim.mqtt.presence import Presence
from orderlab.sim.mqtt.topics import RETAINED_FROM, are_retained
from orderlab.sim.mqtt.world import World


class ApplicationDelivery(Delivery):
    """The applications that are connected to one broker. The token of a delivery is its place."""

    answers_one_by_one = True

    def __init__(
        self,
        node: BrokerNode,
        traffic: Traffic,
        storage: Storage,
        state: DeliveryState,
        presence: Presence,
        applications: Applications,
    ) -> None:
        self.applications = applications
        super().__init__(node, traffic, storage, state, presence)
        self.env = node.env

    def _qos2_sender(self) -> Qos2Sender:
        return ApplicationQos2Sender(self.node, self.traffic, self.storage, self.table, self, self.applications)

    def send_backlog(self, subscriber: int, then: Callable[[], None]) -> None:
        """Go on where the queue of an application is committed that has just connected here, and call ``then`` at
        once."""
        if not self.applications.sessions[subscriber].queue.is_shared:
            self.record_connect(subscriber)
        self.begin(subscriber).rebalance()
        then()

    def begin(self, number: int) -> ConsumerGroup:
        """A consumer for an application that is connected here; its group has to assign partitions yet."""
        session = self.applications.sessions[number]
        connection = int(self.table.connection_number[number])
        consumer = session.consumer = self.node.consumer(session.queue.group, f"application-{number}/{connection}")
        consumer.group.members.append(consumer)
        session.forget_what_others_took()
        session.queue.readers[consumer] = number
        self.env.process(self._serve(session, consumer))
        return consumer.group

    def _serve(self, session: Application, consumer: Consumer) -> Generator[simpy.Event, Any, None]:
        """Poll and send as long as the connection lasts."""
        node, window = self.node, self.applications.window
        yield from self._go_on(session)
        while not consumer.is_dead and not node.is_dead:
            polled = yield from consumer.poll()
            yield node.work(node.costs.poll_us)
            if consumer.is_dead or node.is_dead:
                return
            session.polled, session.acknowledged = polled, set()
            due = self._due(session, self._found(session, polled))
            for start in range(0, len(due), window):
                yield self._send(session, due[start : start + window])
                if consumer.is_dead or node.is_dead:
                    return
            if not (yield from consumer.commit(polled)):
                self.measured.count("fenced_commits")
            else:
                self.measured.note_pack(consumer, sum(len(records) for _, _, records in polled))
                for partition, offset, records in polled:
                    session.queue.committed(partition, offset, offset + len(records))
            node.drop_old(consumer, polled)

    def _found(self, session: Application, polled: Polled) -> list[tuple[Place, int]]:
        """(place, copy) of what was polled, but for what was routed for a session that is over: that is done with."""
        table = self.table
        read = list(places_of(polled))
        places = [place for place, _ in read]
        copied, recipients, routed_for = RoutedRecords.unpack(
            [record for _, record in read], len(self.traffic.subscribers)
        )
        found = list(zip(places, copied.tolist(), strict=True))
        self._note_stage(copied)
        if not table.may_end:
            return found
        table.note_queued(copied.tolist(), recipients.tolist(), routed_for.tolist())
        is_over = routed_for != table.session_number[session.number]
        if is_over.any():
            self.measured.count("records_for_sessions_that_ended", int(is_over.sum()))
            session.acknowledged.update(compress(places, is_over))
        return list(compress(found, ~is_over))

    def _go_on(self, session: Application) -> Generator[simpy.Event, Any, None]:
        """Send what the last connection left unfinished: PUBRELs, then PUBLISH packets (MQTT-4.4.0-1)."""
        number, window = session.number, self.applications.window
        session.is_resuming = True
        rows = [
            (each.copy, number, session.sent[place][0], place)
            for place, each in session.queue.exchanges.items()
            if each.number == number and each.is_received
        ]
        if rows:
            self.measured.count("pubrels_again", len(rows))
            finished = session.wait_for([row[-1] for row in rows], self.env.event())
            self.qos2_sender.send(as_deliveries(rows))
            yield finished
        while left := session.unfinished()[:window]:
            yield self._send(session, left)
        session.is_resuming = False

    def _due(self, session: Application, found: Sequence[tuple[Place, int]]) -> Sequence[tuple[Place, int]]:
        """What is to be sent of what was polled: not what is done with, or is another member's."""
        queue = session.queue
        if self.traffic.qos.sole == 1 and not queue.completed:
            return found
        due = []
        for place, publisher, is_exact, copy in self._exactly(session, found):
            holder = queue.holder_of(publisher) if is_exact and queue.is_shared else None
            if place in queue.completed:
                continue
            if holder is not None and holder != session.number:
                queue.begin(place, Exchange(holder, publisher, copy))
            elif place not in queue.exchanges or not queue.is_shared:
                due.append((place, copy))
        return due

    def _exactly(self, session: Application, found: Sequence[tuple[Place, int]]) -> list[tuple[Place, int, bool, int]]:
        """(place, publisher, whether it is delivered with QoS 2, copy)."""
        messages, _ = self._published(np.array([copy for _, copy in found], np.int64))
        publishers = messages % self.traffic.schedule.count
        qos = self.traffic.qos.of_deliveries(publishers, np.full(len(found), session.number))
        exact = np.broadcast_to(qos, len(found)) == 2
        return [
            (place, publisher, is_exact, copy)
            for (place, copy), publisher, is_exact in zip(found, publishers.tolist(), exact.tolist(), strict=True)
        ]

    def _note_stage(self, copied: Ints) -> None:
        self.measured.note_stage("msg.app", copied if self.traffic.retaining is None else copied[~are_retained(copied)])

    def _send(self, session: Application, found: Sequence[tuple[Place, int]]) -> simpy.Event:
        """Write PUBLISH packets; the event comes when all are acknowledged. Never, if the connection is lost before."""
        if self.traffic.qos.sole != 1:
            for place, publisher, is_exact, copy in self._exactly(session, found):
                if is_exact:
                    session.queue.begin(place, Exchange(session.number, publisher, copy))
        dup = np.array([place in session.sent for place, _ in found], np.int64)
        window = self.applications.window
        rows = [(copy, session.number, session.identifier(place, copy, window), place) for place, copy in found]
        finished = session.wait_for([place for place, _ in found], self.env.event())
        self._write(as_deliveries(rows), dup)
        return finished

    def deliver(
        self, deliveries: Deliveries, is_backlog: bool = False, is_pushed: bool = True, sessions: Ints | None = None
    ) -> None:
        """Write what has QoS 0, which is in no queue. What was routed for a session that is over goes nowhere."""
        if self.table.may_end:
            deliveries = deliveries[
                self.table.sessions_of(deliveries) == self.table.session_number[deliveries[:, SUBSCRIBER]]
            ]
        super().deliver(deliveries, is_backlog, is_pushed)

    # -- over a connection -------------------------------------------------------------------------------------

    def _write(self, sent: Deliveries, dup: Ints) -> None:
        for mine in grouped(range(len(sent)), sent[:, SUBSCRIBER].tolist()).values():
            super()._write(sent[mine], dup[mine])

    def _written_us(self, count: int) -> Ints | int:
        """Each at an instant of its own: one client's packets follow one another."""
        each_us = self.node.costs.deliver_us
        done = np.array([self.node.burst(1, each_us) for _ in range(count)])
        return np.maximum.accumulate(done).astype(np.int64)

    def _arrive(self, sent: Deliveries, dup: Ints, arrived: Ints) -> None:
        """Look at what keeps the client busy for long in parts; what arrives together stays together."""
        work_us = self.applications.work_us
        together = max(int(RECORDED_WITHIN_US / 2 / work_us), 1) if work_us else len(sent)
        start = 0
        while start < len(sent):
            end = int(np.searchsorted(arrived, arrived[min(start + together, len(sent)) - 1], "right"))
            super()._arrive(sent[start:end], dup[start:end], arrived[start:end])
            start = end

    def _answered_us(self, sent: Deliveries, arrived: Ints) -> Ints:
        number = int(sent[0, SUBSCRIBER])
        session = self.applications.sessions[number]
        handled = one_after_the_other(arrived, self.applications.work_us, session.free_us)
        session.free_us = float(handled[-1])
        answered: Ints = handled + int(self.traffic.subscribers.latency_us[number])
        is_stored = sent[:, PACKET_ID] >= 0
        come = self.table.answers_in_order(sent[:, SUBSCRIBER], answered)
        session.answers.update(zip(sent[is_stored, TOKEN].tolist(), come[is_stored].tolist(), strict=True))
        return answered

    def completed(self, acknowledged: Deliveries, answered: Ints, connections: Ints) -> None:
        """Note the client's PUBACKs or PUBCOMPs, over ``connections``."""
        node = self.node
        if node.is_dead or not len(acknowledged):
            return
        self.record(EventKind.ACKNOWLEDGE, acknowledged, answered, -1)
        node.burst(len(acknowledged), node.costs.acknowledge_us)
        number = int(acknowledged[0, SUBSCRIBER])
        self.table.complete(acknowledged)
        if connections[0] == self.table.connection_number[number]:  # else it was settled when the connection was lost
            for place in acknowledged[:, TOKEN].tolist():
                self.applications.sessions[number].complete(place)

    def _codes(self, subscribers: Ints) -> Ints:
        return np.full(len(subscribers), self.applications.sessions[int(subscribers[0])].queue.code)

    def record(self, kind: EventKind, deliveries: Deliveries, instants: Ints, dup: Ints | int) -> None:
        """Tell the history, of a group, that one of its members got a message, or got it again; packet identifiers are
        the members' own."""
        if len(deliveries) and self.applications.sessions[int(deliveries[0, SUBSCRIBER])].queue.is_shared:
            if kind in (EventKind.RECEIVE, EventKind.RELEASE):
                return
            deliveries = deliveries.copy()
            message, _ = self._published(deliveries[:, MESSAGE])
            qos = self.traffic.qos.of_deliveries(message % self.traffic.schedule.count, deliveries[:, SUBSCRIBER])
            dup = np.where(qos == 2, dup, -1)
            deliveries[:, PACKET_ID] = -1
        super().record(kind, deliveries, instants, dup)


class ApplicationQos2Sender(Qos2Sender):
    """PUBRELs follow when the session has noted the PUBRECs."""

    def __init__(
        self,
        node: BrokerNode,
        traffic: Traffic,
        storage: Storage,
        table: ConnectionTable,
        completion: Completion,
        applications: Applications,
    ) -> None:
        super().__init__(node, traffic, storage, table, completion)
        self.applications = applications

    def _release(self, deliveries: Deliveries, connections: Ints) -> None:
        self.table.note_released(deliveries[:, SUBSCRIBER].tolist(), self.node.number)  # at once: no store is asked
        if self.node.is_dead or connections[0] != self.table.connection_number[deliveries[0, SUBSCRIBER]]:
            return  # what has come over a lost connection was noted when that was lost
        session = self.applications.sessions[int(deliveries[0, SUBSCRIBER])]
        for place in deliveries[:, TOKEN].tolist():
            session.received(place)
        self.send(deliveries)


def one_after_the_other(arrived: Ints, work_us: float, begun_us: float) -> Ints:
    """When a client that takes ``work_us`` for each is done with what arrives at ``arrived``."""
    steps = np.arange(len(arrived)) * work_us
    done: Ints = (np.maximum.accumulate(np.maximum(arrived, begun_us) - steps) + steps + work_us).astype(np.int64)
    return done


class ApplicationRouting(Routing):
    """Routing from `msg.all` to the partitions of queues. A match is the number of an application, or of a group's
    first member."""

    def __init__(
        self,
        node: BrokerNode,
        traffic: Traffic,
        kafka: KafkaTopics,
        table: ConnectionTable,
        downlink: Downlink,
        applications: Applications,
    ) -> None:
        super().__init__(node, traffic, kafka, table, downlink)
        self.applications = applications

    def _send(self, records: Sequence[int], partitions: Sequence[int], batch: InFlightBatch) -> None:
        messages, numbers, sessions = RoutedRecords.unpack(records, len(self.traffic.subscribers))
        for number in np.unique(numbers).tolist():
            mine = numbers == number
            self.enqueue(self.applications.sessions[number].queue, messages[mine], sessions[mine], batch.answered)

    def _resend(self, records: Sequence[int], batch: InFlightBatch) -> None:
        self._send(records, (), batch)

    def enqueue(self, queue: Queue, copied: Ints, sessions: Ints, on_answered: OnAnswered) -> None:
        """Send to the partitions of the messages' topics, each message for a session of the queue's application."""
        messages = copied if self.traffic.retaining is None else copied % RETAINED_FROM
        routed = RoutedRecords(copied, np.full(len(copied), queue.first), sessions)
        records = routed.packed(len(self.traffic.subscribers))
        of_copy = queue.partition_of[self.traffic.topic_of[messages % self.traffic.schedule.count]]
        for partition in np.unique(of_copy).tolist():
            mine = list(compress(records, of_copy == partition))
            self.node.producer.send(queue.group.partitions[partition], mine, on_answered)

    def _pass_on(self, messages: Ints, subscribers: Ints, batch: InFlightBatch) -> None:
        """Send on with QoS 0, of a group to the member that reads the topic's partition: so a topic's messages stay in
        order. While a group has no reader for it, nobody gets them."""
        topics = self.traffic.topic_of[messages % self.traffic.schedule.count]
        sessions = self.applications.sessions
        readers = [
            sessions[number].queue.reader_of(topic)
            for number, topic in zip(subscribers.tolist(), topics.tolist(), strict=True)
        ]
        here = np.array([reader is not None for reader in readers], np.bool_)
        found = np.array([reader for reader in readers if reader is not None], np.int64)
        batch.count(len(messages) - len(found))
        super()._pass_on(messages[here], found, batch)


class ApplicationSubscriptions(Subscriptions):
    """The SUBSCRIBEs of one broker's applications, each for what its queue is for: retained messages go through the
    queue like any other message. A shared subscription gets none (4.8.2)."""

    def __init__(
        self,
        node: BrokerNode,
        traffic: Traffic,
        storage: Storage,
        kafka: KafkaTopics,
        delivery: ApplicationDelivery,
        routing: ApplicationRouting,
    ) -> None:
        super().__init__(node, traffic, storage, kafka, delivery)
        self.applications = delivery.applications
        self.routing = routing

    def _wanted(self, subscriber: int) -> tuple[int, str]:
        queue = self.applications.sessions[subscriber].queue
        return queue.filter_code, queue.topic_filter

    def _record(self, subscriber: int, topic: int) -> None:
        """Tell the history, but of a group, which has its subscription whoever of its members sends it again."""
        if not self.applications.sessions[subscriber].queue.is_shared:
            super()._record(subscriber, topic)

    def _save(self, subscriber: int, copies: Ints, qos: tuple[int, ...]) -> None:
        node, queue = self.node, self.applications.sessions[subscriber].queue
        sessions = np.full(len(copies), self.table.session_number[subscriber])

        def answered(records: Sequence[int], error: AppendError | None) -> None:
            if error is not None:
                self.measured.count("retained_given_up", len(records))  # nobody is owed them

        done = node.burst(len(copies), node.costs.downlink_us)
        call_at(node.env, done, lambda: self.routing.enqueue(queue, copies, sessions, answered))


class ApplicationLifecycle(SessionLifecycle):
    """Where sessions of applications begin and end. A session that ends takes its subscription along and forgets its
    position: the next one reads its Kafka topic from the end, with no identifier in use. What was routed for the old
    one and gets into the topic later carries that session's number, and is passed by.

    The database of sessions takes no time here (``application.sessions``), so nothing has to be waited for.
    """

    delivery: ApplicationDelivery

    def __init__(
        self,
        node: BrokerNode,
        traffic: Traffic,
        storage: Storage,
        presence: Presence,
        delivery: ApplicationDelivery,
        subscriptions: ApplicationSubscriptions,
    ) -> None:
        super().__init__(node, traffic, storage, presence, delivery, subscriptions)
        self.applications = delivery.applications

    def begin(self, subscriber: int) -> None:
        """Begin a new session of an application that has just connected here; it subscribes anew."""
        self._renew(subscriber)
        self.applications.sessions[subscriber].forget()
        self.delivery.begin(subscriber).rebalance()
        self.subscriptions.subscribe(subscriber, is_new=True)

    def expire(self, subscriber: int) -> None:
        """End the session of an application that has been away for the Session Expiry Interval."""
        self._end(subscriber)
        self.applications.sessions[subscriber].forget()
        self.measured.count("sessions_expired")


class ApplicationBroker(MqttBroker):
    """A broker whose subscribers are applications."""

    def __init__(
        self,
        world: World,
        number: int,
        settings: BrokerSettings,
        producer: Producer,
        driver: StoreDriver,
        cpu: Station,
        applications: Applications,
    ) -> None:
        self.applications = applications
        super().__init__(world, number, settings, producer, driver, cpu)

    def _delivery(self) -> ApplicationDelivery:
        world = self.world
        return ApplicationDelivery(
            self, world.traffic, world.storage, world.delivery, world.presence, self.applications
        )

    def _routing(self) -> ApplicationRouting:
        world = self.world
        return ApplicationRouting(
            self, world.traffic, world.kafka, self.delivery.table, self.downlinks, self.applications
        )

    def _lifecycle(self) -> SessionLifecycle:
        assert isinstance(self.delivery, ApplicationDelivery)
        assert isinstance(self.routing, ApplicationRouting)
        world = self.world
        subscriptions = ApplicationSubscriptions(
            self, world.traffic, world.storage, world.kafka, self.delivery, self.routing
        )
        return ApplicationLifecycle(self, world.traffic, world.storage, world.presence, self.delivery, subscriptions)
