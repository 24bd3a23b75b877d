"""The contention of the two cures of a feed's race, on a real server with real clients and in the simulation: how often
a request begins again.

Each producer is a thread with a connection of its own, which does what the simulated one does: WATCH, GET, a pause of
random length, MULTI to EXEC until it is not refused; or hashes, a pause, the script. Pauses are long beside everything
else, so that conflicts follow from the protocol and not from the speed of this machine.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from orderlab.sim.feed.process import POST
from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.wire import Connection
from orderlab.sim.systems.catalogue import SYSTEMS, settings_of

PAUSE_US = 10_000
COSTS = "zaqar web.request_us=0 web.call_us=20 web.pause_share=0"
PLACES = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8), (16, 8))
"""(queues, producers) of the curve."""
FACTOR, SLACK = 1.5, 0.25
"""Conflicts a request of the two may differ by a factor, and by this where there are few."""


@dataclass(frozen=True)
class Contention:
    """What a run came to."""

    requests: int
    conflicts: int
    ranks_are_whole: bool
    """Every request has a rank of its own, without a gap."""

    @property
    def per_request(self) -> float:
        """Conflicts a request."""
        return self.conflicts / max(self.requests, 1)


class _Producer(threading.Thread):
    def __init__(
        self, server: ServerProcess, cure: str, queues: int, number: int, requests: int, pause_us: int
    ) -> None:
        super().__init__(daemon=True)
        self.connection = Connection(server.host, server.port)
        self.cure, self.queues, self.number, self.requests, self.pause_s = (
            cure,
            queues,
            number,
            requests,
            pause_us / 1e6,
        )
        self.draws = random.Random(number)
        self.conflicts = 0
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            for request in range(self.requests):
                self._post(self.draws.randrange(self.queues), b"%d.%d" % (self.number, request))
        except Exception as error:  # told by whoever waits for the thread
            self.failure = error
        finally:
            self.connection.close()

    def _post(self, queue: int, name: bytes) -> None:
        execute, pipeline = self.connection.execute, self.connection.pipeline
        counter, feed = b"%d.counter" % queue, b"%d.messages" % queue
        hashes = [(b"HSET", name, b"b", name), (b"EXPIRE", name, b"3600")]
        if self.cure == "lua":
            pipeline([(b"MULTI",), *hashes, (b"EXEC",)])
            time.sleep(self.draws.expovariate(1 / self.pause_s))
            reply = execute(b"EVAL", POST, b"2", counter, feed, name)
            assert not isinstance(reply, ErrorReply), reply
            return
        while True:
            execute(b"WATCH", counter)
            rank = execute(b"GET", counter)
            time.sleep(self.draws.expovariate(1 / self.pause_s))
            ranked = (b"ZADD", feed, rank if isinstance(rank, bytes) else b"0", name)
            if pipeline([(b"MULTI",), *hashes, ranked, (b"INCRBY", counter, b"1"), (b"EXEC",)])[-1] is not None:
                return
            self.conflicts += 1


def on_server(
    server: ServerProcess, cure: str, queues: int, producers: int, requests: int, pause_us: int = PAUSE_US
) -> Contention:
    """Each of ``producers`` makes so many ``requests`` on an empty server, which they leave empty."""
    with closing(Connection(server.host, server.port)) as connection:
        connection.execute(b"FLUSHALL")
        threads = [_Producer(server, cure, queues, number, requests, pause_us) for number in range(producers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
            if thread.failure is not None:
                raise thread.failure
        whole = True
        for queue in range(queues):
            ranked = connection.execute(b"ZRANGE", b"%d.messages" % queue, b"0", b"-1", b"WITHSCORES")
            assert isinstance(ranked, list)
            whole &= [int(score) for score in ranked[1::2] if isinstance(score, bytes)] == list(range(len(ranked) // 2))
        connection.execute(b"FLUSHALL")
    return Contention(producers * requests, sum(thread.conflicts for thread in threads), whole)


def simulated(
    cure: str, queues: int, producers: int, pause_us: int = PAUSE_US, seed: int = 0, duration_s: float = 10.0
) -> float:
    """Conflicts a request in the simulation of the same."""
    given = {
        "cure": cure, "queues": queues, "producers": producers, "window_us": pause_us, "costs": COSTS, "readers": 0,
        "warm_up_s": 0.1, "duration_s": duration_s, "drain_s": 0.1,
    }  # fmt: skip
    report = SYSTEMS["zaqar-watch"].assemble(settings_of("zaqar-watch", given), seed, []).run()
    return float(report["contention"]["conflicts_per_request"])


def agree(real: float, model: float) -> bool:
    """Whether both say the same."""
    return abs(real - model) <= SLACK or 1 / FACTOR <= real / max(model, 1e-9) <= FACTOR


def compare(requests: int, places: Sequence[tuple[int, int]] = PLACES) -> int:
    """Print the curve of both cures on a server and in the simulation; 1 if they part or a rank is wrong, else 0."""
    parted = 0
    with ServerProcess() as server:
        print(
            f"conflicts a request with pauses of {PAUSE_US / 1000:g} ms on average\ncure   queues  producers  server "
            " simulation"
        )
        for cure in ("watch", "lua"):
            for queues, producers in places:
                real = on_server(server, cure, queues, producers, requests)
                model = simulated(cure, queues, producers)
                fits = agree(real.per_request, model) and real.ranks_are_whole
                parted += not fits
                print(
                    f"{cure:<6} {queues:>6}  {producers:>9}  {real.per_request:>6.2f}  "
                    f"{model:>10.2f}{'' if fits else '  PARTED'}",
                    flush=True,
                )
    return 1 if parted else 0
