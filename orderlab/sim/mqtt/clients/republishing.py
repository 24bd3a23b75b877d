"""Publishers of one broker that lose their connection and connect anew: what they hear, and what they send again.

An answer that is lost, or that never comes as Kafka did not take the message, costs a publisher its connection. Over that one it
hears nothing more, though what it sends still arrives. When it is back it sends all again that has no answer, with DUP, in
the original order (MQTT-4.4.0-1, MQTT-4.6.0-1), and then what is new. PUBRELs got through, so the broker has them all; to those
sent again it would only answer once more.

With QoS 1 each copy has an answer of its own, and the answer to a copy that came over a connection that is gone goes nowhere. With
QoS 2 the broker knows the message again and sends one copy on; whose connection is there then gets the PUBREC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from orderlab.sim.engine.clock import call_at
from orderlab.sim.kafka.broker import AppendError
from orderlab.sim.kafka.producer import OnAnswered
from orderlab.sim.mqtt.clients.population import Ints

if TYPE_CHECKING:
    from orderlab.sim.mqtt.broker.ingest import Ingest

FIRST = 0
"""The connection over which a message comes for the first time, whichever it is."""


class Republishing:
    """Who is away, and since when those are here that have been away. While nobody has been, nothing is asked."""

    def __init__(
        self, ingest: Ingest, send: Callable[[Ints, OnAnswered], None], on_published: Callable[[Sequence[int], AppendError | None, int], None]
    ) -> None:  # fmt: skip
        """``send`` takes in what is sent again; ``on_published`` hears what Kafka says to it, and over which connection it came."""
        self.ingest = ingest
        self.fabric = ingest.fabric
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
        """The publishers of these lose patience, and their connections, if they have not yet."""
        lost = {message % self.fabric.schedule.count for message in messages} - self.away
        if not lost:
            return
        self.away |= lost
        tick, env = self.ingest.broker.settings.tick_us, self.ingest.env
        at_us = -(-int(env.now + self.fabric.client_reconnect_us) // tick) * tick
        if at_us not in self._returning:
            self._returning[at_us] = []
            call_at(env, at_us, lambda: self._return(at_us))
        self._returning[at_us].extend(lost)

    def heard(self, answered: Sequence[int], lost_max: int) -> list[int]:
        """Those of the messages whose answers reach a publisher, if the first ``lost_max`` answers are lost on the way."""
        count, away = self.fabric.schedule.count, self.away
        self.lose(answered[:lost_max])
        return [message for message in answered if message % count not in away]

    def owed(self, answered: Sequence[int], connection: int) -> list[int]:
        """Those of the messages whose publishers wait for an answer to the very copy that came over ``connection``."""
        count, known = self.fabric.schedule.count, self._connections
        publishers = np.asarray(answered, np.int64) % count
        exactly = np.broadcast_to(self.fabric.qos.of_publishers(publishers), len(publishers)) == 2
        owed = []
        for message, publisher, is_exact in zip(answered, publishers.tolist(), exactly.tolist(), strict=True):
            present, before = known.get(publisher, (FIRST, -1))
            if is_exact or (message > before if connection == FIRST else connection == present):
                owed.append(message)
        return owed

    def _return(self, at_us: int) -> None:
        """They connect anew."""
        back = self._returning.pop(at_us)
        self.away.difference_update(back)
        if self.ingest.broker.is_dead:
            return  # the next broker takes them over
        self._count += 1
        connection, count = self._count, self.fabric.schedule.count
        waiting = np.fromiter(self.ingest.unacknowledged, np.int64, len(self.ingest.unacknowledged))
        here = np.zeros(count, np.bool_)
        here[back] = True
        messages = waiting[here[waiting % count]]
        for message in messages.tolist():
            self._connections[message % count] = connection, message
        self._send(messages, lambda records, error: self._on_published(records, error, connection))
