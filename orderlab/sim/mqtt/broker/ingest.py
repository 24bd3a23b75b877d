"""From publishers to Kafka: PUBLISH packets come in, go to `msg.all`, and are acknowledged when Kafka has them.

QoS 0 gets no answer; QoS 1 a PUBACK; QoS 2 a PUBREC, and until its PUBREL comes the broker knows the message again and
does not send it on twice. That knowledge is in the broker's memory, and a crash ends it, or in the store
(``qos2_receiver``). Who gets no answer sends again (``Republishing``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import simpy

from orderlab.model.history.events import EventKind
from orderlab.sim.engine.clock import call_at
from orderlab.sim.engine.network import RETRANSMIT_US
from orderlab.sim.engine.packs import any_of
from orderlab.sim.kafka.broker import AppendError
from orderlab.sim.kafka.producer import OnAnswered
from orderlab.sim.mqtt.broker.node import BrokerNode
from orderlab.sim.mqtt.broker.qos2 import Qos2Receiver
from orderlab.sim.mqtt.clients import Arrivals, Ints, where

FIRST = 0
"""The connection over which a message comes for the first time, whichever it is."""


class Ingest:
    """The publishers of one broker."""

    def __init__(self, node: BrokerNode) -> None:
        self.node = node
        self.world = node.world
        self.env = node.env
        self.unacknowledged: dict[int, None] = {}
        """Messages that their publishers have no PUBACK for, in the order in which they came."""
        self.received: dict[int, bool] = {}
        """QoS 2: messages whose PUBREL is not here yet, and whether Kafka has them (MQTT-4.3.3-10). In memory only."""
        self.remembers_received = True
        inbound = node.world.storage.inbound
        self.qos2_receiver = None if inbound is None else Qos2Receiver(node, inbound, self._to_all)
        self.republishing = Republishing(self, self._ingest_again, self._on_published)
        self.pubacks_to_lose = 0
        self.links: PublisherLinks | None = None
        """Where those of its publishers are not well."""
        self._outside: list[Arrivals] = []
        """Of publishers that have asked to be let in."""
        self._left: list[tuple[PublisherLinks, list[Arrivals]]] = []
        """Connections that publishers have left for another broker, and this one may not know it."""
        self._awaited: list[PublisherLinks] = []
        """Those that the publishers outside have left, wherever."""
        self.orphans: set[int] = set()
        """What publishers sent without an answer who are at another broker now: the answers go nowhere."""
        self._unanswered_of_qos_0: set[int] = set()
        """What Kafka has not answered, where publishers that move wait for it."""
        self._is_listening = True
        self._is_held_up = False
        """Whether it read nothing at the last tick."""
        self._stopped_us: int | None = None
        self._ready_us = 0.0
        """When the last publish that has come is worked on: none of a connection overtakes."""
        self._arrivals = [node.world.traffic.schedule.arrivals(node.number)]
        self._published = self._on_published  # one object, so that the producer can tell its batches belong together

    def listen(self) -> Generator[simpy.Event, Any, None]:
        """Take in what arrives, tick by tick."""
        tick = self.node.settings.tick_us
        while self._is_listening or self._is_held_up:
            yield self.env.timeout(tick)
            if self.node.producer.unanswered > self.node.settings.producer_records_max > 0:
                self.world.count("ticks_without_reading")  # the sockets of publishers fill; TCP stops them
                self._is_held_up = True
                continue
            for arrivals in self._arrivals if not self.node.is_dead else ():
                messages, _ = arrivals.until(int(self.env.now if self._stopped_us is None else self._stopped_us))
                if len(messages) and (self._is_listening or self._is_held_up):
                    self._admit(messages)
            self._is_held_up = False

    def _admit(self, messages: Ints) -> None:
        """Take in what publishers send for the first time: those of them whose windows have room. What waited for a
        broker that did not read, or for room, was sent just now."""
        windows, count = self.world.traffic.publish_windows, self.world.traffic.schedule.count
        sent_us = int(self.env.now) if self._is_held_up else None
        if windows is None:
            self._ingest(messages, sent_us=sent_us)
            return
        counted = np.broadcast_to(np.asarray(self.world.traffic.qos.of_publishers(messages % count) > 0), len(messages))
        goes = windows.admit(messages[counted], count)
        self.world.count("publishes_throttled", int(counted.sum()) - len(goes))
        going = np.isin(messages, goes) | ~counted
        if going.any():
            self._ingest(messages[going], sent_us=sent_us)

    def _have_answers(self, messages: Sequence[int]) -> None:
        """Publishers have PUBACK or PUBCOMP for these: what waited for that is on its way."""
        windows, count = self.world.traffic.publish_windows, self.world.traffic.schedule.count
        if windows is None:
            return
        goes = windows.answered([message % count for message in messages])
        if goes:
            sent = np.array(goes, np.int64)
            there = float(self.env.now + int(self.world.traffic.publishers.latency_us[sent % count].max()))
            call_at(self.env, there, lambda: self._ingest(sent, sent_us=int(self.env.now)))

    @property
    def is_owing(self) -> bool:
        """Whether a publisher of it waits for something, were it only to be read."""
        windows = self.world.traffic.publish_windows
        return bool(self.unacknowledged or self._is_held_up or (windows is not None and windows.are_full))

    def stop(self) -> None:
        """Take in nothing more but what waits in sockets: publishers publish no more."""
        self._is_listening = False
        self._stopped_us = int(self.env.now)

    def take_over(self, other: Ingest) -> None:
        """Take over the publishers of another broker, who connect here: first they send again what has no PUBACK."""
        arrivals = [*other._arrivals, *other._outside]
        self._arrivals += arrivals
        self._take_up(other, list(other.unacknowledged), arrivals)

    def _take_up(self, other: Ingest, unacknowledged: Sequence[int], arrivals: Sequence[Arrivals]) -> None:
        if self.qos2_receiver is not None and other.qos2_receiver is not None:
            messages = np.array(unacknowledged, np.int64)  # whichever broker had them, were it before the other one
            waiting = where(
                self.world.traffic.qos.of_publishers(messages % self.world.traffic.schedule.count) == 2, messages
            ).tolist()
            known = set(unacknowledged)
            released = [message for message in other.received if message not in known]
            publishers = np.concatenate([each.publishers for each in arrivals]) if arrivals else np.empty(0, np.int64)
            coming = where(self.world.traffic.qos.of_publishers(publishers) == 2, publishers).tolist()
            if (
                self.qos2_receiver.inbound.is_fenced
            ):  # what they sent over an earlier connection to this broker, the queue knows
                are_back = set(coming)
                self.received = {
                    message: has
                    for message, has in self.received.items()
                    if message % self.world.traffic.schedule.count not in are_back
                }
            self.qos2_receiver.resume(waiting, [*released, *other.qos2_receiver.releasing], coming)
        if unacknowledged:
            self._ingest_again(np.array(unacknowledged, np.int64), self._published)

    def move_from(self, other: Ingest) -> None:
        """Let the publishers of another broker, which is alive, connect here. If brokers ask each other, they are let
        in when that one has closed their old connections, or when nothing was heard of it for the session timeout; what
        they publish meanwhile waits with them."""
        world, ownership = self.world, self.world.ownership
        unacknowledged, arrivals, links = list(other.unacknowledged), [*other._arrivals, *other._outside], other.links
        awaited, other._awaited = other._awaited, []  # whoever was not let in there yet asks here now
        other._arrivals, other._outside, other.links = [], [], None
        self._awaited += awaited if links is None else [*awaited, links]
        other.unacknowledged.clear()
        other.orphans.update(unacknowledged)
        self.unacknowledged.update(dict.fromkeys(unacknowledged))
        self._outside += arrivals

        def let_in() -> None:
            late = self.env.now >= until_us
            if late:
                close()  # who reached nobody for so long does that by itself
            elif not all(each.is_closed for each in awaited) or other._holds_of(arrivals):
                call_at(self.env, next_tick(), let_in)
                return
            if self.node.is_dead or not all(each in self._outside for each in arrivals):
                return  # they are in, or the next broker has them
            self._outside = [each for each in self._outside if each not in arrivals]
            self._awaited = (
                []
                if not self._outside
                else [each for each in self._awaited if each not in awaited and each is not links]
            )
            self._arrivals += arrivals
            self.orphans.difference_update(unacknowledged)
            self._take_up(other, unacknowledged, arrivals)
            if not other._arrivals:  # nobody is back there already
                other.received.clear()
                if other.qos2_receiver is not None:
                    other.qos2_receiver.forget()

        def close() -> None:
            if links is not None:
                links.close()

        def hear() -> None:
            close()
            if awaits:
                call_at(self.env, next_tick(), let_in)

        def next_tick() -> float:
            return float((int(self.env.now) // self.node.settings.tick_us + 1) * self.node.settings.tick_us)

        until_us = self.env.now + world.kafka.groups[0].settings.session_timeout_us
        awaits = ownership is not None and ownership.awaits_old
        for old, whose in self._left:  # whoever left this broker and is back: it knows its own sockets
            if any(each in whose for each in arrivals):
                old.close()
        if links is not None:
            links.are_left = True
            other._left.append((links, arrivals))
        if ownership is None:
            close()
        else:
            ownership.publishers_left(other.node.number, self.node.number, hear)
        if awaits:
            call_at(self.env, float(until_us), let_in)
        else:
            let_in()

    def _holds_of(self, arrivals: Sequence[Arrivals]) -> bool:
        """Whether something has come of these publishers, who have left, that the store (QoS 2) or Kafka (QoS 0) has
        not got yet. QoS 1 comes again, in order."""
        if self.node.is_dead:
            return False
        if self._ready_us > self.env.now or (self.qos2_receiver is not None and self.qos2_receiver.is_asking):
            return True
        if not self._unanswered_of_qos_0:
            return False
        left = {publisher for each in arrivals for publisher in each.publishers.tolist()}
        return any(message % self.world.traffic.schedule.count in left for message in self._unanswered_of_qos_0)

    def _ingest_again(self, messages: Ints, on_answered: OnAnswered) -> None:
        """Take in publishes that are sent again now."""
        self._ingest(messages, int(self.env.now), on_answered)

    def _ingest(
        self,
        messages: Ints,
        repeated_us: int | None = None,
        on_answered: OnAnswered | None = None,
        sent_us: int | None = None,
    ) -> None:
        """Take in publishes that have arrived; ``repeated_us``: they were sent again at that instant; ``sent_us``: they
        were sent for the first time then, later than their applications asked for it. ``on_answered`` hears from
        Kafka."""
        world = self.world
        publisher = messages % world.traffic.schedule.count
        qos = world.traffic.qos.of_publishers(publisher)
        self.unacknowledged.update(dict.fromkeys(where(qos > 0, messages).tolist()))
        if repeated_us is None:
            instants = world.traffic.schedule.published_us(messages)
            last_us = world.traffic.last_sent_us
            if last_us is not None:  # no message of a publisher is sent before the one before it
                instants = np.maximum(np.maximum(instants, last_us[publisher]), 0 if sent_us is None else sent_us)
                np.maximum.at(last_us, publisher, instants)
            self._record_subscribers(messages, instants)
            world.count("published", len(messages))
        else:
            instants = np.full(len(messages), repeated_us)
            world.count("published_again", len(messages))
        world.recorder.add(
            EventKind.PUBLISH,
            instants,
            message=messages,
            dup=int(repeated_us is not None),
            **({} if world.traffic.expiry_us is None else {"expiry_interval_us": world.traffic.expiry_us}),
            **(
                {} if world.traffic.retaining is None else {"retained": world.traffic.retaining.by_publisher[publisher]}
            ),
        )
        if self.links is None:
            self._take_in(messages, on_answered or self._published)
        else:
            self.links.arrive(messages, partial(self._take_in, on_answered=on_answered or self._published))

    def _take_in(self, messages: Ints, on_answered: OnAnswered) -> None:
        """Work on what is here."""
        qos = self.world.traffic.qos.of_publishers(messages % self.world.traffic.schedule.count)
        done = self._ready_us = max(self._ready_us, self.node.burst(len(messages), self.node.costs.ingest_us))
        new = self._not_received(messages, where(qos == 2, messages))
        call_at(self.env, done, lambda: self._taken_in(new, on_answered))

    def _taken_in(self, messages: Ints, on_answered: OnAnswered) -> None:
        if self.qos2_receiver is None:
            self._to_all(messages, on_answered)
        elif not self.node.is_dead:
            of_qos_2 = self.world.traffic.qos.of_publishers(messages % self.world.traffic.schedule.count) == 2
            self._to_all(where(~np.asarray(of_qos_2), messages), on_answered)
            self.qos2_receiver.receive(where(of_qos_2, messages).tolist())

    def _not_received(self, messages: Ints, of_qos_2: Ints) -> Ints:
        """Those that go to Kafka. Of the others, which have QoS 2, those that Kafka has get another PUBREC."""
        if not len(of_qos_2):
            return messages
        received = self.received
        if self.remembers_received:
            known = [message for message in messages.tolist() if message in received]
            if known:
                self.world.count("received_before", len(known))
                self._acknowledge([message for message in known if received[message]])
                messages, of_qos_2 = messages[~np.isin(messages, known)], of_qos_2[~np.isin(of_qos_2, known)]
        received.update(dict.fromkeys(of_qos_2.tolist(), False))
        return messages

    def _record_subscribers(self, messages: Ints, published: Ints) -> None:
        """Tell the history of a subscriber, who has been connected for long, just before the first publish to it."""
        first = messages < self.world.traffic.schedule.count
        if any_of(first):
            self.world.introduce(self.world.traffic.topic_of[messages[first]], np.maximum(published[first] - 1, 0))

    def _to_all(self, messages: Ints, on_answered: OnAnswered | None = None) -> None:
        if self.node.is_dead:
            return
        world = self.world
        publishers = messages % world.traffic.schedule.count
        if world.ownership is not None and world.ownership.awaits_old:
            self._unanswered_of_qos_0.update(where(world.traffic.qos.of_publishers(publishers) == 0, messages).tolist())
        topics = world.traffic.topic_of[publishers]
        numbers = world.kafka.all_partition_of[topics].tolist()
        self.node.producer.send_each(
            world.kafka.all_partitions, messages.tolist(), numbers, on_answered or self._published, in_order=True
        )

    def _on_published(self, records: Sequence[int], error: AppendError | None, connection: int = FIRST) -> None:
        """Answer what Kafka has, which came over ``connection``, with PUBACK or PUBREC. If it has not, the publisher
        hears nothing."""
        world = self.world
        sole = world.traffic.qos.sole
        if self._unanswered_of_qos_0:
            self._unanswered_of_qos_0.difference_update(records)
        if sole is None:
            messages = np.asarray(records, np.int64)
            qos = world.traffic.qos.of_publishers(messages % world.traffic.schedule.count)
            of_qos_2, answered = where(qos == 2, messages).tolist(), where(qos > 0, messages).tolist()
        else:
            of_qos_2, answered = records if sole == 2 else (), records if sole else ()
        if self.republishing.is_used:
            answered = self.republishing.owed(answered, connection)
        if self.orphans:
            answered = [message for message in answered if message not in self.orphans]
        if error is not None:
            world.count("publishes_given_up", len(records))
            for record in of_qos_2:
                self.received.pop(record, None)
            self.republishing.lose(answered)
            return
        if of_qos_2:
            self.received.update((message, True) for message in of_qos_2 if message in self.received)
        self._acknowledge(answered)

    def _acknowledge(self, records: Sequence[int]) -> None:
        """Send PUBACK or PUBREC, which arrives unless the connection is lost."""
        world, node = self.world, self.node
        if self.pubacks_to_lose or self.republishing.away:
            heard = self.republishing.heard(records, self.pubacks_to_lose)
            lost = len(records) - len(heard)
            if lost:
                world.count("pubacks_lost", lost)
            self.pubacks_to_lose = max(self.pubacks_to_lose - lost, 0)
            records = heard
        if self.orphans:
            records = [record for record in records if record not in self.orphans]
        if not records or (self.links is not None and self.links.is_dead):
            return
        deque(map(self.unacknowledged.pop, records, repeat(None)), 0)
        messages = np.asarray(records, np.int64)
        publisher = messages % world.traffic.schedule.count
        latency = world.traffic.publishers.latency_us[publisher]
        qos = world.traffic.qos.of_publishers(publisher)
        acknowledged = int(node.burst(len(records), node.costs.puback_us)) + latency
        if self.links is not None:
            acknowledged = self.links.answers(publisher, acknowledged)
        world.recorder.add(EventKind.PUBLISH_ACKNOWLEDGED, acknowledged, message=messages)
        world.measured.puback_latency.add_messages(messages, acknowledged)
        of_qos_2 = where(qos == 2, messages)
        if world.traffic.publish_windows is not None:
            of_qos_1 = where(qos == 1, messages).tolist()
            call_at(self.env, float(acknowledged.max()), lambda: self._have_answers(of_qos_1))
        if len(of_qos_2):
            back = where(qos == 2, acknowledged + latency)
            if self.links is None:
                call_at(self.env, float(back.max()), lambda: self._on_pubrel(of_qos_2.tolist()))
            else:
                self.links.pubrels(of_qos_2, back, self._on_pubrel)

    def _on_pubrel(self, records: Sequence[int]) -> None:
        """Answer the publishers' PUBRELs with PUBCOMP, and forget the messages."""
        if not self.node.is_dead:
            self.node.burst(len(records), self.node.costs.puback_us)
            for record in records:
                self.received.pop(record, None)
            if self.qos2_receiver is not None:
                self.qos2_receiver.release(records)
            if self.world.traffic.publish_windows is not None:
                back_us = int(
                    self.world.traffic.publishers.latency_us[
                        np.array(records) % self.world.traffic.schedule.count
                    ].max()
                )
                call_at(self.env, float(self.env.now + back_us), lambda: self._have_answers(records))


class Republishing:
    """Publishers of one broker that lose their connection and connect anew: what they hear, and what they send again.
    While nobody has been away, nothing is asked.

    An answer that is lost, or that never comes as Kafka did not take the message, costs a publisher its connection.
    Over that one it hears nothing more, though what it sends still arrives. When it is back it sends all again that has
    no answer, with DUP, in the original order (MQTT-4.4.0-1, MQTT-4.6.0-1), and then what is new. PUBRELs got through,
    so the broker has them all; to those sent again it would only answer once more.

    With QoS 1 each copy has an answer of its own, and the answer to a copy that came over a connection that is gone
    goes nowhere. With QoS 2 the broker knows the message again and sends one copy on; whose connection is there then
    gets the PUBREC.
    """

    def __init__(
        self,
        ingest: Ingest,
        send: Callable[[Ints, OnAnswered], None],
        on_published: Callable[[Sequence[int], AppendError | None, int], None],
    ) -> None:
        """``send`` takes in what is sent again; ``on_published`` hears what Kafka says to it, and over which connection
        it came."""
        self.ingest = ingest
        self.world = ingest.world
        self.away: set[int] = set()
        self._send = send
        self._on_published = on_published
        self._connections: dict[int, tuple[int, int]] = {}
        """Per publisher that has been away: (the number of its connection, the last message that it sent before)."""
        self._count = FIRST
        self._returning: dict[int, list[int]] = {}

    @property
    def is_used(self) -> bool:
        """Whether anybody is or has been away."""
        return bool(self._connections or self.away)

    def lose(self, messages: Sequence[int]) -> None:
        """Let the publishers of these lose patience, and their connections, if they have not yet."""
        lost = {message % self.world.traffic.schedule.count for message in messages} - self.away
        if not lost:
            return
        self.away |= lost
        tick, env = self.ingest.node.settings.tick_us, self.ingest.env
        at_us = -(-int(env.now + self.world.traffic.reconnect_us) // tick) * tick
        if at_us not in self._returning:
            self._returning[at_us] = []
            call_at(env, at_us, lambda: self._return(at_us))
        self._returning[at_us].extend(lost)

    def heard(self, answered: Sequence[int], lost_max: int) -> list[int]:
        """Those of the messages whose answers reach a publisher, if the first ``lost_max`` answers are lost on the
        way."""
        count, away = self.world.traffic.schedule.count, self.away
        self.lose(answered[:lost_max])
        return [message for message in answered if message % count not in away]

    def owed(self, answered: Sequence[int], connection: int) -> list[int]:
        """Those of the messages whose publishers wait for an answer to the very copy that came over ``connection``."""
        count, known = self.world.traffic.schedule.count, self._connections
        publishers = np.asarray(answered, np.int64) % count
        exactly = np.broadcast_to(self.world.traffic.qos.of_publishers(publishers), len(publishers)) == 2
        owed = []
        for message, publisher, is_exact in zip(answered, publishers.tolist(), exactly.tolist(), strict=True):
            present, before = known.get(publisher, (FIRST, -1))
            if is_exact or (message > before if connection == FIRST else connection == present):
                owed.append(message)
        return owed

    def _return(self, at_us: int) -> None:
        """Connect those anew whose time it is."""
        back = self._returning.pop(at_us)
        self.away.difference_update(back)
        if self.ingest.node.is_dead:
            return  # the next broker takes them over
        here = np.zeros(self.world.traffic.schedule.count, np.bool_)
        here[back] = True
        self.resend(here)

    def resend(self, here: npt.NDArray[np.bool_]) -> None:
        """Connect those publishers anew now: they send again what has no answer."""
        self._count += 1
        connection, count = self._count, self.world.traffic.schedule.count
        waiting = np.fromiter(self.ingest.unacknowledged, np.int64, len(self.ingest.unacknowledged))
        messages = waiting[here[waiting % count]]
        for message in messages.tolist():
            self._connections[message % count] = connection, message
        self._send(messages, lambda records, error: self._on_published(records, error, connection))


class PublisherLinks:
    """The links between one broker and all its publishers, while they are not as they should be: cut for a while, slow,
    or dead on the way. ``Links`` says what that means.

    A publisher goes on to send over a connection in which it still believes. What a dead one takes is lost, as are its
    answers; when the publisher is back it sends all again that has no answer, with DUP, before anything new. Over a
    connection that it has left for another broker, bytes may be on the way: the old broker reads them until it knows of
    the new connection.
    """

    def __init__(self, ingest: Ingest) -> None:
        self.ingest = ingest
        self.world, self.env = ingest.world, ingest.env
        self.is_dead = False
        self._more_us = 0
        self._cut_us = 0, 0
        self._through_us: dict[int, int] = {}
        """Per publisher, when the last that it has sent is through."""
        self._answered_us: dict[int, int] = {}
        self.are_left = False
        """Whether the publishers are at another broker."""
        self.is_closed = False
        """Whether the broker reads no more of these connections."""

    @classmethod
    def of(cls, ingest: Ingest) -> PublisherLinks:
        """Those of a broker's publishers."""
        ingest.links = ingest.links or cls(ingest)
        return ingest.links

    # -- what happens to them ------------------------------------------------------------------------------

    def cut(self, until_us: int) -> None:
        """Let nothing through until then."""
        self._cut_us = int(self.env.now), until_us

    def slow_down(self, more_us: int) -> None:
        """Let everything take so much longer, each way; 0: as usual."""
        self._more_us = more_us

    def kill(self) -> None:
        """Let nothing through any more, on these connections."""
        self.is_dead = True

    def come_back(self) -> None:
        """Connect all publishers anew, here."""
        if self.ingest.node.is_dead or self.ingest.links is not self:
            return
        self.is_closed, self.ingest.links = True, None
        self.world.count("publishers_back")
        self.ingest.republishing.resend(np.ones(self.world.traffic.schedule.count, np.bool_))

    def close(self) -> None:
        """Read no more of these connections."""
        self.is_closed = True

    # -- what goes over them -------------------------------------------------------------------------------

    def arrive(self, messages: Ints, then: Callable[[Ints], None]) -> None:
        """Hand on what publishers send now when it is there, if it is ever."""
        if self.is_dead:
            self.world.count("publishes_into_dead_links", len(messages))
            return
        now, count = int(self.env.now), self.world.traffic.schedule.count
        by_time: dict[int, list[int]] = {}
        for message in messages.tolist():
            at_us = self._in_order(self._through_us, message % count, now)
            by_time.setdefault(at_us, []).append(message)
        for at_us, there in sorted(by_time.items()):
            call_at(self.env, float(at_us), partial(self._there, np.array(there, np.int64), then))
        if (
            now > self._cut_us[1]
            and not self._more_us
            and self.ingest.links is self
            and max(self._through_us.values(), default=0) < now
        ):
            self.ingest.links = None  # all is well again

    def _there(self, messages: Ints, then: Callable[[Ints], None]) -> None:
        if self.is_closed or self.is_dead:
            self.world.count("publishes_lost_on_the_way", len(messages))
        else:
            if self.are_left:
                self.world.count("publishes_over_old_connections", len(messages))
            then(messages)

    def pubrels(self, messages: Ints, at_us: Ints, then: Callable[[Sequence[int]], None]) -> None:
        """Hand on PUBRELs that would be there at these instants: behind what their publishers have sent before, a
        PUBLISH with DUP perhaps."""
        count = self.world.traffic.schedule.count

        def sent(message: int) -> None:  # only now, or what is published before then would wait behind it
            through_us = self._in_order(self._through_us, message % count, int(self.env.now))
            call_at(self.env, float(through_us), partial(then, [message]))

        for message, at in zip(messages.tolist(), at_us.tolist(), strict=True):
            call_at(self.env, float(at), partial(sent, message))

    def answers(self, publishers: Ints, at_us: Ints) -> Ints:
        """When answers arrive that would at ``at_us``, were all well."""
        whose = zip(publishers.tolist(), np.broadcast_to(at_us, len(publishers)).tolist(), strict=True)
        return np.array([self._in_order(self._answered_us, publisher, at) for publisher, at in whose], np.int64)

    def _in_order(self, last_us: dict[int, int], publisher: int, at_us: int) -> int:
        """When a packet is through that would be at ``at_us``: behind those before it."""
        from_us, until_us = self._cut_us
        at_us += self._more_us
        interval = RETRANSMIT_US
        while from_us <= at_us < until_us:
            at_us += interval
            interval *= 2
        last_us[publisher] = max(at_us, last_us.get(publisher, 0))
        return last_us[publisher]
