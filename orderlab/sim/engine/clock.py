"""Virtual time: a function at an instant costs one event and no process, a job at a station none.

A station has equal servers and one queue, first come first served. The instant at which a job is done is computed when
it arrives (Kiefer and Wolfowitz's recursion: a job takes the server that is free first). Jobs must be handed over in
the order in which they arrive.

`Agenda`, `Waits`, `Servers` and `call_at` are those of `engine.py`, or its machine code.
"""

from __future__ import annotations

from typing import Any

import simpy

from orderlab.sim.native.choose import Agenda, Servers, Waits, call_at

__all__ = ["Agenda", "Clock", "Servers", "Station", "Tenant", "Waits", "call_at"]


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
