"""The two tables of the PostgreSQL store in a real server: the judge of the simulated ones (`session_tables.py` in
`orderlab/sim/servers/`), with the same operations as the same transactions under the same faults."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from orderlab.model.protocol.packet_id import MODULUS
from orderlab.sim.servers.postgres import DEFAULT_EXPIRY_S, PostgresSessions, StatementError
from orderlab.sim.servers.postgres_rows import MessageRow, Rows, SessionRow
from orderlab.sim.servers.session_tables import BROKEN, Count, Fault, Incoming, Removal, Saved
from tests.laboratory.live_postgres import PostgresProcess

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

SCHEMA = """
CREATE TABLE device_session_ctx(client_id varchar(255) PRIMARY KEY, last_updated_time bigint NOT NULL,
  last_serial_number bigint, last_packet_id int);
CREATE TABLE device_publish_msg(client_id varchar(255) NOT NULL, serial_number bigint NOT NULL, topic varchar NOT NULL,
  time bigint NOT NULL, packet_id int, packet_type varchar(255), qos int NOT NULL, payload bytea NOT NULL,
  retain boolean, msg_expiry_interval int, PRIMARY KEY(client_id, serial_number));
CREATE INDEX ON device_publish_msg(client_id, packet_id);
"""
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
