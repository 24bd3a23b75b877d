"""APPLICATION clients: each reads a Kafka topic of its own, or shares one with the members of its group (MQTT 5.0, 4.8.2).

`msg.all` → subscription trie → `msg.app.<client>` or `msg.app.shared.<group>`, by the topic's name, so that a topic stays on
one partition → a consumer per connection → socket → the client's PUBACK → commit. A queue is one such Kafka topic. What was
polled is committed when all of it is acknowledged; when a connection is lost, as far as it is acknowledged without a gap.
What was sent and not acknowledged comes again from the log: to the same client under the same packet identifier with DUP,
to another member of a group as a new message.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy

from model.history import EventKind
from model.packet_id import MODULUS
from sim.kafka.broker import Partition
from sim.kafka.consumer_group import Consumer, ConsumerGroup, Polled
from sim.mqtt.delivery import Delivery
from sim.mqtt.ingest import Ingest
from sim.mqtt.pack import Pack
from sim.mqtt.population import Ints
from sim.mqtt.routing import Routing

if TYPE_CHECKING:
    from sim.mqtt.broker import MqttBroker

Place = tuple[Partition, int]
"""A record: its partition and offset."""


@dataclass(eq=False)
class Queue:
    """A Kafka topic for one application, or for a group that shares a subscription."""

    group: ConsumerGroup
    partition_of: Ints
    """Per topic, the partition of this queue."""
    code: int
    """As the history names it among subscribers: the client, or the group as one."""
    is_shared: bool

    @property
    def lag(self) -> int:
        """Records that nobody has committed."""
        return sum(part.log.end_offset - self.group.committed[part] for part in self.group.partitions)


@dataclass(slots=True, eq=False)
class _Application:
    """The session of one client."""

    queue: Queue
    consumer: Consumer | None = None
    last_packet_id: int = 0
    sent: dict[Place, int] = field(default_factory=dict)
    """Packet identifiers of what was sent and is not acknowledged."""
    acknowledged: set[Place] = field(default_factory=set)
    """Of what its consumer holds."""
    polled: Polled = field(default_factory=list)
    settle: Callable[[], object] = field(default=lambda: None)
    """Notes the PUBACKs that have come by now for what was sent last."""


class Applications:
    """All applications of a system, by number. ``queue_of``: per application its queue."""

    def __init__(self, queues: Sequence[Queue], queue_of: Sequence[int], window: int, work_us: float) -> None:
        self.queues = queues
        self.sessions = [_Application(queues[number]) for number in queue_of]
        self.window = window
        """Receive Maximum."""
        self.work_us = work_us
        """What a client takes for one message, one after the other."""

    def disconnected(self, number: int, is_alive: bool) -> None:
        """A connection is lost. A broker that is alive commits what it can and takes the consumer out of the group."""
        session = self.sessions[number]
        consumer, session.consumer = session.consumer, None
        if consumer is None:
            return
        consumer.is_dead = True
        session.settle()
        if is_alive:
            consumer.group.commit(consumer, consumer.generation, _without_gap(session))
        consumer.group.leave(consumer, 0 if is_alive else consumer.group.settings.session_timeout_us)
        session.acknowledged.clear()
        session.polled = []


def _without_gap(session: _Application) -> dict[Partition, int]:
    """Up to where each partition is acknowledged."""
    ends = {}
    for partition, offset, records in session.polled:
        end = offset
        while end < offset + len(records) and (partition, end) in session.acknowledged:
            end += 1
        ends[partition] = end
    return ends


class ApplicationRouting(Routing):
    """Copies go to the partitions of queues; matches are numbers of queues."""

    def __init__(self, broker: MqttBroker, applications: Applications) -> None:
        super().__init__(broker)
        self.applications = applications

    def _send(self, records: Sequence[int], partitions: Sequence[int], pack: Pack) -> None:
        fabric, queues = self.fabric, self.applications.queues
        messages, numbers = np.divmod(np.array(records, np.int64), len(fabric.subscribers))
        topics = fabric.topic_of[messages % fabric.schedule.count]
        for number in np.unique(numbers).tolist():
            queue, mine = queues[number], numbers == number
            of_queue = queue.partition_of[topics[mine]]
            for partition in np.unique(of_queue).tolist():
                chosen = messages[mine][of_queue == partition] * len(fabric.subscribers) + number
                self.broker.producer.send(queue.group.partitions[partition], chosen.tolist(), pack.answered)

    def _resend(self, records: Sequence[int], pack: Pack) -> None:
        self._send(records, (), pack)


class ApplicationIngest(Ingest):
    """Applications are in the history from its beginning."""

    def introduce(self, subscribers: Ints, at_us: Ints) -> None:
        pass


class ApplicationDelivery(Delivery):
    """The applications that are connected to one broker."""

    def __init__(
        self, broker: MqttBroker, applications: Applications, consumer_for: Callable[[Queue, str], Consumer]
    ) -> None:
        super().__init__(broker)
        self.env = broker.env
        self.applications = applications
        self.consumer_for = consumer_for

    def connect(self, subscriber: int, clean_start: bool = False) -> None:
        """An application connects here with Clean Start 0, as its settings see to, and goes on where its queue is committed."""
        fabric, session = self.fabric, self.applications.sessions[subscriber]
        fabric.subscribers.broker[subscriber] = self.broker.number
        self.sessions.connected[subscriber] = True
        if not session.queue.is_shared:
            code = np.array([session.queue.code])
            fabric.recorder.add(
                EventKind.CONNECT, np.array([int(self.env.now)]), subscriber=code, node=self.broker.number,
                **fabric.windows.columns,
            )  # fmt: skip
        self.begin(subscriber).rebalance()

    def begin(self, number: int) -> ConsumerGroup:
        """A consumer for an application that is connected here; its group has to assign partitions yet."""
        session = self.applications.sessions[number]
        connection = int(self.sessions.connections[number])
        consumer = session.consumer = self.consumer_for(session.queue, f"application-{number}/{connection}")
        consumer.group.members.append(consumer)
        self.env.process(self._serve(number, session, consumer))
        return consumer.group

    def _serve(self, number: int, session: _Application, consumer: Consumer) -> Generator[simpy.Event, Any, None]:
        """Poll, send, wait for acknowledgements, commit, for as long as the connection lasts."""
        broker, window = self.broker, self.applications.window
        while True:
            polled = yield from consumer.poll()
            yield broker.work(broker.costs.poll_us)
            if consumer.is_dead or broker.is_dead:
                return
            session.polled, session.acknowledged = polled, set()
            self.fabric.note_stage("msg.app", self._messages([each for _, _, records in polled for each in records]))
            places = [(part, offset + at) for part, offset, records in polled for at in range(len(records))]
            records = [record for _, _, records in polled for record in records]
            for start in range(0, len(records), window):
                yield self._send(number, session, places[start : start + window], records[start : start + window])
                if consumer.is_dead or broker.is_dead:
                    return
            yield from self._commit(consumer, polled)
            if consumer.is_dead:
                return

    def _commit(self, consumer: Consumer, polled: Polled) -> Generator[simpy.Event, Any, None]:
        """All of it is acknowledged."""
        if not (yield from consumer.commit(polled)):
            self.fabric.count("fenced_commits")
        self.broker.drop_old(consumer, polled)

    def _messages(self, records: Sequence[int]) -> Ints:
        return np.array(records, np.int64) // len(self.fabric.subscribers)

    def _send(self, number: int, session: _Application, places: list[Place], records: Sequence[int]) -> simpy.Event:
        """Write PUBLISH packets; the event comes when all are acknowledged. Never, if the connection is lost before."""
        fabric, broker, sessions = self.fabric, self.broker, self.sessions
        dup = np.array([place in session.sent for place in places], np.int64)
        identifiers = np.array([self._identifier(session, place) for place in places], np.int64)
        messages = self._messages(records)
        connection = int(sessions.connections[number])
        latency = int(fabric.subscribers.latency_us[number])
        begun = self.env.now
        done = np.array([broker.burst(1, broker.costs.deliver_us) for _ in places])
        arrived = np.maximum.accumulate(done).astype(np.int64) + latency
        handled = _one_after_the_other(arrived, self.applications.work_us, begun)
        answered = handled + latency
        finished = self.env.event()
        who, connections = np.full(len(places), number), np.full(len(places), connection)

        def settle() -> Ints:
            back = np.flatnonzero(sessions.got_through(who, connections, answered) & (answered <= self.env.now))
            for at in back.tolist():
                session.sent.pop(places[at], None)
                session.acknowledged.add(places[at])
            return back

        def over(_: simpy.Event) -> None:
            there = sessions.got_through(who, connections, arrived)
            self._note(EventKind.DELIVER, session, messages[there], identifiers[there], arrived[there], dup[there])
            if broker.is_dead:
                return
            back = sessions.got_through(who, connections, answered)
            self._note(EventKind.ACKNOWLEDGE, session, messages[back], identifiers[back], answered[back], None)
            if back.all():
                settle()
                broker.burst(len(places), broker.costs.acknowledge_us)
                finished.succeed()

        session.settle = settle
        self.env.timeout(int(answered[-1] - self.env.now)).callbacks.append(over)
        return finished

    def _identifier(self, session: _Application, place: Place) -> int:
        """The one that it went out under before, or the next that is free."""
        known = session.sent.get(place)
        if known is None:
            taken = set(session.sent.values()) if len(session.sent) >= MODULUS - self.applications.window else ()
            known = session.last_packet_id % MODULUS + 1
            while known in taken:
                known = known % MODULUS + 1
            session.last_packet_id = session.sent[place] = known
        return known

    def _note(
        self, kind: EventKind, session: _Application, messages: Ints, identifiers: Ints, instants: Ints, dup: Ints | None
    ) -> None:
        """Of a group the history says that one of its members got a message: packet identifiers are the members' own."""
        fabric, queue = self.fabric, session.queue
        if not len(messages):
            return
        publisher = messages % fabric.schedule.count
        qos = fabric.qos.of_publishers(publisher)
        fabric.recorder.add(
            kind, instants, publisher=publisher, topic=fabric.topic_of[publisher], qos=qos, subscriber=queue.code,
            sequence=messages // fabric.schedule.count, packet_id=-1 if queue.is_shared else identifiers,
            dup=-1 if dup is None or queue.is_shared else dup, delivered_qos=qos, node=self.broker.number,
        )  # fmt: skip
        if kind is EventKind.DELIVER:
            fabric.count("delivered", len(messages))
            published = fabric.schedule.published_us(messages)
            fabric.delivery_latency.add(published, instants - published)


def _one_after_the_other(arrived: Ints, work_us: float, begun_us: float) -> Ints:
    """When a client that takes ``work_us`` for each is done with what arrives at ``arrived``."""
    steps = np.arange(len(arrived)) * work_us
    done: Ints = (np.maximum.accumulate(np.maximum(arrived, begun_us) - steps) + steps + work_us).astype(np.int64)
    return done
