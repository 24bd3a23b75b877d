"""The two tables of the PostgreSQL store behind one face, simulated in virtual time.

A real server carries out the same operations as the same transactions, under the same faults
(`tests/laboratory/real_tables.py`), so that one can be held against the other operation by operation, and both against
the laws. The clock is the caller's, as in the published broker, whose
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

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

from orderlab.model.protocol.packet_id import MODULUS
from orderlab.sim.costs.cost_model import load_costs
from orderlab.sim.engine.clock import Clock, Station
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
    pass

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


BLOCK, BLOCK_HEAD, LINE_POINTER, TUPLE_HEAD, INDEX_TUPLE_HEAD, INDEX_SPECIAL = 8192, 24, 4, 24, 8, 16
NULLS = 8
"""What the bits for the columns take, where one of them is null: of more than 8, a word."""
FREE_SPACE_BLOCKS = 3
"""Of the map of free space, once a table has more than one block."""
SHORT_MAX = 126
"""Bytes of a value whose length takes one byte; that of a longer one takes four, in a whole word."""


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
    """The size, rounded up to whole words."""
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
