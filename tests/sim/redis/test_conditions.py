"""Conditions of a node: the kernel and a real server in the same condition must refuse the same calls, in the same
words, whether they come from a client, from a transaction or from a script with or without flags."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.conditions import Busy, DiskError
from orderlab.sim.redis.replies import Reply
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.wire import Connection

Execute = Callable[..., Reply]
BODY = (
    b"local e = redis.pcall(unpack(ARGV)) if type(e) == 'table' and e.err then return {'error', e.err} end return {e}"
)
FLAGS = (None, b"", b"no-writes", b"allow-oom", b"allow-stale", b"no-cluster", b"no-writes,allow-stale")


def scripts() -> Iterator[tuple[bytes, ...]]:
    """EVAL and EVAL_RO, with every set of flags, of a call that writes, that reads, that frees memory, of none."""
    for flags in FLAGS:
        shebang = b"" if flags is None else b"#!lua flags=%b\n" % flags
        for name in (b"EVAL", b"EVAL_RO"):
            for call in ((b"SET", b"k", b"v"), (b"GET", b"k"), (b"DEL", b"k"), (b"PING",), (b"PUBLISH", b"c", b"m")):
                yield (name, shebang + BODY, b"0", *call)
    after_a_write = b"redis.pcall('DEL', 'nothing') " + BODY
    yield (b"EVAL", after_a_write, b"0", b"SET", b"k", b"v")
    after_a_failed_write = b"redis.pcall('LPOP', KEYS[1]) " + BODY
    yield (b"EVAL", after_a_failed_write, b"1", b"k", b"SET", b"k", b"v")


PLAIN = [tuple(call.split()) for call in (b"SET k v", b"GET k", b"DEL k", b"PING", b"ECHO x", b"TIME x", b"INFO x")]
TRANSACTIONS = [
    step for call in ((b"SET", b"k", b"v"), (b"GET", b"k")) for step in ((b"MULTI",), call, (b"EXEC",), (b"DISCARD",))
]
PROBES = [*PLAIN, *TRANSACTIONS, *scripts(), (b"SET", b"k", b"v"), (b"EXEC", b"x")]


@dataclass(frozen=True)
class Setting:
    """One condition: how a server gets into it and out of it, and the same for a shard."""

    enter: tuple[bytes, ...]
    leave: tuple[bytes, ...]
    impose: Callable[[Shard], None]


def assign(**attributes: object) -> Callable[[Shard], None]:
    def impose(shard: Shard) -> None:
        for name, value in attributes.items():
            setattr(shard if hasattr(shard, name) else shard.config, name, value)

    return impose


SETTINGS = {
    "calm": Setting((b"PING",), (b"PING",), assign()),
    "memory": Setting((b"CONFIG SET maxmemory 1",), (b"CONFIG SET maxmemory 0",), assign(maxmemory=1)),
    "replicas": Setting(
        (b"CONFIG SET min-replicas-to-write 1",),
        (b"CONFIG SET min-replicas-to-write 0",),
        assign(min_replicas_to_write=1),
    ),
    "replica": Setting(
        (b"REPLICAOF 127.0.0.1 1",),
        (b"REPLICAOF NO ONE",),
        assign(is_replica=True, master_link_down=True),
    ),
    "stale": Setting(
        (b"REPLICAOF 127.0.0.1 1", b"CONFIG SET replica-serve-stale-data no"),
        (b"CONFIG SET replica-serve-stale-data yes", b"REPLICAOF NO ONE"),
        assign(is_replica=True, master_link_down=True, replica_serve_stale_data=False),
    ),
    "writable replica": Setting(
        (b"REPLICAOF 127.0.0.1 1", b"CONFIG SET replica-read-only no"),
        (b"CONFIG SET replica-read-only yes", b"REPLICAOF NO ONE"),
        assign(is_replica=True, master_link_down=True, replica_read_only=False),
    ),
}
COMBINATIONS = (
    *((name,) for name in SETTINGS),
    ("memory", "replicas"),
    ("memory", "replica"),
    ("memory", "stale"),
    ("replicas", "replica"),
    ("memory", "replicas", "stale"),
)


def kernel(*impose: Callable[[Shard], None]) -> Execute:
    shard = Shard()
    shard.execute((b"SET", b"k", b"v"))
    for each in impose:
        each(shard)
    return lambda *argv: shard.execute(argv)


def compare(connection: Connection, *impose: Callable[[Shard], None]) -> None:
    execute = kernel(*impose)
    for probe in PROBES:
        assert (probe, execute(*probe)) == (probe, connection.execute(*probe))


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess() as server:
        yield server


@pytest.fixture
def connection(server: ServerProcess) -> Iterator[Connection]:
    connection = Connection(server.host, server.port)
    connection.demand(b"SET", b"k", b"v")
    yield connection
    connection.close()


@pytest.mark.server
@pytest.mark.parametrize("names", COMBINATIONS, ids="+".join)
def test_the_same_calls_are_refused_in_the_same_words(names: tuple[str, ...], connection: Connection) -> None:
    chosen = [SETTINGS[name] for name in names]
    for setting in chosen:
        for command in setting.enter:
            connection.demand(*command.split(b" "))
    try:
        compare(connection, *(setting.impose for setting in chosen))
    finally:
        for setting in chosen:
            for command in setting.leave:
                connection.demand(*command.split(b" "))


@pytest.mark.server
@pytest.mark.parametrize("others", [(), ("memory", "replicas"), ("memory", "replica")], ids="+".join)
def test_a_failed_snapshot_stops_writes(others: tuple[str, ...], tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    with ServerProcess({"dir": str(directory)}) as server:
        connection = Connection(server.host, server.port)
        connection.demand(b"SET", b"k", b"v")
        shutil.rmtree(directory)
        connection.demand(b"CONFIG", b"SET", b"save", b"900 1")
        connection.demand(b"BGSAVE")
        deadline = time.monotonic() + 600
        while b"rdb_last_bgsave_status:err" not in connection.demand(b"INFO", b"persistence"):
            assert time.monotonic() < deadline, "the background save did not fail"
        for name in others:
            for command in SETTINGS[name].enter:
                connection.demand(*command.split(b" "))
        compare(connection, assign(disk_error=DiskError.SNAPSHOT), *(SETTINGS[name].impose for name in others))
        connection.demand(b"CONFIG", b"SET", b"stop-writes-on-bgsave-error", b"no")
        if not others:
            compare(connection, assign(disk_error=DiskError.SNAPSHOT, stop_writes_on_bgsave_error=False))
        connection.close()


@pytest.mark.server
def test_a_long_script_makes_a_node_busy(server: ServerProcess) -> None:
    connection, other = Connection(server.host, server.port), Connection(server.host, server.port)
    connection.demand(b"CONFIG", b"SET", b"busy-reply-threshold", b"1")
    other.send([(b"EVAL", b"while true do end", b"0")])
    deadline = time.monotonic() + 600
    while connection.execute(b"PING") == b"PONG":
        assert time.monotonic() < deadline, "the script did not make the server busy"
    shard = Shard()
    shard.busy = Busy.SCRIPT
    probes = [*PLAIN, (b"MULTI",), (b"SET", b"k", b"v"), (b"EXEC",), (b"WATCH", b"k"), (b"UNWATCH",), (b"nonsense",)]
    mine = [shard.execute(probe) for probe in probes]
    theirs = [connection.execute(*probe) for probe in probes]
    connection.demand(b"SCRIPT", b"KILL")
    other.receive(1)
    connection.demand(b"CONFIG", b"SET", b"busy-reply-threshold", b"5000")
    connection.close()
    other.close()
    assert mine == theirs


def test_memory_is_looked_at_when_exec_begins_too() -> None:
    shard, client = Shard(), Client()
    for argv in ((b"MULTI",), (b"SET", b"k", b"v")):
        shard.execute(argv, client)
    shard.config.maxmemory = 1
    reply = shard.execute((b"EXEC",), client)
    expected = b"EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'."
    assert reply.message == expected
    assert client.queue is None


def test_a_full_disk_stops_writes_and_says_so() -> None:
    shard = Shard()
    shard.disk_error = DiskError.APPEND
    misconf = b"MISCONF Errors writing to the AOF file: No space left on device"
    assert shard.execute((b"SET", b"k", b"v")).message == misconf
    assert shard.execute((b"PING",)).message == misconf
    assert shard.execute((b"GET", b"k")) is None


def test_the_stream_of_a_master_is_obeyed() -> None:
    shard, master = Shard(), Client(is_master=True)
    shard.is_replica = shard.master_link_down = True
    shard.config.maxmemory = shard.config.min_replicas_to_write = 1
    shard.disk_error = DiskError.SNAPSHOT
    assert shard.execute((b"SET", b"k", b"v"), master) == b"OK"
    assert shard.execute((b"SET", b"k", b"w")).message.startswith(b"MISCONF")
    assert shard.execute((b"GET", b"k")) == b"v"
