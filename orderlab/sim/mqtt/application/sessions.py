"""APPLICATION clients: each reads a Kafka topic of its own, or shares one with the members of its group (MQTT 5.0,
4.8.2).

`msg.all` → subscription trie → `msg.app.<client>` or `msg.app.shared.<group>`, by the topic's name, so that a topic
stays on one partition → a consumer per connection → socket → the client's PUBACK or PUBCOMP → commit. A queue is one
such Kafka topic; QoS 0 passes it by. What was polled is committed when all of it is acknowledged; when a connection is
lost, as far as it is acknowledged without a gap. What was sent and not acknowledged comes again from the log when the
client is back, under its packet identifier with DUP, in the order in which it was sent; what a member of a group had
with QoS 1 goes to the partition's next reader, as a new message.

What was begun with QoS 2 stays with the member that it was sent to (MQTT-4.8.2-4): the partition's next reader passes
it by. So that order stays, what follows of the same publisher with QoS 2 waits for that member too.

An offset cannot say any of that, nor which packet identifiers are in use: it belongs to the sessions (4.1), which the
brokers keep in a database. Here that takes no time, and a broker that dies takes nothing along that it had worked on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import simpy

from orderlab.model.protocol.packet_id import MODULUS
from orderlab.sim.kafka.broker import Partition
from orderlab.sim.kafka.consumer_group import Consumer, ConsumerGroup, Polled
from orderlab.sim.mqtt.clients import Ints

Place = int
"""A record of a queue: its partition and its offset."""
_SHIFT = 48


def place_of(partition: Partition, offset: int) -> Place:
    """The place of a record."""
    return partition.number << _SHIFT | offset


def places_of(polled: Polled) -> Iterator[tuple[Place, int]]:
    """(place, record) of all that was polled."""
    for partition, offset, records in polled:
        yield from enumerate(records, place_of(partition, offset))


@dataclass(slots=True)
class Exchange:
    """A message with QoS 2 that belongs to one client until its PUBCOMP."""

    number: int
    """Whose."""
    publisher: int
    copy: int
    is_received: bool = False
    """Whether its PUBREC has come: what is sent again from then on is a PUBREL."""


@dataclass(eq=False)
class Queue:
    """A Kafka topic for one application, or for a group that shares a subscription."""

    group: ConsumerGroup
    partition_of: Ints
    """Per topic, the partition of this queue."""
    first: int
    """The number of the application, or of the first member of the group."""
    code: int
    """As the history names it among subscribers: the client, or the group as one, behind all clients."""
    is_shared: bool
    topic_filter: str
    filter_code: int
    """As the history names it among topics."""
    readers: dict[Consumer, int] = field(default_factory=dict)
    """The members of the consumer group, and whose they are."""
    exchanges: dict[Place, Exchange] = field(default_factory=dict)
    """In the order in which they were begun."""
    completed: set[Place] = field(default_factory=set)
    """What is done with and not committed: all with QoS 2; with QoS 1 what was sent again, and what a lost connection
    had acknowledged."""
    _holders: dict[int, list[int]] = field(default_factory=dict)
    """Per publisher, [whose its unfinished exchanges are, how many there are]."""

    @property
    def lag(self) -> int:
        """Records that nobody has committed."""
        return sum(part.log.end_offset - self.group.committed[part] for part in self.group.partitions)

    def reader_of(self, topic: int) -> int | None:
        """Who reads the partition of a topic now."""
        if not self.is_shared:
            return self.first
        partition = self.group.partitions[int(self.partition_of[topic])]
        return next((number for consumer, number in self.readers.items() if partition in consumer.positions), None)

    def holder_of(self, publisher: int) -> int | None:
        """Who has unfinished exchanges of a publisher."""
        found = self._holders.get(publisher)
        return None if found is None else found[0]

    def begin(self, place: Place, exchange: Exchange) -> None:
        """A message with QoS 2 is somebody's from now on. Nothing, if it is already."""
        if place not in self.exchanges:
            self.exchanges[place] = exchange
            self._holders.setdefault(exchange.publisher, [exchange.number, 0])[1] += 1

    def complete(self, place: Place) -> None:
        """Finish an exchange whose PUBCOMP is here."""
        publisher = self.exchanges.pop(place).publisher
        self._holders[publisher][1] -= 1
        if not self._holders[publisher][1]:
            del self._holders[publisher]
        self.completed.add(place)

    def forget(self) -> None:
        """All that is in it is done with, and was nobody's."""
        self.exchanges.clear()
        self.completed.clear()
        self._holders.clear()
        self.group.committed.update((partition, partition.log.end_offset) for partition in self.group.partitions)

    def committed(self, partition: Partition, offset: int, end: int) -> None:
        """What lies between is never read again."""
        if self.completed:
            self.completed.difference_update(range(place_of(partition, offset), place_of(partition, end)))


@dataclass(slots=True, eq=False)
class Application:
    """The session of one client."""

    queue: Queue
    number: int
    consumer: Consumer | None = None
    last_packet_id: int = 0
    sent: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """(packet identifier, copy) of what was sent and is not acknowledged, in the order in which it was sent first."""
    acknowledged: set[Place] = field(default_factory=set)
    """Of what its consumer holds."""
    polled: Polled = field(default_factory=list)
    answers: dict[Place, int] = field(default_factory=dict)
    """When the PUBACKs and PUBRECs come for what was sent over this connection."""
    free_us: float = 0
    """When the client is done with what it has been sent."""
    is_resuming: bool = False
    """Whether it is being sent what an earlier connection left unfinished."""
    _waiting: set[Place] = field(default_factory=set)
    _finished: simpy.Event | None = None

    def identifier(self, place: Place, copy: int, in_flight_max: int) -> int:
        """The packet identifier that it went out under before, or the next that is free."""
        known = self.sent.get(place)
        if known is not None:
            return known[0]
        taken = (
            {identifier for identifier, _ in self.sent.values()} if len(self.sent) >= MODULUS - in_flight_max else ()
        )
        identifier = self.last_packet_id % MODULUS + 1
        while identifier in taken:
            identifier = identifier % MODULUS + 1
        self.last_packet_id, self.sent[place] = identifier, (identifier, copy)
        return identifier

    def unfinished(self) -> list[tuple[Place, int]]:
        """(place, copy) of the PUBLISH packets that this client is still owed, in their order; a member of a group only
        with QoS 2."""
        exchanges = self.queue.exchanges
        if self.queue.is_shared:
            return [
                (place, each.copy)
                for place, each in exchanges.items()
                if each.number == self.number and not each.is_received
            ]
        return [
            (place, copy)
            for place, (_, copy) in self.sent.items()
            if place not in exchanges or not exchanges[place].is_received
        ]

    def forget(self) -> None:
        """The session is over: nothing of it is in flight, and its queue is done with up to the end. Of a group's
        member there is more to say, and nobody asks."""
        assert not self.queue.is_shared
        self.sent.clear()
        self.last_packet_id = 0
        self.queue.forget()

    def forget_what_others_took(self) -> None:
        """Forget what was sent with QoS 1 and another member has sent since."""
        committed, partitions, exchanges = self.queue.group.committed, self.queue.group.partitions, self.queue.exchanges
        for place in [place for place in self.sent if place not in exchanges]:
            partition = partitions[place >> _SHIFT]
            if place < place_of(partition, committed[partition]):
                del self.sent[place]

    def wait_for(self, places: Sequence[Place], finished: simpy.Event) -> simpy.Event:
        """``finished`` comes when all of these are acknowledged. Never, if the connection is lost before."""
        self._waiting, self._finished = set(places), finished
        return finished

    def complete(self, place: Place) -> None:
        """A PUBACK or PUBCOMP is here."""
        self.sent.pop(place, None)
        self.answers.pop(place, None)
        self.acknowledged.add(place)
        if place in self.queue.exchanges:
            self.queue.complete(place)
        elif self.is_resuming:
            self.queue.completed.add(place)
        self._waiting.discard(place)
        if not self._waiting and self._finished is not None:
            finished, self._finished = self._finished, None
            finished.succeed()

    def received(self, place: Place) -> None:
        """A PUBREC is here. It may be known."""
        exchange = self.queue.exchanges.get(place)
        if exchange is not None:
            exchange.is_received = True

    def lose_connection(self, lost_us: int, is_alive: bool) -> None:
        """The broker, if it ``is_alive``, has worked on the answers that came before the connection took nothing any
        more, and commits what it can."""
        consumer, self.consumer, self._finished = self.consumer, None, None
        if consumer is None:
            return
        consumer.is_dead = True
        queue, group = self.queue, consumer.group
        if is_alive:
            for place in [place for place, at_us in self.answers.items() if at_us < lost_us]:
                if place in queue.exchanges:
                    self.received(place)
                else:
                    self.complete(place)
            ends = without_gap(self)
            if group.commit(consumer, consumer.generation, ends):
                for partition, offset, _ in self.polled:
                    queue.committed(partition, offset, ends[partition])
        # The session knows of PUBACKs that were worked on, though nothing says so in the log: they are not read again
        # as new messages.
        queue.completed.update(
            place
            for place in self.acknowledged
            if place >= place_of(part := group.partitions[place >> _SHIFT], group.committed[part])
        )
        del queue.readers[consumer]
        group.leave(consumer, 0 if is_alive else group.settings.session_timeout_us)
        self.acknowledged.clear()
        self.answers.clear()
        self.polled, self.free_us = [], 0


def without_gap(session: Application) -> dict[Partition, int]:
    """The offset up to which each partition that was polled needs nobody to read it again."""
    queue = session.queue
    done = session.acknowledged | queue.completed
    if queue.is_shared:  # what a member has begun it ends, whoever reads the partition
        done |= queue.exchanges.keys()
    ends = {}
    for partition, offset, records in session.polled:
        end = offset
        while end < offset + len(records) and place_of(partition, end) in done:
            end += 1
        ends[partition] = end
    return ends


class Applications:
    """All applications of a system, by number. ``queue_of``: per application its queue."""

    def __init__(self, queues: Sequence[Queue], queue_of: Sequence[int], window: int, work_us: float) -> None:
        self.queues = queues
        self.sessions = [Application(queues[queue], number) for number, queue in enumerate(queue_of)]
        self.window = window
        """Receive Maximum."""
        self.work_us = work_us
        """What a client takes for one message, one after the other."""

    def is_idle(self) -> bool:
        """Whether every exchange of QoS 2 is finished."""
        return not any(queue.exchanges for queue in self.queues)
