"""The life cycle of sessions: CONNECT, Clean Start, SUBSCRIBE, and the Session Expiry Interval (MQTT 5.0, 3.1.2.4 and
3.1.2.11.2).

A session that ends takes its subscriptions and its queue along: the clear script runs, or, where a store numbers its
sessions, a new one is opened over the old. What was routed for the old session and is saved or sent later must not
reach the new one; a store that is told the session of each message refuses it.

A SUBSCRIBE comes after a CONNECT, and is answered with the retained messages of its topic. Those with QoS above 0 go
through the session's store like any other message: they get packet identifiers of the same counter, and a connection
that is lost at once finds them there again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from orderlab.model.history.events import EventKind
from orderlab.sim.engine.clock import call_at
from orderlab.sim.mqtt.broker.delivery import Delivery
from orderlab.sim.mqtt.broker.node import BrokerNode
from orderlab.sim.mqtt.clients import Ints, where
from orderlab.sim.mqtt.connections import as_deliveries, unstored
from orderlab.sim.mqtt.parts import KafkaTopics, Storage, Traffic
from orderlab.sim.mqtt.ports import Call
from orderlab.sim.mqtt.presence import Presence
from orderlab.sim.mqtt.topics import RETAINED_FROM
from orderlab.sim.mqtt.world import World


class Subscriptions:
    """The SUBSCRIBEs of one broker. Each subscriber's is for the topic of its own number."""

    def __init__(
        self, node: BrokerNode, traffic: Traffic, storage: Storage, kafka: KafkaTopics, delivery: Delivery
    ) -> None:
        self.node = node
        self.measured = node.measured
        self.recorder = node.recorder
        self.traffic = traffic
        self.storage = storage
        self.kafka = kafka
        self.delivery = delivery
        self.table = delivery.table
        self.trims = delivery.trims
        self._saves = 0

    def subscribe(self, subscriber: int, is_new: bool) -> None:
        """Send CONNACK now; SUBSCRIBE comes back. ``is_new``: the session is, and has no subscription yet."""
        table, node = self.table, self.node
        connection = table.connection_number[subscriber]

        def arrived() -> None:
            if table.connection_number[subscriber] != connection or node.is_dead:
                return
            table.exists[subscriber] = True
            topic, topic_filter = self._wanted(subscriber)
            self._record(subscriber, topic)
            if self.traffic.retaining is not None:
                self._answer(subscriber, self.traffic.retaining.on_subscribe(topic_filter, int(node.env.now), is_new))

        call_at(node.env, node.env.now + 2.0 * self.traffic.subscribers.latency_us[subscriber], arrived)

    def _wanted(self, subscriber: int) -> tuple[int, str]:
        """The topic filter that it subscribes to, as the history names it and in full."""
        return subscriber, self.traffic.topics[subscriber].decode()

    def _record(self, subscriber: int, topic: int) -> None:
        who = np.array([subscriber])
        self.recorder.add(
            EventKind.SUBSCRIBE, np.array([int(self.node.env.now)]), subscriber=who + self.traffic.schedule.count,
            topic=topic, qos=self.traffic.qos.granted_to(who),
        )  # fmt: skip

    def _answer(self, subscriber: int, copies: Ints) -> None:
        """Send retained messages."""
        who = np.full(len(copies), subscriber)
        self.table.note_queued(copies.tolist(), who.tolist(), self.table.session_number[who].tolist())
        qos = self.traffic.qos.of_deliveries((copies - RETAINED_FROM) % self.traffic.schedule.count, who)
        plain = where(qos == 0, copies)
        if len(plain):
            self.delivery.deliver(unstored(plain, who[: len(plain)]))
        stored = where(qos > 0, copies)
        if len(stored):
            self._save(subscriber, stored, tuple(np.broadcast_to(qos, len(copies))[np.isin(copies, stored)].tolist()))

    def _save(self, subscriber: int, copies: Ints, qos: tuple[int, ...]) -> None:
        table, node = self.table, self.node
        self._saves += 1
        traffic, time_ms = self.traffic, node.now_ms()
        session = int(table.session_number[subscriber])
        topics = [
            traffic.topics[traffic.topic_of[copy % RETAINED_FROM % traffic.schedule.count]] for copy in copies.tolist()
        ]
        call = self.storage.store.save(
            traffic.subscribers.name(subscriber),
            [(copy, topic, time_ms) for copy, topic in zip(copies.tolist(), topics, strict=True)],
            len(self.kafka.persisted_partitions) + node.number,  # beside the partitions that number the other saves
            self._saves, session, qos, retained=True,
        )  # fmt: skip

        def saved(replies: Sequence[Any]) -> None:
            given = self.storage.store.assigned(replies[0], len(copies))
            if given is None:
                self.measured.count("retained_given_up", len(copies))  # nobody is owed them
                return
            if self.trims.limit is not None:
                self.delivery.note_trims(subscriber, copies.tolist(), [identifier for identifier, _ in given])
            if not node.is_dead:
                rows = [(copy, subscriber, *assigned) for copy, assigned in zip(copies.tolist(), given, strict=True)]
                self.delivery.deliver(
                    as_deliveries(rows), sessions=np.full(len(rows), session) if table.may_end else None
                )

        done = node.burst(len(copies), node.costs.persist_us)
        call_at(node.env, done, lambda: node.driver.submit([self.storage.node_of[subscriber]], [call], saved))


class SessionLifecycle:
    """The sessions that begin at one broker, and those that expire where it is the next one alive."""

    def __init__(
        self,
        node: BrokerNode,
        traffic: Traffic,
        storage: Storage,
        presence: Presence,
        delivery: Delivery,
        subscriptions: Subscriptions,
    ) -> None:
        self.node = node
        self.measured = node.measured
        self.recorder = node.recorder
        self.traffic = traffic
        self.storage = storage
        self.presence = presence
        self.delivery = delivery
        self.subscriptions = subscriptions
        self.table = delivery.table
        self.trims = delivery.trims

    def connect(self, subscriber: int, clean_start: bool = False) -> None:
        """Connect a subscriber here. With Clean Start 1, or without a session, it begins one. Otherwise its backlog is
        fetched and sent, then what is new."""
        if self.presence.admit is not None and not self.presence.admit(subscriber, self.node.number, clean_start):
            return
        self.presence.connect(subscriber, self.node.number)
        if clean_start or not self.table.exists[subscriber]:
            self.begin(subscriber)
        else:
            self._resume(subscriber)

    def _resume(self, subscriber: int) -> None:
        """Go on with the session. A SUBSCRIBE comes behind the backlog: what it is answered with is newer."""

        def caught_up() -> None:
            if self.traffic.resubscribes:
                self.subscriptions.subscribe(subscriber, is_new=False)

        self.delivery.send_backlog(subscriber, caught_up)

    def begin(self, subscriber: int) -> None:
        """Begin a new session of a subscriber that has just connected here; when the store has nothing of an old one
        any more, it subscribes anew."""
        table = self.table
        session, connection = self._renew(subscriber), table.connection_number[subscriber]
        table.beginning.add(subscriber)  # until the store has answered, what it hands out is of the old session
        name = self.traffic.subscribers.name(subscriber)
        if self.storage.store.opens_sessions:
            self.storage.opened.add(subscriber)
            call = self.storage.store.open(name, clean_start=True, epoch=session)
        else:
            call = self.storage.store.clear(name)

        def begun() -> None:
            table.beginning.discard(subscriber)
            self.subscriptions.subscribe(subscriber, is_new=True)

        self._end_in_store(subscriber, call, begun, lambda: bool(table.connection_number[subscriber] == connection))

    def _renew(self, subscriber: int) -> int:
        """The number of the session that begins with the CONNECT of now."""
        if self.table.exists[subscriber]:
            # Before the number grows: the CLEAR row is of the old session, the CONNECT row of the new one.
            self._end(subscriber)
            self.measured.count("clean_starts")
        self.table.session_number[subscriber] += 1
        self.delivery.record_connect(subscriber)
        return int(self.table.session_number[subscriber])

    def expire(self, subscriber: int) -> None:
        """End the session of a subscriber that has not connected for the Session Expiry Interval."""
        session = int(self.table.session_number[subscriber])
        if self.storage.store.opens_sessions:
            self.storage.ensure_open(subscriber)
        # In the history the session ends now, in the store when the call gets through: from now on nothing of it is
        # owed.
        self._end(subscriber)
        self.measured.count("sessions_expired")
        clear = self.storage.store.clear(self.traffic.subscribers.name(subscriber), session)
        self._end_in_store(
            subscriber, clear, lambda: None, lambda: bool(self.table.session_number[subscriber] == session)
        )

    def _end(self, subscriber: int) -> None:
        now = np.array([int(self.node.env.now)])
        code = np.array([subscriber + self.traffic.schedule.count])
        self.recorder.add(EventKind.CLEAR, now, subscriber=code, session=self.table.session_number[subscriber])
        self.table.end(subscriber)
        self.trims.cleared(subscriber)
        for function in self.presence.on_session_end:
            function(subscriber)

    def _end_in_store(
        self, subscriber: int, call: Call, then: Callable[[], None], still_matters: Callable[[], bool]
    ) -> None:
        """Make the call until it gets through, as long as it matters."""

        def read(reply: Any) -> bool | None:
            return self.storage.store.was_answered(reply) or None

        self.node.retrying.make(subscriber, call, read, lambda _: then(), still_matters, "clears_failed")


def expire_sessions(world: World) -> None:
    """End, from now on, the session of a subscriber when it has been away for ``traffic.session_expiry_us``."""
    interval_us, table, brokers = world.traffic.session_expiry_us, world.delivery.connections, world.brokers
    if interval_us is None:
        return

    def left(subscriber: int) -> None:
        connection = table.connection_number[subscriber]

        def due() -> None:
            is_away = not table.connected[subscriber] and table.connection_number[subscriber] == connection
            if is_away and table.exists[subscriber]:
                brokers.next_after(int(brokers.broker_of[subscriber]) - 1).expire(subscriber)

        call_at(world.env, float(world.env.now + interval_us), due)

    world.presence.on_disconnect.append(left)
