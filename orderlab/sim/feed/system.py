"""`zaqar-watch`, `zaqar-lua`, `zaqar-race`: a message feed in Redis, and two cures of its race.

Producers post through one web head to feeds on a machine with a few Redis processes; readers list after a marker. A
message is a hash, and a member of its feed's sorted set with a rank from a counter. Read apart from the write, the
counter gives two producers one rank: a message can appear behind a marker. `zaqar-race` does that. `zaqar-watch`
watches the counter and begins again on a conflict, at once, for 10 s at most; then the client gets an error.
`zaqar-lua` writes the hashes first and lets a script take rank and counter; if nothing runs the script, they stay until
they expire.

Every command runs on the kernel, on the producer's own connection, when it reaches its process. Producers are closed
loops: each posts again once it is answered, so there are as many requests under way as producers (Little's law). WATCH
and GET, two round trips, are carried out at the first: what comes between them breaks the transaction either way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from orderlab.model.history.events import EventBatch, EventKind
from orderlab.sim.engine.clock import call_at
from orderlab.sim.feed.feed import SharedFeed
from orderlab.sim.feed.process import RedisProcess
from orderlab.sim.feed.producer import Producer
from orderlab.sim.feed.reader import PAGE, Reader
from orderlab.sim.feed.settings import ZaqarSettings
from orderlab.sim.systems.progress import SimulationProgress
from orderlab.sim.systems.system import TICK_US, MeasuredDelivery


class FeedWorld:
    """What others observe: what was measured."""

    def __init__(self, feed: SharedFeed) -> None:
        self.measured = MeasuredDelivery(feed.latency)


class ZaqarSystem(SharedFeed):
    """The assembled system."""

    def __init__(self, settings: ZaqarSettings, seed: int, sinks: list[Callable[[EventBatch], None]]) -> None:
        super().__init__(settings, seed, sinks)
        self.world = FeedWorld(self)
        self.producers = [Producer(self, number) for number in range(settings.producers)]
        self.readers: list[Reader] = [
            Reader(self, queue, settings.producers + queue * settings.readers + number)
            for queue in range(settings.queues)
            for number in range(settings.readers)
        ]
        self.schedule_faults("process", lambda _: len(self.processes))

    def strike(self, name: str, target: int, lasts_us: int) -> None:
        """A process stalls, loses its connections, or starts again."""
        now, process = int(self.env.now), self.processes[target]
        if name == "redis-stall":
            process.busy_until_us = max(process.busy_until_us, now + lasts_us)
        else:
            process.lose_connections()
        if name == "redis-restart":
            process.down_until_us = now + lasts_us
            process.busy_until_us = float(now)
            process.shard.execute((b"SCRIPT", b"FLUSH"))
        self.struck(name, f"redis-{target}", lasts_us, target)

    # -- the run -----------------------------------------------------------------------------------------------

    def run(self, on_progress: Callable[[SimulationProgress], None] | None = None) -> dict[str, Any]:
        """Run to the end; the report."""
        env = self.env
        subscribed = [(reader.code, reader.queue) for reader in self.readers] + [
            (self.auditor, queue) for queue in range(self.settings.queues)
        ]
        self.recorder.add(
            EventKind.SUBSCRIBE,
            np.zeros(len(subscribed), np.int64),
            subscriber=np.array([code for code, _ in subscribed]),
            topic=np.array([queue for _, queue in subscribed]),
            qos=1,
        )
        for producer in self.producers:
            call_at(env, producer.number * 97 % 5000, producer.post)
        for number, reader in enumerate(self.readers):
            call_at(env, number * 977 % (self.settings.poll_ms * 1000), reader.poll)
        call_at(env, TICK_US, self._tick)
        served: list[tuple[int, int]] = []
        for at in (self.begin_us, self.end_us):
            call_at(env, at, lambda: served.append(self._served()))
        for _ in self.steps(TICK_US * 4, self.over_us + 1, on_progress):
            pass
        env.run(until=self.over_us + 1)
        self._end()
        return self._report(*(after - before for before, after in zip(*served, strict=True)))

    def _tick(self) -> None:
        """Hand over what is held, and end a slice."""
        self.hand_over()
        self.series.sample()
        if self.is_going():
            call_at(self.env, self.env.now + TICK_US, self._tick)

    def _end(self) -> None:
        """All that readers still find, and one that lists everything from the start."""
        for reader in self.readers:
            while reader.page() == PAGE:
                pass
        for queue in range(self.settings.queues):
            reader = Reader(self, queue, self.auditor)
            while reader.page() == PAGE:
                pass
        self.hand_over()
        self.recorder.close(self.over_us)

    def _served(self) -> tuple[int, int]:
        return sum(one.requests for one in self.processes), sum(one.commands for one in self.processes)

    def _report(self, requests: int, commands: int) -> dict[str, Any]:
        figures = self.figures(self.posted)
        seconds, mean_us = figures["measured_s"], self.latency.mean_us()
        figures["latency"]["request"]["sd_ms"] = float(
            f"{max(self.mean_square_us() - mean_us * mean_us, 0.0) ** 0.5 / 1000:.4g}"
        )
        return {
            **figures,
            "redis_commands_per_s": {
                "per_node": [round(commands / seconds / len(self.processes))] * len(self.processes),
                "all": round(commands / seconds),
            },
            "redis_requests_per_s": round(requests / seconds),
            "driver_flushes_per_s": round(requests / seconds),
            **({"recovery": recovery} if (recovery := self.series.recoveries(self.end_us, self.over_us)) else {}),
            "contention": {"conflicts_per_request": float(f"{self.conflicts / max(self.posted, 1):.4g}")},
            "counts": self.all_counts(conflicts=self.conflicts, orphans=self.orphans()),
        }

    def orphans(self) -> int:
        """Hashes that no feed has an entry for."""
        left = 0
        for number, process in enumerate(self.processes):
            own = range(number, self.settings.queues, len(self.processes))
            keys = [key for queue in own for key in (self.counters[queue], self.feeds[queue])]
            # Asked for first: a key that is asked for goes when its time is over.
            expired = self._expired(process, own) if self.may_expire else 0
            size, there, *entries = (
                reply if isinstance(reply, int) else 0
                for reply in map(
                    process.shard.execute,
                    [(b"DBSIZE",), (b"EXISTS", *(keys or [b""])), *((b"ZCARD", self.feeds[queue]) for queue in own)],
                )
            )
            left += size - there - (sum(entries) - expired)
        return left

    def _expired(self, process: RedisProcess, own: range) -> int:
        """Entries of feeds whose hash is gone."""
        feeds = [process.shard.execute((b"ZRANGE", self.feeds[queue], b"0", b"-1")) for queue in own]
        names = [name for feed in feeds if isinstance(feed, list) for name in feed if isinstance(name, bytes)]
        return sum(process.shard.execute((b"EXISTS", name)) == 0 for name in names)
