"""The links between clients and their brokers, and what bounds them: links that are cut, slow, or dead on the way while
a side believes in them; windows of publishers; buffers of sockets.

A link that is cut for a while delays: TCP sends again after 0.2 s, then after twice as long each time, and what is sent
behind waits with it. What was sent less than one way before the cut still arrives. A dead link (a NAT that forgot it, a
device that was switched off) takes everything that is written to it and says nothing. When somebody notices is
`connection_ends`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from orderlab.sim.engine.network import RETRANSMIT_US
from orderlab.sim.mqtt.clients import Ints

NEVER = 2**62


class Links:
    """Of subscribers, those whose link is not as it should be."""

    def __init__(self) -> None:
        self.dead_since: dict[int, int] = {}
        """Per subscriber whose connection is dead on the way, since when."""
        self._cut: dict[int, tuple[int, int]] = {}
        self._more_us: dict[int, int] = {}

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.dead_since or self._cut or self._more_us)

    def cut(self, subscriber: int, from_us: int, until_us: int) -> None:
        """Let nothing through for a while."""
        self._cut[subscriber] = from_us, until_us

    def slow_down(self, subscriber: int, more_us: int) -> None:
        """Let everything take so much longer, each way."""
        self._more_us[subscriber] = more_us

    def speed_up(self, subscriber: int) -> None:
        """Set that right. No byte overtakes those that are on their way."""
        self._more_us.pop(subscriber, None)

    def kill(self, subscriber: int, now_us: int) -> None:
        """Let nothing through any more, on this connection."""
        self.dead_since.setdefault(subscriber, now_us)

    def alive_until(self, subscriber: int, now_us: int) -> int:
        """Until when the connection took anything, if it ends now."""
        return min(self.dead_since.get(subscriber, now_us), self._cut.get(subscriber, (now_us, 0))[0])

    def forget(self, subscriber: int) -> None:
        """Forget a connection that has ended: the next takes another way. A slow link stays slow."""
        self.dead_since.pop(subscriber, None)
        self._cut.pop(subscriber, None)

    def are_bad(self, subscribers: Ints) -> npt.NDArray[np.bool_]:
        """Whose packets take an extraordinary time."""
        return np.array([one in self._cut or one in self._more_us for one in subscribers.tolist()], np.bool_)

    def are_dead(self, subscribers: Ints) -> npt.NDArray[np.bool_]:
        """Whose packets arrive nowhere."""
        return np.array([one in self.dead_since for one in subscribers.tolist()], np.bool_)

    def dead_from(self, subscribers: Ints) -> Ints:
        """Since when each takes nothing any more."""
        return np.array([self.dead_since.get(one, NEVER) for one in subscribers.tolist()], np.int64)

    def through(self, subscribers: Ints, at_us: Ints) -> Ints:
        """When packets are through that would be at ``at_us``, were all links well."""
        instants = at_us.tolist()
        for place, one in enumerate(subscribers.tolist()):
            at = instants[place] + self._more_us.get(one, 0)
            from_us, until_us = self._cut.get(one, (NEVER, 0))
            if from_us <= at < until_us:
                interval = RETRANSMIT_US
                while at < until_us:
                    at += interval
                    interval *= 2
            instants[place] = at
        return np.array(instants, np.int64)


class PublishWindows:
    """The server's Receive Maximum (MQTT 5.0, 3.2.2.3.3): how many publishes with QoS above 0 a publisher may have
    without PUBACK or PUBCOMP. What its application publishes beyond waits at the client, in order."""

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self._sent: dict[int, int] = {}
        self._queues: dict[int, deque[int]] = {}

    @property
    def are_full(self) -> bool:
        """Whether anything waits at a client."""
        return bool(self._queues)

    def admit(self, messages: Ints, publishers: int) -> Ints:
        """Those that go out now; the others wait."""
        return np.array(
            [message for message in messages.tolist() if self._admits(message, message % publishers)], np.int64
        )

    def _admits(self, message: int, publisher: int) -> bool:
        sent = self._sent.get(publisher, 0)
        if sent >= self.maximum or publisher in self._queues:
            self._queues.setdefault(publisher, deque()).append(message)
            return False
        self._sent[publisher] = sent + 1
        return True

    def answered(self, publishers: Iterable[int]) -> None:
        """One message of each of these publishers has its answer."""
        for publisher in publishers:
            self._sent[publisher] = max(self._sent.get(publisher, 0) - 1, 0)

    def going(self, publishers: Iterable[int]) -> list[int]:
        """What waits at these publishers and has room, in order. It is sent with that."""
        goes = []
        for publisher in publishers:
            queue = self._queues.get(publisher, ())
            while queue and self._sent.get(publisher, 0) < self.maximum:
                self._sent[publisher] = self._sent.get(publisher, 0) + 1
                goes.append(queue.popleft())
            if publisher in self._queues and not queue:
                del self._queues[publisher]
        return goes


class SocketBuffers:
    """How many packets wait in the socket of a subscriber that reads slowly. ``size``: that many at most; 0: no bound.
    A broker that finds a socket full writes nothing more to it, and learns when half of it is empty (as Netty's water
    marks tell)."""

    def __init__(self, size: int, reads_anew: bool) -> None:
        """``reads_anew``: what was not written is read from the store when there is room again, and nothing overtakes
        it; otherwise it waits there for the next connection."""
        self.size = size
        self.reads_anew = reads_anew
        self.blocked: set[int] = set()
        """Those for whom something waits in the store: nothing new may overtake it."""
        self.withheld: set[int] = set()
        """``in_flight_key`` of what an earlier connection sent, and this one could not."""
        self._read_us: dict[int, deque[int]] = {}

    def is_full(self, subscriber: int, now_us: int, more: int) -> bool:
        """Whether the socket takes nothing more behind ``more`` packets that are about to be written."""
        waiting = self._read_us.get(subscriber)
        while waiting and waiting[0] <= now_us:
            waiting.popleft()
        return len(waiting or ()) + more >= self.size

    def note(self, subscribers: Ints, read_us: Ints) -> None:
        """Note when packets will be read that are written now."""
        for one, at in zip(subscribers.tolist(), read_us.tolist(), strict=True):
            self._read_us.setdefault(one, deque()).append(at)

    def half_empty_us(self, subscriber: int, now_us: int) -> int:
        """When half of it will be empty."""
        waiting = self._read_us.get(subscriber) or (now_us + 1,)
        return int(waiting[max(len(waiting) - self.size // 2 - 1, 0)])

    def forget(self, subscriber: int) -> None:
        """Forget a connection that is gone."""
        self.blocked.discard(subscriber)
        self._read_us.pop(subscriber, None)
        self.withheld -= {key for key in self.withheld if key >> 16 == subscriber}
