"""The network: connections that keep order, with latency and bandwidth; partitions between named nodes.

Bytes on a connection arrive in the order in which they were sent, however the latency is drawn (TCP). A message that is
sent into a cut connection never arrives; who sent it must find out by a timeout or by the end of the connection.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Latency:
    """One-way delay: a floor, plus a lognormal part with the given median and spread. Microseconds."""

    floor_us: float
    median_us: float = 0.0
    sigma: float = 0.0

    def __post_init__(self) -> None:
        if self.floor_us < 0 or self.median_us < 0 or self.sigma < 0:
            raise ValueError(f"{self}: no part of a latency is negative")

    def draw_us(self, stream: random.Random) -> float:
        """One delay."""
        if not self.median_us:
            return self.floor_us
        return self.floor_us + self.median_us * math.exp(stream.gauss(0.0, self.sigma))


class Connection:
    """One direction of a TCP connection between two nodes."""

    def __init__(self, latency: Latency, bytes_per_us: float, stream: random.Random) -> None:
        if bytes_per_us <= 0:
            raise ValueError(f"a connection of {bytes_per_us} bytes/us carries nothing")
        self.latency = latency
        self.bytes_per_us = bytes_per_us
        self.is_cut = False
        self._stream = stream
        self._sent_us = 0.0
        self._arrived_us = 0.0

    def arrival_us(self, now_us: float, size_bytes: int) -> float | None:
        """When the last of ``size_bytes`` sent now is there; None if the connection is cut."""
        if self.is_cut:
            return None
        self._sent_us = max(self._sent_us, now_us) + size_bytes / self.bytes_per_us
        self._arrived_us = max(self._arrived_us, self._sent_us + self.latency.draw_us(self._stream))
        return self._arrived_us

    def cut(self) -> None:
        """From now on nothing gets through."""
        self.is_cut = True

    def heal(self, now_us: float) -> None:
        """A new connection stands in its place: nothing of the old one is under way any more."""
        self.is_cut = False
        self._sent_us = self._arrived_us = now_us


class Network:
    """All connections of a system, by the names of their ends."""

    def __init__(self, latency: Latency, gbit_per_s: float, stream: random.Random) -> None:
        self.latency = latency
        self.bytes_per_us = gbit_per_s * 1000 / 8
        self._stream = stream
        self._connections: dict[tuple[str, str], Connection] = {}
        self._partitions: set[frozenset[str]] = set()

    def connection(self, source: str, target: str) -> Connection:
        """The connection from ``source`` to ``target``, made when first asked for."""
        found = self._connections.get((source, target))
        if found is None:
            found = Connection(self.latency, self.bytes_per_us, self._stream)
            found.is_cut = frozenset((source, target)) in self._partitions
            self._connections[source, target] = found
        return found

    def partition(self, left: set[str], right: set[str]) -> None:
        """No node of ``left`` reaches one of ``right``, nor the other way round."""
        for one in left:
            for other in right:
                self._partitions.add(frozenset((one, other)))
        self._follow(0.0)

    def heal(self, now_us: float) -> None:
        """Everyone reaches everyone again."""
        self._partitions.clear()
        self._follow(now_us)

    def _follow(self, now_us: float) -> None:
        for ends, connection in self._connections.items():
            is_cut = frozenset(ends) in self._partitions
            if connection.is_cut and not is_cut:
                connection.heal(now_us)
            connection.is_cut = is_cut
