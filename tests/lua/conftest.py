"""A real server, and stores on it whose clock the tests move: expiry then needs no waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.wire import Connection
from orderlab.sim.stores.binding import Binding, Result, ScriptCall, load_binding
from orderlab.sim.stores.binding.lua_text import scale

ROOT = Path(__file__).parents[2]
CLOCK = b"test:clock"


class RealStore:
    """A store's operations on a server. With ``now_ms`` its scripts read the time from a key that the test writes."""

    def __init__(self, connection: Connection, binding: Binding, now_ms: int | None = None) -> None:
        self.connection = connection
        self.binding = binding
        if now_ms is not None:
            time, clock = b"call('TIME')", b"call('LRANGE', '" + CLOCK + b"', 0, 1)"
            sources = {script.name: script.source.replace(time, clock) for script in binding.scripts}
            self.binding = binding.with_sources(sources)
            self.set_clock(now_ms)

    def set_clock(self, now_ms: int) -> None:
        self.connection.execute(b"DEL", CLOCK)
        self.connection.execute(b"RPUSH", CLOCK, b"%d" % (now_ms // 1000), b"%d" % (now_ms % 1000 * 1000))

    def perform(self, operation: str, client: bytes = b"c", **fields: object) -> Result:
        """Carry out every call of the operation."""
        fields = {"client": client, **fields}
        replies: list[object] = []
        while True:
            answer = self.binding.step(operation, fields, replies)
            if isinstance(answer, Result):
                return answer
            argv = answer.argv_with_source if isinstance(answer, ScriptCall) else answer.argv
            replies.append(self.connection.execute(*argv))

    def replacing(self, sources: Mapping[bytes, bytes]) -> RealStore:
        """The same store with pieces of its scripts replaced, as a test of rare paths needs."""

        def replaced(source: bytes) -> bytes:
            for old, new in sources.items():
                source = source.replace(old, new)
            return source

        new_sources = {script.name: replaced(script.source) for script in self.binding.scripts}
        return RealStore(self.connection, self.binding.with_sources(new_sources))


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    with ServerProcess() as process:
        yield process


@pytest.fixture
def connection(server: ServerProcess) -> Iterator[Connection]:
    made = Connection(server.host, server.port)
    made.demand(b"FLUSHALL")
    yield made
    made.close()


OpenStore = Callable[..., RealStore]


@pytest.fixture
def open_store(connection: Connection) -> OpenStore:
    """``open_store("lua/session")``; with ``now_ms`` on a clock of the test's; with ``modulus`` scaled down."""

    def make(folder: str | Path, now_ms: int | None = None, modulus: int | None = None) -> RealStore:
        binding = load_binding(ROOT / folder)
        if modulus is not None:
            binding, _ = scale(binding, modulus)
        return RealStore(connection, binding, now_ms)

    return make
