"""An asynchronous client with one connection per node, as Lettuce is one: buffered commands, replay, NOSCRIPT, MOVED,
ASK.

Commands wait in a buffer and are flushed to all nodes when ``batch`` of them wait, or ``flush_us`` after the first one.
After a connection was lost, the commands without an answer are sent again, in their order, before any other: a script
that had run already runs twice. A command without an answer after ``command_timeout_us`` fails for its caller; it is
not taken back, so it may run all the same. An answer NOSCRIPT makes the client load the script once and repeat the
call; MOVED and ASK make it repeat the call elsewhere, MOVED for good. TRYAGAIN and every other error are the caller's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orderlab.sim.drivers import ReplyGroup, slot_of
from orderlab.sim.engine.clock import Clock, call_at
from orderlab.sim.engine.network import Link, Network
from orderlab.sim.engine.packs import grouped, spread
from orderlab.sim.redis.cluster import REDIRECTIONS_MAX, number_at
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.servers.redis import RedisNode
from orderlab.sim.servers.requests import Batch, Request

COMMAND_BYTES = 350
"""On the wire: an EVALSHA with two keys and one message of 62 bytes."""
REPLY_BYTES = 16
TIMED_OUT = ErrorReply(b"TIMEOUT no answer within the command timeout")
"""What a caller gets then. Not a reply of a server."""
ASKING = Request((b"ASKING",), "asking")


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Flushing and reconnecting."""

    batch: int = 150
    flush_us: int = 3000
    reconnect_us: int = 50_000
    command_timeout_us: int = 30_000_000


_Sent = tuple[Sequence[Request], ReplyGroup, int]
"""The commands of a group, the group, and a place in both."""


def _ignore(replies: Sequence[Reply]) -> None:
    """Ignore replies that nobody waits for."""


class _Run:
    """Commands of one group that go to one node in one flush, by their places in the group. No object for each command:
    a million more cost more than all that is done with them."""

    __slots__ = ("calls", "group", "places")

    def __init__(self, group: ReplyGroup, places: Sequence[int], calls: Sequence[Request]) -> None:
        self.group = group
        self.places = places
        self.calls = calls

    @classmethod
    def unheard(cls, *requests: Request) -> _Run:
        """Commands for whose answers nobody waits."""
        return cls(ReplyGroup(len(requests), _ignore), range(len(requests)), requests)


@dataclass(slots=True)
class _Written:
    """What one flush wrote to a node."""

    at_us: float
    runs: list[_Run]
    count: int
    """Its commands."""
    is_expired: bool = False

    def __len__(self) -> int:
        return self.count

    def commands(self) -> Iterator[_Sent]:
        """The commands one by one, each with its group."""
        return ((run.calls, run.group, place) for run in self.runs for place in run.places)


class _NodeConnection:
    """The one connection to a node, and what waits for an answer on it."""

    def __init__(self, driver: PipelinedDriver, node: RedisNode) -> None:
        self.driver = driver
        self.node = node
        self.link = Link.plain(driver.env, driver.one_way_us)
        """Of unlimited bandwidth and in no partition, until a network gives it a better one."""
        self.buffer: list[_Run] = []
        self.unanswered: deque[_Written] = deque()
        self.is_up = True
        self._number = 0
        """Counts connections: answers of an old one are not heard."""
        self._is_watched = False

    def flush(self) -> None:
        """Write what waits; while there is no connection, it is written once there is one."""
        if not self.buffer:
            return
        written = _Written(self.driver.env.now, self.buffer, sum([len(run.places) for run in self.buffer]))
        self.buffer = []
        self.unanswered.append(written)
        if self.is_up:
            self._write(written)
        if not self._is_watched:
            self._watch(written)

    def _write(self, written: _Written) -> None:
        number = self._number
        count = len(written)
        requests = Batch([(run.calls, run.places) for run in written.runs], count)

        def arrive() -> None:
            if number == self._number:
                self.node.receive(requests, replied)

        def replied(replies: list[Reply]) -> None:
            if number == self._number:
                self.link.back.send(len(replies) * REPLY_BYTES, lambda: self._answered(number, replies))

        self.link.there.send(count * COMMAND_BYTES, arrive)

    def _answered(self, number: int, replies: list[Reply]) -> None:
        if number != self._number:
            return
        written = self.unanswered.popleft()  # a server answers a connection in the order of its commands
        driver = self.driver
        if driver.on_round_trip is not None:
            driver.on_round_trip(self.node.name, written.at_us, driver.env.now, len(written))
        finished = []
        if ErrorReply not in set(map(type, replies)) and not driver.redirected:  # as nearly always
            begin = 0
            for run in written.runs:
                group = run.group
                begin = spread(replies, begin, group.replies, run.places)
                group.left -= len(run.places)
                if not group.left:
                    finished.append(group)
            for group in finished:
                group.on_done(group.replies)
            return
        for sent, reply in zip(written.commands(), replies, strict=True):
            if type(reply) is ErrorReply and self._goes_again(sent, reply.message):
                continue
            _, group, place = sent
            if self.driver.redirected:
                self.driver.redirected.pop((group, place), None)
            group.replies[place] = reply
            group.left -= 1
            if not group.left:
                finished.append(group)
        for group in finished:  # only now: who hears of it may submit more, which must come behind what goes again
            group.on_done(group.replies)

    def _goes_again(self, sent: _Sent, message: bytes) -> bool:
        """Whether an error is answered by sending the command once more."""
        if message.startswith(b"NOSCRIPT"):
            self._load_and_repeat(sent)
            return True
        return message.startswith((b"MOVED ", b"ASK ")) and self.driver.redirect(sent, message)

    def _load_and_repeat(self, sent: _Sent) -> None:
        """Send SCRIPT LOAD once, then the same EVALSHA again, in this order on the connection."""
        driver, (calls, group, place) = self.driver, sent
        source = driver.sources[bytes(calls[place].argv[1])]
        self.buffer.append(_Run.unheard(Request((b"SCRIPT", b"LOAD", source), "load")))
        if driver.redirected.get((group, place), (0, False))[1]:
            self.buffer.append(_Run.unheard(ASKING))
        self.buffer.append(_Run(group, [place], calls))
        driver.reloads += 1
        self.flush()

    # -- timeout -------------------------------------------------------------------------------------------

    def _watch(self, oldest: _Written) -> None:
        """Set one timer a connection, for the oldest of what has no answer: a timer a command would cost too much."""
        self._is_watched = True
        call_at(self.driver.env, oldest.at_us + self.driver.settings.command_timeout_us, self._expire)

    def _expire(self) -> None:
        self._is_watched = False
        due_us = self.driver.env.now - self.driver.settings.command_timeout_us
        finished: list[ReplyGroup] = []
        for written in self.unanswered:
            if written.at_us > due_us:
                self._watch(written)
                break
            if not written.is_expired:
                finished += self._fail(written)
        for group in finished:
            group.on_done(group.replies)

    def _fail(self, written: _Written) -> list[ReplyGroup]:
        written.is_expired = True
        finished = []
        for _, group, place in written.commands():
            if group.on_done is not _ignore:
                self.driver.timeouts += 1
            group.replies[place] = TIMED_OUT
            group.left -= 1
            if not group.left:
                finished.append(group)
        # It keeps its place in the line of answers: the server carries it out all the same, and its answer comes late.
        written.runs = [_Run.unheard(*(calls[place] for calls, _, place in written.commands()))]
        return finished

    # -- connection ----------------------------------------------------------------------------------------

    def lose(self) -> None:
        """The connection breaks; it is up again after ``reconnect_us``, and then everything unanswered goes again, but
        for what has timed out."""
        driver = self.driver
        if driver.is_closed:
            return
        self._number += 1
        self.is_up = False
        self.link.reset()
        for written in self.unanswered:
            driver.replayed += 0 if written.is_expired else len(written)
        self._try_to_connect(self._number)

    def _try_to_connect(self, number: int) -> None:
        driver = self.driver

        def reconnect() -> None:
            if number != self._number:
                return
            if self.node.is_down or self.link.is_cut:
                self._try_to_connect(number)
                return
            self.is_up = True
            again = [written for written in self.unanswered if not written.is_expired]
            self.unanswered = deque(again)
            # Before what has been submitted meanwhile, so that a session's saves keep their order.
            for written in again:
                self._write(written)
            self.flush()

        call_at(driver.env, driver.env.now + driver.settings.reconnect_us, reconnect)

    def close(self) -> None:
        """The client's process is gone: what it has written may still run, nobody hears the answers."""
        self._number += 1
        self.is_up = False
        self.buffer = []
        self.unanswered.clear()


class PipelinedDriver:
    """The client of one broker. ``sources``: digest → script, for NOSCRIPT."""

    def __init__(
        self,
        env: Clock,
        nodes: Sequence[RedisNode],
        settings: PipelineSettings,
        sources: Mapping[bytes, bytes],
        one_way_us: Callable[[], int],
    ) -> None:
        self.env = env
        self.settings = settings
        self.sources = sources
        self.one_way_us = one_way_us
        self.connections = [_NodeConnection(self, node) for node in nodes]
        self.moved: dict[int, int] = {}
        """Slots that have moved since the start, and the numbers of their nodes."""
        self.redirected: dict[tuple[ReplyGroup, int], tuple[int, bool]] = {}
        """Commands that were redirected and have no answer yet: how often, and whether by ASK the last time."""
        self.replayed = 0
        self.reloads = 0
        self.flushes = 0
        self.timeouts = 0
        self.redirections = 0
        self.is_closed = False
        self.on_round_trip: Callable[[str, float, float, int], None] | None = None
        """Told of every flush that was answered: the node, when it was written, when the answers came, commands."""
        self._buffered = 0
        self._timer = 0
        for connection in self.connections:
            connection.node.on_disconnect.append(connection.lose)

    @property
    def is_busy(self) -> bool:
        """Whether a command waits to be written or answered."""
        return any(connection.buffer or connection.unanswered for connection in self.connections)

    def join(self, network: Network, name: str) -> None:
        """Connect through ``network``, as the node ``name``. Before the first command."""
        for connection in self.connections:
            connection.link = network.connect(name, connection.node.name, self.one_way_us)

    def lose(self, node: int) -> None:
        """The connection to a node breaks."""
        self.connections[node].lose()

    def close(self) -> None:
        """The broker's process is gone."""
        self.is_closed = True
        for connection in self.connections:
            connection.close()

    def submit(
        self, nodes: Sequence[int], calls: Sequence[Request], on_done: Callable[[Sequence[Reply]], None]
    ) -> None:
        """Send commands to the nodes with these numbers; ``on_done`` gets the replies in the order of the commands."""
        group = ReplyGroup(len(calls), on_done)
        if self.is_closed:
            return
        if self.moved:
            nodes = [self.moved.get(slot_of(call), node) for node, call in zip(nodes, calls, strict=True)]
        start, count, batch = 0, len(calls), self.settings.batch
        while start < count:
            if not self._buffered:
                self._start_timer()
            end = min(start + batch - self._buffered, count)
            for node, places in grouped(range(start, end), nodes[start:end]).items():
                self.connections[node].buffer.append(_Run(group, places, calls))
            self._buffered += end - start
            if self._buffered >= batch:
                self._flush()
            start = end

    def _start_timer(self) -> None:
        timer = self._timer

        def expire() -> None:
            if self._timer == timer:
                self._flush()

        call_at(self.env, self.env.now + self.settings.flush_us, expire)

    def _flush(self) -> None:
        self._timer += 1
        self._buffered = 0
        self.flushes += 1
        for connection in self.connections:
            connection.flush()

    def redirect(self, sent: _Sent, message: bytes) -> bool:
        """Send a command to where MOVED or ASK points. False when it has been redirected too often.

        MOVED also corrects the slot table, as with an adaptive refresh of the topology that ends at once.
        """
        calls, group, place = sent
        kind, slot, address = message.split(b" ")
        times, _ = self.redirected.get((group, place), (0, False))
        if times == REDIRECTIONS_MAX:
            return False
        self.redirected[group, place] = times + 1, kind == b"ASK"
        node = number_at(address)
        self.redirections += 1
        connection = self.connections[node]
        if kind == b"ASK":
            connection.buffer.append(_Run.unheard(ASKING))
        else:
            self.moved[int(slot)] = node
        connection.buffer.append(_Run(group, [place], calls))
        connection.flush()
        return True
