"""From publishers to Kafka: PUBLISH packets come in, go to `msg.all`, and are acknowledged when Kafka has them.

QoS 0 gets no answer; QoS 1 a PUBACK; QoS 2 a PUBREC, and until its PUBREL comes the broker knows the message again and
does not send it on twice. That knowledge is in the broker's memory, and a crash ends it, or in the store
(``qos2_receiver``). Who gets no answer sends again (``Republishing``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import simpy

from orderlab.model.history.events import EventKind
from orderlab.sim.engine.clock import call_at
from orderlab.sim.engine.packs import any_of
from orderlab.sim.kafka.broker import AppendError
from orderlab.sim.kafka.producer import OnAnswered
from orderlab.sim.mqtt.broker.moved_publishers import MovedPublishers, PublisherMoves
from orderlab.sim.mqtt.broker.node import BrokerNode
from orderlab.sim.mqtt.broker.publisher_links import PublisherLinks
from orderlab.sim.mqtt.broker.qos2 import Qos2Receiver
from orderlab.sim.mqtt.broker.republishing import FIRST, Republishing
from orderlab.sim.mqtt.clients import Arrivals, Ints, where
from orderlab.sim.mqtt.parts import KafkaTopics, Storage, Traffic
from orderlab.sim.mqtt.presence import Presence


class Ingest:
    """The publishers of one broker."""

    def __init__(
        self, node: BrokerNode, traffic: Traffic, storage: Storage, kafka: KafkaTopics, presence: Presence
    ) -> None:
        self.node = node
        self.env = node.env
        self.measured = node.measured
        self.recorder = node.recorder
        self.brokers = node.peers
        self.traffic = traffic
        self.kafka = kafka
        self.presence = presence
        self.unacknowledged: dict[int, None] = {}
        """Messages that their publishers have no PUBACK for, in the order in which they came."""
        self.received: dict[int, bool] = {}
        """QoS 2: messages whose PUBREL is not here yet, and whether Kafka has them (MQTT-4.3.3-10). In memory only."""
        self.remembers_received = True
        self.qos2_receiver = (
            None
            if storage.inbound is None
            else Qos2Receiver(node, traffic, storage.inbound, storage.nodes, self._to_all)
        )
        self.republishing = Republishing(node, traffic, self.unacknowledged, self._ingest_again, self._on_published)
        self.moves = PublisherMoves(node, kafka, self._let_in)
        self.pubacks_to_lose = 0
        self.links: PublisherLinks | None = None
        """Where those of its publishers are not well."""
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
        self._arrivals: list[Arrivals] = []
        self._here: set[int] = set()
        """The publishers of these."""
        self._add((self.traffic.schedule.arrivals(node.number),))
        self._published = self._on_published  # one object, so that the producer can tell its batches belong together

    def _add(self, arrivals: tuple[Arrivals, ...]) -> None:
        self._arrivals += arrivals
        for each in arrivals:
            self._here.update(each.publishers.tolist())

    def listen(self) -> Generator[simpy.Event, Any, None]:
        """Take in what arrives, tick by tick."""
        tick = self.node.settings.tick_us
        while self._is_listening or self._is_held_up:
            yield self.env.timeout(tick)
            if self.node.producer.unanswered > self.node.settings.producer_records_max > 0:
                self.measured.count("ticks_without_reading")  # the sockets of publishers fill; TCP stops them
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
        windows, count = self.traffic.publish_windows, self.traffic.schedule.count
        sent_us = int(self.env.now) if self._is_held_up else None
        if windows is None:
            self._ingest(messages, sent_us=sent_us)
            return
        counted = np.broadcast_to(np.asarray(self.traffic.qos.of_publishers(messages % count) > 0), len(messages))
        goes = windows.admit(messages[counted], count)
        self.measured.count("publishes_throttled", int(counted.sum()) - len(goes))
        going = np.isin(messages, goes) | ~counted
        if going.any():
            self._ingest(messages[going], sent_us=sent_us)

    def _have_answers(self, messages: Sequence[int]) -> None:
        """Publishers have PUBACK or PUBCOMP for these: what waited for that is sent, and room is known here with it."""
        windows, count = self.traffic.publish_windows, self.traffic.schedule.count
        if windows is None or not messages:
            return
        publishers = [message % count for message in messages]
        there_us = int(self.env.now) + int(self.traffic.publishers.latency_us[np.unique(publishers)].max())

        def have_room() -> None:
            windows.answered(publishers)
            for broker in self.brokers:  # whoever has moved sends to another one
                broker.send_waiting(publishers)

        call_at(self.env, float(there_us), have_room)

    def send_waiting(self, publishers: Sequence[int]) -> None:
        """Take in what waited at these publishers and has room, of those who are here; whoever moves sends it where
        they are let in. It comes when it is sent, so that nothing of a publisher overtakes."""
        windows = self.traffic.publish_windows
        if windows is None or not windows.are_full or self.node.is_dead:
            return
        goes = windows.going(publisher for publisher in publishers if publisher in self._here)
        if goes:
            self._ingest(np.array(goes, np.int64), sent_us=int(self.env.now))

    @property
    def is_owing(self) -> bool:
        """Whether a publisher of it waits for something, were it only to be read."""
        windows = self.traffic.publish_windows
        return bool(self.unacknowledged or self._is_held_up or (windows is not None and windows.are_full))

    def stop(self) -> None:
        """Take in nothing more but what waits in sockets: publishers publish no more."""
        self._is_listening = False
        self._stopped_us = int(self.env.now)

    # -- publishers that move ------------------------------------------------------------------------------

    def left_behind(self) -> MovedPublishers:
        """What a broker that has died leaves to whom its publishers connect next."""
        return self._moved((*self._arrivals, *self.moves.outside), ())

    def hand_over(self) -> MovedPublishers:
        """Let all publishers go, who connect to another broker."""
        arrivals = (*self._arrivals, *self.moves.outside)
        moved = self._moved(arrivals, self.moves.leave(self.links, arrivals))
        self._arrivals, self._here, self.links = [], set(), None
        self.unacknowledged.clear()
        self.orphans.update(moved.unacknowledged)
        return moved

    def _moved(self, arrivals: tuple[Arrivals, ...], awaited: tuple[PublisherLinks, ...]) -> MovedPublishers:
        unacknowledged = tuple(self.unacknowledged)
        known = set(unacknowledged)

        def unfinished() -> list[int]:
            released = [message for message in self.received if message not in known]
            return released if self.qos2_receiver is None else [*released, *self.qos2_receiver.releasing]

        return MovedPublishers(
            broker=self.node.number,
            arrivals=arrivals,
            unacknowledged=unacknowledged,
            links=self.links,
            awaited=awaited,
            is_holding=lambda: self._holds_of(arrivals),
            unfinished=unfinished,
            forget=self._forget_exchanges,
        )

    def _forget_exchanges(self) -> None:
        """Forget the handshakes of publishers who are elsewhere, unless somebody is back here already."""
        if not self._arrivals:
            self.received.clear()
            if self.qos2_receiver is not None:
                self.qos2_receiver.forget()

    def take_over(self, moved: MovedPublishers) -> None:
        """Take in the publishers of a broker that has died: first they send again what has no PUBACK."""
        self._add(moved.arrivals)
        self._take_up(moved)

    def move_here(self, moved: MovedPublishers) -> None:
        """Take in publishers that another broker, which is alive, has handed over: now, or when it lets go of them."""
        self.unacknowledged.update(dict.fromkeys(moved.unacknowledged))
        self.moves.come(moved)

    def _let_in(self, moved: MovedPublishers) -> None:
        self._add(moved.arrivals)
        self.orphans.difference_update(moved.unacknowledged)
        self._take_up(moved)
        moved.forget()

    def _take_up(self, moved: MovedPublishers) -> None:
        receiver, count = self.qos2_receiver, self.traffic.schedule.count
        messages = np.array(moved.unacknowledged, np.int64)
        if receiver is not None:
            of_publishers = self.traffic.qos.of_publishers
            # whichever broker had them, were it before the one that they have left
            waiting = where(of_publishers(messages % count) == 2, messages).tolist()
            publishers = np.concatenate([np.empty(0, np.int64), *(each.publishers for each in moved.arrivals)])
            coming = where(of_publishers(publishers) == 2, publishers).tolist()
            if receiver.inbound.is_fenced:  # what they sent over an earlier connection to this broker, the queue knows
                are_back = set(coming)
                self.received = {
                    message: has for message, has in self.received.items() if message % count not in are_back
                }
            receiver.resume(waiting, moved.unfinished(), coming)
        if len(messages):
            self._ingest_again(messages, self._published)
        self.send_waiting([publisher for each in moved.arrivals for publisher in each.publishers.tolist()])

    # -- their links ---------------------------------------------------------------------------------------

    def links_to_publishers(self) -> PublisherLinks:
        """The links to its publishers, for faults."""
        self.links = self.links or PublisherLinks(self.node, self.traffic, self._links_are_well, self._are_back)
        return self.links

    def _links_are_well(self, links: PublisherLinks) -> None:
        if self.links is links:
            self.links = None

    def _are_back(self, links: PublisherLinks) -> None:
        """All publishers connect anew, here, whom these links had cut off."""
        if self.node.is_dead or self.links is not links:
            return
        links.close()
        self.links = None
        self.measured.count("publishers_back")
        self.republishing.resend(np.ones(self.traffic.schedule.count, np.bool_))

    # -- what they publish ---------------------------------------------------------------------------------

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
        return any(message % self.traffic.schedule.count in left for message in self._unanswered_of_qos_0)

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
        publisher = messages % self.traffic.schedule.count
        qos = self.traffic.qos.of_publishers(publisher)
        self.unacknowledged.update(dict.fromkeys(where(qos > 0, messages).tolist()))
        if repeated_us is None:
            instants = self.traffic.schedule.published_us(messages)
            last_us = self.traffic.last_sent_us
            if last_us is not None:  # no message of a publisher is sent before the one before it
                instants = np.maximum(np.maximum(instants, last_us[publisher]), 0 if sent_us is None else sent_us)
                np.maximum.at(last_us, publisher, instants)
            self._record_subscribers(messages, instants)
            self.measured.count("published", len(messages))
        else:
            instants = np.full(len(messages), repeated_us)
            self.measured.count("published_again", len(messages))
        self.recorder.add(
            EventKind.PUBLISH,
            instants,
            message=messages,
            dup=int(repeated_us is not None),
            **({} if self.traffic.expiry_us is None else {"expiry_interval_us": self.traffic.expiry_us}),
            **({} if self.traffic.retaining is None else {"retained": self.traffic.retaining.by_publisher[publisher]}),
        )
        if self.links is None:
            self._take_in(messages, on_answered or self._published)
        else:
            self.links.arrive(messages, partial(self._take_in, on_answered=on_answered or self._published))

    def _take_in(self, messages: Ints, on_answered: OnAnswered) -> None:
        """Work on what is here."""
        qos = self.traffic.qos.of_publishers(messages % self.traffic.schedule.count)
        done = self._ready_us = max(self._ready_us, self.node.burst(len(messages), self.node.costs.ingest_us))
        new = self._not_received(messages, where(qos == 2, messages))
        call_at(self.env, done, lambda: self._taken_in(new, on_answered))

    def _taken_in(self, messages: Ints, on_answered: OnAnswered) -> None:
        if self.qos2_receiver is None:
            self._to_all(messages, on_answered)
        elif not self.node.is_dead:
            of_qos_2 = self.traffic.qos.of_publishers(messages % self.traffic.schedule.count) == 2
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
                self.measured.count("received_before", len(known))
                self._acknowledge([message for message in known if received[message]])
                messages, of_qos_2 = messages[~np.isin(messages, known)], of_qos_2[~np.isin(of_qos_2, known)]
        received.update(dict.fromkeys(of_qos_2.tolist(), False))
        return messages

    def _record_subscribers(self, messages: Ints, published: Ints) -> None:
        """Tell the history of a subscriber, who has been connected for long, just before the first publish to it."""
        first = messages < self.traffic.schedule.count
        if any_of(first):
            self.presence.introduce(self.traffic.topic_of[messages[first]], np.maximum(published[first] - 1, 0))

    def _to_all(self, messages: Ints, on_answered: OnAnswered | None = None) -> None:
        if self.node.is_dead:
            return
        publishers = messages % self.traffic.schedule.count
        if self.brokers.ownership is not None and self.brokers.ownership.awaits_old:
            self._unanswered_of_qos_0.update(where(self.traffic.qos.of_publishers(publishers) == 0, messages).tolist())
        topics = self.traffic.topic_of[publishers]
        numbers = self.kafka.all_partition_of[topics].tolist()
        self.node.producer.send_each(
            self.kafka.all_partitions, messages.tolist(), numbers, on_answered or self._published, in_order=True
        )

    def _on_published(self, records: Sequence[int], error: AppendError | None, connection: int = FIRST) -> None:
        """Answer what Kafka has, which came over ``connection``, with PUBACK or PUBREC. If it has not, the publisher
        hears nothing."""
        sole = self.traffic.qos.sole
        if self._unanswered_of_qos_0:
            self._unanswered_of_qos_0.difference_update(records)
        if sole is None:
            messages = np.asarray(records, np.int64)
            qos = self.traffic.qos.of_publishers(messages % self.traffic.schedule.count)
            of_qos_2, answered = where(qos == 2, messages).tolist(), where(qos > 0, messages).tolist()
        else:
            of_qos_2, answered = records if sole == 2 else (), records if sole else ()
        if self.republishing.is_used:
            answered = self.republishing.owed(answered, connection)
        if self.orphans:
            answered = [message for message in answered if message not in self.orphans]
        if error is not None:
            self.measured.count("publishes_given_up", len(records))
            for record in of_qos_2:
                self.received.pop(record, None)
            self.republishing.lose(answered)
            return
        if of_qos_2:
            self.received.update((message, True) for message in of_qos_2 if message in self.received)
        self._acknowledge(answered)

    def _acknowledge(self, records: Sequence[int]) -> None:
        """Send PUBACK or PUBREC, which arrives unless the connection is lost."""
        node = self.node
        if self.pubacks_to_lose or self.republishing.away:
            heard = self.republishing.heard(records, self.pubacks_to_lose)
            lost = len(records) - len(heard)
            if lost:
                self.measured.count("pubacks_lost", lost)
            self.pubacks_to_lose = max(self.pubacks_to_lose - lost, 0)
            records = heard
        if self.orphans:
            records = [record for record in records if record not in self.orphans]
        if not records or (self.links is not None and self.links.is_dead):
            return
        deque(map(self.unacknowledged.pop, records, repeat(None)), 0)
        messages = np.asarray(records, np.int64)
        publisher = messages % self.traffic.schedule.count
        latency = self.traffic.publishers.latency_us[publisher]
        qos = self.traffic.qos.of_publishers(publisher)
        acknowledged = int(node.burst(len(records), node.costs.puback_us)) + latency
        if self.links is not None:
            acknowledged = self.links.answers(publisher, acknowledged)
        self.recorder.add(EventKind.PUBLISH_ACKNOWLEDGED, acknowledged, message=messages)
        self.measured.puback_latency.add_messages(messages, acknowledged)
        of_qos_2 = where(qos == 2, messages)
        if self.traffic.publish_windows is not None:
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
            if self.traffic.publish_windows is not None:
                back_us = int(self.traffic.publishers.latency_us[np.array(records) % self.traffic.schedule.count].max())
                call_at(self.env, float(self.env.now + back_us), lambda: self._have_answers(records))
