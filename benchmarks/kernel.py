"""Single-message saves per second with the real scripts of ``lua/session``: kernel, fakeredis, and a real server.

The server and fakeredis are driven as their users drive them, through redis-py pipelines of 500 EVALSHA; the kernel is
called as the simulation and the explorer call it. Each contender has one core for all that it needs: saves are counted
per second of processor time, the server's and its client's together. What comes out by the wall clock, when the server
has a core beside its client's, is in the detail (``saves_vs_server_on_two_cores``).

Memory per stored message is what Python has allocated more after the saves (tracemalloc), and for the server what INFO
says of ``used_memory``.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import fakeredis
import redis

from benchmarks.timing import Contender, report, take_turns
from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.wire import Connection
from orderlab.sim.stores.binding import Binding, Message, ScriptCall, load_binding

STORE = Path(__file__).parents[1] / "lua" / "session"
PIPELINE = 500
DEPTH = 50
"""Messages saved for each client."""
CLIENTS = {"kernel": 400, "server": 400, "fakeredis": 40}
"""fakeredis gets less to do, to the same depth of queue."""
MEMORY_CLIENTS = 100
PAYLOAD_BYTES = 62
"""As in the published cluster measurement of TBMQ."""
TO_REACH = {"saves_vs_server": (">=", 1.0), "saves_vs_fakeredis": (">=", 12.0), "memory_vs_server": ("<=", 3.0)}

Argv = tuple[bytes, ...]


def workload(binding: Binding, clients: int) -> tuple[list[Argv], list[Argv]]:
    """The commands that open ``clients`` sessions, and those that save ``DEPTH`` messages in each, round by round."""
    names = [b"device-%06d" % number for number in range(clients)]
    opens = [_argv(binding.call("open", client=name, epoch=1, clean_start=1)) for name in names]
    saves = [
        _argv(
            binding.call(
                "save",
                client=name,
                epoch=1,
                producer=b"%d" % (number % 12),
                batch=depth + 1,
                messages=[Message(b"%0*d" % (PAYLOAD_BYTES, depth), b"data/%b" % name, 1, None, 0)],
            )
        )
        for depth in range(DEPTH)
        for number, name in enumerate(names)
    ]
    return opens, saves


def _argv(call: object) -> Argv:
    assert isinstance(call, ScriptCall), "every operation of lua/session is one script"
    return call.argv


def sources(binding: Binding) -> list[bytes]:
    """The scripts to load."""
    return [script.source for script in binding.scripts]


def _check(replies: Sequence[object], count: int) -> int:
    assert len(replies) == count, "a command got no reply"
    failed = next((reply for reply in replies if isinstance(reply, Exception)), None)
    assert failed is None, f"a save failed: {failed}"
    return count


class KernelContender:
    """A fresh shard for each round."""

    def __init__(self, binding: Binding) -> None:
        self._sources = sources(binding)
        self._opens, self._saves = workload(binding, CLIENTS["kernel"])
        self._shard = Shard()

    def prepare(self) -> None:
        """Load the scripts and open the sessions."""
        self._shard = new_shard(self._sources, self._opens)

    def work(self) -> int:
        """Save everything."""
        execute = self._shard.execute
        return _check([execute(argv) for argv in self._saves], len(self._saves))


def new_shard(scripts: Sequence[bytes], commands: Sequence[Argv]) -> Shard:
    """A kernel shard that has loaded ``scripts`` and run ``commands``."""
    backend = KernelBackend()
    for source in scripts:
        backend.script_load(source)
    for argv in commands:
        reply = backend.shard.execute(argv)
        assert not isinstance(reply, ErrorReply), reply
    return backend.shard


class ClientContender:
    """A redis-py client, of a server or of fakeredis, that sends pipelines."""

    def __init__(self, binding: Binding, clients: int, new_client: Callable[[], Any]) -> None:
        self._sources = sources(binding)
        self._opens, self._saves = workload(binding, clients)
        self._new_client = new_client
        self._client: Any = None

    def prepare(self) -> None:
        """Empty the database, load the scripts and open the sessions."""
        self._client = self._new_client()
        self._client.flushall()
        for source in self._sources:
            self._client.script_load(source)
        self._send(self._opens)

    def work(self) -> int:
        """Save everything."""
        return self._send(self._saves)

    def _send(self, commands: Sequence[Argv]) -> int:
        for start in range(0, len(commands), PIPELINE):
            pipeline = self._client.pipeline(transaction=False)
            for argv in commands[start : start + PIPELINE]:
                pipeline.execute_command(*argv)
            _check(pipeline.execute(raise_on_error=False), len(commands[start : start + PIPELINE]))
        return len(commands)


def python_bytes_per_message(binding: Binding, save_all: Callable[[list[Argv], list[Argv]], object]) -> float:
    """Bytes that Python allocates per message. ``save_all(opens, saves)`` returns the database that is to be kept."""
    opens, saves = workload(binding, MEMORY_CLIENTS)
    save_all(*workload(binding, 1))  # compiled scripts and caches are not part of a message
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = save_all(opens, saves)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    del kept
    return (after - before) / len(saves)


def kernel_bytes_per_message(binding: Binding) -> float:
    """The same for a kernel shard: what one database of saved messages holds."""
    return python_bytes_per_message(binding, lambda opens, saves: new_shard(sources(binding), [*opens, *saves]))


def fakeredis_bytes_per_message(binding: Binding) -> float:
    """The same for fakeredis."""

    def save_all(opens: list[Argv], saves: list[Argv]) -> object:
        client: Any = fakeredis.FakeRedis(server=fakeredis.FakeServer(version=(7, 0)))
        for source in sources(binding):
            client.script_load(source)
        for argv in [*opens, *saves]:
            client.execute_command(*argv)
        return client

    return python_bytes_per_message(binding, save_all)


def server_bytes_per_message(binding: Binding, server: ServerProcess) -> float:
    """``used_memory`` of INFO, after less before, per message."""
    connection = Connection(server.host, server.port)
    opens, saves = workload(binding, MEMORY_CLIENTS)
    connection.demand(b"FLUSHALL")
    for source in sources(binding):
        connection.demand(b"SCRIPT", b"LOAD", source)
    connection.pipeline(workload(binding, 1)[0])
    before = _used_memory(connection)
    commands = opens + saves
    for start in range(0, len(commands), PIPELINE):
        some = commands[start : start + PIPELINE]
        _check(connection.pipeline(some), len(some))
    after = _used_memory(connection)
    connection.close()
    return (after - before) / len(saves)


def cpu_seconds_of(connection: Connection) -> float:
    """Processor time that the server behind ``connection`` has used."""
    lines = connection.demand(b"INFO", b"cpu").decode().splitlines()
    facts = dict(line.split(":") for line in lines if ":" in line)
    return float(facts["used_cpu_user"]) + float(facts["used_cpu_sys"])


def _used_memory(connection: Connection) -> int:
    lines = connection.demand(b"INFO", b"memory").decode().splitlines()
    return int(next(line for line in lines if line.startswith("used_memory:")).split(":")[1])


def run(rounds: int = 5) -> dict[str, Any]:
    """Measure everything; the benchmark's report. Takes about half a minute. Raises InputError without a server."""
    binding = load_binding(STORE)
    with ExitStack() as stack:
        server = stack.enter_context(ServerProcess())
        kernel = KernelContender(binding)
        over_network = ClientContender(
            binding, CLIENTS["server"], lambda: redis.Redis(host=server.host, port=server.port)
        )
        fake = ClientContender(
            binding, CLIENTS["fakeredis"], lambda: fakeredis.FakeRedis(server=fakeredis.FakeServer(version=(7, 0)))
        )
        observer = Connection(server.host, server.port)
        stack.callback(observer.close)

        def client_and_server() -> float:
            return time.process_time() + cpu_seconds_of(observer)

        contenders = [
            Contender("kernel", kernel.prepare, kernel.work),
            Contender("server", over_network.prepare, over_network.work, client_and_server),
            Contender("fakeredis", fake.prepare, fake.work),
        ]
        timings = take_turns(contenders, rounds)
        memory = {
            "kernel": kernel_bytes_per_message(binding),
            "server": server_bytes_per_message(binding, server),
            "fakeredis": fakeredis_bytes_per_message(binding),
        }
        peer = str(server.binary)
    figures = {
        "saves_vs_server": timings.core_ratio("kernel", "server"),
        "saves_vs_fakeredis": timings.core_ratio("kernel", "fakeredis"),
        "memory_vs_server": memory["kernel"] / memory["server"],
    }
    detail = {
        "saves_per_core_s": {name: round(timings.core_median(name)) for name in timings.rates},
        "saves_per_wall_s": {name: round(timings.median(name)) for name in timings.rates},
        "saves_vs_server_on_two_cores": round(timings.ratio("kernel", "server"), 3),
        "bytes_per_message": {name: round(size) for name, size in memory.items()},
        "rounds": rounds,
        "saves_per_round": {name: clients * DEPTH for name, clients in CLIENTS.items()},
        "peers": {"server": peer, "fakeredis": fakeredis.__version__, "redis-py": redis.__version__},
    }
    return report("kernel", figures, detail)
