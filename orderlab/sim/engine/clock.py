"""Virtual time: a function at an instant costs one event and no process, a job at a station none.

A station has equal servers and one queue, first come first served. The instant at which a job is done is computed when
it arrives (Kiefer and Wolfowitz's recursion: a job takes the server that is free first). Jobs must be handed over in
the order in which they arrive.

Where there is a C compiler, `Agenda`, `Waits`, `Servers` and `call_at` are machine code (`engine.c`), held against this
text on generated programs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush, heapreplace
from math import ceil, inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import simpy
from simpy.core import EmptySchedule
from simpy.events import NORMAL

from orderlab.sim.native.install import extension


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
        for (
            begun,
            jobs,
        ) in self._ahead:  # one after the other: from Python 3.12 on `sum` makes up for what rounding loses
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


machine_code = extension(Path(__file__).with_name("engine.c"))
if machine_code is not None and not TYPE_CHECKING:
    Agenda, Waits, Servers, call_at = (
        machine_code.Agenda,
        machine_code.Waits,
        machine_code.Servers,
        machine_code.call_at,
    )


class Clock(Agenda, simpy.Environment):
    """An environment of SimPy with an agenda of its own, on which most entries are functions to call at an instant. The
    order of events is SimPy's."""

    now: float
    """Microseconds."""

    def __init__(self) -> None:
        Agenda.__init__(self)
        simpy.Environment.__init__(self)

    def run(self, until: Any = None) -> Any:
        """Let all happen that is due before ``until``, an instant; anything else as SimPy does it. Raises ValueError
        for an instant that is not ahead."""
        if not isinstance(until, int | float):
            return super().run(until)
        if not until > self._now:  # nor is what is no number
            raise ValueError(f"until ({until}) must be greater than the current simulation time")
        self.run_until(until)
        self._now = until
        return None


Clock.now = Clock._now  # type: ignore[misc]  # read a million times: SimPy's is a function of Python


class Station(Servers):
    """``servers`` cores or threads. Times in microseconds."""

    def serve(self, arrival_us: float, work_us: float) -> float:
        """When a job is done that arrives at ``arrival_us`` and needs ``work_us`` of one server."""
        return self.serve_bursts(arrival_us, 1, 1, work_us)


class Tenant(Station):
    """What one process does on the cores of a machine that it shares: it waits like all others, and is counted
    alone."""

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
