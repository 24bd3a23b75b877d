"""The network: TCP connections that keep order, with latency and bandwidth; partitions between named nodes.

Bytes on a connection arrive in the order in which they were sent, however the latency is drawn. A partition loses
packets, not bytes: TCP sends them again, at growing intervals, and they arrive after the partition has healed, in order
and once. Only the end of the connection loses bytes; who sent them finds out by that end, or by a timeout of its own.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np

from orderlab.sim.engine.clock import Clock, call_at
from orderlab.sim.native.choose import Sender

RETRANSMIT_US = 200_000
"""Linux's smallest retransmission timeout; it doubles with every attempt in vain (RFC 6298, 5.5)."""
DRAWN_AT_ONCE = 1000
Delays = Callable[[], int]
"""Draws one-way delays, in microseconds."""


@dataclass(frozen=True, slots=True)
class Latency:
    """One-way delay: a floor, plus a lognormal part with the given median and spread. Microseconds."""

    floor_us: float
    median_us: float = 0.0
    sigma: float = 0.0

    def __post_init__(self) -> None:
        if self.floor_us < 0 or self.median_us < 0 or self.sigma < 0:
            raise ValueError(f"{self}: no part of a latency is negative")

    def delays(self, stream: np.random.Generator) -> Delays:
        """Whole microseconds, drawn from ``stream`` a thousand at a time."""

        def draw() -> list[int]:
            values = self.floor_us + self.median_us * np.exp(self.sigma * stream.standard_normal(DRAWN_AT_ONCE))
            drawn: list[int] = values.astype(np.int64)[::-1].tolist()
            return drawn

        return chain.from_iterable(iter(draw, None)).__next__


class Connection(Sender):
    """One direction of a TCP connection between two nodes."""

    def __init__(self, env: Clock, delay_us: Delays, bytes_per_us: float = math.inf) -> None:
        if bytes_per_us <= 0:
            raise ValueError(f"a connection of {bytes_per_us} bytes/us carries nothing")
        super().__init__(env, delay_us, bytes_per_us)
        self._held: list[Callable[[], None]] = []
        self._held_since_us = 0.0

    def _hold(self, arrive: Callable[[], None], on_held: Callable[[], None] | None) -> None:
        if not self._held:
            self._held_since_us = self.env.now
        self._held.append(partial(self._get_there, self._number, arrive, on_held))
        if on_held is not None:
            on_held()

    def cut(self) -> None:
        """Let nothing through from now on, what is under way included."""
        self.is_cut = True

    def heal(self) -> None:
        """What was held up arrives with the next retransmission, and what is sent meanwhile behind it."""
        self.is_cut = False
        held, self._held = self._held, []
        if not held:
            return
        attempt, interval = self._held_since_us + RETRANSMIT_US, RETRANSMIT_US
        while attempt < self.env.now:
            interval *= 2
            attempt += interval
        self._arrived_us = max(self._arrived_us, attempt)
        for get_there in held:
            call_at(self.env, attempt, get_there)

    def reset(self) -> None:
        """A new connection stands in its place: nothing of the old one arrives any more."""
        self._number += 1
        self._held.clear()
        self._sent_us = self._arrived_us = self.env.now


class Link:
    """A connection with both its directions."""

    def __init__(self, there: Connection, back: Connection) -> None:
        self.there = there
        self.back = back

    @classmethod
    def plain(cls, env: Clock, delay_us: Delays) -> Link:
        """A link of unlimited bandwidth, in no partition."""
        return cls(Connection(env, delay_us), Connection(env, delay_us))

    @property
    def is_cut(self) -> bool:
        """Whether a partition stands between the ends."""
        return self.there.is_cut

    def cut(self) -> None:
        """Let nothing through either way."""
        self.there.cut()
        self.back.cut()

    def heal(self) -> None:
        """The partition is over."""
        self.there.heal()
        self.back.heal()

    def reset(self) -> None:
        """The ends connect anew."""
        self.there.reset()
        self.back.reset()


class Network:
    """All connections of a system, by the names of their ends, and the partitions between them."""

    def __init__(self, env: Clock, gbit_per_s: float) -> None:
        self.env = env
        self.bytes_per_us = gbit_per_s * 1000 / 8
        self._links: dict[frozenset[str], list[Link]] = defaultdict(list)
        self._cuts: dict[frozenset[str], int] = defaultdict(int)
        """How many partitions stand between two ends."""

    def connect(self, source: str, target: str, delay_us: Delays) -> Link:
        """A new connection between the two."""
        ends = frozenset((source, target))
        link = Link(*(Connection(self.env, delay_us, self.bytes_per_us) for _ in range(2)))
        self._links[ends].append(link)
        if self._cuts.get(ends):
            link.cut()
        return link

    def is_cut(self, one: str, other: str) -> bool:
        """Whether a partition stands between the two."""
        return self._cuts.get(frozenset((one, other)), 0) > 0

    def partition(self, left: set[str], right: set[str]) -> Callable[[], None]:
        """Let no node of ``left`` reach one of ``right``, nor the other way round. Returns what heals this
        partition."""
        between = [frozenset((one, other)) for one in sorted(left) for other in sorted(right) if one != other]
        for ends in between:
            self._cuts[ends] += 1
            for link in self._links[ends]:
                link.cut()

        def heal() -> None:
            for ends in between:
                self._cuts[ends] -= 1
                if not self._cuts[ends]:
                    for link in self._links[ends]:
                        link.heal()

        return heal
