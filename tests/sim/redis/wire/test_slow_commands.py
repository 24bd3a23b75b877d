"""SLOWLOG, LATENCY and DEBUG RELOAD of a served node, held against a server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.replies import OK, ErrorReply, Reply
from orderlab.sim.redis.wire import Connection
from orderlab.sim.redis.wire.background import InBackground
from orderlab.sim.redis.wire.served_node import ServedNode, ServeSettings


@pytest.fixture
def pair() -> Iterator[list[Connection]]:
    """A served node, and a server."""
    with InBackground() as background, ServerProcess() as process:
        yield [Connection("127.0.0.1", background.serve(ServedNode).port), Connection(process.host, process.port)]


LINES: list[list[bytes]] = [
    [b"CONFIG", b"SET", b"slowlog-log-slower-than", b"0"], [b"GET", b"k"], [b"GET"], [b"MULTI"], [b"SET", b"k", b"v"],
    [b"LPUSH", b"k", b"v"], [b"EXEC"], [b"EVAL", b"return 1", b"1", b"k"],
    [b"SET", b"long", b"x" * 200], [b"MSET", *[b"%d" % number for number in range(60)]], [b"AUTH", b"default", b"p"],
    [b"ACL", b"SETUSER", b"u", b">secret"], [b"CONFIG", b"SET", b"masterauth", b""], [b"NOTHING"], [b"CLIENT", b"ID"],
]  # fmt: skip


@pytest.mark.server
def test_the_log_of_slow_commands_is_a_servers(pair: list[Connection]) -> None:
    logs = []
    for connection in pair:
        connection.pipeline(LINES)
        entries: Any = connection.execute(b"SLOWLOG", b"GET", b"-1")
        logs.append([(entry[3], entry[5]) for entry in entries])
        connection.execute(b"CONFIG", b"SET", b"slowlog-max-len", b"2")
        connection.execute(b"GET", b"k")
        assert connection.execute(b"SLOWLOG", b"LEN") == 2
    assert logs[0] == logs[1]


@pytest.mark.server
def test_a_command_that_waited_is_slow_when_it_is_served(pair: list[Connection]) -> None:
    logs = []
    for connection in pair:
        connection.execute(b"CONFIG", b"SET", b"slowlog-log-slower-than", b"0")
        facts = cast("bytes", connection.execute(b"CLIENT", b"INFO"))
        other = Connection("127.0.0.1", int(facts.split(b" laddr=127.0.0.1:")[1].split(b" ")[0]))
        connection.send([[b"BLPOP", b"l", b"0"]])
        while b"blocked_clients:1" not in cast("bytes", other.execute(b"INFO", b"clients")):
            pass
        other.execute(b"SLOWLOG", b"RESET")
        assert other.execute(b"SLOWLOG", b"LEN") == 1  # RESET alone
        other.execute(b"RPUSH", b"l", b"a")
        connection.receive(1)
        other.pipeline([[b"MULTI"], [b"DEBUG", b"SLEEP", b"0.01"], [b"EXEC"]])
        entries: Any = other.execute(b"SLOWLOG", b"GET", b"-1")
        logs.append(sorted(b" ".join(entry[3]) for entry in entries if entry[3][0] != b"INFO"))
        assert max(entry[2] for entry in entries) >= 10_000
        assert b"cmdstat_blpop:calls=1," in cast("bytes", other.execute(b"INFO", b"commandstats"))
    assert logs[0] == logs[1]


@pytest.mark.server
def test_a_reload_gives_every_value_the_encoding_of_its_size(pair: list[Connection]) -> None:
    shown = []
    for connection in pair:
        connection.pipeline([
            [b"SADD", b"s", b"1", b"a"], [b"SREM", b"s", b"a"], [b"SET", b"t", b"a"], [b"APPEND", b"t", b"b"],
            [b"HSET", b"h", b"f", b"v" * 100], [b"HSET", b"h", b"f", b"v"], [b"PEXPIREAT", b"h", b"9999999999999"],
            [b"XADD", b"x", b"1-1", b"f", b"v"], [b"SELECT", b"1"], [b"RPUSH", b"l", b"a"], [b"SELECT", b"0"],
            [b"SCRIPT", b"LOAD", b"return 1"], [b"WATCH", b"s"], [b"DEBUG", b"RELOAD"], [b"MULTI"], [b"PING"],
        ])  # fmt: skip
        lines = [[b"EXEC"], *[[b"OBJECT", b"ENCODING", key] for key in (b"s", b"t", b"h", b"x")]]
        lines += [
            [b"PEXPIRETIME", b"h"],
            [b"XLEN", b"x"],
            [b"EVALSHA", b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db", b"0"],
        ]
        shown.append(connection.pipeline(lines))
    assert shown[0] == shown[1]


@pytest.mark.server
def test_how_long_a_key_was_not_used_is_a_servers(pair: list[Connection]) -> None:
    """A server's clock of use ticks once a second, between commands that it has read together not at all."""
    lines = [
        [b"TTL", b"k"], [b"TYPE", b"k"],
        [b"OBJECT", b"IDLETIME", b"k"], [b"OBJECT", b"IDLETIME", b"l"], [b"TOUCH", b"k"], [b"LRANGE", b"l", b"0", b"0"],
        [b"OBJECT", b"IDLETIME", b"k"], [b"OBJECT", b"IDLETIME", b"l"], [b"OBJECT", b"IDLETIME", b"none"],
        [b"CONFIG", b"SET", b"maxmemory-policy", b"allkeys-lfu"], [b"OBJECT", b"IDLETIME", b"k"],
        [b"SET", b"new", b"v"], [b"OBJECT", b"FREQ", b"new"],
    ]  # fmt: skip
    for connection in pair:
        connection.pipeline([[b"SET", b"k", b"v"], [b"RPUSH", b"l", b"a"]])
    time.sleep(3.2)
    served, server = ([_at_least(reply, 2) for reply in connection.pipeline(lines)] for connection in pair)
    assert served == server
    assert (served[2], served[6]) == (True, False)


def test_under_a_virtual_clock_a_command_takes_the_time_that_it_lets_pass() -> None:
    with InBackground() as background:
        node = background.serve(lambda: ServedNode(ServeSettings(virtual_clock=True)))
        connection = Connection("127.0.0.1", node.port)
        connection.execute(b"CONFIG", b"SET", b"latency-monitor-threshold", b"10")
        connection.execute(b"DEBUG", b"SLEEP", b"0.02")
        assert [entry[:3] for entry in _list(connection, b"SLOWLOG", b"GET")] == [[0, 0, 20_000]]
        assert _list(connection, b"LATENCY", b"LATEST") == [[b"command", 0, 20, 20]]
        assert _list(connection, b"LATENCY", b"HISTOGRAM", b"debug") == [
            b"debug", [b"calls", 1, b"histogram_usec", [33816, 1]],
        ]  # fmt: skip
        assert isinstance(connection.execute(b"LATENCY", b"DOCTOR"), ErrorReply)
        assert connection.execute(b"LATENCY", b"RESET") == 1
        assert connection.execute(b"SLOWLOG", b"RESET") == OK


def _at_least(reply: Reply, seconds: int) -> Reply:
    return reply >= seconds if isinstance(reply, int) else reply


def _list(connection: Connection, *argv: bytes) -> list[Any]:
    reply = connection.execute(*argv)
    assert isinstance(reply, list)
    return reply
