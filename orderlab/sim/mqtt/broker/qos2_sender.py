"""QoS 2 towards a subscriber, after its PUBLISH: PUBREC → release script → PUBREL → PUBCOMP → remove script.

Before the release script has run the PUBLISH is sent again after a reconnect, afterwards the PUBREL is (MQTT-4.3.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from orderlab.model.history.events import EventKind
from orderlab.sim.engine.clock import call_at
from orderlab.sim.mqtt.broker.node import BrokerNode
from orderlab.sim.mqtt.clients import Ints
from orderlab.sim.mqtt.connections import SUBSCRIBER, Deliveries


class Completion(Protocol):
    """Where the handshake began and ends: the delivery."""

    def record(self, kind: EventKind, deliveries: Deliveries, instants: Ints, dup: Ints | int) -> None:
        """Tell the history what happened to deliveries."""

    def completed(self, acknowledged: Deliveries, answered: Ints, connections: Ints) -> None:
        """Take in the subscribers' PUBCOMPs."""


class Qos2Sender:
    """The second half of the handshake at one broker."""

    def __init__(self, node: BrokerNode, completion: Completion) -> None:
        self.node = node
        self.world = node.world
        self.table = node.world.delivery.connections
        self.completion = completion

    def received(self, deliveries: Deliveries, received_us: Ints, connections: Ints) -> None:
        """Take in PUBRECs: the store keeps PUBRELs in place of the messages, and then they go out, unless the connections
        are lost by then: the next ones will fetch them."""
        node = self.node
        if node.is_dead or not len(deliveries):
            return
        self.completion.record(EventKind.RECEIVE, deliveries, received_us, -1)
        done = node.burst(len(deliveries), node.costs.acknowledge_us)
        call_at(node.env, done, lambda: self._release(deliveries, connections))

    def _release(self, deliveries: Deliveries, connections: Ints) -> None:
        """Run release scripts, and again those that fail: a PUBREL before the store knows of it may be followed by the PUBLISH."""
        node, world = self.node, self.world
        release, name, session = world.storage.store.release, world.traffic.subscribers.name, self.table.session_number
        requests = [
            (world.storage.node_of[subscriber], release(name(subscriber), packet_id, token, int(session[subscriber])))
            for _, subscriber, packet_id, token in deliveries.tolist()
        ]

        def released(replies: Sequence[Any]) -> None:
            absent = replies.count(0)
            if absent:
                world.count("releases_of_nothing", absent)
            failed = np.array([not isinstance(reply, int) for reply in replies], np.bool_)
            present = self.table.connection_number[deliveries[:, SUBSCRIBER]] == connections
            self.send(deliveries[present & ~failed])
            again = present & failed
            if again.any() and not node.is_dead:
                world.count("releases_failed", int(again.sum()))
                pause_us = node.settings.pack_pause_us
                call_at(node.env, node.env.now + pause_us, lambda: self._release(deliveries[again], connections[again]))

        node.driver.submit(requests, released)

    def send(self, deliveries: Deliveries) -> None:
        """Send PUBRELs to subscribers that are connected here, and take in their PUBCOMPs."""
        node, world, table = self.node, self.world, self.table
        if node.is_dead or not len(deliveries):
            return
        subscribers = deliveries[:, SUBSCRIBER]
        latency, connections = world.traffic.subscribers.latency_us[subscribers], table.connection_number[subscribers]
        done = int(node.burst(len(deliveries), node.costs.deliver_us))
        arrived = table.in_order(subscribers, done + latency)
        answered = arrived + world.traffic.think_us + latency
        number = table.note_sent(subscribers, connections)

        def over() -> None:
            del table.on_the_way[number]
            there = table.got_through(subscribers, connections, arrived)
            back = table.got_through(subscribers, connections, answered)
            self.completion.record(EventKind.RELEASE, deliveries[there], arrived[there], -1)
            self.completion.completed(deliveries[back], answered[back], connections[back])

        call_at(node.env, float(np.max(answered)), over)
