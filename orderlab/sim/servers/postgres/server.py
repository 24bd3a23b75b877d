"""A PostgreSQL server in time: backends on its cores, one write-ahead log with group commit, crash and recovery.

A transaction runs when its statements are there; its commit waits until the log is on disk up to its record. One flush is
under way at a time, and all that commit meanwhile are served by the next one. A crash undoes what no flush had finished.
Row locks and the isolation between open transactions are left out: no two of a broker's touch the same client at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import simpy

from orderlab.sim.costs import PostgresCosts
from orderlab.sim.engine.stations import Station
from orderlab.sim.engine.timers import call_at
from orderlab.sim.servers.postgres.tables import Tables, Transaction

WAL_WRITER_US = 200_000
"""``wal_writer_delay``: how long a commit may stay in memory with ``synchronous_commit=off``."""
VACUUM_ROWS = 500
"""Dead rows that autovacuum clears at a time."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A call: what runs within a transaction at an instant in ms, and how often client and server take turns for it."""

    kind: str
    run: Callable[[Transaction, int], Any]
    round_trips: int = 1


@dataclass(frozen=True, slots=True)
class StatementError:
    """What a caller gets instead of a result. Not committed, or nobody knows."""

    message: str


OnReplies = Callable[[list[Any]], None]


class WriteAheadLog:
    """Group commit: one flush at a time."""

    def __init__(self, env: simpy.Environment, costs: PostgresCosts) -> None:
        self.env = env
        self.costs = costs
        self.flushes = 0
        self.busy_us = 0.0
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._is_flushing = False
        self._number = 0

    def commit(self, size_bytes: int, on_durable: Callable[[], None]) -> None:
        """A commit record is in the log's buffer, behind ``size_bytes`` of changes."""
        self._waiting.append((size_bytes, on_durable))
        if not self._is_flushing:
            self._flush()

    def _flush(self) -> None:
        written, self._waiting = self._waiting, []
        self._is_flushing = True
        self.flushes += 1
        number = self._number
        work = self.costs.fsync_us + sum(size for size, _ in written) / self.costs.log_mb_per_s
        self.busy_us += work

        def done() -> None:
            if number != self._number:
                return
            self._is_flushing = False
            if self._waiting:
                self._flush()
            for _, on_durable in written:
                on_durable()

        call_at(self.env, self.env.now + work, done)

    def crash(self) -> None:
        """What is not on disk is gone."""
        self._number += 1
        self._is_flushing = False
        self._waiting = []


class PostgresServer:
    """``cpu``: its cores. ``epoch_ms``: what its clock shows at instant 0."""

    def __init__(
        self,
        env: simpy.Environment,
        costs: PostgresCosts,
        cpu: Station,
        epoch_ms: int = 0,
        synchronous_commit: bool = True,
    ) -> None:
        self.env = env
        self.costs = costs
        self.cpu = cpu
        self.name = "postgres"
        self.epoch_ms = epoch_ms
        self.synchronous_commit = synchronous_commit
        self.tables = Tables()
        self.log = WriteAheadLog(env, costs)
        self.is_down = False
        self.transactions = 0
        self.rows_inserted = 0
        self.on_disconnect: list[Callable[[], None]] = []
        self._not_durable: dict[Transaction, None] = {}
        self._dead_rows = 0

    @property
    def now_ms(self) -> int:
        """What its clock shows."""
        return self.epoch_ms + int(self.env.now) // 1000

    def receive(self, statements: Sequence[Statement], on_replies: OnReplies) -> None:
        """The statements of one transaction are here; ``on_replies`` is called when the answer to COMMIT leaves. Never, if
        the server is down or goes down before."""
        if self.is_down:
            return
        transaction = Transaction(self.tables, self.costs)
        try:
            replies = [statement.run(transaction, self.now_ms) for statement in statements]
        except ValueError as error:
            transaction.rollback()
            replies = [StatementError(str(error))] * len(statements)
        self.transactions += 1
        self._not_durable[transaction] = None
        self._vacuum(transaction.dead_rows)

        def durable() -> None:
            del self._not_durable[transaction]
            if self.synchronous_commit:
                self._count_and_answer(transaction, replies, on_replies)

        def commit() -> None:
            if transaction not in self._not_durable:
                return
            if not transaction.log_bytes:
                del self._not_durable[transaction]
                on_replies(replies)
                return
            if self.synchronous_commit:
                self.log.commit(transaction.log_bytes, durable)
                return
            call_at(self.env, self.env.now + WAL_WRITER_US, lambda: self._write_later(transaction, durable))
            self._count_and_answer(transaction, replies, on_replies)

        call_at(self.env, self.cpu.serve(self.env.now, transaction.work_us), commit)

    def _write_later(self, transaction: Transaction, durable: Callable[[], None]) -> None:
        if transaction in self._not_durable:
            self.log.commit(transaction.log_bytes, durable)

    def _count_and_answer(self, transaction: Transaction, replies: list[Any], on_replies: OnReplies) -> None:
        self.rows_inserted += transaction.rows_inserted
        on_replies(replies)

    def _vacuum(self, dead_rows: int) -> None:
        """Autovacuum takes its share of the cores; nobody waits for it."""
        self._dead_rows += dead_rows
        if self._dead_rows >= VACUUM_ROWS:
            self.cpu.serve(self.env.now, self._dead_rows * self.costs.vacuum_us)
            self._dead_rows = 0

    def crash(self) -> int:
        """The process is gone, and with it every connection and what was not on disk: the number of transactions."""
        self.is_down = True
        self.log.crash()
        lost = list(self._not_durable)
        self._not_durable.clear()
        for transaction in reversed(lost):
            transaction.rollback()
        for function in self.on_disconnect:
            function()
        return len(lost)

    def restart(self) -> None:
        """Recovery has replayed the log."""
        self.is_down = False

    def stall(self, until_us: float) -> None:
        """No backend runs before ``until_us``: a checkpoint that starves them, a paused machine."""
        self.cpu.stall(until_us)
