"""One connection to a real server that returns replies as they were sent."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import NoReturn

from orderlab.model.errors import InputError
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.wire.resp import ReplyReader, encode_command

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
        self._reader = ReplyReader(lambda: self._socket.recv(CHUNK_BYTES))

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

    def _lose(self, error: Exception) -> NoReturn:
        self.close()
        raise InputError(
            f"redis://{self.address}: the server went away midway ({error}); "
            "see its log, start it again and repeat the run"
        ) from None

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
