"""The wire: every type of reply, whole and cut into single bytes."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from orderlab.model.errors import InputError
from orderlab.sim.redis.replies import BigNumber, ErrorReply, Status, UnhashableReply, Verbatim
from orderlab.sim.redis.wire import ReplyParser, encode_command
from orderlab.sim.redis.wire.resp_client import Connection


def receiver(data: bytes, size: int) -> Callable[[], bytes]:
    chunks = iter([data[i : i + size] for i in range(0, len(data), size)])
    return lambda: next(chunks, b"")


REPLIES = [
    (b"+OK\r\n", Status(b"OK")),
    (b"$2\r\nOK\r\n", b"OK"),
    (b"$0\r\n\r\n", b""),
    (b"$4\r\n\r\n\r\n\r\n", b"\r\n\r\n"),
    (b"$-1\r\n", None),
    (b"*-1\r\n", None),
    (b":-7\r\n", -7),
    (b"-ERR no\r\n", ErrorReply(b"ERR no")),
    (b"*3\r\n:1\r\n*0\r\n-WRONGTYPE x\r\n", [1, [], ErrorReply(b"WRONGTYPE x")]),
    (b"_\r\n", None),
    (b"#t\r\n", True),
    (b",1.5\r\n", 1.5),
    (b",-inf\r\n", float("-inf")),
    (b"(123456789012345678901\r\n", BigNumber(b"123456789012345678901")),
    (b"%1\r\n$1\r\na\r\n:1\r\n", {b"a": 1}),
    (b"~2\r\n$1\r\na\r\n$1\r\nb\r\n", {b"a", b"b"}),
    (b"=7\r\ntxt:abc\r\n", Verbatim(b"abc")),
    (b"!5\r\nERR x\r\n", ErrorReply(b"ERR x")),
    (b">1\r\n$4\r\npush\r\n:1\r\n", 1),
]


@pytest.mark.parametrize(("wire", "reply"), REPLIES)
@pytest.mark.parametrize("size", [1, 1000])
def test_reads_each_type(wire: bytes, reply: object, size: int) -> None:
    read = ReplyParser(receiver(wire, size)).read()
    assert read == reply
    assert type(read) is type(reply)
    assert type(read) is type(reply)


def test_status_and_bulk_string_are_told_apart() -> None:
    assert isinstance(ReplyParser(receiver(b"+OK\r\n", 9)).read(), Status)
    assert not isinstance(ReplyParser(receiver(b"$2\r\nOK\r\n", 9)).read(), Status)


def test_a_cut_stream_and_a_foreign_one_are_errors() -> None:
    with pytest.raises(EOFError):
        ReplyParser(receiver(b"$5\r\nab", 9)).read()
    with pytest.raises(ValueError, match="not a RESP reply"):
        ReplyParser(receiver(b"HTTP/1.1 400\r\n", 99)).read()


def test_commands_are_arrays_of_bulk_strings() -> None:
    assert encode_command([b"SET", b"k", b"\r\n"]) == b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n"


def test_members_of_sets_and_keys_of_maps_may_be_anything() -> None:
    maps = [b"%2\r\n$1\r\na\r\n:1\r\n:2\r\n%0\r\n", b"%2\r\n:2\r\n%0\r\n$1\r\na\r\n:1\r\n"]
    one, other = (ReplyParser(receiver(b"~1\r\n" + text, 9)).read() for text in maps)
    assert one == other == {frozenset({(b"a", 1), (2, frozenset())})}
    with pytest.raises(UnhashableReply, match="nested deeper than 200 levels"):
        ReplyParser(receiver(b"~1\r\n" + b"*1\r\n" * 201 + b":1\r\n", 99)).read()


def test_arrays_nested_without_end_lose_the_connection_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = Connection("127.0.0.1", server.getsockname()[1])
        peer, _ = server.accept()
        with peer:
            peer.sendall(b"*1\r\n" * 5000)
            with pytest.raises(InputError, match="nested too deeply to be read"):
                connection.execute(b"EVAL")
