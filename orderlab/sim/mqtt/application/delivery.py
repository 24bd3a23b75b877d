"""From the queues of applications to their sockets: poll, send, wait for all acknowledgements, commit."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import compress
from typing import Any

import numpy as np
import simpy

from orderlab.model.history.events import EventKind
from orderlab.sim.kafka.consumer_group import Consumer, ConsumerGroup, Polled
from orderlab.sim.mqtt.application.sessions import Application, Applications, Exchange, Place, Queue, places_of
from orderlab.sim.mqtt.broker.delivery import RECORDED_WITHIN_US, Delivery
from orderlab.sim.mqtt.broker.node import BrokerNode
from orderlab.sim.mqtt.broker.qos2_sender import Completion, Qos2Sender
from orderlab.sim.mqtt.broker.routing import RoutedRecords, by_value
from orderlab.sim.mqtt.clients import Ints
from orderlab.sim.mqtt.connections import MESSAGE, PACKET_ID, SUBSCRIBER, TOKEN, Deliveries, as_deliveries
from orderlab.sim.mqtt.rules.retained import are_retained


class ApplicationDelivery(Delivery):
    """The applications that are connected to one broker. The token of a delivery is its place."""

    def __init__(
        self, node: BrokerNode, applications: Applications, consumer_for: Callable[[Queue, str], Consumer]
    ) -> None:
        self.applications = applications
        super().__init__(node)
        self.env = node.env
        self.consumer_for = consumer_for

    def _qos2_sender(self) -> Qos2Sender:
        return ApplicationQos2Sender(self.node, self, self.applications)

    def send_backlog(self, subscriber: int, then: Callable[[], None]) -> None:
        """Go on where the queue of an application is committed that has just connected here, and call ``then`` at once."""
        if not self.applications.sessions[subscriber].queue.is_shared:
            self.record_connect(subscriber)
        self.begin(subscriber).rebalance()
        then()

    def begin(self, number: int) -> ConsumerGroup:
        """A consumer for an application that is connected here; its group has to assign partitions yet."""
        session = self.applications.sessions[number]
        connection = int(self.table.connection_number[number])
        consumer = session.consumer = self.consumer_for(session.queue, f"application-{number}/{connection}")
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
                self.world.count("fenced_commits")
            else:
                for partition, offset, records in polled:
                    session.queue.committed(partition, offset, offset + len(records))
            node.drop_old(consumer, polled)

    def _found(self, session: Application, polled: Polled) -> list[tuple[Place, int]]:
        """(place, copy) of what was polled, but for what was routed for a session that is over: that is done with."""
        table = self.table
        read = list(places_of(polled))
        places = [place for place, _ in read]
        copied, recipients, routed_for = RoutedRecords.unpack([record for _, record in read], len(self.world.traffic.subscribers))
        found = list(zip(places, copied.tolist(), strict=True))
        self._note_stage(copied)
        if not table.may_end:
            return found
        table.note_queued(copied.tolist(), recipients.tolist(), routed_for.tolist())
        is_over = routed_for != table.session_number[session.number]
        if is_over.any():
            self.world.count("records_for_sessions_that_ended", int(is_over.sum()))
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
            self.world.count("pubrels_again", len(rows))
            finished = session.wait_for([row[-1] for row in rows], self.env.event())
            self.qos2_sender.send(as_deliveries(rows))
            yield finished
        while left := session.unfinished()[:window]:
            yield self._send(session, left)
        session.is_resuming = False

    def _due(self, session: Application, found: Sequence[tuple[Place, int]]) -> Sequence[tuple[Place, int]]:
        """What is to be sent of what was polled: not what is done with, or is another member's."""
        queue, world = session.queue, self.world
        if world.traffic.qos.sole == 1 and not queue.completed:
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

    def _exactly(
        self, session: Application, found: Sequence[tuple[Place, int]]
    ) -> list[tuple[Place, int, bool, int]]:
        """(place, publisher, whether it is delivered with QoS 2, copy)."""
        messages, _ = self._published(np.array([copy for _, copy in found], np.int64))
        publishers = messages % self.world.traffic.schedule.count
        qos = self.world.traffic.qos.of_deliveries(publishers, np.full(len(found), session.number))
        exact = np.broadcast_to(qos, len(found)) == 2
        return [
            (place, publisher, is_exact, copy)
            for (place, copy), publisher, is_exact in zip(found, publishers.tolist(), exact.tolist(), strict=True)
        ]

    def _note_stage(self, copied: Ints) -> None:
        self.world.note_stage("msg.app", copied if self.world.traffic.retaining is None else copied[~are_retained(copied)])

    def _send(self, session: Application, found: Sequence[tuple[Place, int]]) -> simpy.Event:
        """Write PUBLISH packets; the event comes when all are acknowledged. Never, if the connection is lost before."""
        if self.world.traffic.qos.sole != 1:
            for place, publisher, is_exact, copy in self._exactly(session, found):
                if is_exact:
                    session.queue.begin(place, Exchange(session.number, publisher, copy))
        dup = np.array([place in session.sent for place, _ in found], np.int64)
        window = self.applications.window
        rows = [(copy, session.number, session.identifier(place, copy, window), place) for place, copy in found]
        finished = session.wait_for([place for place, _ in found], self.env.event())
        self._write(as_deliveries(rows), dup)
        return finished

    def deliver(self, deliveries: Deliveries, is_backlog: bool = False, is_pushed: bool = True) -> None:
        """Write what has QoS 0, which is in no queue. What was routed for a session that is over goes nowhere."""
        if self.table.may_end:
            deliveries = deliveries[self.table.sessions_of(deliveries) == self.table.session_number[deliveries[:, SUBSCRIBER]]]
        super().deliver(deliveries, is_backlog, is_pushed)

    # -- over a connection -------------------------------------------------------------------------------------

    def _write(self, sent: Deliveries, dup: Ints) -> None:
        for _, mine in by_value(sent[:, SUBSCRIBER]) if len(sent) else ():
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
        answered: Ints = handled + int(self.world.traffic.subscribers.latency_us[number])
        is_stored = sent[:, PACKET_ID] >= 0
        session.answers.update(zip(sent[is_stored, TOKEN].tolist(), answered[is_stored].tolist(), strict=True))
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
        """Tell the history, of a group, that one of its members got a message, or got it again; packet identifiers are the
        members' own."""
        if len(deliveries) and self.applications.sessions[int(deliveries[0, SUBSCRIBER])].queue.is_shared:
            if kind in (EventKind.RECEIVE, EventKind.RELEASE):
                return
            deliveries = deliveries.copy()
            message, _ = self._published(deliveries[:, MESSAGE])
            qos = self.world.traffic.qos.of_deliveries(message % self.world.traffic.schedule.count, deliveries[:, SUBSCRIBER])
            dup = np.where(qos == 2, dup, -1)
            deliveries[:, PACKET_ID] = -1
        super().record(kind, deliveries, instants, dup)


class ApplicationQos2Sender(Qos2Sender):
    """PUBRELs follow when the session has noted the PUBRECs."""

    def __init__(self, node: BrokerNode, completion: Completion, applications: Applications) -> None:
        super().__init__(node, completion)
        self.applications = applications

    def _release(self, deliveries: Deliveries, connections: Ints) -> None:
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
