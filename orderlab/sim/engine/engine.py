"""The engine room: what is to happen, stations and how long jobs wait, what is sent over connections, groups of packs.

The text of `engine.c`, held against it on generated programs; `orderlab.sim.native.choose` picks one of them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from heapq import heappop, heappush, heapreplace
from math import ceil, inf
from typing import Any

from simpy.core import EmptySchedule
from simpy.events import NORMAL


class _Call:
    """A function that is to be called when its instant comes."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function


class Agenda:
    """What is to happen, by instant, then by priority, then in the order in which it was scheduled: SimPy's order."""

    __slots__ = ("_entries", "_now", "scheduled")

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, int, Any]] = []
        self._now: float = 0
        self.scheduled = 0
        """How much was scheduled so far."""

    def schedule(self, event: Any, priority: int = NORMAL, delay: float = 0) -> None:
        """Let an event of SimPy happen after ``delay``."""
        heappush(self._entries, (self._now + delay, priority, self.scheduled, event))
        self.scheduled += 1

    def run_until(self, until: float) -> None:
        """Let all happen that is due before ``until``."""
        while self._entries and self._entries[0][0] < until:
            self.step()

    def step(self) -> None:
        """Let happen what is due next. Raises EmptySchedule."""
        if not self._entries:
            raise EmptySchedule
        self._now, _, _, event = heappop(self._entries)
        if type(event) is _Call:
            event.function()
            return
        callbacks, event.callbacks = event.callbacks, None
        for callback in callbacks:
            callback(event)
        if not event._ok and not hasattr(event, "_defused"):
            raise event._value

    def peek(self) -> float:
        """When that is; infinity where nothing is to happen."""
        return self._entries[0][0] if self._entries else inf


def call_at(env: Any, at_us: float, function: Callable[[], None]) -> None:
    """Call ``function`` at ``at_us``, rounded up to a whole microsecond; at once after this event if that is past.
    ``env`` is a Clock."""
    delay = ceil(at_us) - int(env._now)
    heappush(env._entries, (env._now + delay if delay > 0 else env._now, NORMAL, env.scheduled, _Call(function)))
    env.scheduled += 1


class Waits:
    """How long jobs have waited, up to any instant since the last arrival. A job's whole wait is known when it arrives,
    and may reach beyond the interval that somebody measures."""

    def __init__(self) -> None:
        self._total_us = 0.0
        self._ahead: deque[tuple[float, int]] = deque()
        """(when it begins, how many jobs) of what was waiting at the last arrival that had to wait."""

    def add(self, arrival_us: float, begun_us: float, jobs: int = 1) -> None:
        """``jobs`` that arrive now begin later. Neither instant is before that of the call before."""
        ahead = self._ahead
        while ahead and ahead[0][0] <= arrival_us:
            ahead.popleft()
        ahead.append((begun_us, jobs))
        self._total_us += (begun_us - arrival_us) * jobs

    def until(self, now_us: float) -> float:
        """The integral over time, up to now, of the number of jobs that wait."""
        beyond_us = 0.0
        # One after the other: from Python 3.12 on `sum` makes up for what rounding loses.
        for begun, jobs in self._ahead:
            if begun > now_us:
                beyond_us += (begun - now_us) * jobs
        return self._total_us - beyond_us


class Servers:
    """The servers of a station, and the jobs that they have had."""

    def __init__(self, servers: int) -> None:
        if servers < 1:
            raise ValueError(f"{servers} servers: a station needs at least one")
        self.servers = servers
        self.jobs = 0
        self.busy_us = 0.0
        self.waits = Waits()
        self._free_us = [0.0] * servers

    def serve_bursts(self, arrival_us: float, count: int, burst: int, each_us: float) -> float:
        """When ``count`` messages are done that arrive at ``arrival_us``: every ``burst`` of them is a job that needs
        ``each_us`` for each."""
        if burst < 1:
            raise ValueError("a burst holds at least one")
        free_us, done = self._free_us, float(arrival_us)
        arrival_us = done
        while count > 0:
            work_us = (count if count < burst else burst) * each_us
            begun = free_us[0]
            if begun > arrival_us:
                self.waits.add(arrival_us, begun)
            else:
                begun = arrival_us
            ended = begun + work_us
            heapreplace(free_us, ended)
            self.busy_us += work_us
            self.jobs += 1
            if ended > done:
                done = ended
            count -= burst
        return done

    def stall(self, until_us: float) -> None:
        """Let no server be free before ``until_us``: a stop of the world, a paused virtual machine."""
        self._free_us = [max(free, until_us) for free in self._free_us]  # max keeps the order, so the heap too


class Sender:
    """The end of a connection that sends: what it sends arrives later, in order."""

    def __init__(self, env: Any, delay_us: Callable[[], int], bytes_per_us: float = math.inf) -> None:
        self.env = env
        self.delay_us = delay_us
        self.bytes_per_us = bytes_per_us
        self.is_cut = False
        self._number = 0
        self._sent_us = 0.0
        self._arrived_us = 0.0

    def send(
        self,
        size_bytes: int,
        arrive: Callable[[], None],
        departs_us: float | None = None,
        on_held: Callable[[], None] | None = None,
    ) -> None:
        """``arrive`` is called when the last of ``size_bytes``, sent now or at ``departs_us``, is there.

        ``on_held`` is called if a partition holds the bytes up: the place for a sender's timeout, which costs nothing
        otherwise.
        """
        ready = self.env.now if departs_us is None else departs_us
        self._sent_us = max(ready, self._sent_us) + size_bytes / self.bytes_per_us
        self._arrived_us = max(self._arrived_us, self._sent_us + self.delay_us())
        call_at(self.env, self._arrived_us, partial(self._get_there, self._number, arrive, on_held))

    def _get_there(self, number: int, arrive: Callable[[], None], on_held: Callable[[], None] | None) -> None:
        if number != self._number:
            return
        if self.is_cut:
            self._hold(arrive, on_held)
        else:
            arrive()

    def _hold(self, arrive: Callable[[], None], on_held: Callable[[], None] | None) -> None:
        raise NotImplementedError


def grouped(values: Iterable[int], keys: Iterable[int]) -> dict[int, list[int]]:
    """The values of each key, in order, by the order of the keys' first places. For packs, which are too small for
    numpy."""
    groups: dict[int, list[int]] = {}
    for value, key in zip(values, keys, strict=True):
        found = groups.get(key)
        if found is None:
            groups[key] = [value]
        else:
            found.append(value)
    return groups


def spread(values: list[Any], begin: int, target: list[Any], places: Sequence[int]) -> int:
    """Put values, from the one at ``begin`` on, at ``places`` of ``target``; the place of the first value that is left.
    Raises IndexError."""
    end = begin + len(places)
    if not 0 <= begin <= end <= len(values) or any(not 0 <= place < len(target) for place in places):
        raise IndexError("fewer values than places, or no such place")
    for place, value in zip(places, values[begin:end], strict=True):
        target[place] = value
    return end
