"""What a served node knows of its connections, held against a server: CLIENT, AUTH, MONITOR, CONFIG, COMMAND, BUSY."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator

import pytest

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.wire import encode_command
from orderlab.sim.redis.wire.background import InBackground
from orderlab.sim.redis.wire.served_node import ServedNode, ServeSettings
from tests.laboratory.conformance.bytes_on_wire import RawConnection, parsed

Address = tuple[str, int]


@pytest.fixture(scope="module")
def background() -> Iterator[InBackground]:
    with InBackground() as background:
        yield background


@pytest.fixture(scope="module")
def served(background: InBackground) -> Address:
    return "127.0.0.1", background.serve(ServedNode).port


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    with ServerProcess() as process:
        yield process.host, process.port


def said(at: Address, *lines: str) -> list[bytes]:
    """The replies to commands on one connection."""
    connection = RawConnection(*at)
    connection.send(b"".join(encode_command(line.encode().split(b" ")) for line in lines))
    try:
        return connection.replies(len(lines))
    finally:
        connection.close()


EXCHANGES = [
    "PUBSUB SHARDCHANNELS a b", "PUBSUB CHANNELS a b", "CONFIG SET maxclients 0",
    "CLIENT LIST TYPE foo", "CLIENT LIST foo", "CLIENT LIST ID x", "CLIENT LIST ID 999999", "CLIENT KILL 1.1.1.1:1",
    "CLIENT KILL ID 999999", "CLIENT KILL ID x", "CLIENT KILL TYPE x", "CLIENT KILL foo bar", "CLIENT KILL ADDR x",
    "CLIENT KILL SKIPME maybe", "CLIENT KILL USER nobody", "CLIENT REPLY x", "CLIENT PAUSE x", "CLIENT PAUSE -1",
    "CLIENT PAUSE 1 foo", "CLIENT UNPAUSE", "CLIENT SETINFO LIB-NAME x", "CLIENT NO-EVICT maybe", "AUTH x",
    "AUTH default x", "AUTH nobody x", "AUTH 1 2 3", "MONITOR x", "CONFIG SET maxclients x", "CONFIG GET maxclients",
    "CONFIG SET client-output-buffer-limit foo", "CONFIG GET client-output-buffer-limit", "CONFIG SET timeout -1",
    "CONFIG SET hz 10 hz 10", "CONFIG GET save", "CONFIG GET appendonly", "CONFIG GET no-such",
    "CONFIG GET t*out lfu-*", "CONFIG RESETSTAT", "COMMAND COUNT", "COMMAND DOCS nope", "COMMAND DOCS get xread",
    "COMMAND INFO get nope client|kill config", "COMMAND GETKEYSANDFLAGS set a b",
    "COMMAND GETKEYSANDFLAGS set a b get",
    "COMMAND GETKEYSANDFLAGS xread count 1 streams a b 0 0", "COMMAND GETKEYSANDFLAGS zinterstore d 2 a b",
    "COMMAND GETKEYSANDFLAGS eval x 1 k", "COMMAND GETKEYSANDFLAGS ping x y", "COMMAND GETKEYSANDFLAGS mset a 1 b 2",
    "COMMAND LIST FILTERBY ACLCAT hyperloglog", "SCRIPT KILL", "FUNCTION KILL", "CLIENT TRACKINGX", "COMMAND INFO",
    "LATENCY DOCTOR", "LATENCY LATEST", "LATENCY HISTORY x", "LATENCY GRAPH x", "LATENCY RESET x", "LATENCY FOO",
    "LATENCY HISTOGRAM nope", "SLOWLOG GET x", "SLOWLOG GET 1 2", "SLOWLOG FOO", "SLOWLOG RESET",
    "CONFIG SET slowlog-max-len -1", "CONFIG SET slowlog-log-slower-than x", "CONFIG SET latency-monitor-threshold -1",
    "DEBUG OBJECT", "DEBUG OBJECT nope", "DEBUG RELOAD foo", "DEBUG RELOAD", "CONFIG SET latency-tracking maybe",
]  # fmt: skip


@pytest.mark.server
@pytest.mark.parametrize("protocol", [2, 3])
def test_exchanges_are_a_servers(served: Address, server: Address, protocol: int) -> None:
    hello = f"HELLO {protocol}"
    for line in EXCHANGES:
        ours, theirs = said(served, hello, line)[1], said(server, hello, line)[1]
        assert _in_order(ours) == _in_order(theirs), (line, ours, theirs)


def _in_order(reply: bytes) -> object:
    return sorted(reply.split(b"\r\n")) if len(reply) > 40 else reply


@pytest.mark.server
def test_a_line_of_client_list_has_a_servers_fields(served: Address, server: Address) -> None:
    lines = [
        said(at, "CLIENT SETNAME me", "SELECT 1", "MULTI", "GET x", "DISCARD", "CLIENT INFO")[-1]
        for at in (served, server)
    ]
    names = [re.findall(rb"([a-z-]+)=", line) for line in lines]
    assert names[0] == names[1]
    facts = [dict(field.split(b"=", 1) for field in parsed(line).split()) for line in lines]  # type: ignore[attr-defined]
    for name in (b"name", b"db", b"sub", b"multi", b"flags", b"cmd", b"user", b"resp"):
        assert facts[0][name] == facts[1][name], name


@pytest.mark.server
def test_monitor_shows_what_a_server_shows(served: Address, server: Address) -> None:
    script = b"redis.call('set',KEYS[1],'x')\x20redis.call('get',KEYS[1])"
    requests = [
        [b"SET", b"k", b'a"\x00\xff\n'], [b"SELECT", b"2"], [b"EVAL", script, b"1", b"k"], [b"CONFIG", b"GET", b"x"],
        [b"MULTI"], [b"INCR", b"n"], [b"EVAL", script, b"1", b"k"], [b"EXEC"], [b"AUTH", b"default", b"secret"],
        [b"GET"], [b"NOTHING"], [b"CLIENT", b"ID"], [b"BLPOP", b"empty", b"0.01"], [b"PING"],
    ]  # fmt: skip
    shown = []
    for at in (served, server):
        monitor, other = RawConnection(*at), RawConnection(*at)
        monitor.send(b"MONITOR\r\n")
        assert monitor.replies(1) == [b"+OK\r\n"]
        other.send(b"".join(map(encode_command, requests)))
        other.replies(len(requests))
        lines: list[bytes] = []
        while not lines or b'"PING"' not in lines[-1]:
            lines += monitor.replies(1)
        shown.append([re.sub(rb"^\+[0-9.]+ |127\.0\.0\.1:\d+", b"", line) for line in lines])
        monitor.close()
        other.close()
    assert shown[0] == shown[1]


@pytest.mark.server
def test_statistics_are_a_servers(served: Address, server: Address) -> None:
    lines = ["SET s x", "INCR s", "GET", "NOTHING", "GET s", "MULTI", "GET s", "INCR s", "EXEC", "EVAL return(1) 0"]
    told = []
    for at in (served, server):
        said(at, "CONFIG RESETSTAT", *lines)
        text = said(at, "INFO commandstats errorstats")[0].decode()
        told.append({
            name: re.findall(r"(?:calls|rejected_calls|failed_calls|count)=\d+", rest)
            for name, rest in re.findall(r"(\w+stat_[\w|]+):(.*)\r", text)
        })  # fmt: skip
    assert told[0] == told[1]


def test_without_the_password_nothing_is_told(background: InBackground) -> None:
    node = background.serve(lambda: ServedNode(ServeSettings(password=b"open sesame")))
    at = ("127.0.0.1", node.port)
    replies = said(at, "GET k", "NOTHING", "GET", "HELLO 3", "AUTH wrong", "PING")
    assert [reply[:9] for reply in replies] == [
        b"-NOAUTH A",
        b"-ERR unkn",
        b"-ERR wron",
        b"-NOAUTH H",
        b"-WRONGPAS",
        b"-NOAUTH A",
    ]
    connection = RawConnection(*at)
    connection.send(encode_command([b"AUTH", b"open sesame"]) + b"PING\r\nRESET\r\nPING\r\n")
    assert connection.replies(4) == [b"+OK\r\n", b"+PONG\r\n", b"+RESET\r\n", b"-NOAUTH Authentication required.\r\n"]
    connection.close()
    assert said(at, "SET " + " ".join("x" * 20))[0].startswith(b"-ERR Protocol error: unauthenticated multibulk")


def test_kill_pause_and_silence(served: Address) -> None:
    victim, other = RawConnection(*served), RawConnection(*served)
    victim.send(b"CLIENT ID\r\n")
    identifier = victim.replies(1)[0][1:-2].decode()
    assert said(served, f"CLIENT KILL ID {identifier}") == [b":1\r\n"]
    with pytest.raises((EOFError, ConnectionError)):
        victim.replies(1)
    begun = time.monotonic()
    assert said(served, "CLIENT PAUSE 150 WRITE", "GET nothing") == [b"+OK\r\n", b"$-1\r\n"]
    assert said(served, "SET paused 1") == [b"+OK\r\n"]
    assert time.monotonic() - begun >= 0.15
    other.send(b"CLIENT REPLY OFF\r\nPING\r\nCLIENT REPLY ON\r\nCLIENT REPLY SKIP\r\nPING\r\nECHO x\r\n")
    assert other.replies(2) == [b"+OK\r\n", b"$1\r\nx\r\n"]
    other.close()


@pytest.mark.server
def test_a_reply_to_skip_is_that_of_the_next_command_alone(served: Address, server: Address) -> None:
    told = []
    for at in (served, server):
        connection = RawConnection(*at)
        connection.send(b"CLIENT REPLY SKIP\r\nSUBSCRIBE a\r\nGET a\r\nPING\r\nRESET\r\n")
        told.append(connection.replies(4))
        connection.send(b"CLIENT REPLY SKIP\r\nRESET\r\nMULTI\r\nSSUBSCRIBE a\r\nEXEC\r\n")
        told[-1] += connection.replies(3)
        connection.close()
    assert told[0] == told[1]


@pytest.mark.server
def test_hello_within_a_transaction_changes_how_what_follows_is_told(served: Address, server: Address) -> None:
    lines = ["MULTI", "GET none", "HELLO 9", "HELLO 3", "GET none", "HGETALL none", "HELLO 2", "GET none", "EXEC"]
    ours, theirs = (said(at, "HELLO 3", *lines, "GET none")[-2:] for at in (served, server))
    assert [re.sub(rb"id\r\n:\d+", b"id", text) for text in ours] == [
        re.sub(rb"id\r\n:\d+", b"id", text) for text in theirs
    ]


@pytest.mark.server
def test_who_kills_itself_hears_no_more_than_that(served: Address, server: Address) -> None:
    told = []
    for at in (served, server):
        told.append([])
        for lines in (
            "MULTI\r\nPING\r\nKILL\r\nSET within 1\r\nEXEC\r\nSET behind 1\r\n",
            "PING\r\nKILL\r\nSET behind 1\r\n",
        ):
            said(at, "DEL within behind")
            connection = socket.create_connection(at, timeout=10)
            kill = "CLIENT KILL LADDR {}:{} TYPE normal SKIPME no".format(*at)
            connection.sendall(lines.replace("KILL", kill).encode())
            told[-1].append(b"".join(iter(lambda taken=connection: taken.recv(4096), b"")))
            connection.close()
            told[-1] += said(at, "GET within", "GET behind")
    assert told[0] == told[1]
    assert told[0][0].endswith(b"*3\r\n+PONG\r\n:1\r\n")


def until_busy(at: Address) -> None:
    """Wait until a script has run for longer than the node's threshold, whatever that takes on this machine."""
    while not said(at, "PING")[0].startswith(b"-BUSY "):
        time.sleep(0.01)


def test_a_fault_is_refused_while_a_script_runs_on(served: Address) -> None:
    said(served, "CONFIG SET busy-reply-threshold 50")
    running = RawConnection(*served)
    running.send(encode_command([b"EVAL", b"while true do end", b"0"]))
    until_busy(served)
    assert said(served, "ORDERLAB noscript", "SCRIPT KILL")[0].startswith(b"-BUSY ")
    running.replies(1)
    running.close()
    assert said(served, "ORDERLAB noscript") == [b"+OK\r\n"]


@pytest.mark.server
def test_a_script_that_does_not_end_makes_the_node_busy_until_it_is_killed(served: Address, server: Address) -> None:
    told = []
    for at in (served, server):
        before, running = RawConnection(*at), RawConnection(*at)
        said(at, "CONFIG SET busy-reply-threshold 50")
        before.send(b"PING\r\n")
        before.replies(1)
        running.send(encode_command([b"EVAL", b"while true do end", b"0"]) + b"PING\r\n")
        until_busy(at)
        before.send(b"GET k\r\nFUNCTION KILL\r\nMULTI\r\nDISCARD\r\n")
        told.append(before.replies(4))
        told[-1] += said(at, "GET k", "SCRIPT KILL")
        told[-1] += running.replies(2)
        told[-1] += said(at, "SET k v", "DEL k")
        before.send(b"PING\r\n")
        told[-1] += before.replies(1)
        before.close()
        running.close()
    for ours, theirs in zip(*told, strict=True):
        assert ours == theirs, (ours, theirs)


def test_a_script_that_has_written_is_not_killed(served: Address) -> None:
    said(served, "CONFIG SET busy-reply-threshold 10")
    running = RawConnection(*served)
    running.send(encode_command([b"EVAL", b"redis.call('set','w',1) for i = 1, 3e8 do end return 7", b"0"]))
    late = RawConnection(*served)
    told = b"-NOTBUSY"
    while told.startswith(b"-NOTBUSY"):  # until it has begun
        late.send(b"SCRIPT KILL\r\n")
        told = late.replies(1)[0]
    assert told.startswith(b"-UNKILLABLE Sorry"), told
    assert running.replies(1) == [b":7\r\n"]
    late.send(b"GET w\r\n")  # a connection that was made meanwhile lives on
    assert late.replies(1) == [b"$1\r\n1\r\n"]
    late.close()
    running.close()


def test_a_reader_that_is_too_slow_is_cut_off_alone(served: Address) -> None:
    connection = RawConnection(*served)
    connection.send(encode_command([b"CONFIG", b"SET", b"client-output-buffer-limit", b"normal 1000000 0 0"]))
    connection.send(encode_command([b"SET", b"big", b"x" * 500_000]))
    assert connection.replies(2) == [b"+OK\r\n", b"+OK\r\n"]
    slow = socket.create_connection(served)
    slow.sendall(b"CLIENT SETNAME slow\r\n")
    assert slow.recv(100) == b"+OK\r\n"
    assert b"name=slow" in said(served, "CLIENT LIST")[0]
    slow.sendall(b"GET big\r\n" * 100)
    deadline = time.monotonic() + 120
    while b"name=slow" in said(served, "CLIENT LIST")[0] and time.monotonic() < deadline:
        time.sleep(0.02)
    assert b"name=slow" not in said(served, "CLIENT LIST")[0]
    slow.close()
    connection.send(encode_command([b"CONFIG", b"SET", b"client-output-buffer-limit", b"normal 0 0 0"]) + b"PING\r\n")
    assert connection.replies(2) == [b"+OK\r\n", b"+PONG\r\n"]
    connection.close()


def test_a_reset_within_a_transaction_harms_nobody(served: Address) -> None:
    for end in (b"*1\r\n$4\r\nEX", b"EXEC\r\n"):
        connection = socket.create_connection(served)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        connection.sendall(b"DEL t\r\nMULTI\r\nSET t 1\r\nBLPOP none 0\r\nGET t\r\n" + end)
        time.sleep(0.05)
        connection.close()
        time.sleep(0.05)
        assert said(served, "GET t") == [b"$1\r\n1\r\n" if end.startswith(b"EXEC") else b"$-1\r\n"]


def test_no_more_clients_than_allowed(background: InBackground) -> None:
    node = background.serve(ServedNode)
    at = ("127.0.0.1", node.port)
    first = RawConnection(*at)
    first.send(b"CONFIG SET maxclients 2\r\n")
    first.replies(1)
    second, third = RawConnection(*at), RawConnection(*at)
    second.send(b"PING\r\n")
    assert second.replies(1) == [b"+PONG\r\n"]
    assert third.replies(1) == [b"-ERR max number of clients reached\r\n"]
    for connection in (first, second, third):
        connection.close()


def test_an_idle_connection_is_closed_after_the_timeout(background: InBackground) -> None:
    node = background.serve(ServedNode)
    connection = RawConnection("127.0.0.1", node.port)
    connection.send(b"CONFIG SET timeout 1\r\n")
    connection.replies(1)
    with pytest.raises((EOFError, ConnectionError)):
        connection.replies(1)
    connection.close()
