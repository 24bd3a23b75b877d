"""A node whose script has run for longer than ``busy-reply-threshold``: what others ask for is answered between two
million instructions of it, mostly by BUSY, until it ends or SCRIPT KILL ends it.

The event loop stands in the script. So the sockets are read here, past the loop, and new connections are taken in by
hand; when the script is over the loop gets them back.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
from collections.abc import Callable
from typing import Any, Final

from orderlab.sim.redis.wire.served_client import ServedClient

CHUNK_BYTES: Final = 1 << 16


class BareTransport:
    """A connection that the event loop does not know yet."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.is_lost = False
        self._left = b""

    def get_extra_info(self, name: str) -> Any:
        """As a transport of the loop does."""
        if name == "socket":
            return self.socket
        return self.socket.getpeername() if name == "peername" else self.socket.getsockname()

    def write(self, data: bytes) -> None:
        """Send what the socket takes; the rest waits."""
        self._left += data
        try:
            self._left = self._left[self.socket.send(self._left) :]
        except BlockingIOError:
            pass
        except OSError:
            self.is_lost = True

    def take_left(self) -> bytes:
        """What has not been sent."""
        left, self._left = self._left, b""
        return left

    def get_write_buffer_size(self) -> int:
        """Bytes that wait."""
        return len(self._left)

    def is_closing(self) -> bool:
        """Whether it is of no use any more."""
        return self.is_lost

    def close(self) -> None:
        """End it."""
        self.is_lost = True

    abort = close


class Meanwhile:
    """Reads sockets while a script runs."""

    def __init__(
        self, listening: Callable[[], list[socket.socket]], new_connection: Callable[[], ServedClient]
    ) -> None:
        self._listening = listening
        self._new_connection = new_connection
        self._bare: dict[ServedClient, BareTransport] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self, connections: list[ServedClient], running: ServedClient) -> None:
        """Answer what has come in."""
        by_fd: dict[int, ServedClient] = {}
        poll = select.poll()
        for connection in connections:
            if connection is running or connection.is_closing or connection.transport is None:
                continue
            fd = connection.transport.get_extra_info("socket").fileno()
            if fd >= 0:
                by_fd[fd] = connection
                poll.register(fd, select.POLLIN)
        listening = {each.fileno(): each for each in self._listening()}
        for fd in listening:
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(0):
            if fd in listening:
                self._accept(fd)
            else:
                self._read(fd, by_fd[fd])

    def _accept(self, fd: int) -> None:
        with socket.fromfd(fd, socket.AF_INET, socket.SOCK_STREAM) as listening:
            listening.setblocking(False)
            with contextlib.suppress(OSError):
                taken, _ = listening.accept()
                taken.setblocking(False)
                connection = self._new_connection()
                self._bare[connection] = BareTransport(taken)
                connection.connection_made(self._bare[connection])  # type: ignore[arg-type]

    def _read(self, fd: int, connection: ServedClient) -> None:
        try:
            with socket.fromfd(fd, socket.AF_INET, socket.SOCK_STREAM) as readable:
                readable.setblocking(False)
                data = readable.recv(CHUNK_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            connection.data_received(data)
        else:
            connection.abort()
            if connection not in self._bare:  # the loop would tell the node when it goes on
                connection.node.forget(connection)

    def end(self) -> None:
        """The script is over: the loop takes what was taken in."""
        loop = asyncio.get_running_loop()
        for connection, transport in self._bare.items():
            if transport.is_lost or connection.is_closing:
                connection.connection_lost(None)
                transport.socket.close()
            else:
                connection.transport = None
                task = loop.create_task(self._hand_over(connection, transport))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        self._bare = {}

    async def _hand_over(self, connection: ServedClient, transport: BareTransport) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: connection, transport.socket)
        except OSError:
            connection.connection_lost(None)
            return
        left = transport.take_left()
        if left:
            connection.transport.write(left)
        connection.flush()
