"""One connection of a served node: requests come in, are carried out in their order, and replies go out.

Between a request that was read and its command stands the node's gate (``Serving.gate``): where there is one, the
next request of this connection goes on when the gate lets it. Nothing that a client sends harms any other connection:
what is no request ends this one, with the error that a server sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from orderlab.sim.redis.blocking import Waiting
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.wire.resp_reader import RequestReader
from orderlab.sim.redis.wire.resp_writer import encode_push, encode_reply, encode_transaction

Gate = Callable[[Client, Sequence[bytes]], Awaitable[None]]
"""Asked with each request, before its command is carried out: the command waits until it returns."""


class Serving(Protocol):
    """What a connection knows of its node (`served_node`)."""

    gate: Gate | None

    def admit(self, connection: ServedClient) -> None:
        """A client has connected."""
        ...

    def forget(self, connection: ServedClient) -> None:
        """A client has gone."""
        ...

    def stands_still_for(self, connection: ServedClient) -> bool:
        """Whether the node carries out nothing now."""
        ...

    def must_wait(self, connection: ServedClient, argv: Sequence[bytes]) -> bool:
        """Whether this command must wait though the node goes on."""
        ...

    def execute(self, connection: ServedClient, argv: Sequence[bytes]) -> Reply:
        """Carry out a command of a client."""
        ...

    def deliver(self) -> None:
        """Send out what commands have brought about for other connections."""
        ...

    def bound_memory(self) -> None:
        """Close the connections that hold most while all together hold too much."""
        ...


SUBSCRIBING: Final = frozenset(
    (b"subscribe", b"unsubscribe", b"psubscribe", b"punsubscribe", b"ssubscribe", b"sunsubscribe")
)
"""Commands that have no reply but what is pushed."""
FLUSH_BYTES: Final = 1 << 16


class ServedClient(asyncio.Protocol):
    """A client's connection, seen from the node."""

    def __init__(self, node: Serving) -> None:
        self.node = node
        self.client = Client(may_wait=True)
        self.reader = RequestReader()
        self.transport: Any = None
        self.is_closing = False
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._held: asyncio.Task[None] | None = None
        """The gate that its next command waits at."""
        self._postponed: Sequence[bytes] | None = None
        """A request that was read and must wait: the node stands still."""

    # -- the transport -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self.transport = transport
        self.node.admit(self)

    def data_received(self, data: bytes) -> None:
        """The client has sent something."""
        if self.is_closing:
            return
        self.reader.feed(data)
        self.pump()
        if self.reader.held_bytes > FLUSH_BYTES:
            self.node.bound_memory()

    def connection_lost(self, error: Exception | None) -> None:
        """The client has gone, or was closed: the node forgets it."""
        self.is_closing = True
        if self._held is not None:
            self._held.cancel()
        self.node.forget(self)

    # -- requests ------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Carry out what has been asked for, as far as it goes now."""
        node, client = self.node, self.client
        while self._held is None and client.waiting is None and not self.is_closing:
            if node.stands_still_for(self):
                break
            argv = self._next()
            if argv is None:
                break
            if node.gate is None:
                self._carry_out(argv)
            else:
                self._held = asyncio.ensure_future(self._through_gate(argv))
        self.flush()
        node.deliver()

    def _next(self) -> Sequence[bytes] | None:
        argv, self._postponed = self._postponed, None
        if argv is not None:
            return argv
        try:
            return self.reader.next()
        except ErrorReply as error:
            self.send(encode_reply(error, (b"",), 2))
            self.close()
            return None

    async def _through_gate(self, argv: Sequence[bytes]) -> None:
        gate = self.node.gate
        if gate is not None:
            await gate(self.client, argv)
        self._held = None
        if not self.is_closing:
            self._carry_out(argv)
            self.pump()

    def _carry_out(self, argv: Sequence[bytes]) -> None:
        node, client = self.node, self.client
        if node.must_wait(self, argv):
            self._postponed = argv
            return
        queue = client.queue
        reply = node.execute(self, argv)
        if isinstance(reply, Waiting):
            return
        if client.pushed:
            self.send_pushed()
        name = argv[0].lower()
        if reply is None and name in SUBSCRIBING:
            return
        if queue is not None and name == b"exec" and type(reply) is list:
            self.reply(encode_transaction(reply, queue, client.resp))
        else:
            self.reply(encode_reply(reply, argv, client.resp))
        if name == b"quit":
            self.close()

    # -- replies -------------------------------------------------------------------------------------------

    def reply(self, data: bytes) -> None:
        """Send a reply, unless the client wants none."""
        self.send(data)

    def served(self, waiting: Waiting) -> None:
        """A wait is over: its reply goes out, and what the client has asked for since can go on."""
        self.reply(encode_reply(waiting.reply, waiting.argv, self.client.resp, has_waited=True))
        self.pump()

    def send_pushed(self) -> None:
        """Send what was pushed to the client."""
        pushed, resp = self.client.pushed, self.client.resp
        for items in pushed:
            self.send(encode_push(items, resp))
        pushed.clear()

    def send(self, data: bytes) -> None:
        """Put bytes where they go out together."""
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Let out what was put there."""
        if not self._out:
            return
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        self._out_bytes = 0
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)
            if self.transport.get_write_buffer_size() > FLUSH_BYTES:
                self.node.bound_memory()

    def close(self) -> None:
        """Close the connection once what was sent has gone out."""
        self.flush()
        self.is_closing = True
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close it at once: what has not gone out is lost."""
        self.is_closing = True
        if self.transport is not None:
            self.transport.abort()

    @property
    def output_bytes(self) -> int:
        """What waits to be read by the client."""
        return self._out_bytes + (self.transport.get_write_buffer_size() if self.transport is not None else 0)


def refusal(error: Exception) -> Reply:
    """What a client is told where the kernel cannot go on: that it is the simulated node which stops, and at what."""
    return ErrorReply(b"ERR orderlab: " + " ".join(str(error).split()).encode())
