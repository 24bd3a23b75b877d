"""The bytes that a served node sends, held against those of a real server on the same generated commands: which of the
two kinds of nothing, how doubles and maps are written, what comes in which order."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from orderlab.sim.live import ServerProcess
from orderlab.sim.recording.redis_proxy import reply_size
from orderlab.sim.redis.registry import COMMANDS, load_commands
from orderlab.sim.redis.wire import Connection, ReplyParser, encode_command
from orderlab.sim.redis.wire.background import InBackground
from orderlab.sim.redis.wire.served_node import ServedNode
from tests.laboratory.conformance.comparison import agree, same
from tests.laboratory.conformance.grammar import Argv
from tests.laboratory.conformance.sequences import DEFAULT_ENCODINGS, SMALL_ENCODINGS, Generator, SeededDraw

SENT_APART = 7
"""Bytes into which some requests are cut, so that heads and arguments arrive in pieces."""


class RawConnection:
    """Sends commands, and returns the bytes of each reply."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._seen = bytearray()
        self._reader = ReplyParser(self._receive)

    def _receive(self) -> bytes:
        chunk = self._socket.recv(1 << 16)
        self._seen += chunk
        return chunk

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def replies(self, count: int) -> list[bytes]:
        """The next replies as they were sent."""
        taken = []
        for _ in range(count):
            while True:
                size = reply_size(bytes(self._seen))
                if size is not None:
                    break
                if not self._receive():
                    raise EOFError(bytes(self._seen))
            taken.append(bytes(self._seen[:size]))
            del self._seen[:size]
        return taken

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def parsed(data: bytes) -> object:
    """A reply as a value."""
    chunks = [data]
    return ReplyParser(lambda: chunks.pop() if chunks else b"").read()


def _as_lines(data: bytes) -> list[bytes]:
    """What a map or a set of RESP3 holds, in whatever order."""
    return sorted(data.split(b"\r\n"))


@dataclass(frozen=True, slots=True)
class Difference:
    """One reply that differs."""

    before: tuple[Argv, ...]
    argv: Argv
    served: bytes
    server: bytes


def differences(
    commands: Sequence[Argv], served: Sequence[bytes], server: Sequence[bytes], is_large: Callable[[Argv], bool]
) -> Iterator[Difference]:
    """The first reply to ``commands`` that differs in more than the server leaves open."""
    before: object = None
    queue: list[Argv] | None = None
    for at, (argv, ours, theirs) in enumerate(zip(commands, served, server, strict=True)):
        name = argv[0].lower()
        if ours != theirs:
            reply, expected = parsed(ours), parsed(theirs)
            if name == b"exec" and queue is not None and isinstance(reply, list) and isinstance(expected, list):
                pairs = list(zip(queue, reply, expected, [None, *reply], strict=False))
                accepted = all(agree(one, mine, other, is_large(one), ahead) for one, mine, other, ahead in pairs)
            else:
                accepted = _as_lines(ours) == _as_lines(theirs) and (b"~" in ours or b"%" in ours)
                accepted |= not same(reply, expected) and agree(argv, reply, expected, is_large(argv), before)
            if not accepted:
                yield Difference(tuple(commands[:at]), argv, ours, theirs)
                return
        before = parsed(ours)
        if name == b"multi":
            queue = queue or []
        elif name in (b"exec", b"discard"):
            queue = None
        elif queue is not None and ours == b"+QUEUED\r\n":
            queue.append(argv)


def compare(count: int, seed: int, length: int = 50) -> tuple[int, list[Difference]]:
    """Compare at least ``count`` replies; how many were, and the differences."""
    load_commands()
    generator, draw = Generator(COMMANDS), SeededDraw(seed)
    compared = 0
    found: list[Difference] = []
    with ServerProcess() as process, InBackground() as background:
        node = background.serve(ServedNode)
        for host, port in ((process.host, process.port), ("127.0.0.1", node.port)):
            Connection(host, port).demand(b"DEBUG", b"SET-ACTIVE-EXPIRE", b"0")
        while compared < count:
            sequence = generator.sequence(draw, length)
            commands = [step for step in sequence.steps if not isinstance(step, int)]
            limits = SMALL_ENCODINGS if sequence.has_small_encodings else DEFAULT_ENCODINGS
            settings = [word for name, limit in limits.items() for word in (name, b"%d" % limit)]
            ahead: list[Argv] = [(b"FLUSHALL",), (b"SCRIPT", b"FLUSH"), (b"FUNCTION", b"FLUSH")]
            ahead += [(b"CONFIG", b"SET", *settings), (b"HELLO", b"%d" % sequence.resp)]
            text = b"".join(map(encode_command, [*ahead, *commands]))
            cut = draw.randrange(4) == 0
            served, server = (
                _replies(host, port, text, len(ahead) + len(commands), cut)[len(ahead) :]
                for host, port in (("127.0.0.1", node.port), (process.host, process.port))
            )
            found += differences(commands, served, server, lambda argv: True)
            compared += len(commands)
    return compared, found


def _replies(host: str, port: int, text: bytes, count: int, cut: bool) -> list[bytes]:
    connection = RawConnection(host, port)
    try:
        if cut:
            for start in range(0, min(len(text), 3000), SENT_APART):
                connection.send(text[start : min(start + SENT_APART, 3000)])
            connection.send(text[3000:])
        else:
            connection.send(text)
        return connection.replies(count)
    finally:
        connection.close()
