"""What is known of connections: who is connected, what was sent to whom and is not acknowledged, what waits between
brokers; the columns of a delivery; and what each delivery passes before it is written to a socket.

That is the filter of what the store has replayed, and the inflight window. The queues of sessions are followed as far
as replies tell, to know what their limits pushed out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from orderlab.model.protocol.packet_id import MODULUS
from orderlab.sim.engine.packs import any_of
from orderlab.sim.mqtt.clients import Ints
from orderlab.sim.mqtt.links import Links

Deliveries = npt.NDArray[np.int64]
"""One row per message to deliver, with the columns below. A packet identifier of -1 is that of QoS 0; a token is the
store's name for a message that it has saved, 0 where it gives none."""
MESSAGE, SUBSCRIBER, PACKET_ID, TOKEN = range(4)
BEHIND_US = 5_000
"""Packets that are written together and arrive within so long are answered together."""
_TAKEN = -(2**62)
NO_SESSION = 0
"""Of what came along without one: they are numbered from 1."""
NO_DELIVERIES: Deliveries = np.empty((0, 4), np.int64)


def as_deliveries(rows: Sequence[Sequence[int]]) -> Deliveries:
    """Rows of (message, subscriber, packet identifier, token) as an array, were there none."""
    return np.array(rows, np.int64) if rows else NO_DELIVERIES


N = TypeVar("N", int, npt.NDArray[np.int64])


def in_flight_key(subscriber: N, packet_id: N) -> N:
    """What finds a message in flight: packet identifiers have 16 bits."""
    return subscriber << 16 | packet_id


def unstored(messages: npt.NDArray[np.int64], subscribers: npt.NDArray[np.int64]) -> Deliveries:
    """Deliveries with QoS 0: without packet identifier (-1) and token."""
    columns: Deliveries = np.stack(
        (messages, subscribers, np.full(len(messages), -1), np.zeros(len(messages), np.int64)), 1
    )
    return columns


@dataclass(slots=True)
class ConnectionTable:
    """The connections and sessions of all subscribers, as brokers see them."""

    connected: npt.NDArray[np.bool_]
    """Whether each subscriber has a connection."""
    connection_number: npt.NDArray[np.int64] = field(init=False)
    """How often each subscriber has lost a connection, which numbers the present one: bytes of an old connection are
    not heard."""
    lost_us: npt.NDArray[np.int64] = field(init=False)
    """When each subscriber lost its last connection."""
    arrived_us: npt.NDArray[np.int64] = field(init=False)
    """When the last packet that was sent over each subscriber's connection arrives."""
    removed_from_us: npt.NDArray[np.int64] = field(init=False)
    """From when the store is asked to remove what each subscriber acknowledged last, and by which broker."""
    removed_by: npt.NDArray[np.int64] = field(init=False)
    fetching: set[int] = field(default_factory=set)
    """Subscribers that have connected and whose backlog is on its way from the store."""
    beginning: set[int] = field(default_factory=set)
    """Subscribers that have connected and whose new session is not in the store yet: whatever is sent belongs to the
    old one."""
    to_wake: set[int] = field(default_factory=set)
    """Of those, whose session is to be read anew when the backlog is there."""
    held_back: dict[int, list[Deliveries]] = field(default_factory=dict)
    """Per fetching subscriber, new deliveries that must not overtake the backlog."""
    in_flight: dict[int, tuple[int, int]] = field(default_factory=dict)
    """``in_flight_key`` → (message, token)."""
    completed_meanwhile: dict[int, set[tuple[int, int]]] = field(default_factory=dict)
    """Per subscriber whose session is being read anew: what it has acknowledged since."""
    removing: dict[int, set[tuple[int, int]]] = field(default_factory=dict)
    """Per subscriber, what it has acknowledged and the store may still have: a fetch may overtake the remove script."""
    releasing: dict[int, dict[int, int]] = field(default_factory=dict)
    """Per subscriber and broker, the PUBRECs that have come and whose release scripts have no answer."""
    waits_for_releases: dict[int, list[Callable[[], None]]] = field(default_factory=dict)
    """Per subscriber, who wants to read its session when those have one."""
    session_number: npt.NDArray[np.int64] = field(init=False)
    """Per subscriber the number of its session, from 1: it grows with every CONNECT that begins one."""
    exists: npt.NDArray[np.bool_] = field(init=False)
    """Whether each subscriber has a session, and its subscriptions with it."""
    may_end: bool = False
    """Whether sessions end in this run; if not, nobody keeps track of them."""
    queued_for: dict[tuple[int, int], int] = field(default_factory=dict)
    """(message, subscriber) → the session that the message was routed for, from its save until it is acknowledged."""
    losses: int = 0
    """Connections lost so far, of all subscribers."""
    on_the_way: dict[int, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]] = field(
        default_factory=dict
    )
    """Packets that were written to sockets and whose answers are not taken in: whose, over which connections, and when
    answers are here. Those of packets that were written together are taken in with the last of them."""
    links: Links = field(default_factory=Links)
    """Those that are cut, slow, or dead."""
    _answered_us: dict[int, int] = field(default_factory=dict)
    """Per subscriber whose link held up an answer on this connection, when the last answer is through."""
    _sent: int = 0

    def __post_init__(self) -> None:
        self.connection_number = np.zeros(len(self.connected), np.int64)
        self.lost_us = np.zeros(len(self.connected), np.int64)
        self.arrived_us = np.zeros(len(self.connected), np.int64)
        self.removed_from_us = np.zeros(len(self.connected), np.int64)
        self.removed_by = np.full(len(self.connected), -1)
        self.session_number = np.ones(len(self.connected), np.int64)
        self.exists = np.ones(len(self.connected), np.bool_)

    @classmethod
    def all_connected(cls, subscribers: int, may_end: bool = False) -> ConnectionTable:
        """A table in which every subscriber has a connection, and a session that may end."""
        return cls(np.ones(subscribers, np.bool_), may_end=may_end)

    def disconnect(self, subscriber: int, now_us: int) -> None:
        """Note that a connection is gone. What was in flight will be fetched and sent again."""
        self.connected[subscriber] = False
        self.connection_number[subscriber] += 1
        self.lost_us[subscriber] = self.links.alive_until(subscriber, now_us)
        self.links.forget(subscriber)
        self.losses += 1
        self.arrived_us[subscriber] = 0
        self._answered_us.pop(subscriber, None)
        self.fetching.discard(subscriber)
        self.beginning.discard(subscriber)
        self.to_wake.discard(subscriber)
        self.held_back.pop(subscriber, None)

    def note_sent(
        self,
        subscribers: npt.NDArray[np.int64],
        connections: npt.NDArray[np.int64],
        answered_us: npt.NDArray[np.int64],
    ) -> int:
        """The number under which packets are on the way that are written to sockets now."""
        self._sent += 1
        self.on_the_way[self._sent] = (subscribers, connections, answered_us)
        return self._sent

    def all_read_us(self, subscriber: int) -> float:
        """When all answers are taken in that came before the subscriber's last connection ended: 0, if they are. Its
        session must not be read before: what is acknowledged would go again."""
        latest = 0.0
        for whose, over, answered in self.on_the_way.values():
            mine = (whose == subscriber) & (over < self.connection_number[subscriber])
            if mine.any() and self.got_through(whose[mine], over[mine], answered[mine]).any():
                latest = max(latest, float(answered.max()))
        return latest

    def has_packets_on_the_way(self) -> bool:
        """Whether a packet waits to be read or answered on a connection that is not lost."""
        return any((self.connection_number[whose] == over).any() for whose, over, _ in self.on_the_way.values())

    def waiting_on_dead_links(self) -> list[int]:
        """The subscribers whose connection is dead on the way, that nobody has noticed, and that packets were sent
        to."""
        sent = {key >> 16 for key in self.in_flight} if self.links.dead_since else set()
        return sorted(one for one in self.links.dead_since if one in sent and self.connected[one])

    def in_order(self, subscribers: npt.NDArray[np.int64], arrived_us: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """When packets arrive that would at ``arrived_us`` had nothing been sent before: no byte of a connection
        overtakes. Of packets that are sent together those to one subscriber arrive together, in their order."""
        if self.links:
            arrived_us = self.links.through(subscribers, arrived_us)
        arrived = np.maximum(arrived_us, self.arrived_us[subscribers] + 1)
        self.arrived_us[subscribers] = arrived
        return arrived

    def answers_in_order(
        self, subscribers: npt.NDArray[np.int64], answered_us: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """When answers are through that would be at ``answered_us``, were all links well: not before an earlier one of
        their connection that a link held up."""
        if not self.links and not self._answered_us:
            return answered_us
        through = self.links.through(subscribers, answered_us)
        for place, (one, well_us, at_us) in enumerate(
            zip(subscribers.tolist(), answered_us.tolist(), through.tolist(), strict=True)
        ):
            last_us = self._answered_us.get(one, 0)
            if at_us > well_us or last_us > at_us:
                through[place] = self._answered_us[one] = max(at_us, last_us)
        return through

    def may_be_held_up(self, subscribers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Whose packets or answers take an extraordinary time, or wait behind such ones."""
        return self.links.are_bad(subscribers) | np.array(
            [one in self._answered_us for one in subscribers.tolist()], np.bool_
        )

    @property
    def is_any_held_up(self) -> bool:
        """Whether a link is not as it should be, or was and has held up an answer of a connection that is still
        there."""
        return bool(self.links) or bool(self._answered_us)

    def end(self, subscriber: int) -> None:
        """End a session: nothing of it is in flight any more."""
        self.exists[subscriber] = False
        for key in [key for key in self.in_flight if key >> 16 == subscriber]:
            del self.in_flight[key]

    def is_over(self, subscriber: int, session: int) -> bool:
        """Whether that session of the subscriber has ended."""
        return session < self.session_number[subscriber] or not self.exists[subscriber]

    def note_queued(self, messages: Iterable[int], subscribers: Iterable[int], sessions: Iterable[int]) -> None:
        """Note for which sessions messages were routed that wait for these subscribers now."""
        if self.may_end:
            self.queued_for.update(zip(zip(messages, subscribers, strict=True), sessions, strict=True))

    def sessions_of(self, deliveries: Deliveries) -> npt.NDArray[np.int64]:
        """The session of its subscriber for which each message was routed; the present one, where nobody knows any
        more."""
        get, present = self.queued_for.get, self.session_number[deliveries[:, 1]].tolist()
        return np.array(
            [get((row[0], row[1]), now) for row, now in zip(deliveries.tolist(), present, strict=True)], np.int64
        )

    def note_pushed(self, deliveries: Deliveries, sessions: npt.NDArray[np.int64]) -> None:
        """Note for which sessions these were routed that are pushed, where they have been acknowledged and nobody knows
        any more."""
        for (message, subscriber, _, _), session in zip(deliveries.tolist(), sessions.tolist(), strict=True):
            if session != NO_SESSION:
                self.queued_for.setdefault((message, subscriber), session)

    def complete(self, deliveries: Deliveries) -> None:
        """Forget for which sessions these were routed: they need no delivery any more."""
        if self.completed_meanwhile or self.may_end:
            for message, subscriber, packet_id, _ in deliveries.tolist():
                self.queued_for.pop((message, subscriber), None)
                if subscriber in self.completed_meanwhile:
                    self.completed_meanwhile[subscriber].add((message, packet_id))

    def note_removing(self, acknowledged: Iterable[tuple[int, int, int, int, int]]) -> None:
        """Note that remove scripts are about to be called for these: message, subscriber, packet identifier first."""
        for message, subscriber, packet_id, *_ in acknowledged:
            self.removing.setdefault(subscriber, set()).add((message, packet_id))

    def note_removed(self, acknowledged: Iterable[tuple[int, int, int, int, int]]) -> None:
        """Note that those calls have been answered."""
        for message, subscriber, packet_id, *_ in acknowledged:
            left = self.removing.get(subscriber, set())
            left.discard((message, packet_id))
            if not left:
                self.removing.pop(subscriber, None)

    def note_releasing(self, subscribers: Iterable[int], broker: int) -> None:
        """Note that a broker has got PUBRECs: these messages are acknowledged, whatever becomes of the connection
        (MQTT-4.3.3-3)."""
        for subscriber in subscribers:
            at = self.releasing.setdefault(subscriber, {})
            at[broker] = at.get(broker, 0) + 1

    def note_released(self, subscribers: Iterable[int], broker: int) -> None:
        """Note that the store has them, or that nobody tries any more."""
        for subscriber in subscribers:
            at = self.releasing.get(subscriber, {})
            at[broker] = at.get(broker, 0) - 1
            if at[broker] <= 0:
                self._nothing_to_release(subscriber, broker)

    def forget_releasing(self, broker: int) -> None:
        """A broker has died, and what it knew of PUBRECs with it."""
        for subscriber in [subscriber for subscriber, at in self.releasing.items() if broker in at]:
            self._nothing_to_release(subscriber, broker)

    def when_released(self, subscriber: int, then: Callable[[], None]) -> None:
        """Call ``then`` when the store knows all PUBRECs of a subscriber: now, or later."""
        if subscriber in self.releasing:
            self.waits_for_releases.setdefault(subscriber, []).append(then)
        else:
            then()

    def _nothing_to_release(self, subscriber: int, broker: int) -> None:
        at = self.releasing.get(subscriber, {})
        at.pop(broker, None)
        if not at:
            self.releasing.pop(subscriber, None)
            for then in self.waits_for_releases.pop(subscriber, ()):
                then()

    def got_through(
        self, subscribers: npt.NDArray[np.int64], connections: npt.NDArray[np.int64], at_us: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Whether what was sent over ``connections`` (their numbers) and was to arrive at ``at_us`` did arrive. At the
        instant of its end a connection takes nothing: rows of the history would tell of it behind the end, as of the
        next connection."""
        lost = self.connection_number[subscribers] - connections
        arrived: npt.NDArray[np.bool_] = (lost == 0) | ((lost == 1) & (at_us < self.lost_us[subscribers]))
        return arrived & (at_us <= self.links.dead_from(subscribers)) if self.links.dead_since else arrived

    def answered_and_left(
        self,
        subscribers: npt.NDArray[np.int64],
        connections: npt.NDArray[np.int64],
        sent_us: npt.NDArray[np.int64],
        answered_us: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.bool_]:
        """Whose answers left at ``sent_us`` over ``connections`` (their numbers), which ended before these were to be
        here, at ``answered_us``: bytes that a broker reads which does not know of the end."""
        left: npt.NDArray[np.bool_] = (self.connection_number[subscribers] - connections == 1) & (
            sent_us < self.lost_us[subscribers]
        )
        return left & (answered_us >= self.lost_us[subscribers])


class Transit:
    """What Kafka's downlink records hold, by record number."""

    def __init__(self) -> None:
        self._rows: Deliveries = np.empty((1 << 12, 4), np.int64)
        self._first = 0
        """The number of the record in the first row: those before it have been taken."""
        self._next = 0
        self._sessions: dict[int, int] = {}
        """Of records whose session travels along."""

    def add(self, deliveries: Deliveries, sessions: npt.NDArray[np.int64] | None = None) -> list[int]:
        """Records for ``deliveries``; ``sessions``: for which they were routed, where sessions end."""
        begin, end = self._next, self._next + len(deliveries)
        if end - self._first > len(self._rows):
            self._make_room(len(deliveries))
        self._rows[begin - self._first : end - self._first] = deliveries
        self._next = end
        if sessions is not None:
            self._sessions.update(zip(range(begin, end), sessions.tolist(), strict=True))
        return list(range(begin, end))

    def sessions_of(self, records: Sequence[int]) -> npt.NDArray[np.int64] | None:
        """The sessions of what ``take`` is about to give for ``records``, ``NO_SESSION`` where none came along; None
        where none do."""
        if not self._sessions:
            return None
        left = (record for record in dict.fromkeys(records) if self.look(record) is not None)
        return np.array([self._sessions.pop(record, NO_SESSION) for record in left], np.int64)

    def _make_room(self, count: int) -> None:
        held = self._rows[: self._next - self._first]
        there = np.flatnonzero(held[:, MESSAGE] != _TAKEN)
        gone = int(there[0]) if len(there) else len(held)
        left = len(held) - gone
        self._rows = np.concatenate((held[gone:], np.empty((count + max(left, 1 << 12), 4), np.int64)))
        self._first += gone

    def subscriber(self, record: int) -> int:
        """The subscriber whom a record is for; 0 if it was taken."""
        return (self.look(record) or (0, 0))[1]

    def look(self, record: int) -> tuple[int, int] | None:
        """(message, subscriber) of a record that was not taken."""
        at = record - self._first
        if at < 0 or self._rows[at, MESSAGE] == _TAKEN:
            return None
        return int(self._rows[at, MESSAGE]), int(self._rows[at, SUBSCRIBER])

    def take(self, records: Sequence[int]) -> Deliveries:
        """What ``records`` hold; a record that is read again is not there any more."""
        if len(set(records)) < len(records):
            records = list(dict.fromkeys(records))
        at = np.array(records, np.int64) - self._first
        found = self._rows[at[at >= 0]]
        self._rows[at[at >= 0], MESSAGE] = _TAKEN
        is_taken = found[:, MESSAGE] == _TAKEN
        return found[~is_taken] if any_of(is_taken) else found


StoredMessage = tuple[int, int, int, bool]
"""As stores answer: (message, packet identifier, token, is a PUBREL)."""


class ReplayFilter:
    """Per subscriber, what was read from the store on its present connection, so that the same, pushed by who saved it,
    goes no further.

    A store whose tokens grow with every save tells more: what was pushed and is older than the newest message that was
    read, and was not read, had left the queue by then (acknowledged, expired, or trimmed). It would overtake what was
    read, so it stays behind. Without tokens such a message cannot be told from a new one.
    """

    def __init__(self, has_tokens: bool) -> None:
        self.has_tokens = has_tokens
        self._read_up_to: dict[int, int] = {}
        self._sent_up_to: dict[int, int] = {}
        self._copies: dict[int, set[tuple[int, int]]] = {}

    def note(self, subscriber: int, found: Iterable[StoredMessage], newest: int = 0) -> None:
        """Note what was read, and is sent before anything that was pushed. ``newest``: what the store says is the token
        of the last message saved, if it says so."""
        if self.has_tokens:
            known = self._read_up_to.get(subscriber, 0), self._sent_up_to.get(subscriber, 0)
            up_to = max(newest, *known, *(token for _, _, token, _ in found))
            if up_to:
                self._read_up_to[subscriber] = up_to
        else:
            copies = {(message, packet_id) for message, packet_id, _, is_pubrel in found if not is_pubrel}
            if copies:
                self._copies.setdefault(subscriber, set()).update(copies)

    def beyond(self, pushed: Deliveries) -> Deliveries:
        """Those that have not been sent from the store, or left it before it was read. QoS 0 is not stored."""
        if self._read_up_to:
            return pushed[(pushed[:, TOKEN] > _of(self._read_up_to, pushed)) | (pushed[:, PACKET_ID] < 0)]
        if self._copies:
            copies, none = self._copies, frozenset[tuple[int, int]]()
            is_new = [
                (message, packet_id) not in copies.get(subscriber, none)
                for message, subscriber, packet_id, _ in pushed.tolist()
            ]
            return pushed[np.array(is_new, np.bool_)]
        return pushed

    def in_sequence(self, pushed: Deliveries) -> tuple[Deliveries, Deliveries]:
        """(those behind all that was pushed before them, the others). The others were sent before, or never: who pushes
        does not know."""
        is_new = np.ones(len(pushed), np.bool_)
        up_to = self._sent_up_to
        for place, (_, subscriber, packet_id, token) in enumerate(pushed.tolist()):
            if packet_id >= 0:
                is_new[place] = token > up_to.get(subscriber, 0)
                up_to[subscriber] = max(token, up_to.get(subscriber, 0))
        return pushed[is_new], pushed[~is_new]

    def forget(self, subscriber: int) -> None:
        """Forget a connection that is gone."""
        self._read_up_to.pop(subscriber, None)
        self._sent_up_to.pop(subscriber, None)
        self._copies.pop(subscriber, None)


def _of(up_to: dict[int, int], pushed: Deliveries) -> Ints:
    return np.array([up_to.get(subscriber, 0) for subscriber in pushed[:, SUBSCRIBER].tolist()], np.int64)


Copy = tuple[int, int]
"""(message, packet identifier)."""


class TrimTracker:
    """The queues of all sessions, as far as replies tell, to name what a save pushed out. ``limit``: messages a session
    keeps; None: none is ever full. The scripts do not say what they trim: of what was saved and not removed, all but
    the newest ``limit`` are gone, the oldest first.

    Inferred, not seen: replies may overtake each other, so a message that was removed just then may be named too; where
    a save's reply is lost with its broker, what it pushed out is not named, and looks lost.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._live: dict[int, dict[Copy, None]] = {}

    def saved(self, subscriber: int, copies: Iterable[Copy]) -> list[Copy]:
        """What had to go for these, which were appended."""
        assert self.limit is not None
        queue = self._live.setdefault(subscriber, {})
        queue.update(dict.fromkeys(copies))
        gone = list(queue)[: max(len(queue) - self.limit, 0)]
        for copy in gone:
            del queue[copy]
        return gone

    def removed(self, subscriber: int, copy: Copy) -> None:
        """Note that an acknowledgement took it out."""
        self._live.get(subscriber, {}).pop(copy, None)

    def cleared(self, subscriber: int) -> None:
        """Forget the queue of a session that is over."""
        self._live.pop(subscriber, None)


UNLIMITED = MODULUS
"""The default of the protocol, and what packet identifiers allow at all."""


class InflightWindows:
    """The inflight windows of all subscribers: how many PUBLISH packets with QoS above 0 each takes before it has
    acknowledged one, and what waits for room: deliveries, and whether they come from a backlog.

    What exceeds the Receive Maximum waits at the broker, in order, until a PUBACK or PUBCOMP comes (MQTT-3.3.4-9). A
    lost connection empties the window and the queue: the store has it all, and the next connection fetches it.
    """

    def __init__(self, receive_maximum: int) -> None:
        self.receive_maximum = receive_maximum
        self._sent: dict[int, int] = {}
        self._queues: dict[int, deque[tuple[list[int], bool]]] = {}

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit below what packet identifiers allow anyway."""
        return self.receive_maximum < UNLIMITED

    @property
    def columns(self) -> dict[str, int]:
        """What a connect row of the history says of it."""
        return {"receive_maximum": self.receive_maximum} if self.is_limited else {}

    def admit(self, deliveries: Deliveries, is_backlog: bool) -> Deliveries:
        """What may go out now; the rest queues up."""
        rows = [row for row in deliveries.tolist() if self._admits(row, is_backlog)]
        return as_deliveries(rows)

    def _admits(self, row: list[int], is_backlog: bool) -> bool:
        subscriber = row[SUBSCRIBER]
        sent = self._sent.get(subscriber, 0)
        if sent >= self.receive_maximum or self._queues.get(subscriber):
            self._queues.setdefault(subscriber, deque()).append((row, is_backlog))
            return False
        self._sent[subscriber] = sent + 1
        return True

    def occupy(self, subscriber: int) -> None:
        """Count a PUBREL that goes out again after a reconnect, as its PUBCOMP is missing."""
        self._sent[subscriber] = self._sent.get(subscriber, 0) + 1

    def acknowledged(self, subscriber: int) -> tuple[list[int], bool] | None:
        """The next that may go out, if any, now that one is acknowledged; and whether it is of a backlog."""
        sent = max(self._sent.get(subscriber, 0) - 1, 0)
        queue = self._queues.get(subscriber)
        if not queue or sent >= self.receive_maximum:
            self._sent[subscriber] = sent
            return None
        self._sent[subscriber] = sent + 1
        return queue.popleft()

    def waiting(self, subscriber: int) -> set[tuple[int, int]]:
        """(message, packet identifier) of what waits for room."""
        return {(message, packet_id) for (message, _, packet_id, _), _ in self._queues.get(subscriber, ())}

    def forget(self, subscriber: int) -> None:
        """Forget a connection that is gone."""
        self._sent.pop(subscriber, None)
        self._queues.pop(subscriber, None)
