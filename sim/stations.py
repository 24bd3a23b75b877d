"""A station: equal servers, one queue, first come first served; what it did, and how long jobs waited.

The instant at which a job is done is computed when it arrives (Kiefer and Wolfowitz's recursion: a job takes the server
that is free first), so a job costs no event. Jobs must be handed over in the order in which they arrive.
"""

from __future__ import annotations

from heapq import heapreplace


class Station:
    """``servers`` cores or threads. Times in microseconds."""

    def __init__(self, servers: int) -> None:
        if servers < 1:
            raise ValueError(f"{servers} servers: a station needs at least one")
        self.servers = servers
        self.jobs = 0
        self.busy_us = 0.0
        self.waited_us = 0.0
        self.wait_max_us = 0.0
        self._free_us = [0.0] * servers

    def serve(self, arrival_us: float, work_us: float) -> float:
        """When a job is done that arrives at ``arrival_us`` and needs ``work_us`` of one server."""
        free_us = self._free_us[0]
        begun = arrival_us
        if free_us > arrival_us:
            begun = free_us
            wait = free_us - arrival_us
            self.waited_us += wait
            self.wait_max_us = max(self.wait_max_us, wait)
        done = begun + work_us
        heapreplace(self._free_us, done)
        self.busy_us += work_us
        self.jobs += 1
        return done

    def stall(self, until_us: float) -> None:
        """No server is free before ``until_us``: a stop of the world, a paused virtual machine."""
        self._free_us = [max(free, until_us) for free in self._free_us]  # max keeps the order, so the heap too

    def snapshot(self) -> tuple[float, float, int]:
        """(busy, waited, jobs) so far: ``usage_since`` tells what came after."""
        return self.busy_us, self.waited_us, self.jobs

    def usage_since(self, before: tuple[float, float, int], elapsed_us: float) -> tuple[float, float]:
        """(utilisation 0..1, mean number of jobs that wait, by Little's law) over the ``elapsed_us`` since then.

        Work is counted when it is taken on, so a backlog can push the utilisation above 1.
        """
        busy, waited, _ = before
        return (self.busy_us - busy) / (elapsed_us * self.servers), (self.waited_us - waited) / elapsed_us


class Tenant(Station):
    """What one process does on the cores of a machine that it shares: it waits like all others, and is counted alone."""

    def __init__(self, host: Station) -> None:
        super().__init__(host.servers)
        self.host = host

    def serve(self, arrival_us: float, work_us: float) -> float:
        done = self.host.serve(arrival_us, work_us)
        wait = max(done - work_us - arrival_us, 0.0)
        self.waited_us += wait
        self.wait_max_us = max(self.wait_max_us, wait)
        self.busy_us += work_us
        self.jobs += 1
        return done

    def stall(self, until_us: float) -> None:
        self.host.stall(until_us)
