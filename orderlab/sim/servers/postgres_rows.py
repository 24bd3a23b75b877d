"""The rows of the broker's two tables in PostgreSQL, their primary keys and the index on packet identifiers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


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
    """An ``int`` of SQL: the longest interval of MQTT does not fit."""

    def has_expired(self, now_ms: int, default_expiry_s: int) -> bool:
        """Whether its own interval, or the default, is over."""
        interval = default_expiry_s if self.msg_expiry_interval is None else self.msg_expiry_interval
        return self.time + 1000 * interval <= now_ms


Rows = tuple[tuple[SessionRow, ...], tuple[MessageRow, ...]]
"""Of both tables."""


class Tables:
    """What is committed, and what open transactions have done so far."""

    def __init__(self) -> None:
        self.sessions: dict[bytes, SessionRow] = {}
        self.messages: dict[bytes, dict[int, MessageRow]] = {}
        """By client and serial number."""
        self.by_packet_id: dict[tuple[bytes, int], list[int]] = {}
        """The second index: serial numbers, ascending."""

    def add(self, row: MessageRow) -> None:
        """Enter a row into the heap and both indexes. Raises ValueError for a second row of the same primary key."""
        mine = self.messages.setdefault(row.client_id, {})
        if row.serial_number in mine:
            raise ValueError(
                f"23505 duplicate key ({row.client_id.decode()}, {row.serial_number}) of device_publish_msg"
            )
        mine[row.serial_number] = row
        serials = self.by_packet_id.setdefault((row.client_id, row.packet_id), [])
        serials.append(row.serial_number)
        serials.sort()

    def remove(self, row: MessageRow) -> None:
        """Take a row from the heap and both indexes."""
        mine = self.messages[row.client_id]
        del mine[row.serial_number]
        if not mine:
            del self.messages[row.client_id]
        key = row.client_id, row.packet_id
        self.by_packet_id[key].remove(row.serial_number)
        if not self.by_packet_id[key]:
            del self.by_packet_id[key]

    def fill(self, sessions: Sequence[SessionRow], messages: Sequence[MessageRow]) -> None:
        """Hold these rows and no others."""
        self.sessions = {row.client_id: row for row in sessions}
        self.messages.clear()
        self.by_packet_id.clear()
        for row in messages:
            self.add(row)

    def rows(self) -> Rows:
        """All rows, by primary key."""
        messages = (row for client in sorted(self.messages) for row in self.of_client(client))
        return tuple(sorted(self.sessions.values())), tuple(messages)

    def of_client(self, client: bytes) -> list[MessageRow]:
        """A client's rows, ORDER BY serial_number."""
        mine = self.messages.get(client, {})
        return [mine[serial] for serial in sorted(mine)]

    def of_packet_id(self, client: bytes, packet_id: int) -> list[MessageRow]:
        """Rows WHERE client_id AND packet_id, by serial number."""
        return [self.messages[client][serial] for serial in self.by_packet_id.get((client, packet_id), ())]

    def longer_than(self, limit: int) -> Iterator[bytes]:
        """Clients with more rows than ``limit``."""
        return (client for client, rows in self.messages.items() if len(rows) > limit)
