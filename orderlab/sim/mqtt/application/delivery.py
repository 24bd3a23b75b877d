"""From the queues of applications to their sockets: poll, send, wait for all acknowledgements, commit."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy

from orderlab.model.history.events import EventKind
from orderlab.sim.kafka.consumer_group import Consumer, ConsumerGroup, Polled
from orderlab.sim.mqtt.application.application import Application, Applications, Exchange, Place, Queue, places_of
from orderlab.sim.mqtt.broker.delivery import RECORDED_WITHIN_US, Delivery
from orderlab.sim.mqtt.broker.downlink import by_value
from orderlab.sim.mqtt.broker.qos2_sender import Releasing
from orderlab.sim.mqtt.broker.retaining import are_retained
from orderlab.sim.mqtt.broker.routed_record import read_copies
from orderlab.sim.mqtt.clients.population import Ints
from orderlab.sim.mqtt.connections import Deliveries

if TYPE_CHECKING:
    from orderlab.sim.mqtt.broker.broker import MqttBroker



class ApplicationDelivery(Delivery):
    """The applications that are connected to one broker. The token of a delivery is its place."""

    def __init__(
        self, broker: MqttBroker, applications: Applications, consumer_for: Callable[[Queue, str], Consumer]
    ) -> None:
        super().__init__(broker)
        self.env = broker.env
        self.applications = applications
        self.consumer_for = consumer_for

    def connect(self, subscriber: int, clean_start: bool = False) -> None:
        """An application connects here. With Clean Start 1, or without a session, it begins one. Otherwise it goes on where its
        queue is committed."""
        session = self.applications.sessions[subscriber]
        self.fabric.subscribers.broker[subscriber] = self.broker.number
        self.sessions.connected[subscriber] = True
        if clean_start or not self.sessions.exists[subscriber]:
            self.broker.lifetimes.begin(subscriber)
            return
        if not session.queue.is_shared:
            self.record_connect(subscriber)
        self.begin(subscriber).rebalance()
        if self.fabric.resubscribes:
            self.broker.subscribing.subscribe(subscriber, is_new=False)

    def begin(self, number: int) -> ConsumerGroup:
        """A consumer for an application that is connected here; its group has to assign partitions yet."""
        session = self.applications.sessions[number]
        connection = int(self.sessions.connections[number])
        consumer = session.consumer = self.consumer_for(session.queue, f"application-{number}/{connection}")
        consumer.group.members.append(consumer)
        session.forget_what_others_took()
        session.queue.readers[consumer] = number
        self.env.process(self._serve(session, consumer))
        return consumer.group

    def _serve(self, session: Application, consumer: Consumer) -> Generator[simpy.Event, Any, None]:
        """As long as the connection lasts."""
        broker, window = self.broker, self.applications.window
        yield from self._go_on(session)
        while not consumer.is_dead and not broker.is_dead:
            polled = yield from consumer.poll()
            yield broker.work(broker.costs.poll_us)
            if consumer.is_dead or broker.is_dead:
                return
            session.polled, session.acknowledged = polled, set()
            due = self._due(session, self._found(session, polled))
            for start in range(0, len(due), window):
                yield self._send(session, due[start : start + window])
                if consumer.is_dead or broker.is_dead:
                    return
            if not (yield from consumer.commit(polled)):
                self.fabric.count("fenced_commits")
            else:
                for partition, offset, records in polled:
                    session.queue.committed(partition, offset, offset + len(records))
            broker.drop_old(consumer, polled)

    def _found(self, session: Application, polled: Polled) -> list[tuple[Place, int]]:
        """(place, copy) of what was polled, but for what was routed for a session that is over: that is done with."""
        sessions = self.sessions
        read = list(places_of(polled))
        places = [place for place, _ in read]
        copied, recipients, routed_for = read_copies([record for _, record in read], len(self.fabric.subscribers))
        found = list(zip(places, copied.tolist(), strict=True))
        self._note_stage(copied)
        if not sessions.may_end:
            return found
        sessions.note_queued(copied.tolist(), recipients.tolist(), routed_for.tolist())
        is_over = routed_for != sessions.number[session.number]
        if is_over.any():
            self.fabric.count("records_for_sessions_that_ended", int(is_over.sum()))
            session.acknowledged.update(compress(places, is_over))
        return list(compress(found, ~is_over))

    def _go_on(self, session: Application) -> Generator[simpy.Event, Any, None]:
        """With what the last connection left unfinished: PUBRELs, then PUBLISH packets (MQTT-4.4.0-1)."""
        number, window = session.number, self.applications.window
        session.is_resuming = True
        rows = [
            (each.copy, number, session.sent[place][0], place)
            for place, each in session.queue.exchanges.items()
            if each.number == number and each.is_received
        ]
        if rows:
            self.fabric.count("pubrels_again", len(rows))
            finished = session.wait_for([row[-1] for row in rows], self.env.event())
            self.broker.releasing.send(np.array(rows, np.int64))
            yield finished
        while left := session.unfinished()[:window]:
            yield self._send(session, left)
        session.is_resuming = False

    def _due(self, session: Application, found: Sequence[tuple[Place, int]]) -> Sequence[tuple[Place, int]]:
        """What is to be sent of what was polled: not what is done with, or is another member's."""
        queue, fabric = session.queue, self.fabric
        if fabric.qos.sole == 1 and not queue.completed:
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
        publishers = messages % self.fabric.schedule.count
        qos = self.fabric.qos.of_deliveries(publishers, np.full(len(found), session.number))
        exact = np.broadcast_to(qos, len(found)) == 2
        return [
            (place, publisher, is_exact, copy)
            for (place, copy), publisher, is_exact in zip(found, publishers.tolist(), exact.tolist(), strict=True)
        ]

    def _note_stage(self, copied: Ints) -> None:
        self.fabric.note_stage("msg.app", copied if self.fabric.retaining is None else copied[~are_retained(copied)])

    def _send(self, session: Application, found: Sequence[tuple[Place, int]]) -> simpy.Event:
        """Write PUBLISH packets; the event comes when all are acknowledged. Never, if the connection is lost before."""
        if self.fabric.qos.sole != 1:
            for place, publisher, is_exact, copy in self._exactly(session, found):
                if is_exact:
                    session.queue.begin(place, Exchange(session.number, publisher, copy))
        dup = np.array([place in session.sent for place, _ in found], np.int64)
        window = self.applications.window
        rows = [(copy, session.number, session.identifier(place, copy, window), place) for place, copy in found]
        finished = session.wait_for([place for place, _ in found], self.env.event())
        self._write(np.array(rows, np.int64), dup)
        return finished

    def deliver(self, deliveries: Deliveries, is_backlog: bool = False, is_pushed: bool = True) -> None:
        """QoS 0, which is in no queue. What was routed for a session that is over goes nowhere."""
        if self.sessions.may_end:
            deliveries = deliveries[self.sessions.sessions_of(deliveries) == self.sessions.number[deliveries[:, 1]]]
        super().deliver(deliveries, is_backlog, is_pushed)

    # -- over a connection -------------------------------------------------------------------------------------

    def _write(self, sent: Deliveries, dup: Ints) -> None:
        for _, mine in by_value(sent[:, 1]) if len(sent) else ():
            super()._write(sent[mine], dup[mine])

    def _written_us(self, count: int) -> Ints | int:
        """Each at an instant of its own: one client's packets follow one another."""
        each_us = self.broker.costs.deliver_us
        done = np.array([self.broker.burst(1, each_us) for _ in range(count)])
        return np.maximum.accumulate(done).astype(np.int64)

    def _arrive(self, sent: Deliveries, dup: Ints, arrived: Ints) -> None:
        """What keeps the client busy for long is looked at in parts; what arrives together stays together."""
        work_us = self.applications.work_us
        together = max(int(RECORDED_WITHIN_US / 2 / work_us), 1) if work_us else len(sent)
        start = 0
        while start < len(sent):
            end = int(np.searchsorted(arrived, arrived[min(start + together, len(sent)) - 1], "right"))
            super()._arrive(sent[start:end], dup[start:end], arrived[start:end])
            start = end

    def _answered_us(self, sent: Deliveries, arrived: Ints) -> Ints:
        number = int(sent[0, 1])
        session = self.applications.sessions[number]
        handled = one_after_the_other(arrived, self.applications.work_us, session.free_us)
        session.free_us = float(handled[-1])
        answered: Ints = handled + int(self.fabric.subscribers.latency_us[number])
        is_stored = sent[:, 2] >= 0
        session.answers.update(zip(sent[is_stored, 3].tolist(), answered[is_stored].tolist(), strict=True))
        return answered

    def completed(self, acknowledged: Deliveries, answered: Ints, connections: Ints) -> None:
        """The client's PUBACKs or PUBCOMPs are here, over ``connections``."""
        broker = self.broker
        if broker.is_dead or not len(acknowledged):
            return
        self.record(EventKind.ACKNOWLEDGE, acknowledged, answered, -1)
        broker.burst(len(acknowledged), broker.costs.acknowledge_us)
        number = int(acknowledged[0, 1])
        self.sessions.complete(acknowledged)
        if connections[0] == self.sessions.connections[number]:  # else it was settled when the connection was lost
            for place in acknowledged[:, 3].tolist():
                self.applications.sessions[number].complete(place)

    def _codes(self, subscribers: Ints) -> Ints:
        return np.full(len(subscribers), self.applications.sessions[int(subscribers[0])].queue.code)

    def record(self, kind: EventKind, deliveries: Deliveries, instants: Ints, dup: Ints | int) -> None:
        """Of a group the history says that one of its members got a message, or got it again; packet identifiers are the
        members' own."""
        if len(deliveries) and self.applications.sessions[int(deliveries[0, 1])].queue.is_shared:
            if kind in (EventKind.RECEIVE, EventKind.RELEASE):
                return
            deliveries = deliveries.copy()
            message, _ = self._published(deliveries[:, 0])
            qos = self.fabric.qos.of_deliveries(message % self.fabric.schedule.count, deliveries[:, 1])
            dup = np.where(qos == 2, dup, -1)
            deliveries[:, 2] = -1
        super().record(kind, deliveries, instants, dup)


class ApplicationReleasing(Releasing):
    """PUBRELs follow when the session has noted the PUBRECs."""

    def __init__(self, broker: MqttBroker, applications: Applications) -> None:
        super().__init__(broker)
        self.applications = applications

    def _release(self, deliveries: Deliveries, connections: Ints) -> None:
        if self.broker.is_dead or connections[0] != self.sessions.connections[deliveries[0, 1]]:
            return  # what has come over a lost connection was noted when that was lost
        session = self.applications.sessions[int(deliveries[0, 1])]
        for place in deliveries[:, 3].tolist():
            session.received(place)
        self.send(deliveries)


def one_after_the_other(arrived: Ints, work_us: float, begun_us: float) -> Ints:
    """When a client that takes ``work_us`` for each is done with what arrives at ``arrived``."""
    steps = np.arange(len(arrived)) * work_us
    done: Ints = (np.maximum.accumulate(np.maximum(arrived, begun_us) - steps) + steps + work_us).astype(np.int64)
    return done
