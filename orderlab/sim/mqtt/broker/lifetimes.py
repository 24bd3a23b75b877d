"""Where sessions begin and end: Clean Start, and the Session Expiry Interval (MQTT 5.0, 3.1.2.4 and 3.1.2.11.2).

A session that ends takes its subscriptions and its queue along: the clear script runs, or, where a store numbers its
sessions, a new one is opened over the old. What was routed for the old session and is saved or sent later must not reach
the new one; a store that is told the session of each message refuses it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from orderlab.model.history.events import EventKind
from orderlab.sim.engine.clock import call_at
from orderlab.sim.mqtt.broker.persistence import Call
from orderlab.sim.mqtt.world import Fabric

if TYPE_CHECKING:
    from orderlab.sim.mqtt.broker.broker import MqttBroker


class Lifetimes:
    """The sessions that begin at one broker, and those that expire where it is the next one alive."""

    def __init__(self, broker: MqttBroker) -> None:
        self.broker = broker
        self.fabric = broker.fabric
        self.sessions = broker.fabric.sessions

    def begin(self, subscriber: int) -> None:
        """A subscriber that has just connected here gets a new session; when the store has nothing of an old one any more,
        it subscribes anew."""
        fabric, sessions, broker = self.fabric, self.sessions, self.broker
        session, connection = self._renew(subscriber), sessions.connections[subscriber]
        sessions.beginning.add(subscriber)
        name = fabric.subscribers.name(subscriber)
        if fabric.store.needs_open:
            fabric.opened.add(subscriber)
            call = fabric.store.open(name, clean_start=True, epoch=session)
        else:
            call = fabric.store.clear(name)

        def begun() -> None:
            sessions.beginning.discard(subscriber)
            broker.subscribing.subscribe(subscriber, is_new=True)

        self._end_in_store(subscriber, call, begun, lambda: bool(sessions.connections[subscriber] == connection))

    def _renew(self, subscriber: int) -> int:
        """The number of the session that begins with the CONNECT of now."""
        if self.sessions.exists[subscriber]:
            self._end(subscriber)
            self.fabric.count("clean_starts")
        self.sessions.number[subscriber] += 1
        self.broker.delivery.record_connect(subscriber)
        return int(self.sessions.number[subscriber])

    def expire(self, subscriber: int) -> None:
        """Nobody has connected for the Session Expiry Interval."""
        fabric, session = self.fabric, int(self.sessions.number[subscriber])
        if fabric.store.needs_open:
            fabric.ensure_open(subscriber)
        self._end(subscriber)
        fabric.count("sessions_expired")
        clear = fabric.store.clear(fabric.subscribers.name(subscriber), session)
        self._end_in_store(subscriber, clear, lambda: None, lambda: bool(self.sessions.number[subscriber] == session))

    def _end(self, subscriber: int) -> None:
        fabric, now = self.fabric, np.array([int(self.broker.env.now)])
        code = np.array([subscriber + fabric.schedule.count])
        fabric.recorder.add(EventKind.CLEAR, now, subscriber=code, session=self.sessions.number[subscriber])
        self.sessions.end(subscriber)
        fabric.trims.cleared(subscriber)

    def _end_in_store(self, subscriber: int, call: Call, then: Callable[[], None], still_matters: Callable[[], bool]) -> None:
        """Make the call until it gets through, as long as it matters."""

        def read(reply: Any) -> bool | None:
            return self.fabric.store.was_answered(reply) or None

        self.broker.repeated_calls.make(subscriber, call, read, lambda _: then(), still_matters, "clears_failed")


def expire_sessions(fabric: Fabric) -> None:
    """From now on the session of a subscriber ends when it has been away for ``fabric.session_expiry_us``."""
    interval_us, sessions = fabric.session_expiry_us, fabric.sessions
    if interval_us is None:
        return

    def left(subscriber: int) -> None:
        connection = sessions.connections[subscriber]

        def due() -> None:
            is_away = not sessions.connected[subscriber] and sessions.connections[subscriber] == connection
            if is_away and sessions.exists[subscriber]:
                fabric.next_broker(int(fabric.subscribers.broker[subscriber]) - 1).lifetimes.expire(subscriber)

        call_at(fabric.env, float(fabric.env.now + interval_us), due)

    fabric.on_disconnect.append(left)
