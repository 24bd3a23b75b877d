"""DUMP and RESTORE of streams: what one of kernel and server writes the other reads, down to where nodes end."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis import rdb, rdb_streams
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.values import Stream
from orderlab.sim.redis.wire import Connection

Execute = Callable[..., Any]
_VALUES = [b"", b"1", b"-5", b"4095", b"-4097", b"123456789012", b"x" * 63, b"x" * 64, b"x" * 4095, b"x" * 4096]
_LOOKS = [
    (b"XRANGE", b"s", b"-", b"+"),
    (b"XINFO", b"STREAM", b"s", b"FULL", b"COUNT", b"0"),
    (b"XINFO", b"GROUPS", b"s"),
]


def lines(draw: random.Random) -> Iterator[tuple[bytes, ...]]:
    """Commands that fill a stream, and leave gaps, groups and deliveries behind."""
    ids: list[bytes] = []
    ms = draw.choice([1, 1000, 1 << 40])
    for _ in range(draw.choice([1, 5, 60, 400])):
        kind, group = draw.random(), b"g%d" % draw.randrange(3)
        if kind < 0.6 or not ids:
            ms += draw.choice([0, 1, 5000, 1 << 33])
            ids.append(b"%d-%d" % (ms, len(ids)))
            fields = draw.choice([(b"a",), (b"a", b"b"), (b"%d" % draw.randrange(3),), (draw.randbytes(70),)])
            yield (b"XADD", b"s", ids[-1], *(part for name in fields for part in (name, draw.choice(_VALUES))))
        elif kind < 0.7:
            yield b"XDEL", b"s", draw.choice(ids)
        elif kind < 0.76:
            yield b"XGROUP", b"CREATE", b"s", group, draw.choice([b"0", b"$", ids[0]])
        elif kind < 0.88:
            consumer = b"c%d" % draw.randrange(3)
            yield b"XREADGROUP", b"GROUP", group, consumer, b"COUNT", b"3", b"STREAMS", b"s", b">"
        elif kind < 0.95:
            yield b"XACK", b"s", group, draw.choice(ids)
        else:
            yield b"XTRIM", b"s", b"MAXLEN", b"%d" % draw.randrange(200)


def looked_at(execute: Execute) -> list[Any]:
    """All that is seen of the stream but for times."""
    return [_timeless(execute(*call)) for call in _LOOKS]


def _timeless(reply: Any) -> Any:
    if not isinstance(reply, list):
        return 0 if isinstance(reply, int) and reply > 10**12 else reply
    return [_timeless(part) for part in reply]


@pytest.mark.server
def test_each_restores_the_streams_that_the_other_dumps() -> None:
    with ServerProcess() as server:
        connection = Connection(server.host, server.port)
        for seed in range(12):
            shard = Shard()
            connection.demand(b"FLUSHALL")
            shard.now_ms = int(connection.demand(b"TIME")[0]) * 1000  # type: ignore[index, arg-type]

            def kernel(*argv: bytes, shard: Shard = shard) -> Any:
                return shard.execute(argv)

            for line in lines(random.Random(f"streams:{seed}")):
                kernel(*line)
                connection.execute(*line)
            expected = looked_at(connection.execute)
            theirs, ours = connection.execute(b"DUMP", b"s"), kernel(b"DUMP", b"s")
            assert connection.execute(b"RESTORE", b"s", b"0", ours, b"REPLACE") == b"OK"
            assert looked_at(connection.execute) == expected
            assert isinstance(theirs, bytes)
            assert kernel(b"RESTORE", b"s", b"0", theirs, b"REPLACE") == b"OK"
            assert looked_at(kernel) == expected
            trim = (b"XTRIM", b"s", b"MAXLEN", b"~", b"10")  # whole nodes
            assert kernel(*trim) == connection.execute(*trim)


def test_what_is_broken_is_refused() -> None:
    shard, draw = Shard(), random.Random("broken streams")
    for number in range(1, 9):
        shard.execute((b"XADD", b"s", b"%d-1" % number, b"a", b"1", *((b"b", b"x") if number % 3 else ())))
    shard.execute((b"XGROUP", b"CREATE", b"s", b"g", b"0"))
    shard.execute((b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"5", b"STREAMS", b"s", b">"))
    shard.execute((b"XDEL", b"s", b"3-1"))
    payload = shard.execute((b"DUMP", b"s"))
    assert isinstance(payload, bytes)
    body, refused = rdb.opened(payload), 0
    assert body is not None
    for _ in range(1000):
        broken = bytearray(body)
        at = draw.randrange(1, len(broken))
        if draw.random() < 0.7:
            broken[at] ^= 1 << draw.randrange(8)
        else:
            del broken[at : at + draw.randrange(1, 9)]
        reply = shard.execute((b"RESTORE", b"t", b"0", rdb.sealed(bytes(broken)), b"REPLACE"))
        refused += isinstance(reply, ErrorReply)
        for line in ((b"XRANGE", b"t", b"-", b"+"), (b"XINFO", b"STREAM", b"t", b"FULL"), (b"DUMP", b"t")):
            shard.execute(line)
    assert refused > 100


def test_a_stream_of_before_7_0_is_read() -> None:
    """Without first and deleted identifiers, and without counts of what was added and read."""
    shard = Shard()
    for line in ((b"XADD", b"s", b"1-1", b"a", b"b"), (b"XADD", b"s", b"2-1", b"a", b"c")):
        shard.execute(line)
    shard.execute((b"XGROUP", b"CREATE", b"s", b"g", b"1-1"))
    value = shard.data[b"s"]
    assert isinstance(value, Stream)
    body = rdb_streams.encoded(value)
    length_and_last, newer = body.rindex(b"\x02\x02\x01"), 5  # first and greatest deleted identifier, entries added
    old = body[: length_and_last + 3] + body[length_and_last + 3 + newer :]
    old = bytes((rdb_streams.BEFORE_7_0,)) + old[1:]
    group = old.rindex(b"\x01g\x01\x01") + 4
    old = old[:group] + old[old.index(b"\x00\x00", group) :]
    stream = rdb_streams.decoded(old, lambda count: None)
    assert (stream.first_id, stream.entries_added, stream.length) == ((1, 1), 2, 2)
    assert stream.groups[b"g"].entries_read == 1
