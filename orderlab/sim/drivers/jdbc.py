"""A pool of connections to PostgreSQL, as HikariCP with JDBC: a thread holds a connection for one transaction.

Up to ``batch`` calls that were submitted together share a transaction; they succeed or fail together. Nothing is tried
again: when the connection breaks the caller gets an error, and cannot tell whether the transaction was committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from orderlab.sim.drivers import ReplyGroup
from orderlab.sim.drivers.pipelined import COMMAND_BYTES, REPLY_BYTES
from orderlab.sim.engine.clock import Clock, Station, call_at
from orderlab.sim.engine.network import Link, Network
from orderlab.sim.servers.postgres import PostgresServer, Statement, StatementError


@dataclass(frozen=True, slots=True)
class ConnectionPool:
    """Settings of the pool, by the names of its configuration."""

    maximum_pool_size: int = 64
    connection_timeout_us: int = 30_000_000
    batch: int = 1
    """Calls per transaction."""
    reconnect_us: int = 50_000


@dataclass(slots=True, eq=False)
class _Transaction:
    statements: list[Statement]
    group: ReplyGroup
    first: int
    """Place of the first reply."""
    asked_us: float
    link: Link | None = None
    is_over: bool = False


class JdbcDriver:
    """The client of one broker. ``cpu`` works ``call_us`` for each round trip."""

    def __init__(
        self,
        env: Clock,
        server: PostgresServer,
        settings: ConnectionPool,
        one_way_us: Callable[[], int],
        cpu: Station,
        call_us: float,
    ) -> None:
        self.env = env
        self.server = server
        self.settings = settings
        self.one_way_us = one_way_us
        self.cpu = cpu
        self.call_us = call_us
        self.flushes = 0
        self.timeouts = 0
        self.is_closed = False
        self._idle = [Link.plain(env, one_way_us) for _ in range(settings.maximum_pool_size)]
        self._waiting: deque[_Transaction] = deque()
        self._open: dict[_Transaction, None] = {}
        self._failed = 0
        """Transactions whose callers have not heard yet that they failed."""
        server.on_disconnect.append(lambda: self.lose(0))

    @property
    def is_busy(self) -> bool:
        """Whether a transaction waits, is open, or has failed and nobody knows yet."""
        return bool(self._waiting or self._open or self._failed)

    def join(self, network: Network, name: str) -> None:
        """Connect through ``network``, as the node ``name``. Before the first call."""
        self._idle = [network.connect(name, "postgres", self.one_way_us) for _ in self._idle]

    def submit(
        self, nodes: Sequence[int], calls: Sequence[Statement], on_done: Callable[[Sequence[Any]], None]
    ) -> None:
        """Make calls on the one server; ``on_done`` gets the results in the order of the calls, or a ``StatementError``
        in their places."""
        if self.is_closed:
            return
        group = ReplyGroup(len(calls), on_done)
        for first in range(0, len(calls), self.settings.batch):
            self._waiting.append(
                _Transaction(list(calls[first : first + self.settings.batch]), group, first, self.env.now)
            )
        self._borrow()

    def lose(self, node: int) -> None:
        """All connections break: every open transaction fails for its caller, committed or not."""
        for transaction in list(self._open):
            self._fail(transaction, "connection lost")

    def close(self) -> None:
        """The process is gone."""
        self.is_closed = True
        self._waiting.clear()
        self._open.clear()

    def _borrow(self) -> None:
        while self._waiting and self._idle:
            transaction = self._waiting.popleft()
            if self.env.now - transaction.asked_us > self.settings.connection_timeout_us:
                self.timeouts += 1
                self._answer(transaction, [StatementError("no connection available")] * len(transaction.statements))
                continue
            transaction.link = self._idle.pop()
            self._open[transaction] = None
            self._write(transaction)

    def _write(self, transaction: _Transaction) -> None:
        """All but the last of the round trips pass as a delay; the last one carries the COMMIT."""
        link = transaction.link
        assert link is not None
        turns = max(statement.round_trips for statement in transaction.statements)
        self.flushes += turns
        written = self.cpu.serve(self.env.now, self.call_us * (turns - 0.5))
        written += sum(self.one_way_us() for _ in range(2 * turns - 2))
        statements = transaction.statements

        def arrive() -> None:
            if transaction.is_over:
                return
            if self.server.is_down:
                self._fail(transaction, "connection refused")
            else:
                self.server.receive(statements, replied)

        def replied(replies: list[Any]) -> None:
            link.back.send(REPLY_BYTES * len(replies), lambda: wake(replies))

        def wake(replies: list[Any]) -> None:
            if not transaction.is_over:
                call_at(
                    self.env, self.cpu.serve(self.env.now, self.call_us / 2), lambda: self._over(transaction, replies)
                )

        link.there.send(COMMAND_BYTES * len(statements), arrive, departs_us=written)

    def _over(self, transaction: _Transaction, replies: list[Any]) -> None:
        if transaction.is_over or self.is_closed:
            return
        transaction.is_over = True
        del self._open[transaction]
        assert transaction.link is not None
        self._idle.append(transaction.link)
        self._answer(transaction, replies)
        self._borrow()

    def _fail(self, transaction: _Transaction, why: str) -> None:
        """The connection is closed; the pool has another one after a while, and then the caller hears of it."""
        transaction.is_over = True
        del self._open[transaction]
        link = transaction.link
        assert link is not None
        link.reset()
        self._failed += 1

        def again() -> None:
            self._failed -= 1
            if self.is_closed:
                return
            self._idle.append(link)
            self._answer(transaction, [StatementError(why)] * len(transaction.statements))
            self._borrow()

        call_at(self.env, self.env.now + self.settings.reconnect_us, again)

    def _answer(self, transaction: _Transaction, replies: list[Any]) -> None:
        group, first = transaction.group, transaction.first
        group.replies[first : first + len(replies)] = replies
        group.left -= len(replies)
        if not group.left:
            group.on_done(group.replies)
