"""The QoS 1 and QoS 2 exchange between a sender and a receiver that both keep session state (MQTT 5.0, 4.3 and 4.4).

The sender is the broker towards a subscriber, or a publisher towards the broker: the exchange is the same. Packets
travel in order on a connection; what is on the way when it breaks is lost. Variables: what waits, what is in flight
with its packet identifier and phase, both channels, the identifiers that a QoS 2 receiver keeps, and what was handed
to the application. ``flaw`` exchanges one rule for a wrong one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from orderlab.model.protocol.packet_id import MODULUS
from orderlab.model.spec.transition_system import (
    Invariant,
    Label,
    Law,
    LeadsTo,
    Sometimes,
    TransitionSystem,
    WeakFairness,
)

Flaw = Literal[
    "none",
    "new-identifier-on-resend",
    "dup-not-set",
    "resend-in-reverse",
    "new-before-resend",
    "pubrel-not-resent",
    "receiver-forgets-identifier",
    "identifier-in-use-taken",
    "window-ignored",
    "drops-over-window",
    "old-connection-lives",
    "clear-keeps-waiting",
]


class HandshakeScope(BaseModel):
    """How large the system is, which flaw it has, and what may happen to it how often."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    messages: int = Field(3, ge=1, le=64)
    qos: Literal[1, 2] = 2
    identifiers: int = Field(3, ge=1, le=MODULUS)
    receive_maximum: int = Field(2, ge=1, le=MODULUS)
    disconnects: int = Field(1, ge=0, le=4)
    takeovers: int = Field(0, ge=0, le=3)
    limit: int = Field(6, ge=1)
    expiries: int = Field(0, ge=0, le=3)
    clean_starts: int = Field(0, ge=0, le=2)
    flaw: Flaw = "none"
    law: str | None = None
    """Judge only this law, so that the shortest witness is its own; None: all."""


class Packet(NamedTuple):
    """A control packet. ``message`` is 0 in all but PUBLISH."""

    kind: str
    packet_id: int
    message: int = 0
    dup: bool = False


class Sent(NamedTuple):
    """A message in flight: PUBLISH sent and not acknowledged, or PUBREL sent and not completed."""

    message: int
    packet_id: int
    phase: str = "PUBLISH"


class HandshakeState(NamedTuple):
    """One session, both ends."""

    published: int = 0
    waiting: tuple[int, ...] = ()
    in_flight: tuple[Sent, ...] = ()
    last_packet_id: int = 0
    connected: bool = True
    to_receiver: tuple[Packet, ...] = ()
    to_sender: tuple[Packet, ...] = ()
    old_to_receiver: tuple[Packet, ...] = ()
    """What an old connection that was not closed still carries (flawed only)."""
    kept_ids: frozenset[int] = frozenset()
    handed: tuple[int, ...] = ()
    gone: frozenset[int] = frozenset()
    """Expired before their delivery began, trimmed, or cleared with their session."""
    cleared: int = 0
    """Messages up to this one belong to a session that was cleared."""
    first_ids: tuple[tuple[int, int], ...] = ()
    """(message, identifier of its first transmission)."""
    stale: bool = False
    """An old connection handed something over after a new one began."""
    disconnects: int = 0
    takeovers: int = 0
    expiries: int = 0
    clean_starts: int = 0


class Handshake(TransitionSystem[HandshakeState]):
    """The exchange, in a scope."""

    name: ClassVar[str] = "handshake"
    deadlock_is_violation: ClassVar[bool] = False

    def __init__(self, scope: HandshakeScope | None = None) -> None:
        self.scope = scope or HandshakeScope()

    def action_names(self) -> Sequence[str]:
        """The actions that can happen in the scope."""
        scope = self.scope
        if scope.qos == 1:
            exchange = ["receive PUBLISH", "receive PUBACK"]
        else:
            exchange = ["receive PUBLISH", "receive PUBREC", "receive PUBREL", "receive PUBCOMP"]
        happens = {
            "reconnect": scope.disconnects,
            "disconnect": scope.disconnects,
            "takeover": scope.takeovers,
            "expire": scope.expiries,
            "clean start": scope.clean_starts,
        }
        return ["publish", "send", *exchange, *(name for name, count in happens.items() if count)]

    def initial_states(self) -> Iterable[HandshakeState]:
        return [HandshakeState()]

    def parameters(self) -> Mapping[str, Any]:
        return self.scope.model_dump(mode="json")

    def successors(self, state: HandshakeState) -> Iterator[tuple[Label, HandshakeState]]:
        yield from self._sender(state)
        yield from self._packets(state)
        yield from self._mishaps(state)

    # -- sender ----------------------------------------------------------------------------------------------

    def _sender(self, s: HandshakeState) -> Iterator[tuple[Label, HandshakeState]]:
        if s.published < self.scope.messages:
            message = s.published + 1
            waiting = (*s.waiting, message)
            trimmed = waiting[: max(len(waiting) - self.scope.limit, 0)]
            after = s._replace(published=message, waiting=waiting[len(trimmed) :], gone=s.gone | set(trimmed))
            yield Label("application", "publish", (("message", message),)), after
        if s.connected and s.waiting:
            message, *rest = s.waiting
            if len(s.in_flight) < self.scope.receive_maximum or self.scope.flaw == "window-ignored":
                packet_id = self._free_id(s)
                if packet_id:
                    yield Label("sender", "send", (("message", message),)), self._send(s, message, packet_id, rest)
            elif self.scope.flaw == "drops-over-window" and len(s.waiting) > 1:
                yield Label("sender", "drop", (("message", message),)), s._replace(waiting=tuple(rest))
        if not s.connected:
            yield Label("sender", "reconnect"), self._reconnect(s)

    def _free_id(self, s: HandshakeState) -> int:
        """The next identifier that is not in use (MQTT-2.2.1-3); 0 when all are."""
        used = {sent.packet_id for sent in s.in_flight}
        candidate = s.last_packet_id
        for _ in range(self.scope.identifiers):
            candidate = candidate % self.scope.identifiers + 1
            if candidate not in used or self.scope.flaw == "identifier-in-use-taken":
                return candidate
        return 0

    def _send(self, s: HandshakeState, message: int, packet_id: int, rest: Sequence[int]) -> HandshakeState:
        """First transmission: DUP is 0 (MQTT-3.3.1-1)."""
        return s._replace(
            waiting=tuple(rest),
            in_flight=(*s.in_flight, Sent(message, packet_id)),
            last_packet_id=packet_id,
            to_receiver=(*s.to_receiver, Packet("PUBLISH", packet_id, message)),
            first_ids=(*s.first_ids, (message, packet_id)),
        )

    def _reconnect(self, s: HandshakeState) -> HandshakeState:
        """Clean Start 0: resend what is in flight, in order, under the same identifiers (MQTT-4.4.0-1)."""
        flaw = self.scope.flaw
        in_flight = s.in_flight
        if flaw == "new-identifier-on-resend":
            first = s.last_packet_id % self.scope.identifiers + 1
            in_flight = tuple(
                sent._replace(packet_id=first) if sent.phase == "PUBLISH" and index == 0 else sent
                for index, sent in enumerate(in_flight)
            )
        packets = [
            Packet("PUBLISH", sent.packet_id, sent.message, flaw != "dup-not-set")
            if sent.phase == "PUBLISH"
            else Packet("PUBREL", sent.packet_id)
            for sent in in_flight
            if sent.phase == "PUBLISH" or flaw != "pubrel-not-resent"
        ]
        if flaw == "resend-in-reverse":
            packets.reverse()
        after = s._replace(connected=True, in_flight=in_flight, to_receiver=tuple(packets), to_sender=())
        if flaw == "new-before-resend" and s.waiting and len(in_flight) < self.scope.receive_maximum:
            packet_id = self._free_id(s)
            if packet_id:
                sent_first = self._send(after._replace(to_receiver=()), s.waiting[0], packet_id, s.waiting[1:])
                return sent_first._replace(to_receiver=sent_first.to_receiver + tuple(packets))
        return after

    # -- packets arrive --------------------------------------------------------------------------------------

    def _packets(self, s: HandshakeState) -> Iterator[tuple[Label, HandshakeState]]:
        if s.to_receiver:
            packet, *rest = s.to_receiver
            label = Label("receiver", f"receive {packet.kind}", (("packet_id", packet.packet_id),))
            yield label, self._receive(s._replace(to_receiver=tuple(rest)), packet)
        if s.old_to_receiver:
            packet, *rest = s.old_to_receiver
            label = Label("receiver", f"receive old {packet.kind}", (("packet_id", packet.packet_id),))
            after = self._receive(s._replace(old_to_receiver=tuple(rest)), packet)
            yield label, after._replace(stale=True)
        if s.to_sender:
            packet, *rest = s.to_sender
            label = Label("sender", f"receive {packet.kind}", (("packet_id", packet.packet_id),))
            yield label, self._acknowledged(s._replace(to_sender=tuple(rest)), packet)

    def _receive(self, s: HandshakeState, packet: Packet) -> HandshakeState:
        """QoS 1: hand over and PUBACK. QoS 2: hand over once per identifier until PUBREL releases it (4.3.3)."""
        if packet.kind == "PUBREL":
            kept = s.kept_ids - {packet.packet_id}
            return s._replace(kept_ids=kept, to_sender=(*s.to_sender, Packet("PUBCOMP", packet.packet_id)))
        if self.scope.qos == 1:
            answer = Packet("PUBACK", packet.packet_id)
            return s._replace(handed=(*s.handed, packet.message), to_sender=(*s.to_sender, answer))
        answer = Packet("PUBREC", packet.packet_id)
        if packet.packet_id not in s.kept_ids:
            s = s._replace(handed=(*s.handed, packet.message))
            if self.scope.flaw != "receiver-forgets-identifier":
                s = s._replace(kept_ids=s.kept_ids | {packet.packet_id})
        return s._replace(to_sender=(*s.to_sender, answer))

    def _acknowledged(self, s: HandshakeState, packet: Packet) -> HandshakeState:
        """PUBACK and PUBCOMP end an exchange; PUBREC turns it to its second phase."""
        at = next((i for i, sent in enumerate(s.in_flight) if sent.packet_id == packet.packet_id), None)
        if packet.kind == "PUBREC":
            if at is not None and s.in_flight[at].phase == "PUBLISH":
                released = s.in_flight[at]._replace(phase="PUBREL")
                s = s._replace(in_flight=(*s.in_flight[:at], released, *s.in_flight[at + 1 :]))
            return s._replace(to_receiver=(*s.to_receiver, Packet("PUBREL", packet.packet_id)))
        if at is None:
            return s
        return s._replace(in_flight=s.in_flight[:at] + s.in_flight[at + 1 :])

    # -- what happens to the session -------------------------------------------------------------------------

    def _mishaps(self, s: HandshakeState) -> Iterator[tuple[Label, HandshakeState]]:
        scope = self.scope
        if s.connected and s.disconnects < scope.disconnects:
            after = s._replace(connected=False, to_receiver=(), to_sender=(), disconnects=s.disconnects + 1)
            yield Label("network", "disconnect"), after
        if s.connected and s.takeovers < scope.takeovers:
            old = s.to_receiver if scope.flaw == "old-connection-lives" else ()
            after = self._reconnect(s._replace(takeovers=s.takeovers + 1))
            yield Label("network", "takeover"), after._replace(old_to_receiver=old)
        if s.waiting and s.expiries < scope.expiries:
            after = s._replace(waiting=s.waiting[1:], gone=s.gone | {s.waiting[0]}, expiries=s.expiries + 1)
            yield Label("clock", "expire", (("message", s.waiting[0]),)), after
        if s.clean_starts < scope.clean_starts:
            yield Label("receiver", "clean start"), self._clean_start(s)

    def _clean_start(self, s: HandshakeState) -> HandshakeState:
        """Clean Start 1: both ends drop the session; what it held is not delivered any more (MQTT-3.1.2-4)."""
        kept = s.waiting if self.scope.flaw == "clear-keeps-waiting" else ()
        dropped = {sent.message for sent in s.in_flight} | set(s.waiting)
        return s._replace(
            waiting=kept,
            in_flight=(),
            connected=True,
            to_receiver=(),
            to_sender=(),
            kept_ids=frozenset(),
            first_ids=(),
            gone=s.gone | dropped,
            cleared=s.published,
            clean_starts=s.clean_starts + 1,
        )

    # -- laws ------------------------------------------------------------------------------------------------

    def fairness(self) -> Sequence[WeakFairness]:
        own = ("application", "sender", "receiver")
        return [WeakFairness(actor, lambda label, actor=actor: label.actor == actor) for actor in own]  # type: ignore[misc]

    def is_terminal(self, state: HandshakeState) -> bool:
        return True

    def settled(self, s: HandshakeState) -> bool:
        """Everything published was handed over or is legally gone, and no exchange is open."""
        return not s.waiting and not s.in_flight and set(range(1, s.published + 1)) <= set(s.handed) | s.gone

    def laws(self) -> Sequence[Law]:
        found: list[Law] = [
            Invariant("fifo", first_deliveries_in_order, lambda s: len(set(s.handed)) > 1),
            Invariant("packet-id", identifiers_distinct, lambda s: len(s.in_flight) > 1),
            Invariant("retransmission", resent_rightly, lambda s: s.disconnects + s.takeovers > 0),
            Invariant("no-phantom", nothing_after_clear, lambda s: s.cleared > 0 or not self.scope.clean_starts),
            Invariant("receive-maximum", lambda s: len(s.in_flight) <= self.scope.receive_maximum),
            LeadsTo("at-least-once", self.settled, lambda s: s.published > 0),
            Sometimes("all-handed-over", lambda s: set(s.handed) == set(range(1, self.scope.messages + 1))),
        ]
        if self.scope.qos == 2:
            found.append(Invariant("exactly-once", handed_once, lambda s: bool(s.handed)))
        if min(self.scope.receive_maximum, self.scope.identifiers) == 1 and self.scope.flaw == "none":
            found = [law for law in found if law.name != "packet-id"]
        return [law for law in found if self.scope.law in (None, law.name)]

    def describe(self, state: HandshakeState) -> Mapping[str, Any]:
        return {
            "waiting": list(state.waiting),
            "in flight": [f"m{one.message} as {one.packet_id} {one.phase}" for one in state.in_flight],
            "connected": state.connected,
            "to receiver": [show(packet) for packet in state.to_receiver],
            "to sender": [show(packet) for packet in state.to_sender],
            "identifiers kept by the receiver": sorted(state.kept_ids),
            "handed over": list(state.handed),
            "expired, trimmed or cleared": sorted(state.gone),
        }


def show(packet: Packet) -> str:
    """``PUBLISH 1 m2 DUP``."""
    return f"{packet.kind} {packet.packet_id}" + f" m{packet.message}" * bool(packet.message) + " DUP" * packet.dup


def first_deliveries_in_order(s: HandshakeState) -> bool:
    """First hand-overs come in publish order (MQTT-4.6.0-5, -6)."""
    first = list(dict.fromkeys(s.handed))
    return first == sorted(first)


def handed_once(s: HandshakeState) -> bool:
    """No message is handed to the application twice (MQTT-4.3.3)."""
    return len(s.handed) == len(set(s.handed))


def identifiers_distinct(s: HandshakeState) -> bool:
    """No two exchanges in flight share an identifier (MQTT-2.2.1-3)."""
    return len({sent.packet_id for sent in s.in_flight}) == len(s.in_flight)


def resent_rightly(s: HandshakeState) -> bool:
    """Resent with DUP, under the first identifier, in the first order, and only on the newest connection (4.4, 4.6)."""
    first = dict(s.first_ids)
    order = [packet.message for packet in s.to_receiver if packet.kind == "PUBLISH"]
    same_id = all(first[p.message] == p.packet_id for p in s.to_receiver if p.kind == "PUBLISH")
    marked = all(p.dup for p in s.to_receiver if p.kind == "PUBLISH" and p.message in s.handed)
    return order == sorted(order) and same_id and marked and not s.stale


def nothing_after_clear(s: HandshakeState) -> bool:
    """Nothing of a cleared session is on its way."""
    return all(packet.message == 0 or packet.message > s.cleared for packet in s.to_receiver)
