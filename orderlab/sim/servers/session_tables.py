"""The two tables of the PostgreSQL store behind one face: simulated in virtual time, and in a real server.

Both carry out the same operations as the same transactions, under the same faults, so that one can be held against the
other operation by operation, and both against the laws. The clock is the caller's, as in the published broker, whose
rows carry the broker's time.

A fault strikes one operation, which then ends with a ``StatementError``; nothing is tried again here, as nothing is by
the broker's pool:

- ``serialization``: at REPEATABLE READ another transaction has changed the row meanwhile (SQLSTATE 40001);
- ``deadlock``: another transaction holds the row that this one wants, and wants one that this one holds (40P01);
- ``lost-request``: the connection breaks before COMMIT is there;
- ``lost-reply``: it breaks after COMMIT, before its answer is here.

The first two strike only where there is a row to fight for, a deadlock a save alone: elsewhere the operation is carried
out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

from orderlab.model.protocol.packet_id import MODULUS
from orderlab.sim.costs import load_costs
from orderlab.sim.engine.clock import Clock, Station
from orderlab.sim.live_postgres import PostgresProcess
from orderlab.sim.servers.postgres import (
    DEFAULT_EXPIRY_S,
    CleanUp,
    PostgresServer,
    PostgresSessions,
    Statement,
    StatementError,
    Transaction,
)
from orderlab.sim.servers.postgres_rows import MessageRow, Rows, SessionRow

if TYPE_CHECKING:
    import psycopg

Fault = Literal["serialization", "deadlock", "lost-request", "lost-reply"]
SERIALIZATION, DEADLOCK, BROKEN = "40001", "40P01", "connection"
CODES: dict[Fault, str] = {
    "serialization": SERIALIZATION,
    "deadlock": DEADLOCK,
    "lost-request": BROKEN,
    "lost-reply": BROKEN,
}
T = TypeVar("T")


class Incoming(NamedTuple):
    """A message to be saved."""

    number: int
    topic: bytes = b"t"
    qos: int = 1
    interval_s: int | None = None


class Removal(NamedTuple):
    """A row that clean-up removed; if it had not expired it was surplus."""

    client: bytes
    serial_number: int
    has_expired: bool


Saved = list[tuple[int, int]] | StatementError
"""(packet identifier, serial number) of each message."""
Count = int | StatementError
"""Of the rows that were there."""


class SessionTables(Protocol):
    """``now_ms``: the caller's clock, which the caller sets."""

    now_ms: int

    def payload(self, number: int) -> bytes:
        """What the row of the message of that number holds."""

    def save(self, client: bytes, messages: Sequence[Incoming], fault: Fault | None = None) -> Saved:
        """Save a batch in one transaction."""

    def fetch(self, client: bytes) -> list[MessageRow]:
        """All that waits and has not expired, in order."""

    def acknowledge(self, client: bytes, packet_id: int, fault: Fault | None = None) -> Count:
        """Delete by packet identifier."""

    def release(self, client: bytes, packet_id: int, fault: Fault | None = None) -> Count:
        """Let rows become PUBRELs."""

    def clear(self, client: bytes, fault: Fault | None = None) -> Count:
        """The session ends: its row and its messages go."""

    def clean_up(self) -> list[Removal]:
        """Expired rows go, then the oldest of each client beyond the limit."""

    def contents(self) -> tuple[list[SessionRow], list[MessageRow]]:
        """All rows of both tables, by primary key."""

    def held(self) -> tuple[Rows, Rows]:
        """What is committed, and what of it a crash would leave, where that is known."""

    def hold(self, committed: Rows, on_disk: Rows) -> None:
        """Be where ``held`` says this."""

    def settle(self) -> None:
        """Wait until all that is committed is in the log on disk."""

    def crash(self) -> None:
        """The server's processes end at once; it starts again, and recovers."""


class SimulatedTables:
    """The tables of the simulation."""

    def __init__(
        self, limit: int = 10_000, synchronous_commit: bool = True, modulus: int = MODULUS, payload_bytes: int = 62
    ) -> None:
        costs = load_costs("prototype").postgres
        assert costs is not None
        self.env = Clock()
        self.server = PostgresServer(self.env, costs, Station(2), synchronous_commit=synchronous_commit)
        self.store = PostgresSessions(limit, 1, payload_bytes, DEFAULT_EXPIRY_S, modulus)
        self.now_ms = 0
        self.work_us = 0.0
        """Of one core of the server, so far."""
        self._clean_up = CleanUp(self.server, self.store, 1)

    def payload(self, number: int) -> bytes:
        return self.store.payload(number)

    def save(self, client: bytes, messages: Sequence[Incoming], fault: Fault | None = None) -> Saved:
        numbered = [(one.number, one.topic, self.now_ms) for one in messages]
        levels, intervals = tuple(one.qos for one in messages), tuple(one.interval_s for one in messages)
        statement = self.store.save(client, numbered, 0, 0, qos=levels, intervals_s=intervals)
        saved: Saved = self._run(statement, fault, client in self.server.tables.sessions)
        return saved

    def fetch(self, client: bytes) -> list[MessageRow]:
        rows: list[MessageRow] = self._run(self.store.fetch(client))
        return rows

    def acknowledge(self, client: bytes, packet_id: int, fault: Fault | None = None) -> Count:
        is_there = (client, packet_id) in self.server.tables.by_packet_id
        return self._count(self.store.acknowledge(client, packet_id, 0), fault, is_there)

    def release(self, client: bytes, packet_id: int, fault: Fault | None = None) -> Count:
        is_there = (client, packet_id) in self.server.tables.by_packet_id
        return self._count(self.store.release(client, packet_id, 0), fault, is_there)

    def clear(self, client: bytes, fault: Fault | None = None) -> Count:
        return self._count(self.store.clear(client), fault, client in self.server.tables.sessions)

    def clean_up(self) -> list[Removal]:
        removed = self._run(self._clean_up.statement())
        return sorted(Removal(row.client_id, row.serial_number, has_expired) for row, has_expired in removed)

    def contents(self) -> tuple[list[SessionRow], list[MessageRow]]:
        sessions, messages = self.server.tables.rows()
        return list(sessions), list(messages)

    def held(self) -> tuple[Rows, Rows]:
        return self.server.held()

    def hold(self, committed: Rows, on_disk: Rows) -> None:
        self.server.hold(committed, on_disk)

    def settle(self) -> None:
        self.env.run(self.env.now + 1_000_000)

    def crash(self) -> None:
        self.server.crash()
        self.server.restart()

    def _count(self, statement: Statement, fault: Fault | None, is_row_there: bool) -> Count:
        found: Count = self._run(statement, fault, is_row_there and fault != "deadlock")
        return found

    def _run(self, statement: Statement, fault: Fault | None = None, is_row_there: bool = False) -> Any:
        if fault == "lost-reply":
            self._submit(statement.run)
            return StatementError(BROKEN)
        if fault == "lost-request" or (fault is not None and is_row_there):
            reply = self._submit(_undone(statement, CODES[fault]))
            if fault == "lost-request":
                return StatementError(BROKEN)
        else:
            reply = self._submit(statement.run)
        return StatementError(reply.message[:5]) if isinstance(reply, StatementError) else reply

    def _submit(self, run: Callable[[Transaction, int], Any]) -> Any:
        """Carry out one transaction up to its reply, on the caller's clock."""
        replies: list[Any] = []

        def counted(transaction: Transaction, _: int) -> Any:
            try:
                return run(transaction, self.now_ms)
            finally:
                self.work_us += transaction.work_us

        self.server.receive([Statement("", counted)], replies.extend)
        while not replies:
            self.env.step()
        return replies[0]


def _undone(statement: Statement, code: str) -> Callable[[Transaction, int], Any]:
    """All its work, and an error at the end."""

    def run(transaction: Transaction, now_ms: int) -> Any:
        statement.run(transaction, now_ms)
        raise ValueError(code)

    return run


SCHEMA = """
CREATE TABLE device_session_ctx(client_id varchar(255) PRIMARY KEY, last_updated_time bigint NOT NULL,
  last_serial_number bigint, last_packet_id int);
CREATE TABLE device_publish_msg(client_id varchar(255) NOT NULL, serial_number bigint NOT NULL, topic varchar NOT NULL,
  time bigint NOT NULL, packet_id int, packet_type varchar(255), qos int NOT NULL, payload bytea NOT NULL,
  retain boolean, msg_expiry_interval int, PRIMARY KEY(client_id, serial_number));
CREATE INDEX ON device_publish_msg(client_id, packet_id);
"""
BLOCK, BLOCK_HEAD, LINE_POINTER, TUPLE_HEAD, INDEX_TUPLE_HEAD, INDEX_SPECIAL = 8192, 24, 4, 24, 8, 16
NULLS = 8
"""What the bits for the columns take, where one of them is null: of more than 8, a word."""
FREE_SPACE_BLOCKS = 3
"""Of the map of free space, once a table has more than one block."""
SHORT_MAX = 126
"""Bytes of a value whose length takes one byte; that of a longer one takes four, in a whole word."""
COLUMNS = "client_id, serial_number, topic, time, packet_id, packet_type, qos, payload, msg_expiry_interval"
DEADLINE = f"time + 1000 * COALESCE(msg_expiry_interval, {DEFAULT_EXPIRY_S})::bigint"
SELECT_SESSION = "SELECT last_serial_number, last_packet_id FROM device_session_ctx WHERE client_id = %s"
INSERT_MESSAGE = (
    f"INSERT INTO device_publish_msg({COLUMNS}, retain) VALUES (%s, %s, %s, %s, %s, 'PUBLISH', %s, %s, %s, false)"
)
UPSERT_SESSION = (
    "INSERT INTO device_session_ctx VALUES (%s, %s, %s, %s) ON CONFLICT (client_id) DO UPDATE SET "
    "last_updated_time = excluded.last_updated_time, last_serial_number = excluded.last_serial_number, "
    "last_packet_id = excluded.last_packet_id"
)
FETCH = f"SELECT {COLUMNS} FROM device_publish_msg WHERE client_id = %s AND {DEADLINE} > %s ORDER BY serial_number"
BY_PACKET_ID = "WHERE client_id = %s AND packet_id = %s"
DELETE_PACKET = f"DELETE FROM device_publish_msg {BY_PACKET_ID}"
RELEASE_PACKET = f"UPDATE device_publish_msg SET packet_type = 'PUBREL', payload = '' {BY_PACKET_ID}"
DELETE_EXPIRED = f"DELETE FROM device_publish_msg WHERE {DEADLINE} <= %s RETURNING client_id, serial_number"
DELETE_SURPLUS = """
DELETE FROM device_publish_msg AS message USING (
  SELECT client_id, serial_number, row_number() OVER (PARTITION BY client_id ORDER BY serial_number DESC) AS place
  FROM device_publish_msg) AS ranked
WHERE message.client_id = ranked.client_id AND message.serial_number = ranked.serial_number AND ranked.place > %s
RETURNING message.client_id, message.serial_number
"""
TOUCH_SESSION = "UPDATE device_session_ctx SET last_updated_time = last_updated_time WHERE client_id = %s"
TOUCH_MESSAGE = f"UPDATE device_publish_msg SET topic = topic {BY_PACKET_ID}"
LONG_MS, SHORT_MS = 600_000, 10
"""``deadlock_timeout`` of who is to win, and of who is to lose: the server ends whoever looks first."""
PATIENCE_S = 60.0

Work = Callable[["psycopg.Connection[Any]", Callable[[str], None]], T]
"""Statements of one transaction. It says when it has its snapshot (``read``) and when it has rows of its own
(``written``)."""


def disk_bytes(rows: Sequence[MessageRow]) -> int:
    """``pg_total_relation_size`` of both tables with these rows of one client, saved in one transaction into empty
    tables.

    The layout is that of PostgreSQL 15 (its manual, "Database Page Layout"; ``nbtree.h``):
    ``tests/sim/servers/test_real_postgres.py`` asks the server. Indexes of two levels: up to some 40,000 rows.
    """
    if not rows:
        return 4 * BLOCK
    per_block = (BLOCK - BLOCK_HEAD) // (_words(max(map(_row_bytes, rows))) + LINE_POINTER)
    heap = -(-len(rows) // per_block)
    client = len(rows[0].client_id) + 1
    indexes = sum(_index_blocks(len(rows), key) for key in (_words(client) + 8, _words(client, 4) + 4))
    toast_index, session = 1, 1 + _index_blocks(1, client)
    return (heap + (FREE_SPACE_BLOCKS if heap > 1 else 0) + indexes + toast_index + session) * BLOCK


def _words(size: int, of: int = 8) -> int:
    """In whole words."""
    return -(-size // of) * of


def _row_bytes(row: MessageRow) -> int:
    """A row of ``device_publish_msg`` in its block; each column begins where its type must."""
    at = _words(len(row.client_id) + 1) + 8 + len(row.topic) + 1
    at = _words(at) + 8 + 4 + len(row.packet_type) + 1
    at = _words(at, 4) + 4
    at = at + 1 + len(row.payload) if len(row.payload) <= SHORT_MAX else _words(at, 4) + 4 + len(row.payload)
    at += 1
    return TUPLE_HEAD + (NULLS + at if row.msg_expiry_interval is None else _words(at, 4) + 4)


def _index_blocks(entries: int, key: int) -> int:
    """The page of metadata, a root, and leaves below it where one does not do. New entries come at the end, where
    leaves are left nine tenths full."""
    tuple_bytes = _words(INDEX_TUPLE_HEAD + key) + LINE_POINTER
    whole = (BLOCK - BLOCK_HEAD - INDEX_SPECIAL) // tuple_bytes
    return 2 if entries <= whole else 2 + -(-entries // (whole * 9 // 10))


class RealTables:
    """The tables in a real server, which must have a database of their own: they are made anew."""

    def __init__(
        self,
        process: PostgresProcess,
        limit: int = 10_000,
        synchronous_commit: bool = True,
        modulus: int = MODULUS,
        payload_bytes: int = 62,
    ) -> None:
        self.process = process
        self.limit = limit
        self.synchronous_commit = synchronous_commit
        self.now_ms = 0
        self._modulus = modulus
        self._payload = PostgresSessions(limit, 1, payload_bytes).payload
        self._connect()
        self._watcher.execute("DROP TABLE IF EXISTS device_session_ctx, device_publish_msg")
        self._watcher.execute(SCHEMA)

    def _connect(self) -> None:
        self._connection = self.session()
        self._watcher = self.process.connect()
        if not self.synchronous_commit:
            self.process.hold_log_writer()

    def payload(self, number: int) -> bytes:
        return self._payload(number)

    def session(self) -> psycopg.Connection[Any]:
        """A connection of one more client."""
        connection = self.process.connect()
        connection.execute(f"SET synchronous_commit = {'on' if self.synchronous_commit else 'off'}")
        connection.execute(f"SET deadlock_timeout = {SHORT_MS}")
        connection.execute("SET default_transaction_isolation = 'repeatable read'")
        return connection

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()
        self._watcher.close()

    def save(self, client: bytes, messages: Sequence[Incoming], fault: Fault | None = None) -> Saved:
        name = client.decode()

        def work(connection: psycopg.Connection[Any], at: Callable[[str], None]) -> list[tuple[int, int]]:
            serial, packet_id = connection.execute(SELECT_SESSION, (name,)).fetchone() or (0, 0)
            at("read")
            given = []
            for one in messages:
                serial, packet_id = serial + 1, packet_id % self._modulus + 1
                payload = self.payload(one.number)
                row = (name, serial, one.topic.decode(), self.now_ms, packet_id, one.qos, payload, one.interval_s)
                connection.execute(INSERT_MESSAGE, row)
                given.append((packet_id, serial))
            at("written")
            connection.execute(UPSERT_SESSION, (name, self.now_ms, serial, packet_id))
            return given

        return self._run(work, fault, client, TOUCH_SESSION, (name,), can_deadlock=True)

    def fetch(self, client: bytes) -> list[MessageRow]:
        return [_message(row) for row in self._connection.execute(FETCH, (client.decode(), self.now_ms)).fetchall()]

    def acknowledge(self, client: bytes, packet_id: int, fault: Fault | None = None) -> Count:
        return self._by_packet_id(DELETE_PACKET, client, packet_id, fault)

    def release(self, client: bytes, packet_id: int, fault: Fault | None = None) -> Count:
        return self._by_packet_id(RELEASE_PACKET, client, packet_id, fault)

    def _by_packet_id(self, sql: str, client: bytes, packet_id: int, fault: Fault | None) -> Count:
        named = (client.decode(), packet_id)

        def work(connection: psycopg.Connection[Any], at: Callable[[str], None]) -> int:
            connection.execute("SELECT 1")  # the snapshot
            at("read")
            return connection.execute(sql, named).rowcount

        return self._run(work, fault, client, TOUCH_MESSAGE, named)

    def clear(self, client: bytes, fault: Fault | None = None) -> Count:
        name = client.decode()

        def work(connection: psycopg.Connection[Any], at: Callable[[str], None]) -> int:
            connection.execute("SELECT 1")
            at("read")
            connection.execute("DELETE FROM device_session_ctx WHERE client_id = %s", (name,))
            return connection.execute("DELETE FROM device_publish_msg WHERE client_id = %s", (name,)).rowcount

        return self._run(work, fault, client, TOUCH_SESSION, (name,))

    def clean_up(self) -> list[Removal]:
        with self._connection.transaction():
            expired = self._connection.execute(DELETE_EXPIRED, (self.now_ms,)).fetchall()
            surplus = self._connection.execute(DELETE_SURPLUS, (self.limit,)).fetchall()
        removed = [(row, True) for row in expired] + [(row, False) for row in surplus]
        return sorted(Removal(client.encode(), serial, has_expired) for (client, serial), has_expired in removed)

    def contents(self) -> tuple[list[SessionRow], list[MessageRow]]:
        sessions = self._watcher.execute("SELECT * FROM device_session_ctx").fetchall()
        messages = self._watcher.execute(f"SELECT {COLUMNS} FROM device_publish_msg").fetchall()
        told = [SessionRow(client.encode(), *rest) for client, *rest in sessions]
        return sorted(told), sorted((_message(row) for row in messages), key=lambda row: row[:2])

    def held(self) -> tuple[Rows, Rows]:
        sessions, messages = self.contents()
        rows = tuple(sessions), tuple(messages)
        return rows, rows

    def hold(self, committed: Rows, on_disk: Rows) -> None:
        if committed == self.held()[0]:
            return
        with self._connection.transaction():
            self._connection.execute("TRUNCATE device_session_ctx, device_publish_msg")
            for one in committed[0]:
                self._connection.execute(UPSERT_SESSION, (one.client_id.decode(), *one[1:]))
            for row in committed[1]:
                self._connection.execute(
                    f"INSERT INTO device_publish_msg({COLUMNS}, retain) VALUES ({', '.join(['%s'] * 9)}, false)",
                    (row.client_id.decode(), row.serial_number, row.topic.decode(), *row[3:]),
                )

    def settle(self) -> None:
        with self._watcher.transaction():  # a commit that waits writes the log of all before it
            self._watcher.execute("SELECT pg_logical_emit_message(true, 'orderlab', ''), txid_current()")

    def crash(self) -> None:
        self.process.crash()
        self.close()
        self.process.restart()
        self._connect()

    def _run(
        self,
        work: Work[T],
        fault: Fault | None,
        client: bytes,
        touch: str,
        named: tuple[Any, ...],
        can_deadlock: bool = False,
    ) -> T | StatementError:
        """Carry out a transaction."""
        import psycopg

        if fault in ("lost-request", "lost-reply"):
            return self._break_off(work, fault == "lost-reply")
        rival = _Rival(self, client) if fault == "deadlock" and can_deadlock else None

        def strike(at: str) -> None:
            if fault == "serialization" and at == "read":
                self._watcher.execute(touch, named)
            elif rival is not None and at == "written":
                rival.block()

        try:
            with self._connection.transaction():
                return work(self._connection, strike)
        except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected, psycopg.DataError) as error:
            return StatementError(str(error.sqlstate))
        finally:
            if rival is not None:
                rival.leave()

    def _break_off(self, work: Work[Any], is_committed: bool) -> StatementError:
        """Do the work on a connection that breaks before COMMIT is sent, or when it has been carried out."""
        import psycopg

        connection = self.session()
        pid = connection.info.backend_pid
        connection.execute("BEGIN")
        try:
            work(connection, lambda at: None)
        except psycopg.DataError:
            is_committed = False  # the transaction has failed
        if is_committed:
            connection.pgconn.send_query(b"COMMIT")
            self.wait_until("SELECT state = 'idle' FROM pg_stat_activity WHERE pid = %s", pid)
        connection.close()
        self.wait_until("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %s", pid)
        return StatementError(BROKEN)

    def watch(self, question: str, pid: int) -> Any:
        """What the server says of one of its processes, asked on a connection beside."""
        return self._watcher.execute(question, (pid,)).fetchone()

    def wait_until(self, question: str, pid: int) -> None:
        """Ask until the answer is yes. Raises TimeoutError."""
        deadline = time.monotonic() + PATIENCE_S
        while self.watch(question, pid) != (True,):
            if time.monotonic() > deadline:
                raise TimeoutError(question)
            time.sleep(0.001)


class _Rival:
    """Another transaction that holds a client's row in ``device_session_ctx`` and wants one that this one has
    inserted."""

    def __init__(self, tables: RealTables, client: bytes) -> None:
        self.tables = tables
        self.name = client.decode()
        self.connection = tables.process.connect()
        self.connection.execute(f"SET deadlock_timeout = {LONG_MS}")
        self.connection.execute("BEGIN")
        self.found = self.connection.execute(f"{SELECT_SESSION} FOR UPDATE", (self.name,)).fetchone()
        self.thread: threading.Thread | None = None

    def block(self) -> None:
        """Want the row, where there is one to fight for, and be seen to wait for it."""
        if self.found is None:
            return
        row = (self.name, self.found[0] + 1, "t", 0, 1, 1, b"", None)
        self.thread = threading.Thread(target=self.connection.execute, args=(INSERT_MESSAGE, row))
        self.thread.start()
        self.tables.wait_until("SELECT cardinality(pg_blocking_pids(%s)) > 0", self.connection.info.backend_pid)

    def leave(self) -> None:
        """Undo all."""
        if self.thread is not None:
            self.thread.join()
        self.connection.rollback()
        self.connection.close()


def _message(row: Sequence[Any]) -> MessageRow:
    client, serial, topic, time_ms, packet_id, packet_type, qos, payload, interval_s = row
    return MessageRow(
        client.encode(), serial, topic.encode(), time_ms, packet_id, packet_type, qos, bytes(payload), interval_s
    )
