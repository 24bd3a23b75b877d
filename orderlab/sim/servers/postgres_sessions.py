"""The operations on sessions as transactions on the two tables, and the periodic clean-up of what nobody will fetch."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import simpy

from orderlab.model.protocol.packet_id import MODULUS
from orderlab.sim.mqtt.sessions import NUMBER_BYTES
from orderlab.sim.servers.postgres import MessageRow, PostgresServer, SessionRow, Statement, StatementError, Transaction

DEFAULT_EXPIRY_S = 604_800


class PostgresSessions:
    """A save reads the client's row, gives out serial numbers and packet identifiers, and writes one row per message."""

    needs_open = False

    def __init__(self, limit: int, qos: int, payload_bytes: int, default_expiry_s: int = DEFAULT_EXPIRY_S) -> None:
        self.limit = limit
        self.qos = qos
        self.default_expiry_s = default_expiry_s
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
    ) -> Statement:
        """Save messages given as (number, topic, time in ms): the client's row is read, then all is written and committed."""

        def run(transaction: Transaction, now_ms: int) -> list[tuple[int, int]]:
            before = transaction.select_session(client) or SessionRow(client, now_ms, 0, 0)
            serial, packet_id = before.last_serial_number, before.last_packet_id
            given = []
            for (number, topic, time_ms), level in zip(messages, qos or (self.qos,) * len(messages), strict=True):
                serial, packet_id = serial + 1, packet_id % MODULUS + 1
                payload = b"%09d" % number + self._padding
                transaction.insert_message(
                    MessageRow(client, serial, topic, time_ms, packet_id, "PUBLISH", level, payload)
                )
                given.append((packet_id, serial))
            transaction.upsert_session(SessionRow(client, now_ms, serial, packet_id))
            return given

        return Statement("save", run, round_trips=4)  # SELECT; the batch of INSERT; the upsert; COMMIT

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
    """Every ``period_us`` expired rows go, then the oldest of each client beyond the limit. Between two passes a session
    may hold more than its limit, and a fetch returns it."""

    def __init__(
        self, server: PostgresServer, store: PostgresSessions, period_us: int, on_removed: OnRemoved = lambda row, expired: None
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
            self.server.receive([Statement("clean-up", self._pass)], self._passed)

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
