"""HyperLogLog byte for byte as a server keeps it: sparse, grown into dense, merged, broken."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.commands import hyperloglogs
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.wire import Connection

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with ServerProcess() as server:
        connection = Connection(server.host, server.port)
        yield connection
        connection.close()


def partings(connection: Connection) -> list[tuple[bytes, ...]]:
    """Commands on sets of growing size that the two answer differently."""
    draw, shard = random.Random(20), Shard()
    connection.demand(b"FLUSHALL")
    found = []
    for size in (1, 3, 40, 300, 700, 900, 1500, 4000):
        for key in (b"a", b"b", b"c%d" % size):
            elements = [b"%d" % draw.randrange(1 << 40) for _ in range(size)]
            calls = [(b"PFADD", key, *elements), (b"GET", key), (b"PFCOUNT", key), (b"GET", key)]
            calls += [(b"PFCOUNT", b"a", b"b", key), (b"OBJECT", b"ENCODING", key)]
            found += [call for call in calls if connection.execute(*call) != shard.execute(call)]
        for call in [(b"PFMERGE", b"m", b"c%d" % size, b"c1"), (b"GET", b"m"), (b"PFCOUNT", b"m")]:
            if connection.execute(*call) != shard.execute(call):
                found.append(call)
    return found


def test_bytes_and_counts_are_those_of_a_server(connection: Connection) -> None:
    assert partings(connection) == []


def test_a_run_that_is_not_joined_is_seen(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hyperloglogs, "_merge", lambda data, at: None)
    assert partings(connection)


@pytest.mark.parametrize(
    "tail", [b"", b"\x7f", b"\x7f\xff\x00", b"\x00", b"\x7f\xfe", b"\x80" * 3], ids=lambda tail: tail.hex() or "none"
)
def test_what_is_broken_is_refused_as_by_a_server(connection: Connection, tail: bytes) -> None:
    shard = Shard()
    broken = b"HYLL\x01" + bytes(3) + bytes(7) + b"\x80" + tail
    for call in [(b"SET", b"k", broken), (b"PFCOUNT", b"k"), (b"PFCOUNT", b"k", b"j"), (b"PFMERGE", b"d", b"k")]:
        assert connection.execute(*call) == shard.execute(call), call
