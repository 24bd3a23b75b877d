"""One interface, three backends: the same contract on each, and the refusals that protect a user's server."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from orderlab.model.errors import InputError
from orderlab.sim.live import ServerProcess, free_port
from orderlab.sim.redis.backends import Backend, KernelBackend, ServerBackend, open_backend
from orderlab.sim.redis.backends.fakeredis import FakeredisBackend
from orderlab.sim.redis.replies import WRONG_TYPE, ErrorReply, Status
from orderlab.sim.redis.wire import Connection

SPECS = ["kernel", "fakeredis", pytest.param("auto", marks=pytest.mark.server)]


@pytest.fixture(params=SPECS, scope="module")
def opened(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with open_backend(request.param) as backend:
        yield backend


@pytest.fixture
def backend(opened: Backend) -> Backend:
    opened.flush()
    return opened


OUTSIZE = b"~" * 65
FILL = [
    (b"SET", b"string", b"\x00\xff"),
    (b"SET", b"brief", b"x", b"PX", b"100000"),
    (b"RPUSH", b"list", b"a", b"b", b"a"),
    (b"HSET", b"hash", b"f", b"1", b"e", b"2"),
    (b"HSET", b"large hash", OUTSIZE, b"1", b"e", b"2"),
    (b"SADD", b"integers", b"3", b"-1"),
    (b"SADD", b"set", b"x", b"3"),
    (b"ZADD", b"zset", b"1.5", b"m", b"-inf", b"n", b"1.5", b"l"),
    (b"ZADD", b"large zset", b"1", OUTSIZE, b"-0.0", b"zero"),
]


def test_replies_keep_their_types(backend: Backend) -> None:
    replies = backend.pipeline([(b"SET", b"k", b"v"), (b"GET", b"k"), (b"LLEN", b"k"), (b"GET", b"none")])
    assert replies == [b"OK", b"v", ErrorReply(WRONG_TYPE), None]
    assert [type(reply) for reply in replies] == [Status, bytes, ErrorReply, type(None)]


def test_what_is_dumped_can_be_loaded(backend: Backend) -> None:
    assert not any(isinstance(reply, ErrorReply) for reply in backend.pipeline(FILL))
    before = backend.keyspace()
    assert {key: kind for key, (kind, _, _) in before.items()} == {
        b"string": "string",
        b"brief": "string",
        b"list": "list",
        b"hash": "hash",
        b"large hash": "hash",
        b"integers": "set",
        b"set": "set",
        b"zset": "zset",
        b"large zset": "zset",
    }
    backend.flush()
    assert backend.keyspace() == {}
    backend.load(before)
    assert backend.keyspace() == before


def test_a_dump_of_one_backend_loads_into_the_kernel(backend: Backend) -> None:
    backend.pipeline(FILL)
    dumped = backend.keyspace()
    kernel = KernelBackend(now_ms=backend.now_ms)
    kernel.load(dumped)
    assert kernel.keyspace() == dumped


def test_time_passes_without_waiting(backend: Backend) -> None:
    start_ms = backend.now_ms
    backend.execute(b"SET", b"short", b"x", b"PX", b"60000")
    backend.execute(b"SET", b"long", b"x", b"PXAT", b"%d" % (start_ms + 7_200_000))
    backend.execute(b"SET", b"lasting", b"x")
    backend.advance(3_600_000)
    assert 3_600_000 <= backend.now_ms - start_ms < 3_660_000
    assert backend.keyspace() == {
        b"long": ("string", b"x", start_ms + 7_200_000),
        b"lasting": ("string", b"x", None),
    }
    assert backend.execute(b"EXISTS", b"short") == 0
    assert 0 < backend.execute(b"PTTL", b"long") <= 3_600_000


def test_virtual_time_is_seen_by_scripts_where_the_backend_says_so(backend: Backend) -> None:
    backend.advance(1_000_000_000)
    seconds, _ = backend.eval(b"return redis.call('TIME')")
    assert (abs(int(seconds) * 1000 - backend.now_ms) < 600_000) is backend.sees_virtual_time


def test_a_script_runs_by_its_digest_and_by_its_text(backend: Backend) -> None:
    backend.execute(b"SCRIPT", b"FLUSH")
    source = b"redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])"
    assert backend.evalsha(backend.script_load(source), [b"k"], [b"w"]) == b"w"
    assert backend.eval(source, [b"k"], [b"x"]) == b"x"


def test_a_script_that_does_not_compile_is_an_error(backend: Backend) -> None:
    assert isinstance(backend.eval(b"return ("), ErrorReply)
    if not isinstance(backend, FakeredisBackend):  # which accepts it, and fails when it is to run
        with pytest.raises(ErrorReply):
            backend.script_load(b"return (")


def test_it_says_what_it_is(backend: Backend) -> None:
    name, *version = backend.describe().split()
    assert name in ("kernel", "fakeredis", "redis", "valkey")
    assert version


# -- what a user can do wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("kernl", "unknown backend; did you mean kernel?"),
        ("mysql", "give one of kernel, fakeredis, auto, redis://HOST:PORT"),
        ("http://localhost:80", "write redis://HOST:PORT"),
        ("redis://", "write redis://HOST:PORT"),
        ("redis://host:port", "write redis://HOST:PORT"),
        ("redis://host:1/db", "write redis://HOST:PORT"),
    ],
)
def test_an_unknown_backend_is_one_line(spec: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        open_backend(spec)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unreachable_server_is_named_with_a_cure() -> None:
    port = free_port()
    with pytest.raises(InputError, match=rf"^redis://127\.0\.0\.1:{port}: cannot connect \(.*\); start the server"):
        open_backend(f"redis://127.0.0.1:{port}")


def test_something_that_is_not_redis_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        connection = Connection("127.0.0.1", port)
        accepted, _ = listener.accept()
        accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n")
        with pytest.raises(InputError, match="not a RESP reply"):
            connection.execute(b"PING")
        accepted.close()


@pytest.mark.server
def test_a_database_with_data_is_left_alone_and_an_empty_one_is_cleared_at_the_end() -> None:
    with ServerProcess() as process:
        owner = Connection(process.host, process.port)
        owner.execute(b"SET", b"precious", b"1")
        with pytest.raises(InputError, match="database 0 is not empty and is left alone"):
            open_backend(f"redis://{process.address}")
        with open_backend(f"redis://{process.address}/7") as backend:
            backend.execute(b"SET", b"ours", b"1")
            backend.flush()
            backend.execute(b"SET", b"ours", b"2")
        assert owner.execute(b"GET", b"precious") == b"1"
        owner.execute(b"SELECT", b"7")
        assert owner.execute(b"DBSIZE") == 0
        owner.close()


@pytest.mark.server
def test_a_password_is_asked_for_and_used() -> None:
    with ServerProcess({"requirepass": "s3cret/"}) as process:
        with pytest.raises(InputError, match=r"NOAUTH.*give the password"):
            open_backend(f"redis://{process.address}")
        with pytest.raises(InputError, match="AUTH refused: WRONGPASS") as caught:
            open_backend(f"redis://:wrong@{process.address}")
        assert "wrong@" not in str(caught.value)
        with open_backend(f"redis://:s3cret%2F@{process.address}") as backend:
            assert backend.execute(b"PING") == b"PONG"


@pytest.mark.server
def test_a_node_of_no_whole_cluster_is_refused() -> None:
    with ServerProcess({"cluster-enabled": "yes"}) as process:
        with pytest.raises(InputError, match="a cluster without slots"):
            open_backend(f"redis://{process.address}")
        with pytest.raises(InputError, match="a node of a cluster"):
            ServerBackend(process.host, process.port)


@pytest.mark.server
def test_a_server_that_goes_away_midway_is_an_input_error() -> None:
    with ServerProcess() as process:
        backend = ServerBackend(process.host, process.port)
        process.stop()
        with pytest.raises(InputError, match="the server went away midway"):
            backend.pipeline([(b"PING",)] * 3)
        backend.close()


@pytest.mark.server
def test_a_server_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orderlab.sim.redis.backends.server.OLDEST", (99, 0))
    with ServerProcess() as process, pytest.raises(InputError, match=r"is older than .*install"):
        open_backend(f"redis://{process.address}")
