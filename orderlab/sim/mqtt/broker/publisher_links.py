"""The links between one broker and its publishers while they are not as they should be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from orderlab.sim.engine.clock import call_at
from orderlab.sim.engine.network import RETRANSMIT_US
from orderlab.sim.mqtt.broker.node import BrokerNode
from orderlab.sim.mqtt.clients import Ints
from orderlab.sim.mqtt.parts import Traffic


class PublisherLinks:
    """The links between one broker and all its publishers, while they are not as they should be: cut for a while, slow,
    or dead on the way. ``Links`` says what that means.

    A publisher goes on to send over a connection in which it still believes. What a dead one takes is lost, as are its
    answers; when the publisher is back it sends all again that has no answer, with DUP, before anything new. Over a
    connection that it has left for another broker, bytes may be on the way: the old broker reads them until it knows of
    the new connection.
    """

    def __init__(
        self,
        node: BrokerNode,
        traffic: Traffic,
        on_well: Callable[[PublisherLinks], None],
        on_back: Callable[[PublisherLinks], None],
    ) -> None:
        """``on_well`` hears that nothing is wrong any more; ``on_back`` that all publishers connect anew."""
        self.env, self.measured, self.traffic = node.env, node.measured, traffic
        self._on_well, self._on_back = on_well, on_back
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
        self._on_back(self)

    def close(self) -> None:
        """Read no more of these connections."""
        self.is_closed = True

    # -- what goes over them -------------------------------------------------------------------------------

    def arrive(self, messages: Ints, then: Callable[[Ints], None]) -> None:
        """Hand on what publishers send now when it is there, if it is ever."""
        if self.is_dead:
            self.measured.count("publishes_into_dead_links", len(messages))
            return
        now, count = int(self.env.now), self.traffic.schedule.count
        by_time: dict[int, list[int]] = {}
        for message in messages.tolist():
            at_us = self._in_order(self._through_us, message % count, now)
            by_time.setdefault(at_us, []).append(message)
        for at_us, there in sorted(by_time.items()):
            call_at(self.env, float(at_us), partial(self._there, np.array(there, np.int64), then))
        if now > self._cut_us[1] and not self._more_us and max(self._through_us.values(), default=0) < now:
            self._on_well(self)

    def _there(self, messages: Ints, then: Callable[[Ints], None]) -> None:
        if self.is_closed or self.is_dead:
            self.measured.count("publishes_lost_on_the_way", len(messages))
        else:
            if self.are_left:
                self.measured.count("publishes_over_old_connections", len(messages))
            then(messages)

    def pubrels(self, messages: Ints, at_us: Ints, then: Callable[[Sequence[int]], None]) -> None:
        """Hand on PUBRELs that would be there at these instants: behind what their publishers have sent before, a
        PUBLISH with DUP perhaps."""
        count = self.traffic.schedule.count

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
