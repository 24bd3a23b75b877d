"""A synchronous client with pools of connections, as Jedis is one: a thread, a connection, one command at a time.

Calls wait for one of ``threads``; a thread then waits for a connection to the node, writes one command and stands still
until the answer is read. Nothing is replayed: when a connection breaks or a command takes too long, the thread closes
the connection and calls again, at most ``attempts`` times, and then reports an error. A script whose answer was lost
runs twice. An answer NOSCRIPT is followed by SCRIPT LOAD, the same EVALSHA again, and then EVAL, by the same thread;
MOVED and ASK by the same call elsewhere, MOVED for good.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from orderlab.sim.drivers import ReplyGroup, slot_of
from orderlab.sim.drivers.pipelined import ASKING, COMMAND_BYTES, REPLY_BYTES
from orderlab.sim.engine.clock import Clock, Station, call_at
from orderlab.sim.engine.network import Link, Network
from orderlab.sim.redis.cluster import REDIRECTIONS_MAX, number_at
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.servers.redis import RedisNode
from orderlab.sim.servers.requests import Request


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """Sizes and patience."""

    threads: int = 64
    connections: int = 32
    """Per node."""
    command_timeout_us: int = 30_000_000
    reconnect_us: int = 50_000
    """After a connection broke or was refused."""
    attempts: int = 5


STEPS = ("EVALSHA", "SCRIPT LOAD", "EVALSHA again", "EVAL")
"""What a thread writes for one call; all but the first only after NOSCRIPT."""


@dataclass(slots=True, eq=False)
class _Call:
    request: Request
    node: int
    group: ReplyGroup
    place: int
    attempts: int = 0
    number: int = 0
    """Counts what was written for this call: an answer to anything but the last is not heard."""
    step: int = 0
    """Of ``STEPS``."""
    redirections: int = 0
    is_asking: bool = False
    """ASKING goes before the command, in one write."""
    is_waiting: bool = False
    """Written, and not answered."""
    link: Link | None = None
    """The connection that its thread holds."""


_Written = tuple[int, _Call, int]
"""(deadline, call, which writing of it)."""


class BlockingDriver:
    """The client of one broker. ``sources``: digest → script. ``cpu`` works ``call_us`` for each command."""

    def __init__(
        self,
        env: Clock,
        nodes: Sequence[RedisNode],
        settings: PoolSettings,
        sources: Mapping[bytes, bytes],
        one_way_us: Callable[[], int],
        cpu: Station,
        call_us: float,
    ) -> None:
        self.env = env
        self.nodes = nodes
        self.settings = settings
        self.sources = sources
        self.one_way_us = one_way_us
        self.cpu = cpu
        self.call_us = call_us
        self.flushes = 0
        self.reloads = 0
        self.timeouts = 0
        self.repeated = 0
        self.redirections = 0
        self.moved: dict[int, int] = {}
        """Slots that have moved since the start, and the numbers of their nodes."""
        self.is_closed = False
        self._queue: deque[_Call] = deque()
        self._free_threads = settings.threads
        self._free_connections = [[Link.plain(env, one_way_us) for _ in range(settings.connections)] for _ in nodes]
        self._wants_connection: list[deque[_Call]] = [deque() for _ in nodes]
        self._in_flight: list[dict[_Call, None]] = [{} for _ in nodes]
        self._deadlines: deque[_Written] = deque()
        self._has_timer = False
        for number, node in enumerate(nodes):
            node.on_disconnect.append(partial(self.lose, number))

    @property
    def is_busy(self) -> bool:
        """Whether a call waits for a thread, a connection or an answer."""
        return self._free_threads < self.settings.threads

    @property
    def waiting(self) -> int:
        """Calls that wait for a thread."""
        return len(self._queue)

    def submit(
        self, nodes: Sequence[int], calls: Sequence[Request], on_done: Callable[[Sequence[Reply]], None]
    ) -> None:
        """Make calls on the nodes with these numbers; ``on_done`` gets the replies in the order of the calls."""
        if self.is_closed:
            return
        group = ReplyGroup(len(calls), on_done)
        self._queue.extend(
            _Call(call, self._owner(node, call), group, place)
            for place, (node, call) in enumerate(zip(nodes, calls, strict=True))
        )
        self._start_threads()

    def close(self) -> None:
        """The process is gone: what was written may still run, nobody hears the answers."""
        self.is_closed = True
        self._queue.clear()
        for waiting in self._wants_connection:
            waiting.clear()

    def join(self, network: Network, name: str) -> None:
        """Connect through ``network``, as the node ``name``. Before the first call."""
        for number, node in enumerate(self.nodes):
            links = [network.connect(name, node.name, self.one_way_us) for _ in range(self.settings.connections)]
            self._free_connections[number] = links

    def lose(self, node: int) -> None:
        """All connections to a node break: each thread that waits there tries again."""
        for call in list(self._in_flight[node]):
            self._try_again(call, b"connection lost")

    def _owner(self, node: int, request: Request) -> int:
        """The node of a command, which may have moved."""
        return self.moved.get(slot_of(request), node) if self.moved else node

    # -- a thread --------------------------------------------------------------------------------------------

    def _start_threads(self) -> None:
        while self._queue and self._free_threads:
            self._free_threads -= 1
            self._connect(self._queue.popleft())

    def _connect(self, call: _Call) -> None:
        """The thread takes a connection to the call's node, or waits for one."""
        if self._free_connections[call.node]:
            call.link = self._free_connections[call.node].pop()
            self._write(call, self._command(call))
        else:
            self._wants_connection[call.node].append(call)

    def _disconnect(self, call: _Call) -> None:
        """Free the connection of a thread; the next one that waits for one goes on."""
        assert call.link is not None
        waiting = self._wants_connection[call.node]
        if waiting:
            following = waiting.popleft()
            following.link = call.link
            self._write(following, self._command(following))
        else:
            self._free_connections[call.node].append(call.link)
        call.link = None

    def _write(self, call: _Call, request: Request) -> None:
        """The thread writes a command on its connection and stands still."""
        env = self.env
        call.number += 1
        call.is_waiting = True
        self.flushes += 1
        number, link = call.number, call.link
        assert link is not None
        self._in_flight[call.node][call] = None
        written = self.cpu.serve(env.now, self.call_us / 2)
        self._watch(call, written)
        node = self.nodes[call.node]

        def arrive() -> None:
            if call.number != number or self.is_closed:
                return
            if node.is_down:
                self._try_again(call, b"connection refused")
            else:
                node.receive([ASKING, request] if call.is_asking else [request], replied)

        def replied(replies: list[Reply]) -> None:
            link.back.send(REPLY_BYTES, lambda: self._wake(call, number, replies[-1]))

        link.there.send(COMMAND_BYTES, arrive, departs_us=written)

    def _wake(self, call: _Call, number: int, reply: Reply) -> None:
        if call.number != number or self.is_closed:
            return
        call.is_waiting = False
        del self._in_flight[call.node][call]
        call_at(self.env, self.cpu.serve(self.env.now, self.call_us / 2), lambda: self._read(call, reply))

    def _read(self, call: _Call, reply: Reply) -> None:
        if self.is_closed:
            return
        is_unknown = type(reply) is ErrorReply and reply.message.startswith(b"NOSCRIPT")
        if call.step == 1 or (is_unknown and call.step < 3):
            call.step += 1
            self._write(call, self._command(call))
        elif type(reply) is ErrorReply and reply.message.startswith((b"MOVED ", b"ASK ")):
            self._redirect(call, reply)
        else:
            self._finish(call, reply)

    def _redirect(self, call: _Call, reply: ErrorReply) -> None:
        """The thread goes on with a connection to another node."""
        kind, slot, address = reply.message.split(b" ")
        call.redirections += 1
        if call.redirections > REDIRECTIONS_MAX:
            self._finish(call, reply)
            return
        self._disconnect(call)
        call.node, call.step, call.is_asking = number_at(address), 0, kind == b"ASK"
        self.redirections += 1
        if kind == b"MOVED":
            self.moved[int(slot)] = call.node
        self._connect(call)

    def _command(self, call: _Call) -> Request:
        """What the call's step writes."""
        request = call.request
        if call.step == 1:
            self.reloads += 1
            return Request((b"SCRIPT", b"LOAD", self.sources[bytes(request.argv[1])]), "load")
        if call.step == 3:
            argv = (b"EVAL", self.sources[bytes(request.argv[1])], *request.argv[2:])
            return Request(argv, request.kind, request.messages)
        return request

    def _finish(self, call: _Call, reply: Reply) -> None:
        """The thread is free, and so is its connection; the next call goes on."""
        self._disconnect(call)
        self._free_threads += 1
        group = call.group
        group.replies[call.place] = reply
        group.left -= 1
        self._start_threads()
        if not group.left:
            group.on_done(group.replies)

    # -- trouble ---------------------------------------------------------------------------------------------

    def _try_again(self, call: _Call, why: bytes) -> None:
        """The connection is useless; after a while the thread has another one, or gives up."""
        call.number += 1
        call.is_waiting = False
        self._in_flight[call.node].pop(call, None)
        if call.link is not None:
            call.link.reset()
        call.attempts += 1
        call.step = 0

        def again() -> None:
            if self.is_closed:
                return
            if call.attempts >= self.settings.attempts:
                self._finish(call, ErrorReply(b"ERR " + why))
            else:
                self.repeated += 1
                self._write(call, call.request)

        call_at(self.env, self.env.now + self.settings.reconnect_us, again)

    def _watch(self, call: _Call, from_us: float) -> None:
        """Set one timer for all: every command has the same patience, so they run out in the order of writing."""
        deadlines = self._deadlines
        while deadlines and not _is_open(deadlines[0]):
            deadlines.popleft()
        deadlines.append((int(from_us) + self.settings.command_timeout_us, call, call.number))
        if not self._has_timer:
            self._has_timer = True
            call_at(self.env, deadlines[0][0], self._expire)

    def _expire(self) -> None:
        deadlines = self._deadlines
        while deadlines and (deadlines[0][0] <= self.env.now or not _is_open(deadlines[0])):
            written = deadlines.popleft()
            if _is_open(written):
                self.timeouts += 1
                self._try_again(written[1], b"timed out")
        self._has_timer = bool(deadlines)
        if deadlines:
            call_at(self.env, deadlines[0][0], self._expire)


def _is_open(written: _Written) -> bool:
    """Whether this writing of a call still waits for its answer."""
    _, call, number = written
    return call.is_waiting and call.number == number
