"""A proxy between MQTT clients and a broker that works at packet boundaries: it passes packets on and writes them down,
delays them, drops them, and cuts connections.

A dropped packet takes what follows it in its direction along, and its connection soon after: TCP loses nothing in the
middle. A cut closes both sides once they have been sent what was passed on.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from orderlab.sim.recording.packets import ControlPacket, MalformedPacket, PacketType, length_of, read_packet
from orderlab.sim.recording.transcript import ClientConnection, Recording

DROPPED_S = 0.03
"""How long a connection lasts after a packet of it was dropped."""
READ_S = 2.0
"""How long a broker is waited for to have read what it was sent."""
PINGREQ = b"\xc0\x00"
_HANDSHAKE = (PacketType.CONNECT, PacketType.CONNACK)


@dataclass(frozen=True)
class Damage:
    """How likely each packet is to meet what; of ``cut_at`` exactly those packets, counted from 1 over all."""

    cut: float = 0.0
    drop: float = 0.0
    delay: float = 0.0
    delay_s: float = 0.01
    cut_at: frozenset[int] = frozenset()


class _Link:
    """Both sides of one connection of a client."""

    def __init__(self, client: asyncio.StreamWriter, broker: asyncio.StreamWriter) -> None:
        self.client, self.broker = client, broker
        self.connection = ClientConnection()
        self.is_cut = False
        self.is_barred = False
        """Nothing more is passed on to the broker, which is asked whether it has read all before."""
        self.has_read = asyncio.Event()
        """The broker has."""


class Proxy:
    """Listens on a free port of the loopback interface, in a thread of its own; a context manager."""

    def __init__(self, host: str, port: int, transcript: Recording, damage: Damage, seed: int) -> None:
        self.transcript, self.port = transcript, 0
        self._broker = (host, port)
        self._damage, self._random = damage, random.Random(f"{seed}:proxy")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="orderlab-proxy", daemon=True)
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._passing = asyncio.Event()
        self.is_damaging = False
        self.packets = 0
        self.failure: Exception | None = None

    def __enter__(self) -> Proxy:
        self._thread.start()
        self.call(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self.call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def call(self, doing: Coroutine[Any, Any, Any]) -> Any:
        """Do that in the thread of the proxy, and wait for it."""
        future: Future[Any] = asyncio.run_coroutine_threadsafe(doing, self._loop)
        return future.result()

    def write(self, kind: str, **cells: Any) -> None:
        """Write a row among those of the packets."""

        async def add() -> None:
            self.transcript.add(kind, **cells)

        self.call(add())

    def hold(self) -> None:
        """Pass nothing on until `resume`."""
        self.call(self._soon(self._passing.clear))

    def resume(self) -> None:
        """Pass packets on again, of connections that begin now."""
        self.call(self._soon(self._passing.set))

    def cut(self, client: str | None = None) -> None:
        """Cut all connections, or those of one client."""

        def cut() -> None:
            for link in list(self._links):
                if client in (None, link.connection.client):
                    self._cut(link)

        self.call(self._soon(cut))

    async def _soon(self, doing: Callable[[], None]) -> None:
        doing()

    async def _listen(self) -> None:
        self._passing.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        for link in list(self._links):
            self._cut(link)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_broker, broker = await asyncio.open_connection(*self._broker)
        except OSError:
            writer.close()
            return
        link = _Link(writer, broker)
        self._links.add(link)
        ways = [
            asyncio.ensure_future(self._pass_to_broker(link, reader)),
            asyncio.ensure_future(self._pass_to_client(link, from_broker)),
        ]
        self._tasks.update(ways)
        await asyncio.wait(ways)
        self._tasks.difference_update(ways)
        for way in ways:
            if not way.cancelled() and isinstance(error := way.exception(), Exception):
                self.failure = self.failure or error
        self._links.discard(link)

    async def _pass_to_broker(self, link: _Link, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):  # the other end has gone
            while (packet := await _next_packet(reader, link.connection)) is not None:
                await self._passing.wait()
                if packet.kind is PacketType.CONNECT:
                    await self._await_broker(packet.client, link)
                if link.is_cut or link.is_barred or not await self._passed(link, packet, True):
                    break
        if not link.is_barred:
            self._cut(link)

    async def _pass_to_client(self, link: _Link, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while (packet := await _next_packet(reader, link.connection)) is not None:
                await self._passing.wait()
                if link.is_barred and packet.kind is PacketType.PINGRESP:
                    link.has_read.set()
                elif not link.is_cut and not await self._passed(link, packet, False):
                    self._cut(link)
        link.has_read.set()
        self._cut(link)

    async def _await_broker(self, client: str, link: _Link) -> None:
        """Wait until the broker has read all of the client's earlier connections: it may read a new one first, and what
        had been passed on would be lost without a row that says so."""
        while others := [
            other
            for other in self._links
            if other is not link and other.connection.client == client and not other.has_read.is_set()
        ]:
            self._bar(others[0])
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(others[0].has_read.wait(), READ_S)
            others[0].has_read.set()

    def _bar(self, link: _Link) -> None:
        if not link.is_barred:
            link.is_barred = True
            if link.connection.goodbye is None:  # else it closes the connection, which says the same
                link.broker.write(PINGREQ)

    async def _close_broker(self, link: _Link) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(link.has_read.wait(), READ_S)
        link.broker.close()

    async def _passed(self, link: _Link, packet: ControlPacket, is_from_client: bool) -> bool:
        """Whether more may follow."""
        out = link.broker if is_from_client else link.client
        self.packets += 1
        fate = self._fate(packet)
        if fate == "delay":
            await asyncio.sleep(self._damage.delay_s)
            await self._passing.wait()
            if link.is_cut:
                return False
        if fate in ("cut-before", "drop"):
            if fate == "drop":
                await asyncio.sleep(DROPPED_S)
            return False
        if packet.kind is PacketType.CONNACK and packet.reason == 0:
            for other in list(self._links):  # taken over
                if other is not link and other.connection.client == link.connection.client and other.connection.is_open:
                    self._cut(other)
        (self.transcript.to_broker if is_from_client else self.transcript.to_client)(link.connection, packet)
        out.write(packet.raw)
        try:
            await out.drain()
        except OSError:  # that end has gone; what the broker has yet to read is waited for all the same
            return False
        return fate != "cut-after"

    def _fate(self, packet: ControlPacket) -> str:
        if self.packets in self._damage.cut_at:
            return "cut-before"
        if not self.is_damaging or packet.kind in _HANDSHAKE:
            return "pass"
        drawn, bound = self._random.random(), 0.0
        for fate, probability in (
            ("cut-before", self._damage.cut / 2),
            ("cut-after", self._damage.cut / 2),
            ("drop", self._damage.drop),
            ("delay", self._damage.delay),
        ):
            bound += probability
            if drawn < bound:
                return fate
        return "pass"

    def _cut(self, link: _Link) -> None:
        if link.is_cut:
            return
        link.is_cut = True
        self.transcript.ended(link.connection)
        link.client.close()
        if not link.connection.client:
            link.broker.close()
            return
        self._bar(link)
        closing = self._loop.create_task(self._close_broker(link))
        self._tasks.add(closing)
        closing.add_done_callback(self._tasks.discard)


async def _next_packet(reader: asyncio.StreamReader, connection: ClientConnection) -> ControlPacket | None:
    """The next packet; None where the connection ends."""
    try:
        head = await reader.readexactly(2)
        while (length := length_of(head[1:])) is None:
            head += await reader.readexactly(1)
        raw = head + await reader.readexactly(length[0])
    except asyncio.IncompleteReadError:
        return None
    return read_packet(raw, len(head), connection.version)


__all__ = ["Damage", "MalformedPacket", "Proxy"]
