"""A broker whose subscribers are applications, assembled, with the stages that differ from those of devices: routing and life cycle."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np

from orderlab.sim.engine.clock import Station, call_at
from orderlab.sim.kafka.broker import AppendError
from orderlab.sim.kafka.consumer_group import Consumer
from orderlab.sim.kafka.producer import OnAnswered, Producer
from orderlab.sim.mqtt.application.delivery import ApplicationDelivery
from orderlab.sim.mqtt.application.sessions import Applications, Queue
from orderlab.sim.mqtt.broker.broker import MqttBroker
from orderlab.sim.mqtt.broker.node import BrokerNode, BrokerSettings, InFlightBatch
from orderlab.sim.mqtt.broker.routing import Downlink, RoutedRecords, Routing
from orderlab.sim.mqtt.broker.session_lifecycle import SessionLifecycle, Subscriptions
from orderlab.sim.mqtt.clients import Ints
from orderlab.sim.mqtt.ports import StoreDriver
from orderlab.sim.mqtt.rules.retained import RETAINED_FROM
from orderlab.sim.mqtt.world import World


class ApplicationRouting(Routing):
    """From `msg.all` to the partitions of queues. A match is the number of an application, or of a group's first member."""

    def __init__(self, node: BrokerNode, downlink: Downlink, applications: Applications) -> None:
        super().__init__(node, downlink)
        self.applications = applications

    def _send(self, records: Sequence[int], partitions: Sequence[int], batch: InFlightBatch) -> None:
        messages, numbers, sessions = RoutedRecords.unpack(records, len(self.world.traffic.subscribers))
        for number in np.unique(numbers).tolist():
            mine = numbers == number
            self.enqueue(self.applications.sessions[number].queue, messages[mine], sessions[mine], batch.answered)

    def _resend(self, records: Sequence[int], batch: InFlightBatch) -> None:
        self._send(records, (), batch)

    def enqueue(self, queue: Queue, copied: Ints, sessions: Ints, on_answered: OnAnswered) -> None:
        """Send to the partitions of the messages' topics, each message for a session of the queue's application."""
        world = self.world
        messages = copied if world.traffic.retaining is None else copied % RETAINED_FROM
        routed = RoutedRecords(copied, np.full(len(copied), queue.first), sessions)
        records = routed.packed(len(world.traffic.subscribers))
        of_copy = queue.partition_of[world.traffic.topic_of[messages % world.traffic.schedule.count]]
        for partition in np.unique(of_copy).tolist():
            mine = list(compress(records, of_copy == partition))
            self.node.producer.send(queue.group.partitions[partition], mine, on_answered)

    def _pass_on(self, messages: Ints, subscribers: Ints, batch: InFlightBatch) -> None:
        """Send on with QoS 0, of a group to the member that reads the topic's partition: so a topic's messages stay in order. While a
        group has no reader for it, nobody gets them."""
        topics = self.world.traffic.topic_of[messages % self.world.traffic.schedule.count]
        sessions = self.applications.sessions
        readers = [
            sessions[number].queue.reader_of(topic) for number, topic in zip(subscribers.tolist(), topics.tolist(), strict=True)
        ]
        here = np.array([reader is not None for reader in readers], np.bool_)
        found = np.array([reader for reader in readers if reader is not None], np.int64)
        batch.count(len(messages) - len(found))
        super()._pass_on(messages[here], found, batch)


class ApplicationSubscriptions(Subscriptions):
    """The SUBSCRIBEs of one broker's applications, each for what its queue is for: retained messages go through the queue like any other
    message. A shared subscription gets none (4.8.2)."""

    def __init__(
        self, node: BrokerNode, delivery: ApplicationDelivery, applications: Applications, routing: ApplicationRouting
    ) -> None:
        super().__init__(node, delivery)
        self.applications = applications
        self.routing = routing

    def _wanted(self, subscriber: int) -> tuple[int, str]:
        return len(self.world.traffic.topics), self.applications.sessions[subscriber].queue.topic_filter

    def _record(self, subscriber: int, topic: int) -> None:
        """Tell the history, but of a group, which has its subscription whoever of its members sends it again."""
        if not self.applications.sessions[subscriber].queue.is_shared:
            super()._record(subscriber, topic)

    def _save(self, subscriber: int, copies: Ints, qos: tuple[int, ...]) -> None:
        node, queue = self.node, self.applications.sessions[subscriber].queue
        sessions = np.full(len(copies), self.table.session_number[subscriber])

        def answered(records: Sequence[int], error: AppendError | None) -> None:
            if error is not None:
                self.world.count("retained_given_up", len(records))  # nobody is owed them

        done = node.burst(len(copies), node.costs.downlink_us)
        call_at(node.env, done, lambda: self.routing.enqueue(queue, copies, sessions, answered))


class ApplicationLifecycle(SessionLifecycle):
    """Where sessions of applications begin and end. A session that ends takes its subscription along and forgets its position: the next one
    reads its Kafka topic from the end, with no identifier in use. What was routed for the old one and gets into the topic later carries
    that session's number, and is passed by.

    The database of sessions takes no time here (``application.sessions``), so nothing has to be waited for.
    """

    delivery: ApplicationDelivery

    def __init__(
        self, node: BrokerNode, delivery: ApplicationDelivery, subscriptions: ApplicationSubscriptions, applications: Applications
    ) -> None:
        super().__init__(node, delivery, subscriptions)
        self.applications = applications

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
        self.world.count("sessions_expired")


class ApplicationBroker(MqttBroker):
    """A broker whose subscribers are applications."""

    def __init__(
        self, world: World, number: int, settings: BrokerSettings, producer: Producer, driver: StoreDriver, cpu: Station,
        applications: Applications,
    ) -> None:  # fmt: skip
        self.applications = applications
        super().__init__(world, number, settings, producer, driver, cpu)

    def _delivery(self) -> ApplicationDelivery:
        one_way = self.producer.one_way_us
        connect = self.world.to_kafka(f"broker-{self.number}", one_way)

        def consumer_for(queue: Queue, name: str) -> Consumer:
            return Consumer(queue.group, name, one_way, connect)

        return ApplicationDelivery(self, self.applications, consumer_for)

    def _routing(self) -> ApplicationRouting:
        return ApplicationRouting(self, self.downlinks, self.applications)

    def _lifecycle(self) -> SessionLifecycle:
        assert isinstance(self.delivery, ApplicationDelivery)
        assert isinstance(self.routing, ApplicationRouting)
        subscriptions = ApplicationSubscriptions(self, self.delivery, self.applications, self.routing)
        return ApplicationLifecycle(self, self.delivery, subscriptions, self.applications)
