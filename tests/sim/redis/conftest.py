"""A real server that judges the kernel: the same commands on both, and a list of where their replies differ."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.replies import Reply, Verbatim
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.wire import Connection

Command = Sequence[bytes]


def same(one: Reply, other: Reply) -> bool:
    """Equal in value and in type, all the way down."""
    if type(one) is not type(other) or (isinstance(one, Verbatim) and one.format != other.format):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return len(one) == len(other) and all(map(same, one.items(), other.items()))
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other) if isinstance(one, float) else bool(one == other)


class Judge:
    """A server beside fresh shards."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server

    def differences(self, commands: Sequence[Command], resp: int = 2) -> list[str]:
        """What the kernel replies otherwise than the server, both empty at first."""
        connection = Connection(self._server.host, self._server.port)
        shard, client = Shard(), Client()
        shard.now_ms = time.time_ns() // 1_000_000
        try:
            connection.demand(b"FLUSHALL")
            connection.demand(b"SCRIPT", b"FLUSH")
            connection.demand(b"FUNCTION", b"FLUSH")
            for version in {2, resp}:
                connection.demand(b"HELLO", b"%d" % version)
                shard.execute((b"HELLO", b"%d" % version), client)
            found = []
            for start in range(0, len(commands), 200):
                portion = commands[start : start + 200]
                for command, expected in zip(portion, connection.pipeline(portion), strict=True):
                    actual = shard.execute(command, client)
                    if not same(expected, actual):
                        found.append(f"{list(command)}\n  server {expected!r}\n  kernel {actual!r}")
            return found
        finally:
            connection.close()


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    with ServerProcess() as server:
        yield Judge(server)
