"""Publishers and subscribers as arrays: names, brokers, connections, and who publishes what at which instant.

A message is one integer: ``sequence * publishers + publisher``. Its publisher, its place in the logical FIFO and, as
publishers keep their schedule, its instant follow from it; so a run stores nothing per message.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from orderlab.sim.engine.random_streams import RandomStreams

Ints = npt.NDArray[np.int64]
NAME_BYTES = 8


@dataclass(frozen=True)
class Clients:
    """A group of clients with equal behaviour. ``latency_us``: one way, constant per connection, so that order is kept."""

    prefix: str
    broker: Ints
    latency_us: Ints

    @cached_property
    def _format(self) -> bytes:
        return self.prefix.encode() + b"%07d"

    @classmethod
    def draw(
        cls, prefix: str, count: int, brokers: int, streams: RandomStreams, floor_us: float, median_us: float, sigma: float
    ) -> Clients:
        """Clients spread over the brokers at random, as a load balancer does it: equal numbers, no order."""
        stream = streams.vector_stream(f"clients/{prefix}")
        broker = stream.permutation(np.arange(count) % brokers).astype(np.int64)
        latency = floor_us + median_us * np.exp(sigma * stream.standard_normal(count))
        return cls(prefix, broker, latency.astype(np.int64))

    def __len__(self) -> int:
        return len(self.broker)

    def name(self, number: int) -> bytes:
        """The client identifier: ``s0000042``."""
        return self._format % number

    def names(self) -> npt.NDArray[np.uint8]:
        """All client identifiers as rows of bytes."""
        return numbered_names(self.prefix.encode(), len(self))


def numbered_names(prefix: bytes, count: int, digits: int = NAME_BYTES - 1) -> npt.NDArray[np.uint8]:
    """``prefix0000000``, ``prefix0000001`` ... as rows of bytes."""
    rows = np.empty((count, len(prefix) + digits), np.uint8)
    rows[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    left = np.arange(count)
    for column in range(rows.shape[1] - 1, len(prefix) - 1, -1):
        rows[:, column] = 48 + left % 10
        left = left // 10
    return rows


class Schedule:
    """Every publisher publishes once per interval, at a phase of its own, from instant 0 on."""

    def __init__(self, publishers: Clients, rate_per_s: float, streams: RandomStreams) -> None:
        self.publishers = publishers
        self.count = len(publishers)
        self.interval_us = max(round(1e6 / rate_per_s), 1)
        self.phase_us = streams.vector_stream("phases").integers(0, self.interval_us, self.count)

    def published_us(self, messages: Ints) -> Ints:
        """When each message was sent by its publisher."""
        instants: Ints = self.phase_us[messages % self.count] + messages // self.count * self.interval_us
        return instants

    def arrivals(self, broker: int) -> Arrivals:
        """What reaches one broker, in order of arrival."""
        return Arrivals(self, broker)


class Arrivals:
    """The publishes that reach one broker: ``until`` yields those that arrive before an instant, each once."""

    def __init__(self, schedule: Schedule, broker: int) -> None:
        clients = schedule.publishers
        mine = np.flatnonzero(clients.broker == broker)
        at = schedule.phase_us[mine] + clients.latency_us[mine]
        rounds, at = at // schedule.interval_us, at % schedule.interval_us
        order = np.lexsort((mine, at))
        self._publisher = mine[order]
        self._at = at[order]
        self._sequence = -rounds[order]
        """In the first interval: an arrival that belongs to the interval before is the next round's."""
        self._interval_us = schedule.interval_us
        self._count = schedule.count
        self._round = 0
        self._next = 0

    def until(self, before_us: int) -> tuple[Ints, Ints]:
        """(messages, arrival instants) of what arrives before ``before_us`` and was not handed out yet."""
        messages, instants = [], []
        while len(self._at):
            end = int(np.searchsorted(self._at, before_us - self._round * self._interval_us))
            part = slice(self._next, end)
            sequence = self._sequence[part] + self._round
            sent = sequence >= 0
            messages.append(sequence[sent] * self._count + self._publisher[part][sent])
            instants.append(self._at[part][sent] + self._round * self._interval_us)
            if end < len(self._at):
                self._next = max(end, self._next)
                break
            self._round += 1
            self._next = 0
        if len(messages) == 1:
            return messages[0], instants[0]
        return np.concatenate(messages or [np.empty(0, np.int64)]), np.concatenate(instants or [np.empty(0, np.int64)])
