"""The two tables of the broker's PostgreSQL store, as rows, and the statements on them within a transaction.

``device_session_ctx`` (primary key client_id) counts; ``device_publish_msg`` (primary key client_id, serial_number; index on
client_id, packet_id) holds what waits. The serial number grows for ever and keeps the order across the wrap of the packet
identifier. The index on packet identifiers is not unique: two rows of a client may have the same one after a wrap, and a
statement that names it means both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from orderlab.sim.costs import PostgresCosts


class SessionRow(NamedTuple):
    """A row of ``device_session_ctx``."""

    client_id: bytes
    last_updated_time: int
    last_serial_number: int
    last_packet_id: int


class MessageRow(NamedTuple):
    """A row of ``device_publish_msg``. ``time`` in ms, ``msg_expiry_interval`` in s."""

    client_id: bytes
    serial_number: int
    topic: bytes
    time: int
    packet_id: int
    packet_type: str
    qos: int
    payload: bytes
    msg_expiry_interval: int | None = None

    def has_expired(self, now_ms: int, default_expiry_s: int) -> bool:
        """Whether its own interval, or the default, is over."""
        interval = default_expiry_s if self.msg_expiry_interval is None else self.msg_expiry_interval
        return self.time + 1000 * interval <= now_ms


class Tables:
    """What is committed, and what open transactions have done so far."""

    def __init__(self) -> None:
        self.sessions: dict[bytes, SessionRow] = {}
        self.messages: dict[bytes, dict[int, MessageRow]] = {}
        """By client and serial number."""
        self.by_packet_id: dict[tuple[bytes, int], list[int]] = {}
        """The second index: serial numbers, ascending."""

    def add(self, row: MessageRow) -> None:
        """Into the heap and both indexes. Raises ValueError for a second row of the same primary key."""
        mine = self.messages.setdefault(row.client_id, {})
        if row.serial_number in mine:
            raise ValueError(f"duplicate key ({row.client_id.decode()}, {row.serial_number}) of device_publish_msg")
        mine[row.serial_number] = row
        serials = self.by_packet_id.setdefault((row.client_id, row.packet_id), [])
        serials.append(row.serial_number)
        serials.sort()

    def remove(self, row: MessageRow) -> None:
        """From the heap and both indexes."""
        mine = self.messages[row.client_id]
        del mine[row.serial_number]
        if not mine:
            del self.messages[row.client_id]
        key = row.client_id, row.packet_id
        self.by_packet_id[key].remove(row.serial_number)
        if not self.by_packet_id[key]:
            del self.by_packet_id[key]

    def of_client(self, client: bytes) -> list[MessageRow]:
        """ORDER BY serial_number."""
        mine = self.messages.get(client, {})
        return [mine[serial] for serial in sorted(mine)]

    def of_packet_id(self, client: bytes, packet_id: int) -> list[MessageRow]:
        """WHERE client_id AND packet_id, by serial number."""
        return [self.messages[client][serial] for serial in self.by_packet_id.get((client, packet_id), ())]

    def longer_than(self, limit: int) -> Iterator[bytes]:
        """Clients with more rows than ``limit``."""
        return (client for client, rows in self.messages.items() if len(rows) > limit)


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

    def rollback(self) -> None:
        """As if it had never been."""
        while self._undo:
            self._undo.pop()()

    def select_session(self, client: bytes) -> SessionRow | None:
        """By primary key."""
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
        """One row. Raises ValueError for a duplicate key."""
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
