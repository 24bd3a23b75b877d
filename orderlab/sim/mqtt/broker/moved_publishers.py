"""Publishers that move from one broker to another: what the one hands over, and when the other lets them in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orderlab.sim.engine.clock import call_at
from orderlab.sim.mqtt.broker.node import BrokerNode
from orderlab.sim.mqtt.broker.publisher_links import PublisherLinks
from orderlab.sim.mqtt.clients import Arrivals
from orderlab.sim.mqtt.parts import KafkaTopics


@dataclass(frozen=True, slots=True)
class MovedPublishers:
    """What a broker hands over with its publishers, and what can still be asked of it: packets that they have sent may
    be under way there."""

    broker: int
    """The one that they have left."""
    arrivals: tuple[Arrivals, ...]
    """What they publish."""
    unacknowledged: tuple[int, ...]
    """What they have no PUBACK for, in the order in which it came."""
    links: PublisherLinks | None
    """Of the connections that they have left, where those are not well."""
    awaited: tuple[PublisherLinks, ...]
    """Connections that they had left before, and that must be closed before they are let in."""
    is_holding: Callable[[], bool]
    """Whether something has come of them that the store (QoS 2) or Kafka (QoS 0) has not got yet."""
    unfinished: Callable[[], list[int]]
    """With QoS 2, the messages that Kafka may have and whose exchange is not over, but for the unacknowledged."""
    forget: Callable[[], None]
    """Tells the broker that they are elsewhere, and it may forget their exchanges."""


class PublisherMoves:
    """The publishers that have come to one broker and are not let in yet, and the connections that others have left
    here.

    If brokers ask each other, publishers are let in when the broker that they have left has closed their old
    connections, or when nothing was heard of it for the session timeout; what they publish meanwhile waits with them.
    """

    def __init__(self, node: BrokerNode, kafka: KafkaTopics, let_in: Callable[[MovedPublishers], None]) -> None:
        self.node = node
        self.env = node.env
        self.kafka = kafka
        self.outside: list[Arrivals] = []
        """Of publishers that have asked to be let in."""
        self._let_in = let_in
        self._left: list[tuple[PublisherLinks, tuple[Arrivals, ...]]] = []
        """Connections that publishers have left for another broker, and this one may not know it."""
        self._awaited: list[PublisherLinks] = []
        """Those that the publishers outside have left, wherever."""

    def leave(self, links: PublisherLinks | None, arrivals: tuple[Arrivals, ...]) -> tuple[PublisherLinks, ...]:
        """Note that all publishers go, over ``links`` if those are not well: who was not let in yet asks elsewhere now.
        The connections that must be closed before they are let in there."""
        awaited, self._awaited, self.outside = tuple(self._awaited), [], []
        if links is not None:
            links.are_left = True
            self._left.append((links, arrivals))
        return awaited

    def come(self, moved: MovedPublishers) -> None:
        """Let them in as soon as that may be."""
        ownership, arrivals = self.node.peers.ownership, moved.arrivals
        left = moved.awaited if moved.links is None else (*moved.awaited, moved.links)
        self._awaited += left
        self.outside += arrivals

        def ask() -> None:
            if self.env.now >= until_us:
                close()  # who reached nobody for so long does that by itself
            elif not all(each.is_closed for each in moved.awaited) or moved.is_holding():
                call_at(self.env, next_tick(), ask)
                return
            if self.node.is_dead or not all(each in self.outside for each in arrivals):
                return  # they are in, or the next broker has them
            self.outside = [each for each in self.outside if each not in arrivals]
            self._awaited = [each for each in self._awaited if each not in left] if self.outside else []
            self._let_in(moved)

        def close() -> None:
            if moved.links is not None:
                moved.links.close()

        def hear() -> None:
            close()
            if awaits:
                call_at(self.env, next_tick(), ask)

        def next_tick() -> float:
            return float((int(self.env.now) // self.node.settings.tick_us + 1) * self.node.settings.tick_us)

        until_us = self.env.now + self.kafka.groups[0].settings.session_timeout_us
        awaits = ownership is not None and ownership.awaits_old
        for old, whose in self._left:  # whoever left this broker and is back: it knows its own sockets
            if any(each in whose for each in arrivals):
                old.close()
        if ownership is None:
            close()
        else:
            ownership.publishers_left(moved.broker, self.node.number, hear)
        if awaits:
            call_at(self.env, float(until_us), ask)
        else:
            ask()
