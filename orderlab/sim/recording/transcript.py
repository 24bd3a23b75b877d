"""From packets on their way to the rows of a history.

A packet's row is written when it is passed on, by the one thread that passes packets on: what was dropped has no row.
The payload of each message says who published it, at which QoS, and its number there (`payload_of`), so that a delivery
can be told from any other.
"""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from orderlab.model.history.decoding import RowDecoder
from orderlab.model.history.disk import HistoryWriter
from orderlab.model.history.events import COLUMNS
from orderlab.sim.recording.packets import (
    MESSAGE_EXPIRY,
    RECEIVE_MAXIMUM,
    SESSION_EXPIRY,
    VERSION_5,
    ControlPacket,
    PacketType,
)

REFUSED = 128
_SECOND_US = 1_000_000
Message = tuple[str, str, int, int]
"""Publisher, topic, QoS, and the number that its publisher gave it."""


def payload_of(publisher: str, qos: int, number: int, connection: int = 0) -> bytes:
    """What is published; ``connection``: of a Will, which connection of the publisher brought it."""
    return f"{publisher} {qos} {number} {connection}".encode()


class ClientConnection:
    """One connection of a client, as far as its rows need it."""

    def __init__(self) -> None:
        self.client, self.version, self.number = "", 0, 0
        self.connect: ControlPacket | None = None
        self.is_open = False
        self.goodbye: int | None = None
        self.session_ends = False
        """With the connection."""
        self.sent: dict[int, dict[str, Any]] = {}
        """The message of each PUBLISH of the client that waits for its PUBACK or PUBREC."""
        self.asked: dict[int, list[str]] = {}
        """The filters of each SUBSCRIBE and UNSUBSCRIBE that waits for its answer."""


class Recording:
    """The rows of one recording. ``by_client``: sequences are the numbers that publishers gave their messages; else the
    places in which messages were first passed on to the broker, so that only what the broker does is judged."""

    def __init__(self, by_client: bool = False) -> None:
        self.rows: list[dict[str, Any]] = []
        self._by_client, self._is_over = by_client, False
        self._places: dict[Message, int] = {}
        self._highest: dict[tuple[str, str, int], int] = defaultdict(int)
        self._connections: dict[str, int] = defaultdict(int)
        self._had_session: set[str] = set()
        self._sessions: dict[str, int] = defaultdict(lambda: 1)
        """The number of the session that each client has."""
        self._over: dict[Message, dict[str, int]] = {}
        """The sessions that there were when a message was answered for good (PUBACK, PUBCOMP): it is for none later."""
        self._wills: set[Message] = set()
        self._publishing: dict[tuple[str, int], Message] = {}
        self._delivering: dict[tuple[str, int], dict[str, Any]] = {}
        self._begun_ns = time.monotonic_ns()

    def add(self, kind: str, **cells: Any) -> None:
        """Write one row, now; none after that of the end."""
        if self._is_over:
            return
        self._is_over = kind in ("end", "cut")
        now_us = (time.monotonic_ns() - self._begun_ns) // 1000
        self.rows.append({"event_id": len(self.rows), "time_us": now_us, "kind": kind, **cells})

    def to_broker(self, connection: ClientConnection, packet: ControlPacket) -> None:
        """Write what a packet of a client says, before it is passed on."""
        kind = packet.kind
        if kind is PacketType.CONNECT:
            connection.client, connection.version, connection.connect = packet.client, packet.version, packet
        elif kind is PacketType.PUBLISH:
            self._publish(connection, packet)
        elif kind in (PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE):
            connection.asked[packet.packet_id] = packet.filters
        elif kind is PacketType.DISCONNECT:
            connection.goodbye = packet.reason
        elif kind is PacketType.PUBREC:
            refused = {"reason_code": packet.reason} if packet.reason >= REFUSED else {}
            self._of_delivery("receive", connection, packet, **refused)
        elif kind in (PacketType.PUBACK, PacketType.PUBCOMP):
            self._of_delivery("acknowledge", connection, packet)

    def to_client(self, connection: ClientConnection, packet: ControlPacket) -> None:
        """Write what a packet of the broker says, before it is passed on."""
        kind = packet.kind
        if kind is PacketType.CONNACK and packet.reason == 0:
            self._connected(connection, packet)
        elif kind is PacketType.PUBLISH:
            self._deliver(connection, packet)
        elif kind in (PacketType.PUBACK, PacketType.PUBREC):
            message = connection.sent.pop(packet.packet_id, None)
            if message is not None and packet.reason < REFUSED:
                self.add("publish_acknowledged", **message, packet_id=packet.packet_id)
            if kind is PacketType.PUBACK:
                self._answered(connection, packet)
        elif kind is PacketType.PUBCOMP:
            self._answered(connection, packet)
        elif kind is PacketType.PUBREL:
            self._of_delivery("release", connection, packet)
        elif kind is PacketType.SUBACK:
            for asked, granted in zip(connection.asked.pop(packet.packet_id, ()), packet.granted, strict=False):
                if granted < REFUSED:
                    self.add("subscribe", subscriber=connection.client, topic=asked, qos=granted)
        elif kind is PacketType.UNSUBACK:
            for asked in connection.asked.pop(packet.packet_id, ()):
                self.add("unsubscribe", subscriber=connection.client, topic=asked)

    def ended(self, connection: ClientConnection) -> None:
        """Write that a connection has ended, once."""
        if not connection.is_open:
            return
        connection.is_open = False
        goodbye = {} if connection.goodbye is None else {"reason_code": connection.goodbye}
        self.add("disconnect", subscriber=connection.client, **goodbye)
        if connection.session_ends:
            self._clear(connection.client)

    def slowest_answer_us(self) -> int:
        """The longest that a publish waited for its PUBACK or PUBREC: by so much a broker's clock may have begun later
        than the row of the publish says."""
        asked_us: dict[tuple[str, int], int] = {}
        slowest_us = 0
        for row in self.rows:
            if "packet_id" not in row:  # QoS 0, a Will
                continue
            if row["kind"] == "publish":
                asked_us[row["publisher"], row["packet_id"]] = row["time_us"]
            elif row["kind"] == "publish_acknowledged":
                begun_us = asked_us.pop((row["publisher"], row["packet_id"]), row["time_us"])
                slowest_us = max(slowest_us, row["time_us"] - begun_us)
        return slowest_us

    def write(self, path: Path) -> None:
        """Write the history. Raises InputError where that cannot be."""
        decoder = RowDecoder(str(path))
        batch = decoder.decode(self.rows, frozenset(COLUMNS))
        with HistoryWriter(path, decoder.names) as writer:
            writer.write(batch)

    def _connected(self, connection: ClientConnection, packet: ControlPacket) -> None:
        connect, client = connection.connect, connection.client
        assert connect is not None
        if connect.is_clean and client in self._had_session:
            self._clear(client)
        self._had_session.add(client)
        is_5 = connection.version == VERSION_5
        expiry = packet.properties.get(SESSION_EXPIRY, connect.properties.get(SESSION_EXPIRY, 0))
        connection.session_ends = expiry == 0 if is_5 else connect.is_clean
        self._connections[client] += 1
        connection.number, connection.is_open = self._connections[client], True
        cells: dict[str, Any] = {"connection": connection.number}
        if RECEIVE_MAXIMUM in connect.properties:
            cells["receive_maximum"] = connect.properties[RECEIVE_MAXIMUM]
        if connect.has_will:
            cells["will_delay_us"] = connect.will_delay_s * _SECOND_US
        self.add("connect", subscriber=client, **cells)

    def _clear(self, client: str) -> None:
        self._had_session.discard(client)
        self.add("clear", subscriber=client, session=self._sessions[client])
        self._sessions[client] += 1

    def _answered(self, connection: ClientConnection, packet: ControlPacket) -> None:
        message = self._publishing.get((connection.client, packet.packet_id))
        if message is not None:
            self._over.setdefault(message, dict(self._sessions))

    def _session_of(self, message: dict[str, Any], client: str) -> int:
        """The session of a client for which a message was queued: a broker may hand a message on as late as with its
        PUBACK or PUBCOMP, so only what was answered before a session began is known to be none of its messages."""
        sessions = self._over.get(tuple(message.values()))
        return self._sessions[client] if sessions is None else int(sessions.get(client, 1))

    def _publish(self, connection: ClientConnection, packet: ControlPacket) -> None:
        message, is_late, _ = self._message(packet)
        self._over.pop(tuple(message.values()), None)
        cells = {**message, **_expiry(packet)}
        if packet.dup or is_late:
            cells["dup"] = True
        if packet.retain:
            cells["retained"] = True
        if packet.qos:
            connection.sent[packet.packet_id] = message
            self._publishing[connection.client, packet.packet_id] = tuple(message.values())
            cells["packet_id"] = packet.packet_id
        self.add("publish", **cells)

    def _deliver(self, connection: ClientConnection, packet: ControlPacket) -> None:
        message, _, will_of = self._message(packet)
        if will_of:
            brought = {"subscriber": message["publisher"], "connection": will_of}
            self.add("publish", **message, **brought)
            if message["qos"]:
                self.add("publish_acknowledged", **message, **brought)
        cells = {**message, "subscriber": connection.client, **_expiry(packet)}
        if packet.qos < message["qos"]:
            cells["delivered_qos"] = packet.qos
        if packet.qos:
            cells["packet_id"] = packet.packet_id
            self._delivering[connection.client, packet.packet_id] = message
        if packet.dup:
            cells["dup"] = True
        if packet.retain:
            cells["retained"] = True
        else:
            cells["session"] = self._session_of(message, connection.client)
        self.add("deliver", **cells)

    def _of_delivery(self, kind: str, connection: ClientConnection, packet: ControlPacket, **cells: Any) -> None:
        message = self._delivering.get((connection.client, packet.packet_id), {})
        self.add(kind, **message, subscriber=connection.client, packet_id=packet.packet_id, **cells)

    def _message(self, packet: ControlPacket) -> tuple[dict[str, Any], bool, int]:
        """(The cells that name a message; whether an earlier row has a later one of its logical FIFO; the connection
        whose Will it is and that no row has published yet, or 0)."""
        publisher, qos, number, connection = packet.payload.decode().split()
        message = (publisher, packet.topic, int(qos), int(number))
        fifo = message[:3]
        is_new = message not in self._places
        if is_new:
            self._places[message] = int(number) if self._by_client else self._highest[fifo] + 1
        place = self._places[message]
        is_late = place < self._highest[fifo]
        self._highest[fifo] = max(self._highest[fifo], place)
        cells = {"publisher": publisher, "topic": packet.topic, "qos": int(qos), "sequence": place}
        return cells, is_late, int(connection) if is_new else 0


def _expiry(packet: ControlPacket) -> dict[str, int]:
    seconds = packet.properties.get(MESSAGE_EXPIRY)
    return {} if seconds is None else {"expiry_interval_us": seconds * _SECOND_US}
