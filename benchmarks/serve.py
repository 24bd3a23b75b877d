"""A served node beside a real server under redis-benchmark: pipelines of SET and of EVALSHA of ``save``, 1,000
connections; and how long a lone GET takes at 5,000 a second.

Each server has a process of its own, and so has what asks: on two cores each has one.
"""

from __future__ import annotations

import re
import selectors
import socket
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any

from benchmarks.kernel import STORE, sources, workload
from benchmarks.timing import report
from orderlab.model.errors import InputError
from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.wire import Connection, encode_command
from orderlab.sim.stores.binding import load_binding

TO_REACH = {
    "set_per_s_pipelined": (">=", 30_000.0),
    "save_per_s_pipelined": (">=", 30_000.0),
    "set_per_s_1000_connections": (">=", 30_000.0),
    "get_p99_ms_at_5000_per_s": ("<=", 2.0),
}
PIPELINE = 50
ROUNDS = 5
REQUESTS, SAVES = 50_000, 40_000
CONNECTIONS, SAVING = 20, 8
"""Of the lone GETs; of the saves."""
GET_PER_S = 5_000
GETS_S = 2.0
PONG = b"+PONG\r\n"
WORD = re.compile(r"([\d.]+) requests per second")


class ServedProcess:
    """`orderlab serve` in a process of its own; a context manager."""

    host = "127.0.0.1"

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "orderlab", "serve", "--port", "0"], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        match = re.search(r":(\d+) ", line)
        if match is None:
            raise InputError(f"orderlab serve: did not start ({line.strip()}); see what it printed")
        self.port = int(match[1])

    def __enter__(self) -> ServedProcess:
        return self

    def __exit__(self, *unused: object) -> None:
        self._process.terminate()
        self._process.wait()


def requests_per_s(port: int, *words: str) -> float:
    """What redis-benchmark measures."""
    command = ["redis-benchmark", "-p", str(port), "-q", "-n", str(REQUESTS), *words]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    rates = WORD.findall(run.stdout)
    if not rates:
        raise InputError(f"{' '.join(command)}: printed no rate ({run.stdout.strip()[-200:]})")
    return float(rates[-1])


def saves_per_s(port: int) -> float:
    """EVALSHA of ``save`` for one message, in pipelines: its words hold zero bytes, which no argument of
    redis-benchmark can. As it does, the pipelines are written down before and sent over several connections, so that
    the server never waits for what asks."""
    binding = load_binding(STORE)
    opens, saves = workload(binding, 1)
    connection = Connection("127.0.0.1", port)
    connection.demand(b"FLUSHALL")
    for source in sources(binding):
        connection.demand(b"SCRIPT", b"LOAD", source)
    connection.pipeline(opens)
    connection.demand(*saves[0])  # refused once, it would be refused quickly
    connection.close()
    pipeline = encode_command(saves[0]) * PIPELINE + encode_command([b"PING"])
    sockets = [_connected(port) for _ in range(SAVING)]
    selector = selectors.DefaultSelector()
    tails = dict.fromkeys(sockets, b"")
    begun = time.perf_counter()
    for each in sockets:
        selector.register(each, selectors.EVENT_READ)
        each.sendall(pipeline)
    sent, replied = len(sockets), 0
    while replied < SAVES // PIPELINE:
        for key, _ in selector.select():
            each = key.fileobj  # type: ignore[assignment]
            tails[each] = (tails[each] + each.recv(65536))[-len(PONG) :]
            if tails[each] == PONG:
                tails[each] = b""
                replied += 1
                if sent < SAVES // PIPELINE:
                    each.sendall(pipeline)
                    sent += 1
    took_s = time.perf_counter() - begun
    for each in sockets:
        each.close()
    return SAVES / took_s


def _connected(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def get_latencies_ms(port: int) -> list[float]:
    """GETs at their times, whether or not those before have their reply: each latency counts from when it was due."""
    sockets = [_connected(port) for _ in range(CONNECTIONS)]
    selector = selectors.DefaultSelector()
    due: dict[socket.socket, list[float]] = {each: [] for each in sockets}
    for each in sockets:
        selector.register(each, selectors.EVENT_READ)
    latencies: list[float] = []
    begun, sent, total = time.perf_counter(), 0, int(GET_PER_S * GETS_S)
    while len(latencies) < total:
        now = time.perf_counter()
        while sent < total and begun + sent / GET_PER_S <= now:
            connection = sockets[sent % CONNECTIONS]
            due[connection].append(begun + sent / GET_PER_S)
            connection.sendall(b"*2\r\n$3\r\nGET\r\n$4\r\nnone\r\n")
            sent += 1
        for key, _ in selector.select(max(0.0, begun + sent / GET_PER_S - time.perf_counter()) if sent < total else 1):
            connection = key.fileobj  # type: ignore[assignment]
            count = connection.recv(65536).count(b"$-1\r\n")
            now = time.perf_counter()
            waiting = due[connection]
            latencies += [(now - at) * 1000 for at in waiting[:count]]
            del waiting[:count]
    for each in sockets:
        each.close()
    return latencies


def _processor_s(port: int) -> float:
    """What a server's process has taken so far, as its INFO says."""
    connection = Connection("127.0.0.1", port)
    facts = connection.demand(b"INFO", b"cpu")
    connection.close()
    assert isinstance(facts, bytes)
    return sum(float(each) for each in re.findall(rb"used_cpu_(?:sys|user):([\d.]+)", facts))


def measured(port: int) -> dict[str, float]:
    """One round at one server."""
    pipelined = ("-P", str(PIPELINE))
    latencies = sorted(get_latencies_ms(port))
    before_s = _processor_s(port)
    saves = saves_per_s(port)
    return {
        "save_per_s_pipelined": saves,
        "saves_per_processor_s": SAVES / (_processor_s(port) - before_s),
        "set_per_s_pipelined": requests_per_s(port, *pipelined, "-t", "set"),
        "set_per_s_1000_connections": requests_per_s(port, *pipelined, "-c", "1000", "-t", "set"),
        "get_p99_ms_at_5000_per_s": latencies[len(latencies) * 99 // 100],
        "get_p50_ms_at_5000_per_s": latencies[len(latencies) // 2],
    }


def run() -> dict[str, Any]:
    """Measure both in turns; the benchmark's report. Takes a minute or two."""
    with ExitStack() as stack:
        server = stack.enter_context(ServerProcess())
        served = stack.enter_context(ServedProcess())
        rounds: dict[str, list[dict[str, float]]] = {"served": [], "server": []}
        for _ in range(ROUNDS):
            rounds["served"].append(measured(served.port))
            rounds["server"].append(measured(server.port))
        connection = Connection(server.host, server.port)
        facts = connection.demand(b"INFO", b"server")
        connection.close()
    assert isinstance(facts, bytes)
    version = dict(line.split(":", 1) for line in facts.decode().splitlines() if ":" in line)["redis_version"]
    medians = {
        name: {figure: statistics.median(each[figure] for each in own) for figure in own[0]}
        for name, own in rounds.items()
    }
    figures = {name: medians["served"][name] for name in TO_REACH}
    return report("serve", figures, {"peers": {"redis": version}, "medians": medians, "rounds": rounds})
