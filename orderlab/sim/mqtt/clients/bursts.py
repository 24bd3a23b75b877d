"""Publishers that publish for a while and are silent for a while, in turn.

A publisher begins each burst with a message and sends one per interval until the burst is over; between the last message of a
burst and the first of the next lies an interval at least. Instants follow from a list of bursts, not of messages.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from orderlab.model.errors import InputError
from orderlab.sim.engine.random_streams import RandomStreams
from orderlab.sim.mqtt.clients.population import Arrivals, Clients, Ints, Schedule

Pattern = Literal["regular", "exponential", "together"]
BURSTS_MAX = 20_000_000
_WINDOW_US = 100_000
"""Arrivals are put in order for so long at a time."""


class BurstSchedule(Schedule):
    """On and off times: ``regular``, always as long as said, each publisher at a phase of its own; ``exponential`` around these
    means; ``together``, regular and everyone's at the same time. Ends ``until_us``."""

    def __init__(
        self, publishers: Clients, rate_per_s: float, streams: RandomStreams, on_us: float, off_us: float, pattern: Pattern,
        until_us: int,
    ) -> None:  # fmt: skip
        """Raises InputError for more bursts than are kept."""
        super().__init__(publishers, rate_per_s, streams)
        if self.count * (until_us / (on_us + off_us) + 1) > BURSTS_MAX:
            raise InputError(f"more than {BURSTS_MAX:,} bursts; set publish_on_s or publish_off_s higher")
        self.latency_us = publishers.latency_us
        drawn = self._draw(streams.vector_stream("bursts"), on_us, off_us, pattern, until_us)
        begin, sizes, publisher = (np.concatenate(column) for column in zip(*drawn, strict=True))
        order = np.lexsort((begin, publisher))
        self._begin, self._size, self._publisher = begin[order], sizes[order], publisher[order]
        before = np.cumsum(self._size) - self._size
        firsts = np.flatnonzero(np.diff(self._publisher, prepend=-1))
        of_publisher = np.repeat(before[firsts], np.diff(firsts, append=len(before)))
        self._first = before - of_publisher
        """Per burst, the sequence number of its first message."""
        self._key = self._publisher << 32 | self._first

    def _draw(
        self, stream: np.random.Generator, on_us: float, off_us: float, pattern: Pattern, until_us: int
    ) -> list[tuple[Ints, Ints, Ints]]:
        """(begin, messages, publisher) of bursts, the first of every publisher, then the second, and so on."""
        who = np.arange(self.count)
        next_us = np.zeros(self.count)
        if pattern == "regular":  # at the beginning as many are on as at any time
            next_us = stream.uniform(0, on_us + off_us, self.count) - on_us
        elif pattern == "exponential":
            is_off = stream.random(self.count) * (on_us + off_us) < off_us
            next_us = np.where(is_off, stream.exponential(off_us, self.count), self.phase_us)
        drawn = []
        while len(who):
            begin = next_us.astype(np.int64)
            spread = pattern == "exponential"
            on = stream.exponential(on_us, len(who)) if spread else np.full(len(who), on_us)
            off = stream.exponential(off_us, len(who)) if spread else np.full(len(who), off_us)
            sizes = np.maximum(np.ceil(on / self.interval_us), 1).astype(np.int64)
            next_us = np.maximum(next_us + on + off, begin + sizes * self.interval_us)
            over = np.minimum(np.maximum(-(begin // self.interval_us), 0), sizes)  # messages before instant 0
            there = sizes > over
            drawn.append(((begin + over * self.interval_us)[there], (sizes - over)[there], who[there]))
            goes_on = next_us < until_us
            who, next_us = who[goes_on], next_us[goes_on]
        return drawn

    def published_us(self, messages: Ints) -> Ints:
        """When each message was sent by its publisher."""
        sequence, publisher = np.divmod(messages, self.count)
        burst = np.searchsorted(self._key, publisher << 32 | sequence, side="right") - 1
        instants: Ints = self._begin[burst] + (sequence - self._first[burst]) * self.interval_us
        return instants

    def arrivals(self, broker: int) -> Arrivals:
        """What reaches one broker, in order of arrival."""
        return BurstArrivals(self, broker)

    def arriving(self, bursts: Ints, from_us: int, before_us: int) -> tuple[Ints, Ints]:
        """(messages, arrival instants) of the messages of ``bursts`` that arrive in a window, in order."""
        publisher, size = self._publisher[bursts], self._size[bursts]
        at = self._begin[bursts] + self.latency_us[publisher]
        low = np.clip(-((at - from_us) // self.interval_us), 0, size)
        high = np.clip(-((at - before_us) // self.interval_us), 0, size)
        number = high - low
        row = np.repeat(np.arange(len(bursts)), number)
        place = np.arange(int(number.sum())) - np.repeat(np.cumsum(number) - number, number) + low[row]
        instants = at[row] + place * self.interval_us
        order = np.lexsort((publisher[row], instants))
        messages = (self._first[bursts][row] + place) * self.count + publisher[row]
        return messages[order], instants[order]

    def bursts_of(self, publishers: Ints) -> Ints:
        """The numbers of their bursts."""
        mine = np.zeros(self.count, np.bool_)
        mine[publishers] = True
        return np.flatnonzero(mine[self._publisher])


class BurstArrivals(Arrivals):
    """The publishes that reach one broker: ``until`` yields those that arrive before an instant, each once."""

    def __init__(self, schedule: BurstSchedule, broker: int) -> None:
        self._schedule = schedule
        self._bursts = schedule.bursts_of(np.flatnonzero(schedule.publishers.broker == broker))
        self._ordered_us = 0
        nothing = np.empty(0, np.int64)
        self._messages, self._instants = nothing, nothing

    def until(self, before_us: int) -> tuple[Ints, Ints]:
        """(messages, arrival instants) of what arrives before ``before_us`` and was not handed out yet."""
        if before_us > self._ordered_us:
            end = max(before_us, self._ordered_us + _WINDOW_US)
            messages, instants = self._schedule.arriving(self._bursts, self._ordered_us, end)
            self._messages = np.concatenate((self._messages, messages))
            self._instants = np.concatenate((self._instants, instants))
            self._ordered_us = end
        ready = int(np.searchsorted(self._instants, before_us))
        found = self._messages[:ready], self._instants[:ready]
        self._messages, self._instants = self._messages[ready:], self._instants[ready:]
        return found
