"""One node of the kernel behind a port: its connections, its clock and what it does by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from orderlab.model.errors import InputError
from orderlab.model.protocol.packet_id import TWO_BYTES_MAX
from orderlab.sim.redis.blocking import Waiting
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.conditions import ScriptTimeout
from orderlab.sim.redis.replies import Reply
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.unsupported import UnsupportedCommand
from orderlab.sim.redis.wire.served_client import Gate, ServedClient, refusal

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
CYCLE_S: Final = 0.1
"""Between two rounds of active expiry (``hz`` 10)."""
BUFFERS_MAX_BYTES: Final = 512 << 20
"""What all connections together may have sent that is no whole request, and have not read of their replies."""


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """How a node is served."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: one that is free."""
    virtual_clock: bool = False
    """Time moves by command alone (DEBUG SLEEP)."""

    def check(self) -> None:
        """Raise InputError where the node would be open to anybody."""
        if self.port > TWO_BYTES_MAX:
            raise InputError(f"--port {self.port}: ports end at {TWO_BYTES_MAX}; choose a smaller one, or 0")
        if self.host not in LOOPBACK:
            raise InputError(
                f"--host {self.host}: whoever reaches it could run scripts here, and a node knows no password yet; "
                "stay at 127.0.0.1"
            )


class ServedNode:
    """A shard and the connections to it. One thread: commands are carried out one after the other."""

    def __init__(self, settings: ServeSettings | None = None, shard: Shard | None = None) -> None:
        self.settings = settings or ServeSettings()
        self.settings.check()
        self.shard = shard or Shard()
        self.gate: Gate | None = None
        self.connections: dict[Client, ServedClient] = {}
        self.port = self.settings.port
        self._server: asyncio.Server | None = None
        self._cycle: asyncio.Task[None] | None = None
        self._wake: asyncio.TimerHandle | None = None
        self._pushed_to: dict[Client, None] = {}
        self._over: list[Waiting] = []
        self._still_until_s = 0.0
        self.shard.now_ms = self._clock_ms()
        self.shard.started_ms = self.shard.now_ms
        self.shard.waits.on_over = self._over.append
        self.shard.subscribers.on_push = self._note_push

    # -- a life --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen. Raises InputError where that cannot be."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: ServedClient(self), self.settings.host, self.settings.port, backlog=1024
            )
        except OSError as error:
            raise InputError(
                f"--port {self.settings.port}: cannot listen on {self.settings.host} ({error.strerror or error}); "
                "choose another port, or 0 for any that is free"
            ) from None
        self.port = self._server.sockets[0].getsockname()[1]
        self._cycle = asyncio.ensure_future(self._run_cycle())

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._cycle is not None:
            self._cycle.cancel()
        if self._wake is not None:
            self._wake.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections.values()):
            connection.abort()
        if self._server is not None:
            await self._server.wait_closed()

    async def _run_cycle(self) -> None:
        while True:
            await asyncio.sleep(CYCLE_S)
            if not self.settings.virtual_clock:
                self.shard.now_ms = self._clock_ms()
                self.pass_time()

    # -- time ----------------------------------------------------------------------------------------------

    def _clock_ms(self) -> int:
        return self.shard.now_ms if self.settings.virtual_clock else time.time_ns() // 1_000_000

    def pass_time(self) -> None:
        """Do what a node does by itself when time has passed: end waits, remove keys."""
        self.shard.waits.time_out()
        self.shard.expire_cycle.run()
        self.deliver()

    def _mind_timeouts(self) -> None:
        """Wake up when the next wait ends."""
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        at_ms = self.shard.waits.next_timeout_ms()
        if at_ms is not None and not self.settings.virtual_clock:
            delay_s = max(0, at_ms - self._clock_ms()) / 1000
            self._wake = asyncio.get_running_loop().call_later(delay_s, self._wake_up)

    def _wake_up(self) -> None:
        self._wake = None
        self.shard.now_ms = self._clock_ms()
        self.shard.waits.time_out()
        self.deliver()
        self._mind_timeouts()

    def stands_still_for(self, connection: ServedClient) -> bool:
        """Whether the node carries out nothing now (DEBUG SLEEP, a fault)."""
        return self._still_until_s > 0.0 and time.monotonic() < self._still_until_s

    def stand_still(self, seconds: float) -> None:
        """Carry out nothing for so long."""
        self._still_until_s = max(self._still_until_s, time.monotonic() + seconds)
        asyncio.get_running_loop().call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        if time.monotonic() >= self._still_until_s:
            self._still_until_s = 0.0
        for connection in list(self.connections.values()):
            connection.pump()

    def must_wait(self, connection: ServedClient, argv: Sequence[bytes]) -> bool:
        """Whether this command must wait though the node goes on (CLIENT PAUSE)."""
        return False

    # -- connections ---------------------------------------------------------------------------------------

    def admit(self, connection: ServedClient) -> None:
        """A client has connected."""
        self.connections[connection.client] = connection

    def forget(self, connection: ServedClient) -> None:
        """A client has gone."""
        if self.connections.pop(connection.client, None) is not None:
            self.shard.disconnect(connection.client)
            self._pushed_to.pop(connection.client, None)
            connection.client.pushed.clear()

    def _note_push(self, client: Client) -> None:
        self._pushed_to[client] = None

    def deliver(self) -> None:
        """Send out what commands have brought about for other connections."""
        while self._pushed_to or self._over:
            pushed_to, self._pushed_to = self._pushed_to, {}
            for client in pushed_to:
                connection = self.connections.get(client)
                if connection is not None and client.pushed:
                    connection.send_pushed()
                    connection.flush()
            over = self._over[:]
            self._over.clear()
            for waiting in over:
                connection = self.connections.get(waiting.client)
                if connection is not None:
                    connection.served(waiting)

    def bound_memory(self) -> None:
        """Close the connections that hold most while all together hold too much."""
        held = {one: one.reader.held_bytes + one.output_bytes for one in self.connections.values()}
        total = sum(held.values())
        for connection, size in sorted(held.items(), key=lambda item: -item[1]):
            if total <= BUFFERS_MAX_BYTES:
                return
            connection.abort()
            total -= size

    # -- commands ------------------------------------------------------------------------------------------

    def execute(self, connection: ServedClient, argv: Sequence[bytes]) -> Reply:
        """Carry out a command of a client; what the kernel cannot do is an error reply."""
        shard, client = self.shard, connection.client
        if not self.settings.virtual_clock:
            now_us = time.time_ns() // 1000
            shard.now_ms, shard.now_us = divmod(now_us, 1000)
        before_ms = shard.now_ms
        try:
            reply = shard.execute(argv, client)
        except (InputError, ScriptTimeout, MemoryError, RecursionError) as error:
            if isinstance(error, UnsupportedCommand) and client.queue is not None:
                client.is_aborted = True
            return refusal(error)
        if isinstance(reply, Waiting):
            self._mind_timeouts()
        if shard.now_ms != before_ms:
            self._slept(shard.now_ms - before_ms)
        return reply

    def _slept(self, slept_ms: int) -> None:
        if self.settings.virtual_clock:
            self.pass_time()
        else:
            self.stand_still(slept_ms / 1000)


async def serve(settings: ServeSettings, on_ready: Callable[[ServedNode], None]) -> None:
    """Serve one node until cancelled. ``on_ready`` is told when it listens."""
    node = ServedNode(settings)
    await node.start()
    try:
        on_ready(node)
        await asyncio.Event().wait()
    finally:
        await node.stop()
