"""SUBSCRIBE at one broker: it comes after a CONNECT, and is answered with the retained messages of its topic.

Those with QoS above 0 go through the session's store like any other message: they get packet identifiers of the same counter,
and a connection that is lost at once finds them there again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from orderlab.model.history.events import EventKind
from orderlab.sim.engine.clock import call_at
from orderlab.sim.mqtt.broker.retaining import RETAINED_FROM
from orderlab.sim.mqtt.clients.population import Ints
from orderlab.sim.mqtt.connections import unstored
from orderlab.sim.mqtt.rules.qos import where
from orderlab.sim.mqtt.sessions import EPOCH_MS

if TYPE_CHECKING:
    from orderlab.sim.mqtt.broker.broker import MqttBroker


class Subscribing:
    """The SUBSCRIBEs of one broker. Each subscriber's is for the topic of its own number."""

    def __init__(self, broker: MqttBroker) -> None:
        self.broker = broker
        self.fabric = broker.fabric
        self.sessions = broker.fabric.sessions
        self._saves = 0

    def subscribe(self, subscriber: int, is_new: bool) -> None:
        """CONNACK goes out now, SUBSCRIBE comes back. ``is_new``: the session is, and has no subscription yet."""
        fabric, sessions, broker = self.fabric, self.sessions, self.broker
        connection = sessions.connections[subscriber]

        def arrived() -> None:
            if sessions.connections[subscriber] != connection or broker.is_dead:
                return
            sessions.exists[subscriber] = True
            topic, topic_filter = self._wanted(subscriber)
            self._record(subscriber, topic)
            if fabric.retaining is not None:
                self._answer(subscriber, fabric.retaining.on_subscribe(topic_filter, int(broker.env.now), is_new))

        call_at(broker.env, broker.env.now + 2.0 * fabric.subscribers.latency_us[subscriber], arrived)

    def _wanted(self, subscriber: int) -> tuple[int, str]:
        """What it subscribes to, as the history names it and in full."""
        return subscriber, self.fabric.topics[subscriber].decode()

    def _record(self, subscriber: int, topic: int) -> None:
        fabric, who = self.fabric, np.array([subscriber])
        fabric.recorder.add(
            EventKind.SUBSCRIBE, np.array([int(self.broker.env.now)]), subscriber=who + fabric.schedule.count,
            topic=topic, qos=fabric.qos.granted_to(who),
        )  # fmt: skip

    def _answer(self, subscriber: int, copies: Ints) -> None:
        """Send retained messages."""
        fabric, who = self.fabric, np.full(len(copies), subscriber)
        self.sessions.note_queued(copies.tolist(), who.tolist(), self.sessions.number[who].tolist())
        qos = fabric.qos.of_deliveries((copies - RETAINED_FROM) % fabric.schedule.count, who)
        plain = where(qos == 0, copies)
        if len(plain):
            self.broker.delivery.deliver(unstored(plain, who[: len(plain)]))
        stored = where(qos > 0, copies)
        if len(stored):
            self._save(subscriber, stored, tuple(np.broadcast_to(qos, len(copies))[np.isin(copies, stored)].tolist()))

    def _save(self, subscriber: int, copies: Ints, qos: tuple[int, ...]) -> None:
        fabric, sessions, broker = self.fabric, self.sessions, self.broker
        self._saves += 1
        time_ms = EPOCH_MS + (int(broker.env.now) + broker.clock_skew_us) // 1000
        topics = [fabric.topics[fabric.topic_of[copy % RETAINED_FROM % fabric.schedule.count]] for copy in copies.tolist()]
        call = fabric.store.save(
            fabric.subscribers.name(subscriber),
            [(copy, topic, time_ms) for copy, topic in zip(copies.tolist(), topics, strict=True)],
            len(fabric.persisted_partitions) + broker.number,  # beside the partitions that number the other saves
            self._saves, int(sessions.number[subscriber]), qos, retained=True,
        )  # fmt: skip

        def saved(replies: Sequence[Any]) -> None:
            given = fabric.store.assigned(replies[0], len(copies))
            if given is None:
                fabric.count("retained_given_up", len(copies))  # nobody is owed them
                return
            if fabric.trims.limit is not None:
                broker.persisting.note_trims(subscriber, copies.tolist(), [identifier for identifier, _ in given])
            if not broker.is_dead:
                rows = [(copy, subscriber, *assigned) for copy, assigned in zip(copies.tolist(), given, strict=True)]
                broker.delivery.deliver(np.array(rows, np.int64))

        done = broker.burst(len(copies), broker.costs.persist_us)
        call_at(broker.env, done, lambda: broker.driver.submit([(fabric.node_of[subscriber], call)], saved))
