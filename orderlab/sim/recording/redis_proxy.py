"""A proxy before a Redis server that records what passes: each call when it is passed on, each reply when it has come.

What a connection says after SUBSCRIBE, MONITOR or CLIENT REPLY has no reply of its own and passes unrecorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from orderlab.model.errors import InputError
from orderlab.sim.recording.redis_calls import CallRecording
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.wire.resp_client import ReplyParser
from orderlab.sim.redis.wire.resp_reader import RequestReader

CHUNK_BYTES: Final = 1 << 16
LATE_S: Final = 1.0
"""How long a server is heard after its client has gone: by then it has closed too, unless it stands still."""
_UNPAIRED: Final = frozenset((b"subscribe", b"psubscribe", b"ssubscribe", b"monitor", b"sync", b"psync"))
Address = tuple[str, int]


def reply_size(data: bytes | bytearray, at: int = 0) -> int | None:
    """Where the reply that begins at ``at`` ends; None if it is not whole. Raises ValueError for what is none."""
    unread = 1
    while unread:
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        kind, rest, at = data[at : at + 1], data[at + 1 : end], end + 2
        unread -= 1
        if kind in (b"$", b"=", b"!"):
            size = int(rest)
            at = at if size < 0 else at + size + 2
            if at > len(data):
                return None
        elif kind in (b"*", b"~", b">", b"%", b"|"):
            unread += max(0, int(rest)) * (2 if kind in (b"%", b"|") else 1)
    return at


class _RecordedConnection:
    """One client, and its connection to the server."""

    def __init__(self, number: int, recording: CallRecording) -> None:
        self.number = number
        self._recording = recording
        self._requests = RequestReader()
        self._replies = bytearray()
        self._open: deque[tuple[int, str]] = deque()
        """Calls without a reply yet."""
        self.is_paired = True

    def sent(self, data: bytes) -> None:
        """The client has sent something."""
        if not self.is_paired:
            return
        self._requests.feed(data)
        try:
            while (argv := self._requests.next()) is not None:
                self._called(argv)
        except ErrorReply:
            self.is_paired = False

    def _called(self, argv: Sequence[bytes]) -> None:
        name = argv[0].lower()
        if name in _UNPAIRED or (name == b"client" and len(argv) > 1 and argv[1].lower() == b"reply"):
            self.is_paired = False
        elif self.is_paired:
            self._open.append(self._recording.invoked(self.number, argv))

    def received(self, data: bytes) -> None:
        """The server has sent something."""
        self._replies += data
        while self._open:
            try:
                end = reply_size(self._replies)
            except ValueError:
                end, self.is_paired = None, False
            if end is None:
                return
            whole = bytes(self._replies[:end])
            del self._replies[:end]
            if whole[:1] in (b">", b"|"):
                continue
            chunks = [whole]
            call = self._open.popleft()
            self._recording.returned(self.number, call, ReplyParser(lambda: chunks.pop() if chunks else b"").read())  # noqa: B023 - called at once
        self._replies.clear()

    def ended(self, is_over: bool) -> None:
        """The connection is no more; ``is_over``: the server has closed it, so that nothing more can happen."""
        while self._open:
            self._recording.lost(self.number, self._open.popleft(), is_over)


class RecordingProxy:
    """Listens on the loopback interface; every connection gets one to the server."""

    def __init__(self, server: Address, recording: CallRecording) -> None:
        self._server_address = server
        self._recording = recording
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = self.unpaired = 0
        self.port = 0

    async def start(self, port: int) -> None:
        """Listen. Raises InputError where that cannot be, or the server is not there."""
        host, server_port = self._server_address
        try:
            _, writer = await asyncio.open_connection(host, server_port)
        except OSError as error:
            raise InputError(
                f"--server {host}:{server_port}: cannot connect ({error.strerror or error}); start it, or correct it"
            ) from None
        writer.close()
        try:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        except OSError as error:
            raise InputError(
                f"--port {port}: cannot listen ({error.strerror or error}); choose another, or 0 for any that is free"
            ) from None
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port; what is open ends."""
        assert self._server is not None
        self._server.close()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(*self._tasks, return_exceptions=True), LATE_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        connection = _RecordedConnection(self.connections, self._recording)
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._server_address)
        except OSError:
            writer.close()
            return
        replies = asyncio.ensure_future(self._pass_replies(connection, server_reader, writer))
        try:
            with contextlib.suppress(asyncio.CancelledError):  # the proxy stops
                await self._pass_requests(connection, reader, server_writer, replies)
                # The server hears of the end behind all that was asked: when it closes too, all that happened has.
                with contextlib.suppress(OSError):
                    server_writer.write_eof()
                await asyncio.wait({replies}, timeout=LATE_S)
        finally:
            is_over = replies.done()
            replies.cancel()
            connection.ended(is_over)
            self.unpaired += not connection.is_paired
            server_writer.close()
            writer.close()

    @staticmethod
    async def _pass_requests(
        connection: _RecordedConnection,
        reader: asyncio.StreamReader,
        server: asyncio.StreamWriter,
        replies: asyncio.Future[None],
    ) -> None:
        while not replies.done():
            reading = asyncio.ensure_future(reader.read(CHUNK_BYTES))
            both: set[asyncio.Future[Any]] = {reading, replies}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                reading.cancel()
                return
            data = b"" if reading.exception() is not None else reading.result()
            if not data:
                break
            connection.sent(data)  # its rows come before its bytes go out
            server.write(data)
            with contextlib.suppress(ConnectionError):
                await server.drain()

    @staticmethod
    async def _pass_replies(
        connection: _RecordedConnection, server: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await server.read(CHUNK_BYTES):
                connection.received(data)
                if writer.is_closing():
                    continue
                writer.write(data)
                with contextlib.suppress(ConnectionError):
                    await writer.drain()


async def record_program(proxy: RecordingProxy, port: int, command: Sequence[str]) -> int | None:
    """Listen until a program has ended that is told where (``REDIS_URL``, ``REDIS_HOST``, ``REDIS_PORT``, ``{port}``);
    its exit code. Without one: until somebody ends this task. Raises InputError."""
    await proxy.start(port)
    try:
        if not command:
            await asyncio.Event().wait()
        where = {
            "REDIS_URL": f"redis://127.0.0.1:{proxy.port}/0",
            "REDIS_HOST": "127.0.0.1",
            "REDIS_PORT": str(proxy.port),
        }
        words = [word.replace("{port}", str(proxy.port)) for word in command]
        try:
            child = await asyncio.create_subprocess_exec(*words, env=os.environ | where)
        except OSError as error:
            raise InputError(f"{command[0]}: cannot be started ({error.strerror}); correct it") from None
        try:
            return await child.wait()
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
    finally:
        await proxy.stop()
