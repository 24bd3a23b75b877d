"""MQTT control packets as a recorder reads them on their way: what a history has a column for, of 3.1.1 and 5.0."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum


class PacketType(IntEnum):
    """The upper four bits of the first byte (MQTT 5.0, 2.1.2)."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


VERSION_5 = 5
SESSION_EXPIRY, MESSAGE_EXPIRY, RECEIVE_MAXIMUM, WILL_DELAY = 0x11, 0x02, 0x21, 0x18
_BYTE, _TWO, _FOUR, _VARIABLE, _TEXT, _PAIR = range(6)
_FORMS = (
    dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), _BYTE)
    | dict.fromkeys((0x13, RECEIVE_MAXIMUM, 0x22, 0x23), _TWO)
    | dict.fromkeys((MESSAGE_EXPIRY, SESSION_EXPIRY, WILL_DELAY, 0x27), _FOUR)
    | {0x0B: _VARIABLE, 0x26: _PAIR}
    | dict.fromkeys((0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F), _TEXT)
)
"""How the value of each property is laid out (MQTT 5.0, 2.2.2.2)."""
_SIZES = {_BYTE: 1, _TWO: 2, _FOUR: 4}


class MalformedPacket(ValueError):
    """Bytes that are no packet of MQTT."""


@dataclass
class ControlPacket:
    """One packet; what its type does not have stays as it is here."""

    kind: PacketType
    flags: int
    raw: bytes
    packet_id: int = -1
    topic: str = ""
    payload: bytes = b""
    reason: int = 0
    properties: dict[int, int] = field(default_factory=dict)
    filters: list[str] = field(default_factory=list)
    granted: bytes = b""
    """Of SUBACK and UNSUBACK, one byte a filter."""
    client: str = ""
    version: int = 0
    is_clean: bool = False
    has_will: bool = False
    will_delay_s: int = 0
    session_present: bool = False

    @property
    def qos(self) -> int:
        """The QoS of a PUBLISH."""
        return self.flags >> 1 & 3

    @property
    def dup(self) -> bool:
        """The DUP flag of a PUBLISH."""
        return bool(self.flags & 8)

    @property
    def retain(self) -> bool:
        """The RETAIN flag of a PUBLISH."""
        return bool(self.flags & 1)


class _Body:
    """What is left to read of a packet's body."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def take(self, count: int) -> bytes:
        """The next bytes. Raises MalformedPacket where there are fewer."""
        taken = self._body[self._at : self._at + count]
        if len(taken) < count:
            raise MalformedPacket(f"{count} bytes wanted, {len(taken)} there")
        self._at += count
        return taken

    def number(self, size: int) -> int:
        """A number of that many bytes, the highest first."""
        return int.from_bytes(self.take(size), "big")

    def variable(self) -> int:
        """A Variable Byte Integer (1.5.5)."""
        value = 0
        for place in range(4):
            byte = self.number(1)
            value |= (byte & 127) << 7 * place
            if not byte & 128:
                return value
        raise MalformedPacket("a length of more than four bytes")

    def text(self) -> str:
        """A UTF-8 Encoded String (1.5.4)."""
        return self.take(self.number(2)).decode()

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return self._at >= len(self._body)

    def rest(self) -> bytes:
        """All that is left."""
        taken, self._at = self._body[self._at :], len(self._body)
        return taken

    def properties(self) -> dict[int, int]:
        """Those whose value is a number; the others are read over."""
        inner = _Body(self.take(self.variable()))
        numbers = {}
        while not inner.is_over:
            name = inner.variable()
            form = _FORMS.get(name)
            if form is None:
                raise MalformedPacket(f"property {name:#x}, which MQTT 5.0 does not have")
            if form in _SIZES:
                numbers[name] = inner.number(_SIZES[form])
            elif form == _VARIABLE:
                numbers[name] = inner.variable()
            else:
                for _ in range(2 if form == _PAIR else 1):
                    inner.take(inner.number(2))
        return numbers


def length_of(head: bytes) -> tuple[int, int] | None:
    """Of the bytes after the first one: (remaining length, bytes that say it); None where more are needed."""
    value = 0
    for place, byte in enumerate(head[:4]):
        value |= (byte & 127) << 7 * place
        if not byte & 128:
            return value, place + 1
    if len(head) >= 4:
        raise MalformedPacket("a length of more than four bytes")
    return None


def read_packet(raw: bytes, header: int, version: int) -> ControlPacket:
    """The packet that these bytes are, whose fixed header takes ``header`` bytes, on a connection of that version.

    Raises MalformedPacket.
    """
    try:
        packet = ControlPacket(PacketType(raw[0] >> 4), raw[0] & 15, raw)
        _read_body(packet, _Body(raw[header:]), version == VERSION_5)
    except ValueError as error:  # of a type or a text as well
        raise error if isinstance(error, MalformedPacket) else MalformedPacket(str(error)) from None
    return packet


def _read_body(packet: ControlPacket, body: _Body, is_5: bool) -> None:
    kind = packet.kind
    if kind is PacketType.CONNECT:
        _read_connect(packet, body)
    elif kind is PacketType.CONNACK:
        packet.session_present = bool(body.number(1) & 1)
        packet.reason = body.number(1)
        packet.properties = body.properties() if is_5 and not body.is_over else {}
    elif kind is PacketType.PUBLISH:
        packet.topic = body.text()
        packet.packet_id = body.number(2) if packet.qos else -1
        packet.properties = body.properties() if is_5 else {}
        packet.payload = body.rest()
    elif kind in (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP):
        packet.packet_id = body.number(2)
        packet.reason = 0 if body.is_over else body.number(1)
    elif kind in (PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE):
        packet.packet_id = body.number(2)
        packet.properties = body.properties() if is_5 else {}
        while not body.is_over:
            packet.filters.append(body.text())
            if kind is PacketType.SUBSCRIBE:
                body.take(1)
    elif kind in (PacketType.SUBACK, PacketType.UNSUBACK):
        packet.packet_id = body.number(2)
        packet.properties = body.properties() if is_5 and not body.is_over else {}
        packet.granted = body.rest()
    elif kind is PacketType.DISCONNECT:
        packet.reason = 0 if body.is_over else body.number(1)
        packet.properties = body.properties() if not body.is_over else {}


def _read_connect(packet: ControlPacket, body: _Body) -> None:
    body.text()
    packet.version = body.number(1)
    flags = body.number(1)
    body.take(2)  # Keep Alive
    packet.properties = body.properties() if packet.version == VERSION_5 else {}
    packet.client = body.text()
    packet.is_clean, packet.has_will = bool(flags & 2), bool(flags & 4)
    if packet.has_will and packet.version == VERSION_5:
        packet.will_delay_s = body.properties().get(WILL_DELAY, 0)
