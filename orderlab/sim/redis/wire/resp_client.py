"""The protocol between clients and servers (RESP2 and RESP3), and one connection that returns replies as they were
sent."""

from __future__ import annotations

import math
import select
import socket
from collections.abc import Callable, Sequence
from typing import NoReturn

from orderlab.model.errors import InputError
from orderlab.sim.redis.replies import BigNumber, ErrorReply, Reply, Status, Verbatim, map_reply, set_reply


def encode_command(argv: Sequence[bytes]) -> bytes:
    """One command as a RESP array of bulk strings."""
    parts = [b"*%d\r\n" % len(argv)]
    for argument in argv:
        parts.append(b"$%d\r\n%b\r\n" % (len(argument), argument))
    return b"".join(parts)


class ReplyParser:
    """Reads replies from a stream of bytes. ``receive`` returns the next chunk, or ``b""`` at its end."""

    def __init__(self, receive: Callable[[], bytes]) -> None:
        self._receive = receive
        self._buffer = bytearray()
        self._at = 0

    def has_buffered(self) -> bool:
        """Whether bytes lie ready that were not read as part of a reply."""
        return self._at < len(self._buffer)

    def read(self) -> Reply:
        """The next reply; errors come back as ``ErrorReply`` values. Pushes (RESP3 ``>``) are skipped.

        Raises EOFError when the stream ends, ValueError when it does not speak RESP.
        """
        while True:
            line = self._line()
            kind = line[:1]
            if kind == b">":
                self._items(int(line[1:]))
                continue
            return self._value(kind, line[1:])

    def _value(self, kind: bytes, rest: bytes) -> Reply:
        if kind == b"$":
            return self._bulk(int(rest), 0)
        if kind == b":":
            return int(rest)
        if kind == b"+":
            return Status(rest)
        if kind == b"-":
            return ErrorReply(rest)
        if kind == b"*":
            count = int(rest)
            return None if count < 0 else self._items(count)
        return self._value_of_resp3(kind, rest)

    def _value_of_resp3(self, kind: bytes, rest: bytes) -> Reply:
        if kind == b"_":
            return None
        if kind == b"#":
            return rest == b"t"
        if kind == b",":
            return math.nan if rest.lower().lstrip(b"-") == b"nan" else float(rest)
        if kind == b"=":
            text = self._bulk(int(rest), 0) or b""
            return Verbatim.of(text[4:], text[:3])
        if kind == b"(":
            return BigNumber(rest)
        if kind == b"%":
            return map_reply(self._items(2 * int(rest)))
        if kind == b"~":
            return set_reply(self._items(int(rest)))
        if kind == b"!":
            return ErrorReply(self._bulk(int(rest), 0) or b"")
        raise ValueError(f"not a RESP reply: {(kind + rest)[:40]!r}")

    def _items(self, count: int) -> list[Reply]:
        return [self.read() for _ in range(count)]

    def _bulk(self, length: int, skip: int) -> bytes | None:
        if length < 0:
            return None
        end = self._at + length + 2
        while len(self._buffer) < end:
            self._more()
        value = bytes(self._buffer[self._at + skip : end - 2])
        self._at = end
        return value

    def _line(self) -> bytes:
        while True:
            end = self._buffer.find(b"\r\n", self._at)
            if end >= 0:
                line = bytes(self._buffer[self._at : end])
                self._at = end + 2
                if self._at > 1 << 20:
                    del self._buffer[: self._at]
                    self._at = 0
                return line
            self._more()

    def _more(self) -> None:
        chunk = self._receive()
        if not chunk:
            raise EOFError("the server closed the connection")
        self._buffer += chunk


CHUNK_BYTES = 1 << 18


class Connection:
    """A TCP connection in RESP2 (RESP3 after ``HELLO 3``). Not thread-safe.

    Whatever breaks the connection, at the start or midway, is an InputError that names the server: it is the user's
    server, and the cure is on that side.
    """

    def __init__(self, host: str, port: int, timeout_s: float = 30.0) -> None:
        self.address = f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
        except OSError as error:
            raise InputError(
                f"redis://{self.address}: cannot connect ({error.strerror or error}); "
                "start the server, correct the address, or use --backend kernel"
            ) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = ReplyParser(lambda: self._socket.recv(CHUNK_BYTES))

    def execute(self, *argv: bytes) -> Reply:
        """One command, one reply; an error reply is a value."""
        return self.pipeline([argv])[0]

    def pipeline(self, commands: Sequence[Sequence[bytes]]) -> list[Reply]:
        """Send all commands at once, then read their replies."""
        self.send(commands)
        return self.receive(len(commands))

    def send(self, commands: Sequence[Sequence[bytes]]) -> None:
        """Send commands without waiting for their replies; ``receive`` must follow."""
        try:
            self._socket.sendall(b"".join(map(encode_command, commands)))
        except OSError as error:
            self._lose(error)

    def receive(self, count: int) -> list[Reply]:
        """The next ``count`` replies."""
        try:
            return [self._reader.read() for _ in range(count)]
        except (OSError, EOFError, ValueError) as error:
            self._lose(error)
        except RecursionError:
            self._lose(ValueError("a reply of arrays nested too deeply to be read"))

    def _lose(self, error: Exception) -> NoReturn:
        self.close()
        raise InputError(
            f"redis://{self.address}: the server went away midway ({error}); "
            "see its log, start it again and repeat the run"
        ) from None

    def has_input(self) -> bool:
        """Whether the server has sent something that was not read."""
        return self._reader.has_buffered() or bool(select.select([self._socket], [], [], 0)[0])

    def demand(self, *argv: bytes) -> Reply:
        """``execute``, where an error reply means that the server cannot be used: InputError."""
        reply = self.execute(*argv)
        if isinstance(reply, ErrorReply):
            said = reply.message.decode(errors="replace")
            raise InputError(f"redis://{self.address}: {argv[0].decode()} refused: {said}")
        return reply

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._socket.close()
