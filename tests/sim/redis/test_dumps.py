"""DUMP and RESTORE: what one of kernel and server writes the other reads (streams: `test_stream_dumps`)."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis import rdb
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.wire import Connection

pytestmark = pytest.mark.server
_DRAW = random.Random(5)
_TEXTS = [b"", b"0", b"127", b"-128", b"4095", b"-4097", b"70000", b"-9223372036854775808", b"x" * 63, b"y" * 5000]
_TEXTS += [_DRAW.randbytes(size) for size in (1, 70, 300)]
_MANY = [b"%d" % number for number in range(700)]
VALUES = [
    *((b"SET", b"k", text) for text in _TEXTS),
    (b"SET", b"k", b"abcabc" * 4000),
    (b"RPUSH", b"k", *_TEXTS),
    (b"RPUSH", b"k", *_MANY * 5),
    (b"RPUSH", b"k", b"z" * 9000, b"a", b"\x00" * 9000),
    (b"SADD", b"k", *_MANY[:9]),
    (b"SADD", b"k", b"1", b"70000", b"-9223372036854775808"),
    (b"SADD", b"k", *_MANY),
    (b"SADD", b"k", *_TEXTS),
    (b"HSET", b"k", *_MANY[:10]),
    (b"HSET", b"k", *_TEXTS[:8]),
    (b"HSET", b"k", *_MANY, *_MANY),
    (b"ZADD", b"k", b"1", b"a", b"-inf", b"b", b"0.1", b"c", b"1e300", b"d", b"-7", b"12"),
    (b"ZADD", b"k", b"-0.0", b"a", b"inf", b"x" * 200),
    (b"ZADD", b"k", *[part for number in _MANY for part in (number, b"m" + number)]),
]
READ = [(b"TYPE", b"k"), (b"OBJECT", b"ENCODING", b"k"), (b"SORT", b"k", b"BY", b"nosort", b"GET", b"#")]
READ += [
    (b"GET", b"k"),
    (b"HGETALL", b"k"),
    (b"ZRANGE", b"k", b"0", b"-1", b"WITHSCORES"),
    (b"LRANGE", b"k", b"0", b"-1"),
]


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with ServerProcess() as server:
        connection = Connection(server.host, server.port)
        yield connection
        connection.close()


def _contents(execute: object) -> list[object]:
    found = []
    for call in READ:
        reply = execute(*call)  # type: ignore[operator]
        found.append(sorted(reply) if isinstance(reply, list) and call[0] != b"LRANGE" else reply)
    return found


@pytest.mark.parametrize("made", VALUES, ids=lambda made: f"{made[0].decode()} {sum(map(len, made))}")
def test_each_restores_what_the_other_dumps(connection: Connection, made: tuple[bytes, ...]) -> None:
    shard = Shard()
    connection.demand(b"FLUSHALL")
    connection.demand(*made)
    shard.execute(made)
    expected = _contents(connection.execute)
    theirs, ours = connection.demand(b"DUMP", b"k"), shard.execute((b"DUMP", b"k"))
    assert connection.execute(b"RESTORE", b"k", b"0", ours, b"REPLACE") == b"OK"
    assert _contents(connection.execute) == expected
    assert shard.execute((b"RESTORE", b"k", b"0", theirs, b"REPLACE")) == b"OK"
    assert _contents(lambda *call: shard.execute(call)) == expected


def test_a_checksum_that_is_not_asked_is_seen(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusals() -> tuple[object, object]:
        call = (b"RESTORE", b"j", b"0", payload[:-1] + bytes((payload[-1] ^ 1,)))
        return Shard().execute(call), connection.execute(*call)

    connection.demand(b"FLUSHALL")
    connection.demand(b"SET", b"k", b"v")
    payload = connection.demand(b"DUMP", b"k")
    ours, theirs = refusals()
    assert ours == theirs == ErrorReply(b"ERR DUMP payload version or checksum are wrong")
    monkeypatch.setattr(rdb, "opened", lambda payload: payload[:-10])
    ours, theirs = refusals()
    assert ours != theirs


ARGUMENTS = [
    (b"-1", b"x"), (b"x", b"x"), (b"0", b"x"), (b"0", b"short"), (b"0", b"x", b"NONSENSE"),
    (b"0", b"x", b"IDLETIME", b"-1"),
    (b"0", b"x", b"FREQ", b"256"), (b"0", b"x", b"FREQ", b"1", b"IDLETIME", b"1"), (b"0", b"x", b"IDLETIME"),
    (b"1", b"good", b"ABSTTL"), (b"5000000000000", b"good", b"ABSTTL"), (b"0", b"good"), (b"0", b"good", b"REPLACE"),
    (b"0", b"empty"), (b"0", b"cut"), (b"0", b"type"), (b"0", b"bomb"),
]  # fmt: skip


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=repr)
def test_restore_refuses_as_a_server_does(connection: Connection, arguments: tuple[bytes, ...]) -> None:
    payloads = {
        b"good": rdb.sealed(b"\x00\x01v"),
        b"empty": rdb.sealed(b"\x02\x00"),
        b"cut": rdb.sealed(b"\x01\x02\x01a"),
        b"type": rdb.sealed(b"\x63\x01a"),
        b"bomb": rdb.sealed(b"\x01\x81" + b"\x7f" * 8),
    }
    call = (b"RESTORE", b"k", *(payloads.get(word, word) for word in arguments))
    shard = Shard()
    shard.now_ms = 1_700_000_000_000
    connection.demand(b"FLUSHALL")
    for _ in range(2):
        assert shard.execute(call) == connection.execute(*call)
    assert shard.execute((b"PEXPIRETIME", b"k")) == connection.execute(b"PEXPIRETIME", b"k")


def test_libraries_go_both_ways_and_all_or_none(connection: Connection) -> None:
    library = b"#!lua name=%b\nredis.register_function('%b', function() return '%b' end)"
    shard = Shard()
    connection.demand(b"FUNCTION", b"FLUSH")
    for name in (b"one", b"two"):
        connection.demand(b"FUNCTION", b"LOAD", library % (name, name, name))
        shard.execute((b"FUNCTION", b"LOAD", library % (name, name, name)))
    theirs, ours = connection.demand(b"FUNCTION", b"DUMP"), shard.execute((b"FUNCTION", b"DUMP"))
    for policy in ([], [b"APPEND"], [b"REPLACE"], [b"FLUSH"], [b"NONE"], [b"FLUSH", b"x"]):
        call = (b"FUNCTION", b"RESTORE")
        assert shard.execute((*call, theirs, *policy)) == connection.execute(*call, ours, *policy)
        assert shard.execute((b"FCALL", b"two", b"0")) == connection.execute(b"FCALL", b"two", b"0") == b"two"
    wrong = rdb.sealed(b"\x00\x01v")
    assert shard.execute((b"FUNCTION", b"RESTORE", wrong)) == connection.execute(b"FUNCTION", b"RESTORE", wrong)


def test_a_payload_that_would_grow_is_held_to_the_limit() -> None:
    shard = Shard()
    with pytest.raises(Exception, match="grow by more than"):
        shard.execute((b"RESTORE", b"k", b"0", rdb.sealed(b"\x00\xc3\x03\x80\x7f\xff\xff\xff\xe0\xff\x00")))
