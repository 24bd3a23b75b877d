"""Messages (published and delivered) of `tbmq-p2p`, history recorded, every message through the real Lua, beside the
saves of a real server.

Two sizes, the published rows 200k and 1M, and a real server with its client that saves messages one by one
(`benchmarks.kernel`), each in turn: messages per second of processor time ÷ saves per second of processor time, server
and client together. The share of the wall time that the scripts and the kernel take is measured in runs of their own,
as watching takes time too; and beside them a plain SimPy program that only moves the same number of events as the run
had. Each run has a process of its own, as one of `orderlab simulate` has: in a heap that other runs have left behind,
the 1M row is 6 % slower. Assembling the system and judging the history are not counted; writing it to Parquet is.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import redis
import simpy

from benchmarks.kernel import CLIENTS, STORE, ClientContender, cpu_seconds_of
from benchmarks.timing import report
from orderlab.model.history.disk import HistoryWriter
from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.wire import Connection
from orderlab.sim.servers.redis import RedisNode
from orderlab.sim.stores.binding import load_binding
from orderlab.sim.systems.tbmq_p2p import ROWS, P2PSettings, P2PSystem

TO_REACH = {"messages_vs_server_saves_200k": (">=", 1.5), "messages_vs_server_saves_1m": (">=", 1.5)}
VIRTUAL_S = {"200k": (0.1, 0.4), "1m": (0.05, 0.15)}
"""Warm-up and measured interval: as many messages, about, at each size."""


class _Timed:
    """Wall time and events of one run; ``is_watched``: what of it scripts and kernel take, too."""

    def __init__(self, row: str, seed: int, is_watched: bool = False) -> None:
        warm_up, measured = VIRTUAL_S[row]
        settings = P2PSettings(**ROWS[row], warm_up_s=warm_up, duration_s=measured)
        sinks: list[Any] = []
        system = P2PSystem(settings, seed, sinks)
        kernel = _KernelTime(system.world.storage.nodes if is_watched else ())
        gc.collect()
        with tempfile.TemporaryDirectory() as folder:
            begun, cpu = time.perf_counter(), time.process_time()
            with HistoryWriter(Path(folder) / "history.parquet", system.names()) as writer:
                sinks.append(writer.write)
                system.run()
            self.wall_s = time.perf_counter() - begun
            self.cpu_s = time.process_time() - cpu
        counts = system.world.measured.counts
        self.messages = counts["published"] + counts["delivered"]
        self.events = system.env.scheduled
        self.kernel_s = kernel.seconds
        self.rows = system.recorder.rows


class _KernelTime:
    """Adds up the wall time that nodes spend on commands."""

    def __init__(self, nodes: Iterable[RedisNode]) -> None:
        self.seconds = 0.0
        for node in nodes:
            self._watch(node)

    def _watch(self, node: RedisNode) -> None:
        inner = node.run_requests

        def timed(*arguments: Any) -> Any:
            begun = time.perf_counter()
            try:
                return inner(*arguments)
            finally:
                self.seconds += time.perf_counter() - begun

        node.run_requests = timed  # type: ignore[method-assign]


def plain_simpy(events: int) -> float:
    """Events per second of a plain SimPy program: ten processes that wait in turn."""
    env = simpy.Environment()

    def wait(times: int) -> Any:
        for _ in range(times):
            yield env.timeout(1)

    for _ in range(10):
        env.process(wait(events // 10))
    begun = time.perf_counter()
    env.run()
    return events / (time.perf_counter() - begun)


class _Saves:
    """A real server and its client."""

    def __init__(self, server: ServerProcess) -> None:
        self._client = ClientContender(
            load_binding(STORE), CLIENTS["server"], lambda: redis.Redis(host=server.host, port=server.port)
        )
        self._observer = Connection(server.host, server.port)

    def per_cpu_s(self) -> float:
        """Saves per second of processor time, the server's and its client's."""
        self._client.prepare()
        gc.collect()
        begun = self._cpu_s()
        return self._client.work() / (self._cpu_s() - begun)

    def _cpu_s(self) -> float:
        return time.process_time() + cpu_seconds_of(self._observer)

    def close(self) -> None:
        """Disconnect."""
        self._observer.close()


def run(rounds: int = 5) -> dict[str, Any]:
    """Measure; the benchmark's report. A few minutes. Raises InputError without a server."""
    runs: dict[str, list[_Timed]] = {row: [] for row in VIRTUAL_S}
    saves, baseline = [], []
    with ExitStack() as stack:
        fresh_process = stack.enter_context(ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1))
        server = _Saves(stack.enter_context(ServerProcess()))
        stack.callback(server.close)
        server.per_cpu_s()  # the first is dearer
        for seed in range(rounds):
            for row, done in runs.items():
                done.append(fresh_process.submit(_Timed, row, seed).result())
            saves.append(server.per_cpu_s())
            baseline.append(fresh_process.submit(plain_simpy, runs["200k"][-1].events).result())
        watched = {row: fresh_process.submit(_Timed, row, 0, True).result() for row in VIRTUAL_S}
    figures = {
        f"messages_vs_server_saves_{row}": statistics.median(
            timed.messages / timed.cpu_s / saved for timed, saved in zip(done, saves, strict=True)
        )
        for row, done in runs.items()
    }
    figures["lua_share"] = watched["200k"].kernel_s / watched["200k"].wall_s
    detail = {
        "rounds": rounds,
        "messages": {row: done[-1].messages for row, done in runs.items()},
        "history_rows": {row: done[-1].rows for row, done in runs.items()},
        "events_per_message": {row: round(done[-1].events / done[-1].messages, 3) for row, done in runs.items()},
        "server_saves_per_cpu_s": round(statistics.median(saves)),
        "messages_per_wall_s": {
            row: round(statistics.median(timed.messages / timed.wall_s for timed in done)) for row, done in runs.items()
        },
        "messages_per_cpu_s": {
            row: round(statistics.median(timed.messages / timed.cpu_s for timed in done)) for row, done in runs.items()
        },
        "kernel_us_per_message": {
            row: round(timed.kernel_s / timed.messages * 1e6, 2) for row, timed in watched.items()
        },
        "plain_simpy_events_per_s": round(statistics.median(baseline)),
        "plain_simpy_s_for_the_events_of_the_200k_run": round(runs["200k"][-1].events / statistics.median(baseline), 3),
        "peers": {"simpy": simpy.__version__, "redis-py": redis.__version__},
    }
    return report("simulation", figures, detail)
