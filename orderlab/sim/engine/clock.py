"""Virtual time: a function at an instant costs one event and no process, a job at a station none.

A station has equal servers and one queue, first come first served. The instant at which a job is done is computed when it arrives (Kiefer and
Wolfowitz's recursion: a job takes the server that is free first). Jobs must be handed over in the order in which they arrive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush, heapreplace
from math import ceil
from typing import Any

import simpy
from simpy.events import NORMAL


class _Call:
    """What SimPy asks of an event that has succeeded already, and no more: it only calls a function when its instant comes."""

    __slots__ = ("function",)
    _ok = True

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function

    @property
    def callbacks(self) -> Any:
        """As SimPy's own loop takes them."""
        return (lambda _: self.function(),)

    @callbacks.setter
    def callbacks(self, _: None) -> None:
        """SimPy notes so that they are being called."""


def call_at(env: simpy.Environment, at_us: float, function: Callable[[], None]) -> None:
    """Call ``function`` at ``at_us``, rounded up to a whole microsecond; at once after this event if that is past."""
    now = env._now
    delay = ceil(at_us) - int(now)
    heappush(env._queue, (now + delay if delay > 0 else now, NORMAL, next(env._eid), _Call(function)))  # type: ignore[misc]


class Clock(simpy.Environment):
    """An environment that runs up to an instant in a loop of its own: most events are calls at an instant, and SimPy's loop asks each what only others
    need. The order of events is SimPy's."""

    __slots__ = ("_now",)

    def run(self, until: Any = None) -> Any:
        """Let all happen that is due before ``until``, an instant; anything else as SimPy does it."""
        if not isinstance(until, int | float):
            return super().run(until)
        if until <= self._now:
            raise ValueError(f"until ({until}) must be greater than the current simulation time")
        queue = self._queue
        while queue and queue[0][0] < until:
            self._now, _, _, found = heappop(queue)
            event: Any = found
            if type(event) is _Call:
                event.function()
                continue
            callbacks, event.callbacks = event.callbacks, None
            for callback in callbacks:
                callback(event)
            if not event._ok and not hasattr(event, "_defused"):
                raise event._value
        self._now = until
        return None


Clock.now = Clock._now  # type: ignore[assignment,method-assign,misc]  # read a million times: SimPy's is a function of Python


class Waits:
    """How long jobs have waited, up to any instant since the last arrival. A job's whole wait is known when it arrives, and may
    reach beyond the interval that somebody measures."""

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
        return self._total_us - sum((begun - now_us) * jobs for begun, jobs in self._ahead if begun > now_us)


class Station:
    """``servers`` cores or threads. Times in microseconds."""

    def __init__(self, servers: int) -> None:
        if servers < 1:
            raise ValueError(f"{servers} servers: a station needs at least one")
        self.servers = servers
        self.jobs = 0
        self.busy_us = 0.0
        self.waits = Waits()
        self._free_us = [0.0] * servers

    def serve(self, arrival_us: float, work_us: float) -> float:
        """When a job is done that arrives at ``arrival_us`` and needs ``work_us`` of one server."""
        return self.serve_bursts(arrival_us, 1, 1, work_us)

    def serve_bursts(self, arrival_us: float, count: int, burst: int, each_us: float) -> float:
        """When ``count`` messages are done that arrive at ``arrival_us``: every ``burst`` of them is a job that needs ``each_us`` for each."""
        free_us, done = self._free_us, arrival_us
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


class Tenant(Station):
    """What one process does on the cores of a machine that it shares: it waits like all others, and is counted alone."""

    def __init__(self, host: Station) -> None:
        super().__init__(host.servers)
        self.host = host

    def serve_bursts(self, arrival_us: float, count: int, burst: int, each_us: float) -> float:
        done = arrival_us
        while count > 0:
            work_us = (count if count < burst else burst) * each_us
            ended = self.host.serve(arrival_us, work_us)
            if ended - work_us > arrival_us:
                self.waits.add(arrival_us, ended - work_us)
            self.busy_us += work_us
            self.jobs += 1
            done = max(done, ended)
            count -= burst
        return done

    def stall(self, until_us: float) -> None:
        self.host.stall(until_us)
