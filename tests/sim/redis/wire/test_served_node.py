"""A served node against clients: redis-py, raw bytes, hostile ones; a real server judges the bytes."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import redis

from orderlab.model.errors import InputError
from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.wire import encode_command
from orderlab.sim.redis.wire.background import InBackground
from orderlab.sim.redis.wire.served_node import ServedNode, ServeSettings
from tests.laboratory.conformance.bytes_on_wire import RawConnection, compare


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with InBackground() as background:
        yield background.serve(ServedNode).port


def sent(port: int, data: bytes) -> bytes:
    """All that a connection gets until it is closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(4096), b""))


@pytest.mark.server
def test_the_bytes_are_a_servers() -> None:
    compared, found = compare(1500, seed=5)
    assert compared >= 1500
    assert found == []


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_works_unchanged(port: int, protocol: int) -> None:
    client = redis.Redis(port=port, protocol=protocol)
    client.flushall()
    with client.pipeline() as pipeline:
        pipeline.set("a", 1).incr("a").eval("return {KEYS[1], ARGV[1]}", 1, "k", "v")
        assert pipeline.execute() == [True, 2, [b"k", b"v"]]
    subscriber = client.pubsub(ignore_subscribe_messages=True)
    subscriber.subscribe("news")
    subscriber.get_message(timeout=5)
    client.publish("news", "hello")
    message = subscriber.get_message(timeout=5)
    assert message is not None
    assert message["data"] == b"hello"
    assert client.blpop(["nothing"], timeout=0.05) is None
    subscriber.close()
    client.close()


@pytest.mark.parametrize(
    ("data", "reply"),
    [
        (b"PING\r\nECHO 'a b'\r\n", b"+PONG\r\n$3\r\na b\r\n"),
        (b"*x\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*1\r\n$99999999999\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n$-5\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n:5\r\n", b"-ERR Protocol error: expected '$', got ':'\r\n"),
        (b"SET a 'b\r\n", b"-ERR Protocol error: unbalanced quotes in request\r\n"),
        (b"x" * 70_000, b"-ERR Protocol error: too big inline request\r\n"),
        (b"*-7\r\n*0\r\n\r\nPING\r\n", b"+PONG\r\n"),
        (b"*2\r\n$3\r\nGET\r\n$100\r\nhalf", b""),
        (b"GET / HTTP/1.1\r\nHost: x\r\nPING\r\n", b""),
        (b"POST / HTTP/1.1\r\nPING\r\n", b""),
        (b"PING\0\r\n", b""),
    ],
)
def test_what_is_no_request_ends_its_own_connection_alone(port: int, data: bytes, reply: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as other:
        assert sent(port, data) == reply
        other.sendall(b"PING\r\n")
        assert other.recv(100) == b"+PONG\r\n"


def test_it_listens_on_loopback_alone() -> None:
    with pytest.raises(InputError, match="stay at 127"):
        ServeSettings(host="0.0.0.0").check()


NESTED = b"local a = {}; local b = {a}; a[1] = b; return a"
SAID = [
    [b"EVAL", NESTED, b"0"],
    [b"EVAL", b"return redis.call('INFO', 'nosuch') .. type(redis.call('INFO'))", b"0"],
    [b"EVAL", b"return redis.call('INFO', 'nosuch')", b"0"],
    [b"EVAL", b"redis.setresp(3) return redis.call('INFO').verbatim_string.format", b"0"],
    *([name, b"HELP"] for name in b"ACL CLIENT CONFIG DEBUG FUNCTION LATENCY OBJECT SCRIPT XGROUP CLUSTER".split()),
    [b"CLIENT", b"HELP", b"x"], [b"CLIENT", b"TRACKINGINFO"], [b"CLIENT", b"GETREDIR"],
    [b"MULTI"], [b"SAVE"], [b"EXEC"], [b"MULTI"], [b"SHUTDOWN"], [b"EXEC"],
]  # fmt: skip


@pytest.mark.server
@pytest.mark.parametrize("protocol", [b"2", b"3"])
def test_nested_replies_help_and_refusals_are_a_servers(port: int, protocol: bytes) -> None:
    """A table within itself makes a reply of thousands of levels, more than Python's stack has."""
    with ServerProcess() as process:
        said = []
        for at in (port, process.port):
            raw = RawConnection("127.0.0.1", at)
            raw.send(encode_command([b"HELLO", protocol]) + b"".join(encode_command(line) for line in SAID))
            said.append(raw.replies(1 + len(SAID))[1:])
            raw.close()
    assert said[0] == said[1]


def test_info_has_the_lines_that_clients_read(port: int) -> None:
    with redis.Redis(port=port) as client:
        facts = client.info()
        assert (facts["arch_bits"], facts["master_repl_offset"], facts["rdb_bgsave_in_progress"]) == (64, 0, 0)
        client.execute_command("CLIENT PAUSE 10000 WRITE")
        with socket.create_connection(("127.0.0.1", port), timeout=10) as other:
            other.sendall(b"SET k v\r\n")
            while client.info("clients")["blocked_clients"] != 1:
                pass
            client.execute_command("CLIENT UNPAUSE")
            assert other.recv(100) == b"+OK\r\n"
