"""A PostgreSQL server in time, the two tables of the broker's store in it, and operations on sessions as transactions
on them.

``device_session_ctx`` (primary key client_id) counts; ``device_publish_msg`` (primary key client_id, serial_number;
index on client_id, packet_id) holds what waits. The serial number grows for ever and keeps the order across the wrap of
the packet identifier. The index on packet identifiers is not unique: two rows of a client may have the same one after a
wrap, and a statement that names it means both.

A transaction runs when its statements are there; its commit waits until the log is on disk up to its record. One flush
is under way at a time, and all that commit meanwhile are served by the next one. A crash undoes what no flush had
finished. Row locks and the isolation between open transactions are left out: no two of a broker's touch the same client
at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import simpy

from orderlab.model.protocol.packet_id import MODULUS
from orderlab.sim.costs.cost_model import PostgresCosts
from orderlab.sim.engine.clock import Clock, Station, call_at
from orderlab.sim.engine.packs import NUMBER_BYTES, Numbers
from orderlab.sim.servers.postgres_rows import MessageRow, Rows, SessionRow, Tables

INT_MAX = 2**31 - 1


class Transaction:
    """Statements that are kept or undone together, and what they cost."""

    def __init__(self, tables: Tables, costs: PostgresCosts) -> None:
        self.tables = tables
        self.costs = costs
        self.work_us = costs.transaction_us
        self.log_bytes = 0
        self.rows_inserted = 0
        self.dead_rows = 0
        self._undo: list[Callable[[], None]] = []

    @classmethod
    def from_to(cls, tables: Tables, costs: PostgresCosts, before: Rows, after: Rows) -> Transaction:
        """One that has led from some rows to others."""
        made = cls(tables, costs)
        made.log_bytes = costs.upsert_bytes
        tables.fill(*after)
        made._undo.append(lambda: tables.fill(*before))
        return made

    def rollback(self) -> None:
        """Undo all that the transaction has written."""
        while self._undo:
            self._undo.pop()()

    def select_session(self, client: bytes) -> SessionRow | None:
        """SELECT a session by primary key."""
        self.work_us += self.costs.select_us
        return self.tables.sessions.get(client)

    def upsert_session(self, row: SessionRow) -> None:
        """INSERT ... ON CONFLICT (client_id) DO UPDATE."""
        costs, sessions = self.costs, self.tables.sessions
        before = sessions.get(row.client_id)
        sessions[row.client_id] = row
        self.work_us += costs.upsert_us
        self.log_bytes += costs.upsert_bytes
        if before is None:
            self._undo.append(lambda: sessions.__delitem__(row.client_id))
        else:
            self.dead_rows += 1
            self._undo.append(lambda: sessions.__setitem__(row.client_id, before))

    def insert_message(self, row: MessageRow) -> None:
        """INSERT one row. Raises ValueError for a duplicate key, and for an interval that is no ``int``."""
        if row.msg_expiry_interval is not None and row.msg_expiry_interval > INT_MAX:
            raise ValueError("22003 integer out of range")
        self.work_us += self.costs.insert_us
        self.log_bytes += self.costs.insert_bytes
        self.tables.add(row)
        self.rows_inserted += 1
        self._undo.append(lambda: self.tables.remove(row))

    def select_messages(self, client: bytes) -> list[MessageRow]:
        """All of a client, by serial number."""
        rows = self.tables.of_client(client)
        self.work_us += self.costs.select_us * max(len(rows), 1)
        return rows

    def delete_packet(self, client: bytes, packet_id: int) -> int:
        """DELETE by packet identifier; the number of rows."""
        rows = self.tables.of_packet_id(client, packet_id)
        if not rows:
            self.work_us += self.costs.select_us
        return self.delete(rows)

    def release_packet(self, client: bytes, packet_id: int) -> int:
        """UPDATE packet_type to PUBREL by packet identifier; the number of rows."""
        rows = self.tables.of_packet_id(client, packet_id)
        for row in rows:
            released = row._replace(packet_type="PUBREL", payload=b"")
            mine = self.tables.messages[client]
            mine[row.serial_number] = released
            self._undo.append(lambda row=row, mine=mine: mine.__setitem__(row.serial_number, row))  # type: ignore[misc]
            self.work_us += self.costs.update_us
            self.log_bytes += self.costs.update_bytes
            self.dead_rows += 1
        return len(rows)

    def delete(self, rows: list[MessageRow]) -> int:
        """DELETE of these rows; their number."""
        for row in rows:
            self.tables.remove(row)
            self._undo.append(lambda row=row: self.tables.add(row))  # type: ignore[misc]
            self.work_us += self.costs.delete_us
            self.log_bytes += self.costs.delete_bytes
            self.dead_rows += 1
        return len(rows)

    def delete_session(self, client: bytes) -> None:
        """The row of a client in ``device_session_ctx``."""
        before = self.tables.sessions.pop(client, None)
        if before is not None:
            self.work_us += self.costs.delete_us
            self.log_bytes += self.costs.delete_bytes
            self.dead_rows += 1
            self._undo.append(lambda: self.tables.sessions.__setitem__(client, before))


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
    """What a caller gets instead of a result. Not committed, or nobody knows. What the server itself says begins with
    its SQLSTATE."""

    message: str


OnReplies = Callable[[list[Any]], None]


class WriteAheadLog:
    """Group commit: one flush at a time."""

    def __init__(self, env: Clock, costs: PostgresCosts) -> None:
        self.env = env
        self.costs = costs
        self.flushes = 0
        self.busy_us = 0.0
        self._waiting: list[tuple[int, Callable[[], object]]] = []
        self._is_flushing = False
        self._number = 0

    def commit(self, size_bytes: int, on_durable: Callable[[], object]) -> None:
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
        env: Clock,
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
        """The statements of one transaction are here; ``on_replies`` is called when the answer to COMMIT leaves. Never,
        if the server is down or goes down before."""
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

    def _write_later(self, transaction: Transaction, durable: Callable[[], object]) -> None:
        if transaction in self._not_durable:
            self.log.commit(transaction.log_bytes, durable)

    def _count_and_answer(self, transaction: Transaction, replies: list[Any], on_replies: OnReplies) -> None:
        self.rows_inserted += transaction.rows_inserted
        on_replies(replies)

    def _vacuum(self, dead_rows: int) -> None:
        """Charge autovacuum's share of the cores; nobody waits for it."""
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

    def held(self) -> tuple[Rows, Rows]:
        """What is committed, and what of it a crash would leave. Between transactions."""
        committed = self.tables.rows()
        if not self._not_durable:
            return committed, committed
        self.crash()
        self.restart()
        on_disk = self.tables.rows()
        self.hold(committed, on_disk)
        return committed, on_disk

    def hold(self, committed: Rows, on_disk: Rows) -> None:
        """Be where ``held`` says this."""
        self.log.crash()
        self._not_durable.clear()
        if committed == on_disk:
            self.tables.fill(*committed)
            return
        transaction = Transaction.from_to(self.tables, self.costs, on_disk, committed)
        self._not_durable[transaction] = None
        durable = partial(self._not_durable.pop, transaction)
        call_at(self.env, self.env.now + WAL_WRITER_US, lambda: self._write_later(transaction, durable))

    def restart(self) -> None:
        """Serve again: recovery has replayed the log."""
        self.is_down = False

    def stall(self, until_us: float) -> None:
        """Let no backend run before ``until_us``: a checkpoint that starves them, a paused machine."""
        self.cpu.stall(until_us)


DEFAULT_EXPIRY_S = 604_800


class PostgresSessions:
    """A save reads the client's row, gives out serial numbers and packet identifiers, and writes one row per
    message."""

    opens_sessions = numbers_batches = has_tokens = refuses_closed = False

    def __init__(
        self, limit: int, qos: int, payload_bytes: int, default_expiry_s: int = DEFAULT_EXPIRY_S, modulus: int = MODULUS
    ) -> None:
        self.limit = limit
        self.qos = qos
        self.default_expiry_s = default_expiry_s
        self.modulus = modulus
        self._padding = b"." * (payload_bytes - NUMBER_BYTES)

    def node_of(self, client: bytes) -> int:
        """The only node there is."""
        return 0

    def open(self, client: bytes, clean_start: bool, epoch: int) -> Statement:
        """Begin or find a session."""
        return self.clear(client) if clean_start else Statement("open", lambda transaction, now: 1)

    def save(
        self,
        client: bytes,
        messages: Sequence[tuple[int, bytes, int]],
        producer: int,
        batch: int,
        epoch: int = 1,
        qos: tuple[int, ...] = (),
        retained: bool = False,
        intervals_s: tuple[int | None, ...] = (),
    ) -> Statement:
        """Save messages given as (number, topic, time in ms): the client's row is read, then all is written and
        committed."""

        def run(transaction: Transaction, now_ms: int) -> list[tuple[int, int]]:
            before = transaction.select_session(client) or SessionRow(client, now_ms, 0, 0)
            serial, packet_id = before.last_serial_number, before.last_packet_id
            given = []
            levels, intervals = qos or (self.qos,) * len(messages), intervals_s or (None,) * len(messages)
            for (number, topic, time_ms), level, interval_s in zip(messages, levels, intervals, strict=True):
                serial, packet_id = serial + 1, packet_id % self.modulus + 1
                row = MessageRow(
                    client, serial, topic, time_ms, packet_id, "PUBLISH", level, self.payload(number), interval_s
                )
                transaction.insert_message(row)
                given.append((packet_id, serial))
            transaction.upsert_session(SessionRow(client, now_ms, serial, packet_id))
            return given

        return Statement("save", run, round_trips=4)  # SELECT; the batch of INSERT; the upsert; COMMIT

    def payload(self, number: int) -> bytes:
        """What the message of that number carries."""
        return b"%09d" % number + self._padding

    def save_each(
        self,
        clients: Sequence[bytes],
        numbers: Numbers,
        topics: Sequence[bytes],
        time_ms: int,
        producers: Numbers,
        batches: Numbers,
        epochs: Numbers,
    ) -> list[Statement]:
        """Save one message for each of these clients."""
        return [
            self.save(client, [(number, topic, time_ms)], *numbered)
            for client, topic, number, *numbered in zip(
                clients, topics, *(map(int, each) for each in (numbers, producers, batches, epochs)), strict=True
            )
        ]

    def acknowledge_each(
        self, clients: Sequence[bytes], packet_ids: Sequence[int], tokens: Sequence[int], epochs: Sequence[int]
    ) -> list[Statement]:
        """Remove one message of each of these clients."""
        return list(map(self.acknowledge, clients, packet_ids, tokens, epochs))

    def acknowledge(self, client: bytes, packet_id: int, token: int, epoch: int = 1) -> Statement:
        """Remove a message, for a PUBACK or PUBCOMP: DELETE by client and packet identifier, committed by itself."""
        return Statement("acknowledge", lambda transaction, _: transaction.delete_packet(client, packet_id))

    def release(self, client: bytes, packet_id: int, token: int, epoch: int = 1) -> Statement:
        """Let the row become a PUBREL, for a PUBREC."""
        return Statement("release", lambda transaction, _: transaction.release_packet(client, packet_id))

    def fetch(self, client: bytes) -> Statement:
        """All that waits and has not expired, in order."""

        def run(transaction: Transaction, now_ms: int) -> list[MessageRow]:
            rows = transaction.select_messages(client)
            return [row for row in rows if not row.has_expired(now_ms, self.default_expiry_s)]

        return Statement("fetch", run)

    def clear(self, client: bytes, epoch: int = 1) -> Statement:
        """The session ends."""

        def run(transaction: Transaction, now_ms: int) -> int:
            transaction.delete_session(client)
            return transaction.delete(transaction.tables.of_client(client))

        return Statement("clear", run, round_trips=3)

    def newest(self, client: bytes) -> None:
        """The token of the last message that was saved: as published, nobody asks."""

    def told_newest(self, reply: Any) -> int:
        """Zero: this store does not tell."""
        return 0

    def assigned(self, reply: Any, count: int) -> list[tuple[int, int]] | None:
        """(packet identifier, serial number) of each message saved; None if the save did not happen."""
        return None if isinstance(reply, StatementError) else reply

    def assigned_each(self, replies: Sequence[Any]) -> tuple[Sequence[int], Sequence[int]] | None:
        """The packet identifiers and the serial numbers of messages that were each saved alone; None if one of them was
        not."""
        if any(isinstance(reply, StatementError) for reply in replies):
            return None
        return [reply[0][0] for reply in replies], [reply[0][1] for reply in replies]

    def was_saved_before(self, reply: Any) -> bool:
        """The tables do not know a batch again."""
        return False

    def was_closed(self, reply: Any) -> bool:
        """The tables refuse no save."""
        return False

    def is_damaged(self, reply: Any) -> bool:
        """False: rows do not vanish one by one."""
        return False

    def was_answered(self, reply: Any) -> bool:
        """Whether a ``clear`` was committed."""
        return not isinstance(reply, StatementError)

    def fetched(self, reply: Any) -> list[tuple[int, int, int, bool]] | None:
        """(message number, packet identifier, serial number, is a PUBREL) in order; None for an error."""
        if isinstance(reply, StatementError):
            return None
        return [
            (int(row.payload[:NUMBER_BYTES] or -1), row.packet_id, row.serial_number, row.packet_type == "PUBREL")
            for row in reply
        ]


OnRemoved = Callable[[MessageRow, bool], None]
"""Hears of a row that clean-up removed, and whether it had expired (else it was surplus)."""


class CleanUp:
    """Every ``period_us`` expired rows go, then the oldest of each client beyond the limit. Between two passes a
    session may hold more than its limit, and a fetch returns it."""

    def __init__(
        self,
        server: PostgresServer,
        store: PostgresSessions,
        period_us: int,
        on_removed: OnRemoved = lambda row, expired: None,
    ) -> None:
        self.server = server
        self.store = store
        self.period_us = period_us
        self.on_removed = on_removed
        self.passes = 0

    def run(self) -> Generator[simpy.Event, Any, None]:
        """Clean up for ever, at intervals."""
        while True:
            yield self.server.env.timeout(self.period_us)
            self.server.receive([self.statement()], self._passed)

    def statement(self) -> Statement:
        """One pass, as a transaction."""
        return Statement("clean-up", self._pass)

    def _pass(self, transaction: Transaction, now_ms: int) -> list[tuple[MessageRow, bool]]:
        tables, limit = transaction.tables, self.store.limit
        expired = [
            row
            for rows in tables.messages.values()
            for row in rows.values()
            if row.has_expired(now_ms, self.store.default_expiry_s)
        ]
        transaction.delete(expired)
        surplus = [row for client in list(tables.longer_than(limit)) for row in tables.of_client(client)[:-limit]]
        transaction.delete(surplus)
        return [(row, True) for row in expired] + [(row, False) for row in surplus]

    def _passed(self, replies: list[Any]) -> None:
        self.passes += 1
        for row, has_expired in replies[0]:
            self.on_removed(row, has_expired)
