"""One connection of a served node: requests come in, are carried out in their order, and replies go out.

Between a request that was read and its command stands the node's gate (``Serving.gate``): where there is one, the
next request of this connection goes on when the gate lets it. Nothing that a client sends harms any other connection:
what is no request ends this one, with the error that a server sends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from orderlab.sim.redis.blocking import Waiting
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.registry import find
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.subscriptions import CHANNEL, PATTERN, SHARD_CHANNEL
from orderlab.sim.redis.wire.call_counts import Statistics
from orderlab.sim.redis.wire.resp_reader import RequestReader
from orderlab.sim.redis.wire.resp_writer import encode_push, encode_reply, encode_transaction

Gate = Callable[[Client, Sequence[bytes]], Awaitable[None]]
"""Asked with each request, before its command is carried out: the command waits until it returns."""


class Serving(Protocol):
    """What a connection knows of its node (`served_node`)."""

    gate: Gate | None
    shard: Shard
    statistics: Statistics

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

    def bound_memory(self, connection: ServedClient) -> None:
        """A connection holds much: end it where that is too much, or those that hold most where all together do."""
        ...


SUBSCRIBING: Final = frozenset(
    (b"subscribe", b"unsubscribe", b"psubscribe", b"punsubscribe", b"ssubscribe", b"sunsubscribe")
)
"""Commands that have no reply but what is pushed."""
CROSS_PROTOCOL: Final = frozenset((b"post", b"host:"))
"""First words of lines that browsers send: a server closes such a connection, without what it has not sent yet."""
FLUSH_BYTES: Final = 1 << 16


class ServedClient(asyncio.Protocol):
    """A client's connection, seen from the node."""

    def __init__(self, node: Serving) -> None:
        self.node = node
        self.client = Client(may_wait=True)
        self.reader = RequestReader()
        self.transport: Any = None
        self.is_closing = False
        self.address = self.local_address = b""
        self.begun_s = self.last_s = time.monotonic()
        self.is_authenticated = True
        self.is_monitor = False
        self.runs_script = False
        """It stands in a command whose script lets others be answered meanwhile."""
        self.accounted_bytes = 0
        """What the node knows that it holds."""
        self.soft_since_s: float | None = None
        """Since when more is unread than its soft limit allows."""
        self._is_cut_off = False
        self._is_silent = False
        self._skipped = 0
        """Replies that it does not want."""
        self._last_reply: int | None = None
        """It ends with the reply of this command, of a transaction with that of this place."""
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._held: asyncio.Task[None] | None = None
        """The gate that its next command waits at."""
        self._argv: Sequence[bytes] = (b"",)
        self._postponed: Sequence[bytes] | None = None
        self.asking_ns = 0
        """How long the node was at its last command."""
        """A request that was read and must wait: the node stands still."""

    # -- the transport -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        is_new = not self.address
        self.transport = transport
        if is_new:
            self.address = _shown(transport.get_extra_info("peername"))
            self.local_address = _shown(transport.get_extra_info("sockname"))
            self.node.admit(self)

    def data_received(self, data: bytes) -> None:
        """The client has sent something."""
        if self.is_closing:
            return
        self.reader.feed(data)
        if not self.runs_script:
            self.pump()
        if self.reader.held_bytes > FLUSH_BYTES or self.accounted_bytes:
            self.node.bound_memory(self)

    def connection_lost(self, error: Exception | None) -> None:
        """The client has gone, or was closed: the node forgets it."""
        self.is_closing = True
        if self._held is not None:
            self._held.cancel()
        self.node.forget(self)
        if self.runs_script:
            self.transport = None

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
                if self.is_postponed:
                    break
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
        queue, resp = client.queue, client.resp
        self._argv = argv
        reply = node.execute(self, argv)
        if isinstance(reply, Waiting):
            return
        if client.pushed:
            self.send_pushed()
        name = argv[0].lower()
        if reply is None and name in SUBSCRIBING:
            self._skipped = max(0, self._skipped - 1)  # what is pushed goes out, and was all that could be skipped
            return
        if name in CROSS_PROTOCOL and type(reply) is ErrorReply:
            self._out.clear()
            self.abort()
        elif queue is not None and name == b"exec" and type(reply) is list:
            self.reply(encode_transaction(reply, queue, resp, self._last_reply))
        else:
            self.reply(encode_reply(reply, argv, client.resp))
        if name == b"quit" or self._last_reply is not None:
            self.close()

    # -- replies -------------------------------------------------------------------------------------------

    def reply(self, data: bytes) -> None:
        """Send a reply, unless the client wants none."""
        if self._is_silent:
            return
        if self._skipped:
            self._skipped -= 1
            return
        self.send(data)

    def reading_name(self) -> bytes:
        """Name of the command that is being carried out."""
        return self._argv[0].lower()

    def want_replies(self, how: bytes) -> None:
        """CLIENT REPLY ON, OFF or SKIP; RESET, whose own reply may be skipped."""
        if how == b"SKIP":
            self._skipped = 0 if self._is_silent else 2
        else:
            self._is_silent, self._skipped = how == b"OFF", self._skipped if how == b"RESET" else 0

    @property
    def is_postponed(self) -> bool:
        """Whether a command of it waits until others go on (CLIENT PAUSE, a script that runs too long)."""
        return self._postponed is not None

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
        if not self._out or self._is_cut_off:
            return
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        self._out_bytes = 0
        if self.transport is not None and not self.transport.is_closing():
            self.node.statistics.output_bytes += len(data)
            self.transport.write(data)
            if self.accounted_bytes or self.transport.get_write_buffer_size() > FLUSH_BYTES:
                self.node.bound_memory(self)

    def cut_off(self, is_cut_off: bool) -> None:
        """Neither read nor write, or go on."""
        if self._is_cut_off is is_cut_off or self.transport is None or self.transport.is_closing():
            return
        self._is_cut_off = is_cut_off
        if is_cut_off:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()
            self.flush()

    def close(self) -> None:
        """Close the connection once what was sent has gone out."""
        self.flush()
        self.is_closing = True
        if self.transport is not None:
            self.transport.close()

    def end_after_reply(self, place: int) -> None:
        """Close it after the reply to the command that it has called, which in a transaction has this place: others of
        the transaction happen without a reply (``CLIENT_CLOSE_AFTER_REPLY``)."""
        self._last_reply = place if self._last_reply is None else self._last_reply

    def abort(self) -> None:
        """Close it at once: what has not gone out is lost."""
        self.is_closing = True
        if self.transport is not None:
            self.transport.abort()

    # -- what CLIENT LIST tells ----------------------------------------------------------------------------

    @property
    def kind(self) -> bytes:
        """Its class, as limits of output name it."""
        return b"pubsub" if self.client.subscriptions else b"normal"

    def describe(self) -> bytes:
        """Its line of CLIENT LIST."""
        client, now_s, command = self.client, time.monotonic(), find(self._argv, self.node.shard.spellings)
        subscribed = {kind: len(names) for kind, names in client.subscriptions.items()}
        waiting, version = self.output_bytes, self.node.shard.version
        watched = {"watch": len(client.watched)} if version.is_valkey or version.has((7, 4)) else {}
        library = {name.decode(): text.decode() for name, text in client.library.items()}
        facts: dict[str, object] = {
            "id": client.id, "addr": self.address.decode(), "laddr": self.local_address.decode(), "fd": self._fd(),
            "name": client.name.decode("latin1"), "age": int(now_s - self.begun_s), "idle": int(now_s - self.last_s),
            "flags": self._flags(), "db": client.database, "sub": subscribed.get(CHANNEL, 0),
            "psub": subscribed.get(PATTERN, 0), "ssub": subscribed.get(SHARD_CHANNEL, 0),
            "multi": -1 if client.queue is None else len(client.queue), **watched, "qbuf": self.reader.held_bytes,
            "qbuf-free": 0, "argv-mem": 0, "multi-mem": 0, "rbs": 0, "rbp": 0, "obl": 0, "oll": 0, "omem": waiting,
            "tot-mem": self.reader.held_bytes + waiting, "events": "rw" if waiting else "r",
            "cmd": "NULL" if command is None else command.name.decode(),
            "user": client.user.name.decode("latin1"),
            "redir": -1, "resp": client.resp, **(library if version.has((7, 2)) else {}),
        }  # fmt: skip
        return " ".join(f"{name}={fact}" for name, fact in facts.items()).encode("latin1") + b"\n"

    def _fd(self) -> int:
        taken = None if self.transport is None else self.transport.get_extra_info("socket")
        return -1 if taken is None else int(taken.fileno())

    def _flags(self) -> str:
        client = self.client
        flags = {
            "O": self.is_monitor, "P": bool(client.subscriptions), "x": client.queue is not None,
            "b": client.waiting is not None or self.is_postponed, "c": self.is_closing,
            "d": client.is_dirty, "r": client.reads_replicas, "e": client.is_kept,
            "T": client.is_untouching,
        }  # fmt: skip
        return "".join(flag for flag, holds in flags.items() if holds) or "N"

    @property
    def output_bytes(self) -> int:
        """What waits to be read by the client."""
        return self._out_bytes + (self.transport.get_write_buffer_size() if self.transport is not None else 0)


def _shown(address: Any) -> bytes:
    return b"?:0" if not address else b"%b:%d" % (str(address[0]).encode(), address[1])


def refusal(error: Exception) -> Reply:
    """What a client is told where the kernel cannot go on: that it is the simulated node which stops, and at what."""
    return ErrorReply(b"ERR orderlab: " + " ".join(str(error).split()).encode())
