"""Subscribers that read slowly: packets wait in socket buffers, in order, until they are read."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from orderlab.sim.mqtt.clients.population import Ints


class SlowReaders:
    """Who reads slowly now, and when each of them takes its next packet."""

    def __init__(self) -> None:
        self._interval_us: dict[int, int] = {}
        self._free_us: dict[int, int] = {}

    def __bool__(self) -> bool:
        """Whether anybody has been slow yet."""
        return bool(self._free_us)

    def slow_down(self, subscribers: Iterable[int], interval_us: int) -> None:
        """From now on each takes a packet every ``interval_us`` at most."""
        for subscriber in subscribers:
            self._interval_us[subscriber] = interval_us
            self._free_us.setdefault(subscriber, 0)

    def recover(self, subscribers: Iterable[int]) -> None:
        """They read at once again, behind what still waits."""
        for subscriber in subscribers:
            self._interval_us.pop(subscriber, None)

    def forget(self, subscriber: int) -> None:
        """The connection is gone, and with it what waited in its buffers."""
        if subscriber in self._free_us:
            self._free_us[subscriber] = 0

    def are_slow(self, subscribers: Ints) -> npt.NDArray[np.bool_]:
        """Who is slow, or was and may have packets waiting."""
        return np.array([subscriber in self._free_us for subscriber in subscribers.tolist()], np.bool_)

    def read_us(self, subscribers: Ints, arrived_us: Ints) -> Ints:
        """When those who are slow read packets that arrive at ``arrived_us``, in the order in which they were sent."""
        read = []
        for subscriber, arrived in zip(subscribers.tolist(), arrived_us.tolist(), strict=True):
            at = max(arrived, self._free_us[subscriber])
            self._free_us[subscriber] = at + self._interval_us.get(subscriber, 1)
            read.append(at)
        return np.array(read, np.int64)
