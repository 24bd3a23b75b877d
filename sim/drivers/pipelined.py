"""An asynchronous client with one connection per node, as Lettuce is one: buffered commands, replay, NOSCRIPT.

Commands wait in a buffer and are flushed to all nodes when ``batch`` of them wait, or ``flush_us`` after the first one.
After a connection was lost, the commands without an answer are sent again, in their order, before any other: a script
that had run already runs twice. An answer NOSCRIPT makes the client load the script once and repeat the call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import simpy

from sim.drivers.replies import ReplyGroup
from sim.redis.node import RedisNode, Request
from sim.redis.replies import ErrorReply, Reply
from sim.timers import call_at

COMMAND_BYTES = 350
"""On the wire: an EVALSHA with two keys and one message of 62 bytes."""


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Flushing and reconnecting."""

    batch: int = 150
    flush_us: int = 3000
    reconnect_us: int = 50_000
    command_timeout_us: int = 30_000_000


_Sent = tuple[Request, ReplyGroup, int]


class _NodeConnection:
    """The one connection to a node, and what waits for an answer on it."""

    def __init__(self, driver: PipelinedDriver, node: RedisNode) -> None:
        self.driver = driver
        self.node = node
        self.buffer: list[_Sent] = []
        self.unanswered: deque[list[_Sent]] = deque()
        self.is_up = True
        self._number = 0
        """Counts connections: answers of an old one are not heard."""
        self._arrived_us = [0.0, 0.0]
        """When the last bytes to the node, and from it, arrived or will."""

    def flush(self) -> None:
        if self.buffer and self.is_up:
            written, self.buffer = self.buffer, []
            self.unanswered.append(written)
            self._write(written)

    def _arrival_us(self, direction: int) -> float:
        """A connection keeps order, whatever each delay is."""
        arrival = max(self.driver.env.now + self.driver.one_way_us(), self._arrived_us[direction])
        self._arrived_us[direction] = arrival
        return arrival

    def _write(self, written: list[_Sent]) -> None:
        driver, number = self.driver, self._number
        requests = [request for request, _, _ in written]

        def arrive() -> None:
            if number == self._number:
                self.node.receive(requests, replied)

        def replied(replies: list[Reply]) -> None:
            if number == self._number:
                call_at(driver.env, self._arrival_us(1), lambda: self._answered(number, replies))

        call_at(driver.env, self._arrival_us(0), arrive)

    def _answered(self, number: int, replies: list[Reply]) -> None:
        if number != self._number:
            return
        written = self.unanswered.popleft()
        finished = []
        for (request, group, place), reply in zip(written, replies, strict=True):
            if type(reply) is ErrorReply and reply.message.startswith(b"NOSCRIPT"):
                self._load_and_repeat(request, group, place)
                continue
            group.replies[place] = reply
            group.left -= 1
            if not group.left:
                finished.append(group)
        for group in finished:
            group.on_done(group.replies)

    def _load_and_repeat(self, request: Request, group: ReplyGroup, place: int) -> None:
        """SCRIPT LOAD once, then the same EVALSHA again, in this order on the connection."""
        driver = self.driver
        source = driver.sources[bytes(request.argv[1])]
        load = Request((b"SCRIPT", b"LOAD", source), "load")
        self.buffer.append((load, ReplyGroup(1, lambda replies: None), 0))
        self.buffer.append((request, group, place))
        driver.reloads += 1
        self.flush()

    def lose(self) -> None:
        """The connection breaks; it is up again after ``reconnect_us``, and then everything unanswered goes again."""
        self._number += 1
        self.is_up = False
        number = self._number

        def reconnect() -> None:
            if number != self._number:
                return
            if self.node.is_down:
                call_at(self.driver.env, self.driver.env.now + self.driver.settings.reconnect_us, reconnect)
                return
            self.is_up = True
            again, self.unanswered = self.unanswered, deque()
            for written in again:
                self.driver.replayed += len(written)
                self.unanswered.append(written)
                self._write(written)
            self.flush()

        call_at(self.driver.env, self.driver.env.now + self.driver.settings.reconnect_us, reconnect)


    def close(self) -> None:
        """The client's process is gone: what it has written may still run, nobody hears the answers."""
        self._number += 1
        self.is_up = False
        self.buffer = []


class PipelinedDriver:
    """The client of one broker. ``sources``: digest → script, for NOSCRIPT."""

    def __init__(
        self,
        env: simpy.Environment,
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
        self.replayed = 0
        self.reloads = 0
        self.flushes = 0
        self.is_closed = False
        self._buffered = 0
        self._timer = 0
        for connection in self.connections:
            connection.node.on_disconnect.append(connection.lose)

    @property
    def is_busy(self) -> bool:
        """Whether a command waits to be written or answered."""
        return any(connection.buffer or connection.unanswered for connection in self.connections)

    def lose(self, node: int) -> None:
        """The connection to a node breaks."""
        self.connections[node].lose()

    def close(self) -> None:
        """The broker's process is gone."""
        self.is_closed = True
        for connection in self.connections:
            connection.close()

    def submit(
        self, requests: Sequence[tuple[int, Request]], on_done: Callable[[Sequence[Reply]], None]
    ) -> None:
        """Commands with the number of their node; ``on_done`` gets the replies in the order of the commands."""
        group = ReplyGroup(len(requests), on_done)
        if self.is_closed:
            return
        connections, batch = self.connections, self.settings.batch
        buffered = self._buffered
        if not buffered:
            self._start_timer()
        for place, (node, request) in enumerate(requests):
            connections[node].buffer.append((request, group, place))
            buffered += 1
            if buffered >= batch:
                self._flush()
                buffered = 0
                if place + 1 < len(requests):
                    self._start_timer()
        self._buffered = buffered

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
