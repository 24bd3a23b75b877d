"""Publishers that lose their connection and connect anew: what they hear, and what they send again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from orderlab.sim.engine.clock import call_at
from orderlab.sim.kafka.broker import AppendError
from orderlab.sim.kafka.producer import OnAnswered
from orderlab.sim.mqtt.broker.node import BrokerNode
from orderlab.sim.mqtt.clients import Ints
from orderlab.sim.mqtt.parts import Traffic

FIRST = 0
"""The connection over which a message comes for the first time, whichever it is."""


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
        node: BrokerNode,
        traffic: Traffic,
        unacknowledged: Mapping[int, None],
        send: Callable[[Ints, OnAnswered], None],
        on_published: Callable[[Sequence[int], AppendError | None, int], None],
    ) -> None:
        """``unacknowledged``: what has no answer, in the order in which it came. ``send`` takes in what is sent again;
        ``on_published`` hears what Kafka says to it, and over which connection it came."""
        self.node = node
        self.traffic = traffic
        self.away: set[int] = set()
        self._unacknowledged = unacknowledged
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
        lost = {message % self.traffic.schedule.count for message in messages} - self.away
        if not lost:
            return
        self.away |= lost
        tick, env = self.node.settings.tick_us, self.node.env
        at_us = -(-int(env.now + self.traffic.reconnect_us) // tick) * tick
        if at_us not in self._returning:
            self._returning[at_us] = []
            call_at(env, at_us, lambda: self._return(at_us))
        self._returning[at_us].extend(lost)

    def heard(self, answered: Sequence[int], lost_max: int) -> list[int]:
        """Those of the messages whose answers reach a publisher, if the first ``lost_max`` answers are lost on the
        way."""
        count, away = self.traffic.schedule.count, self.away
        self.lose(answered[:lost_max])
        return [message for message in answered if message % count not in away]

    def owed(self, answered: Sequence[int], connection: int) -> list[int]:
        """Those of the messages whose publishers wait for an answer to the very copy that came over ``connection``."""
        count, known = self.traffic.schedule.count, self._connections
        publishers = np.asarray(answered, np.int64) % count
        exactly = np.broadcast_to(self.traffic.qos.of_publishers(publishers), len(publishers)) == 2
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
        if self.node.is_dead:
            return  # the next broker takes them over
        here = np.zeros(self.traffic.schedule.count, np.bool_)
        here[back] = True
        self.resend(here)

    def resend(self, here: npt.NDArray[np.bool_]) -> None:
        """Connect those publishers anew now: they send again what has no answer."""
        self._count += 1
        connection, count = self._count, self.traffic.schedule.count
        waiting = np.fromiter(self._unacknowledged, np.int64, len(self._unacknowledged))
        messages = waiting[here[waiting % count]]
        for message in messages.tolist():
            self._connections[message % count] = connection, message
        self._send(messages, lambda records, error: self._on_published(records, error, connection))
