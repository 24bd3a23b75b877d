"""QoS 2 towards a subscriber, after its PUBLISH: PUBREC → release script → PUBREL → PUBCOMP → remove script.

Before the release script has run the PUBLISH is sent again after a reconnect, afterwards the PUBREL is (MQTT-4.3.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from orderlab.model.history.events import EventKind
from orderlab.sim.engine.clock import call_at
from orderlab.sim.mqtt.clients.population import Ints
from orderlab.sim.mqtt.connections import Deliveries

if TYPE_CHECKING:
    from orderlab.sim.mqtt.broker.broker import MqttBroker


class Releasing:
    """The second half of the handshake at one broker."""

    def __init__(self, broker: MqttBroker) -> None:
        self.broker = broker
        self.fabric = broker.fabric
        self.sessions = broker.fabric.sessions

    def received(self, deliveries: Deliveries, received_us: Ints, connections: Ints) -> None:
        """PUBRECs are here: the store keeps PUBRELs in place of the messages, and then they go out, unless the connections
        are lost by then: the next ones will fetch them."""
        broker = self.broker
        if broker.is_dead or not len(deliveries):
            return
        broker.delivery.record(EventKind.RECEIVE, deliveries, received_us, -1)
        done = broker.burst(len(deliveries), broker.costs.acknowledge_us)
        call_at(broker.env, done, lambda: self._release(deliveries, connections))

    def _release(self, deliveries: Deliveries, connections: Ints) -> None:
        """A release script that fails is run again: a PUBREL before the store knows of it may be followed by the PUBLISH."""
        broker, fabric = self.broker, self.fabric
        release, name, session = fabric.store.release, fabric.subscribers.name, self.sessions.number
        requests = [
            (fabric.node_of[subscriber], release(name(subscriber), packet_id, token, int(session[subscriber])))
            for _, subscriber, packet_id, token in deliveries.tolist()
        ]

        def released(replies: Sequence[Any]) -> None:
            absent = replies.count(0)
            if absent:
                fabric.count("releases_of_nothing", absent)
            failed = np.array([not isinstance(reply, int) for reply in replies], np.bool_)
            present = self.sessions.connections[deliveries[:, 1]] == connections
            self.send(deliveries[present & ~failed])
            again = present & failed
            if again.any() and not broker.is_dead:
                fabric.count("releases_failed", int(again.sum()))
                pause_us = broker.settings.pack_pause_us
                call_at(broker.env, broker.env.now + pause_us, lambda: self._release(deliveries[again], connections[again]))

        broker.driver.submit(requests, released)

    def send(self, deliveries: Deliveries) -> None:
        """PUBRELs to subscribers that are connected here, and their PUBCOMPs."""
        broker, fabric, sessions = self.broker, self.fabric, self.sessions
        if broker.is_dead or not len(deliveries):
            return
        subscribers = deliveries[:, 1]
        latency, connections = fabric.subscribers.latency_us[subscribers], sessions.connections[subscribers]
        done = int(broker.burst(len(deliveries), broker.costs.deliver_us))
        arrived = sessions.in_order(subscribers, done + latency)
        answered = arrived + fabric.think_us + latency

        number = sessions.note_sent(subscribers, connections)

        def over() -> None:
            del sessions.on_the_way[number]
            there = sessions.got_through(subscribers, connections, arrived)
            back = sessions.got_through(subscribers, connections, answered)
            broker.delivery.record(EventKind.RELEASE, deliveries[there], arrived[there], -1)
            broker.delivery.completed(deliveries[back], answered[back], connections[back])

        call_at(broker.env, float(np.max(answered)), over)
