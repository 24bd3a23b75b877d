"""One node of the kernel behind a port: its connections, its clock and what it does by itself."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orderlab.model.errors import InputError
from orderlab.model.protocol.packet_id import TWO_BYTES_MAX
from orderlab.sim.redis.blocking import Waiting
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.conditions import Busy, ScriptTimeout
from orderlab.sim.redis.execution import leave_transaction
from orderlab.sim.redis.lua.host import SharedLua
from orderlab.sim.redis.lua.limits import Limits
from orderlab.sim.redis.memory import track_use
from orderlab.sim.redis.node_state import UNCOUNTED, Effect
from orderlab.sim.redis.permissions import Permissions, may_stay_subscribed
from orderlab.sim.redis.registry import Command, find
from orderlab.sim.redis.replies import OK, QUEUED, ErrorReply, Reply
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.unsupported import UnsupportedCommand
from orderlab.sim.redis.users import User
from orderlab.sim.redis.versions import DEFAULT, ServerVersion
from orderlab.sim.redis.wire.busy_node import Meanwhile
from orderlab.sim.redis.wire.call_counts import Statistics, is_rejection
from orderlab.sim.redis.wire.monitoring import is_hidden, lines
from orderlab.sim.redis.wire.served_client import FLUSH_BYTES, Gate, ServedClient, refusal
from orderlab.sim.redis.wire.served_faults import NodeFaults
from orderlab.sim.redis.wire.server_settings import NO_DEBUG, ServerSettings
from orderlab.sim.redis.wire.slow_commands import SlowCommands

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
CYCLE_S: Final = 0.1
"""Between two rounds of active expiry (``hz`` 10)."""
BUFFERS_MAX_BYTES: Final = 512 << 20
"""What all connections together may have sent that is no whole request, and have not read of their replies."""

SCRIPT_LIMITS: Final = Limits(instructions_max=1 << 50, work_max=1 << 60, seconds_max=1e9)
"""A script of a client runs until it ends, or SCRIPT KILL ends it, as on a server."""
_OF_A_CALL: Final = ("caller", "resp", "growth_left", "sees_expired", "is_out_of_memory", "slept_ms", "in_transaction")
"""What a shard notes of the call that it carries out."""


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """How a node is served."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: one that is free."""
    virtual_clock: bool = False
    """Time moves by command alone (DEBUG SLEEP)."""
    password: bytes = b""
    """What AUTH has to say; empty: nothing."""
    version: ServerVersion = DEFAULT
    """The server that it is."""
    debug: str = "yes"
    """Who may call DEBUG: yes (whoever may call all), local or no, as ``enable-debug-command`` of a server."""

    def check(self) -> None:
        """Raise InputError where the node would be open to anybody."""
        if self.port > TWO_BYTES_MAX:
            raise InputError(f"--port {self.port}: ports end at {TWO_BYTES_MAX}; choose a smaller one, or 0")
        if self.host not in LOOPBACK and not self.password:
            raise InputError(
                f"--host {self.host}: whoever reaches it could run scripts here; add --password, or stay at 127.0.0.1"
            )


class ServedNode:
    """A shard and the connections to it. One thread: commands are carried out one after the other."""

    def __init__(self, settings: ServeSettings | None = None, shard: Shard | None = None) -> None:
        self.settings = settings or ServeSettings()
        self.settings.check()
        self.shard = shard or Shard(SharedLua(SCRIPT_LIMITS), self.settings.version)
        self.gate: Gate | None = None
        self.connections: dict[Client, ServedClient] = {}
        self.port = self.settings.port
        self.statistics = Statistics()
        password = self.settings.password
        debug = self.settings.debug if self.settings.version.has((7, 0)) else "yes"  # older ones have no such directive
        self.permissions = Permissions(password, lambda: self.shard.now_ms, self._describe)
        self.server_settings = ServerSettings(
            self.settings.host, self.settings.port, password, self.permissions.set_default_password, debug
        )
        track_use(self.shard)
        self.slow = SlowCommands(self.server_settings)
        self.queued_ns: list[int] = []
        """How long each command of the transaction took that EXEC has just carried out."""
        self._server: asyncio.Server | None = None
        self._cycle: asyncio.Task[None] | None = None
        self._wake: asyncio.TimerHandle | None = None
        self._pushed_to: dict[Client, None] = {}
        self._over: list[Waiting] = []
        self._still_until_s = 0.0
        self._monitors: dict[ServedClient, None] = {}
        self._run_id = secrets.token_hex(20)
        self._held_bytes = 0
        """What connections hold that hold much."""
        self._soft: dict[ServedClient, None] = {}
        self._pause_end: asyncio.TimerHandle | None = None
        self._pauses_all: bool | None = None
        """Whether CLIENT PAUSE holds all commands or writes alone; None: it holds none."""
        self._running: ServedClient | None = None
        """Whose command is being carried out."""
        self._script_begun_s = 0.0
        self._meanwhile: Meanwhile | None = None
        self._is_killed = False
        self._has_written = False
        self.faults = NodeFaults(self)
        self.is_cut_off = False
        """No byte passes to or from its connections."""
        self.on_slots_changed: Callable[[], None] | None = None
        """Told when a command may have changed who serves which slot."""
        self.shard.now_ms = self._clock_ms()
        self.shard.started_ms = self.shard.now_ms
        self.shard.waits.on_over = self._over.append
        self.shard.subscribers.on_push = self._note_push
        self.shard.server = self

    # -- a life --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen. Raises InputError where that cannot be."""
        await self._listen(self.settings.port)
        self._cycle = asyncio.ensure_future(self._run_cycle())

    async def _listen(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: ServedClient(self), self.settings.host, port, backlog=1024)
        except OSError as error:
            raise InputError(
                f"--port {port}: cannot listen on {self.settings.host} ({error.strerror or error}); "
                "choose another port, or 0 for any that is free"
            ) from None
        self.port = self._server.sockets[0].getsockname()[1]
        self.server_settings.note(b"port", b"%d" % self.port)

    async def be_down(self, seconds: float) -> None:
        """Refuse connections for so long, as a process that is not there; those that there are are reset."""
        await asyncio.sleep(0)  # the reply to who asked for it goes out before
        if self._server is not None:
            self._server.close()
        for connection in self.by_age():
            connection.abort()
        await asyncio.sleep(seconds)
        await self._listen(self.port)

    def cut_off(self, is_cut_off: bool) -> None:
        """Let no byte pass to or from connections, or let them pass again."""
        self.is_cut_off = is_cut_off
        for connection in self.by_age():
            connection.cut_off(is_cut_off)

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
            self._end_slow_and_idle()

    # -- time ----------------------------------------------------------------------------------------------

    def _clock_ms(self) -> int:
        return self.shard.now_ms if self.settings.virtual_clock else time.time_ns() // 1_000_000

    def pass_time(self) -> None:
        """Do what a node does by itself when time has passed: end waits, remove keys."""
        self.shard.waits.time_out()
        if self._pauses_all is None:
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
        return self._pauses_all is not None and (self._pauses_all or self._may_write(connection.client, argv))

    def _may_write(self, client: Client, argv: Sequence[bytes]) -> bool:
        command = find(argv, self.shard.spellings)
        if command is None:
            return False
        if command.name == b"exec" and client.queue:
            return any(self._may_write(client, queued) for queued in client.queue)
        return client.queue is None and (command.is_write or command.may_replicate)

    def pause(self, timeout_ms: int, holds_all: bool) -> None:
        """CLIENT PAUSE: a pause is only ever prolonged, and of two the stricter holds."""
        loop = asyncio.get_running_loop()
        at_s = loop.time() + timeout_ms / 1000
        self._pauses_all = bool(self._pauses_all) or holds_all
        if self._pause_end is None or self._pause_end.when() < at_s:
            if self._pause_end is not None:
                self._pause_end.cancel()
            self._pause_end = loop.call_at(at_s, self.unpause)

    def unpause(self) -> None:
        """The end of a pause: what it held goes on."""
        if self._pause_end is not None:
            self._pause_end.cancel()
        self._pause_end = self._pauses_all = None
        asyncio.get_running_loop().call_soon(self._go_on)

    # -- connections ---------------------------------------------------------------------------------------

    def admit(self, connection: ServedClient) -> None:
        """A client has connected."""
        self.statistics.connections += 1
        if len(self.connections) >= self.server_settings.clients_max:
            self.statistics.refused_connections += 1
            connection.send(b"-ERR max number of clients reached\r\n")
            connection.close()
            return
        self.connections[connection.client] = connection
        self._become_default(connection)
        connection.reader.needs_auth = not connection.is_authenticated
        if self.is_cut_off:
            connection.cut_off(True)

    def forget(self, connection: ServedClient) -> None:
        """A client has gone."""
        self._held_bytes -= connection.accounted_bytes
        connection.accounted_bytes = 0
        self._soft.pop(connection, None)
        self._monitors.pop(connection, None)
        if self.connections.pop(connection.client, None) is not None:
            self.shard.disconnect(connection.client)
            self._pushed_to.pop(connection.client, None)
            connection.client.pushed.clear()
        self._show_effects()

    def connection_of(self, client: Client) -> ServedClient:
        """The connection that a client of this node came by."""
        return self.connections[client]

    def by_age(self) -> list[ServedClient]:
        """The connections, the oldest first."""
        return list(self.connections.values())

    def facts(self) -> dict[str, object]:
        """What INFO tells of the process."""
        return {"process_id": os.getpid(), "run_id": self._run_id, "tcp_port": self.port}

    def kill(self, chosen: Sequence[ServedClient], caller: Client) -> None:
        """Close connections; that of the caller after its reply."""
        for connection in chosen:
            if connection.client is caller:
                connection.end_after_reply(len(self.queued_ns))
            else:
                connection.abort()

    def _become_default(self, connection: ServedClient) -> None:
        """The connection is the default user's, as a new one."""
        connection.is_authenticated = not self.permissions.asks_who
        self.permissions.bind(connection.client, self.permissions.default)

    def authenticate(self, client: Client, user: bytes, password: bytes, word: bytes) -> None:
        """Note who a client is; ``word`` is how it said so. Raises ErrorReply."""
        self.permissions.bind(client, self.permissions.authenticated(client, user, password, word))
        connection = self.connections[client]
        connection.is_authenticated = True
        connection.reader.needs_auth = False

    def rebind(self, user: User) -> None:
        """The rules of a user have changed: they hold for its connections from now on. One that is subscribed to what
        it may no longer hear is closed."""
        for connection in self.by_age():
            client = connection.client
            if client.user is not user:
                continue
            self.permissions.bind(client, user)
            if not may_stay_subscribed(user, client):
                connection.abort()

    def end_sessions(self, user: User, caller: Client) -> None:
        """A user is no more: its connections are closed, that of the caller after its reply."""
        self.kill([each for each in self.by_age() if each.client.user is user], caller)

    def _describe(self, client: Client) -> bytes:
        return self.connections[client].describe().rstrip(b"\n")

    def insist_on_identity(self, client: Client) -> None:
        """Refuse HELLO to who has not said who it is. Raises ErrorReply."""
        connection = self.connections.get(client)
        if connection is not None and not connection.is_authenticated:
            raise ErrorReply(
                b"NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> "
                b"<pass> option can be used to authenticate the client and select the RESP protocol version at the "
                b"same time"
            )

    def _must_say_who(self, connection: ServedClient) -> bool:
        return not connection.is_authenticated and self.permissions.asks_who

    def reset(self, client: Client) -> None:
        """RESET: the connection is as a new one."""
        connection = self.connections.get(client)
        if connection is not None:
            connection.want_replies(b"RESET")
            self._become_default(connection)
            connection.is_monitor = False
            self._monitors.pop(connection, None)
            self._show_effects()

    def monitor(self, client: Client) -> None:
        """Show a client every command from now on."""
        connection = self.connections[client]
        connection.is_monitor = True
        self._monitors[connection] = None
        self._show_effects()

    def _show_effects(self) -> None:
        notifier, effects = self.shard.notifier, self.shard.effects
        unkept = None if notifier is None else notifier.unkept
        if bool(self._monitors) != (effects is not unkept):
            self.shard.effects = [] if self._monitors else unkept

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
                    if waiting.reply is not None:  # it may be slow, but for the wait, and not if it waited in vain
                        self.slow.note(waiting.argv, connection.asking_ns, waiting.reply, self.shard.now_ms, connection)
                    connection.served(waiting)

    def bound_memory(self, connection: ServedClient) -> None:
        """A connection holds much: end it where that is too much, or those that hold most where all together do."""
        asked, unread = connection.reader.held_bytes, connection.output_bytes
        held = asked + unread if asked + unread > FLUSH_BYTES else 0
        self._held_bytes += held - connection.accounted_bytes
        connection.accounted_bytes = held
        limit = self.server_settings.output_limits[connection.kind]
        if asked > self.server_settings.query_max_bytes or 0 < limit.hard_bytes < unread:
            connection.abort()
        elif 0 < limit.soft_bytes < unread:
            if connection.soft_since_s is None:
                connection.soft_since_s = time.monotonic()
                self._soft[connection] = None
        else:
            connection.soft_since_s = None
            self._soft.pop(connection, None)
        if self._held_bytes <= BUFFERS_MAX_BYTES:
            return
        for each in sorted(self.by_age(), key=lambda each: -each.accounted_bytes):
            if self._held_bytes <= BUFFERS_MAX_BYTES:
                return
            self._held_bytes -= each.accounted_bytes
            each.accounted_bytes = 0
            each.abort()

    def _end_slow_and_idle(self) -> None:
        now_s = time.monotonic()
        for connection in list(self._soft):
            self.bound_memory(connection)
            limit = self.server_settings.output_limits[connection.kind]
            if connection.soft_since_s is not None and now_s - connection.soft_since_s > limit.soft_s:
                connection.abort()
        idle_s = self.server_settings.idle_s
        for connection in self.by_age() if idle_s else ():
            is_held = connection.client.waiting is not None or connection.client.subscriptions
            if not is_held and now_s - connection.last_s > idle_s:
                connection.abort()

    # -- commands ------------------------------------------------------------------------------------------

    def execute(self, connection: ServedClient, argv: Sequence[bytes]) -> Reply:
        """Carry out a command of a client; what the kernel cannot do is an error reply."""
        if self._running is not None:
            return self._execute_meanwhile(connection, argv)
        shard, client = self.shard, connection.client
        if not self.settings.virtual_clock:
            shard.now_ms, shard.now_us = divmod(time.time_ns() // 1000, 1000)
        before_ms, queue = shard.now_ms, client.queue
        begun_ns = time.perf_counter_ns()
        self._running = connection
        try:
            reply = self._refused(connection, argv) or shard.execute(argv, client)
        except (InputError, ScriptTimeout, MemoryError, RecursionError) as error:
            if isinstance(error, UnsupportedCommand) and client.queue is not None:
                client.is_aborted = True
            reply = refusal(error)
        finally:
            self._running = None
            if self._script_begun_s:
                self._end_script(connection)
        took_ns = 0 if self.settings.virtual_clock else time.perf_counter_ns() - begun_ns
        took_ns += (shard.now_ms - before_ms) * 1_000_000
        if reply is not QUEUED or client.queue is None:
            self._note(connection, argv, queue, took_ns, reply)
            if type(reply) is ErrorReply and argv[0].lower() == b"orderlab" and self._may_strike(connection):
                return self.faults.command(argv[1:])
            if self.faults.loses_reply(argv[0].lower()):
                connection.abort()
        if isinstance(reply, Waiting):
            self._mind_timeouts()
        if shard.now_ms != before_ms:
            self._slept(shard.now_ms - before_ms)
        return reply

    def _may_strike(self, connection: ServedClient) -> bool:
        return connection.client.guard is None and not self._must_say_who(connection)  # no less than all rights

    def _refused(self, connection: ServedClient, argv: Sequence[bytes]) -> Reply:
        """What a client hears that has not said who it is, or may not call DEBUG."""
        if self.server_settings.guards_debug and self.server_settings.forbids(argv, connection.address):
            connection.client.is_aborted = connection.client.queue is not None
            return ErrorReply(NO_DEBUG)
        if connection.is_authenticated or not self._must_say_who(connection):
            return None
        command = find(argv, self.shard.spellings)
        if command is None or not command.admits(len(argv)) or "no_auth" in command.flags:
            return None  # the shard says what is wrong, or carries it out
        client, why = connection.client, b"NOAUTH Authentication required."
        if command.name == b"exec":
            leave_transaction(self.shard, client)
            return ErrorReply(b"EXECABORT Transaction discarded because of: " + why)
        client.is_aborted = client.is_aborted or client.queue is not None
        return ErrorReply(why)

    def _note(
        self,
        connection: ServedClient,
        argv: Sequence[bytes],
        queue: Sequence[Sequence[bytes]] | None,
        took_ns: int,
        reply: Reply,
    ) -> None:
        """Count a command, and show it to those that watch."""
        command = find(argv, self.shard.spellings)
        connection.last_s = time.monotonic()
        connection.asking_ns = took_ns
        if command is not None:
            self._count(connection, command, argv, took_ns, reply)
            if self.on_slots_changed is not None and command.name.startswith(b"cluster|") and "admin" in command.flags:
                self.on_slots_changed()
            if queue and command.name == b"exec" and isinstance(reply, list):
                for queued, inner, inner_ns in zip(queue, reply, self.queued_ns, strict=True):
                    called_by_it = find(queued, self.shard.spellings)
                    if called_by_it is not None:
                        self._count(connection, called_by_it, queued, inner_ns, inner)
        elif isinstance(reply, ErrorReply):
            self.statistics.errors[reply.message.split(b" ", 1)[0]] += 1
        if self._monitors and self.shard.effects is not None:
            effects, self.shard.effects = self.shard.effects, []
            is_refused = isinstance(reply, ErrorReply) and is_rejection(reply.message)
            if command is not None and not is_hidden(argv) and not is_refused:
                self._show(connection, argv, effects)

    def _count(
        self, connection: ServedClient, command: Command, argv: Sequence[bytes], took_ns: int, reply: Reply
    ) -> None:
        self.statistics.count(command.name, took_ns, reply, self.server_settings.tracks_latency)
        if not isinstance(reply, Waiting):
            self.slow.note(argv, took_ns, reply, self.shard.now_ms, connection)

    def _show(self, connection: ServedClient, argv: Sequence[bytes], effects: Sequence[Effect]) -> None:
        text = lines(self.shard, connection.client.database, connection.address, argv, effects)
        for monitor in list(self._monitors):
            if monitor is not connection:
                monitor.send(text)
                monitor.flush()

    # -- scripts that run too long -------------------------------------------------------------------------

    def script_runs_on(self, has_written: bool) -> bool:
        """Called between a script's instructions: whether it is to end. Lets others be answered if it runs too long."""
        running = self._running
        if running is None:
            return False
        now_s = time.monotonic()
        if not self._script_begun_s:
            self._script_begun_s = now_s
        if self._meanwhile is None:
            if (now_s - self._script_begun_s) * 1000 < self.shard.config.busy_reply_threshold:
                return False
            self._meanwhile = Meanwhile(self._listening, lambda: ServedClient(self))
            name = running.reading_name()
            self.shard.busy = Busy.FUNCTION if name.startswith(b"fcall") else Busy.SCRIPT
            running.runs_script = True
        self._has_written = has_written
        self._meanwhile.serve(self.by_age(), running)
        return self._is_killed

    def _listening(self) -> list[Any]:
        return list(self._server.sockets) if self._server is not None else []

    def _end_script(self, connection: ServedClient) -> None:
        self._script_begun_s, self._is_killed = 0.0, False
        if self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            self.shard.busy = None
            connection.runs_script = False
            meanwhile.end()
            asyncio.get_running_loop().call_soon(self._go_on)

    def _execute_meanwhile(self, connection: ServedClient, argv: Sequence[bytes]) -> Reply:
        """What another client hears while a script runs: the shard stands in the middle of it."""
        words = tuple(word.lower() for word in argv)
        if words in ((b"script", b"kill"), (b"function", b"kill")):
            return self._kill_script(words[0])
        shard = self.shard
        if words[0] == b"orderlab" and shard.busy is not None:  # a fault would strike in the middle of the script
            return ErrorReply(shard.busy.value)
        kept, database = {name: getattr(shard, name) for name in _OF_A_CALL}, shard.database
        effects, shard.effects = shard.effects, None
        work_max, shard.work_max = shard.work_max, UNCOUNTED
        try:
            return self._refused(connection, argv) or shard.execute(argv, connection.client)
        except InputError as error:
            return refusal(error)
        finally:
            for name, value in kept.items():
                setattr(shard, name, value)
            shard.effects, shard.work_max = effects, work_max
            if shard.database != database:
                shard.use(database)

    def _kill_script(self, what: bytes) -> Reply:
        busy = self.shard.busy
        if busy is not None and (busy is Busy.FUNCTION) != (what == b"function"):
            return ErrorReply(busy.value)
        if self._has_written:
            return ErrorReply(
                b"UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait "
                b"the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command."
            )
        self._is_killed = True
        return OK

    def _slept(self, slept_ms: int) -> None:
        if self.settings.virtual_clock:
            self.pass_time()
        else:
            self.stand_still(slept_ms / 1000)
