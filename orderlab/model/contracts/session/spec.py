"""The abstract session: one client's queue as a state, its actions, and the invariants that they keep.

Variables: ``queue`` (live messages, oldest first), ``last_packet_id``, ``epoch`` (number of the CONNECT that began the
session), ``marks`` (last batch accepted from each producer), ``now_ms``. Actions: open, save, fetch, acknowledge,
release, clear, expire. Each is a function from a state to the next one; a guard that fails leaves the state as it is,
which is what a store that refuses does. ``SessionSystem`` closes it into a transition system for the explorer;
``refinement`` holds a real store against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from orderlab.model.contracts.session.laws import AGAIN, LATE, is_offered_what_is_due, marks_follow_saves, step_laws
from orderlab.model.spec.transition_system import Invariant, Label, Law, Sometimes, TransitionSystem

MODULUS = 65535
"""Packet identifiers are 1..65535 (2.2.1)."""

LONGEST_INTERVAL_S = 4_294_967_295
"""A Message Expiry Interval is a four-byte integer (3.3.2.3.3)."""

FOREVER_MS = 1 << 62

Kind = Literal["PUBLISH", "PUBREL"]


class Lifetime(NamedTuple):
    """How long a message lives: it must be there until ``shortest_ms`` have passed, and not after ``longest_ms``."""

    shortest_ms: int
    longest_ms: int

    @property
    def is_exact(self) -> bool:
        return self.shortest_ms == self.longest_ms


def lifetime(interval_ms: object, default_ms: int) -> Lifetime:
    """What a Message Expiry Interval promises; ``interval_ms`` is what the publisher gave, of any type.

    None is the default of the store. Whole seconds within the range of MQTT are exact, 0 included: such a message has
    expired on arrival. A fraction may be cut or rounded up. What MQTT cannot express (negative, too long, not a number)
    promises nothing, except that a store must not break on it.
    """
    if interval_ms is None:
        return Lifetime(default_ms, default_ms) if default_ms > 0 else Lifetime(FOREVER_MS, FOREVER_MS)
    if isinstance(interval_ms, bool) or not isinstance(interval_ms, int | float):
        return Lifetime(0, FOREVER_MS)
    if not 0 <= interval_ms <= LONGEST_INTERVAL_S * 1000:
        return Lifetime(0, FOREVER_MS)
    seconds = int(interval_ms // 1000)
    return Lifetime(seconds * 1000, seconds * 1000 if seconds * 1000 == interval_ms else (seconds + 1) * 1000)


class Message(NamedTuple):
    """A message on its way in. ``label`` tells it from every other message of a run."""

    label: int
    lifetime: Lifetime
    qos: int = 1
    carries_interval: bool = True
    """Whether the publisher gave an interval, so that a fetch must tell what is left of it."""


class Entry(NamedTuple):
    """A live message in the queue."""

    label: int
    packet_id: int
    earliest_ms: int
    """Until then it must be live ..."""
    latest_ms: int
    """... and from then on it must not be returned, unless its delivery has begun."""
    qos: int
    kind: Kind
    sent: bool
    """Whether a fetch has returned it: its delivery has begun."""
    carries_interval: bool
    token: int | None = None
    """What the store gave the message beside its identifier, to tell it from later ones under the same identifier."""


class Session(NamedTuple):
    """The state. Two sessions are equal when no future can tell them apart."""

    queue: tuple[Entry, ...] = ()
    last_packet_id: int = 0
    epoch: int = 0
    marks: tuple[tuple[int, int], ...] = ()
    """(producer, last batch accepted), by producer."""
    now_ms: int = 0

    def entry(self, label: int) -> Entry | None:
        """The live entry of a message, or None."""
        return next((entry for entry in self.queue if entry.label == label), None)

    def mark(self, producer: int) -> int:
        """The last batch accepted from ``producer``; 0 before the first."""
        return dict(self.marks).get(producer, 0)


def next_packet_id(packet_id: int, modulus: int = MODULUS) -> int:
    """The identifier after ``packet_id``; after the last comes 1 (2.2.1)."""
    return packet_id % modulus + 1


def entry_of(message: Message, packet_id: int, now_ms: int, token: int | None = None) -> Entry:
    """The entry that a message becomes when it is saved at ``now_ms``."""
    life = message.lifetime
    return Entry(
        message.label,
        packet_id,
        now_ms + life.shortest_ms,
        now_ms + life.longest_ms,
        message.qos,
        "PUBLISH",
        False,
        message.carries_interval,
        token,
    )


def kept(queue: Sequence[Entry], limit: int) -> tuple[Entry, ...]:
    """What a legal trim leaves: the newest ``limit``."""
    return tuple(queue[max(len(queue) - limit, 0) :])


# -- actions ---------------------------------------------------------------------------------------------------------


def open_session(state: Session, epoch: int, clean_start: bool) -> Session:
    """CONNECT. A Clean Start begins a new session: nothing of the old one is left. Guard: the epoch is a newer one."""
    if epoch <= state.epoch:
        return state
    return clear(state, epoch) if clean_start else state._replace(epoch=epoch)


def save(
    state: Session,
    messages: Sequence[Message],
    limit: int,
    epoch: int,
    producer: int,
    batch: int,
    modulus: int = MODULUS,
) -> Session:
    """Append a batch, identifiers in order and live ones skipped, then trim the oldest beyond ``limit``.

    Guard: the limit is 1..modulus, the record belongs to this session, and the batch was not accepted before.
    """
    if not 1 <= limit <= modulus or epoch < state.epoch or batch <= state.mark(producer):
        return state
    queue, last = state.queue, state.last_packet_id
    for message in messages:
        if message.lifetime.longest_ms <= 0:
            continue
        queue = kept(queue, limit - 1) if len(queue) >= modulus else queue
        live = {entry.packet_id for entry in queue}
        last = next_packet_id(last, modulus)
        while last in live:
            last = next_packet_id(last, modulus)
        queue = (*queue, entry_of(message, last, state.now_ms))
    marks = tuple(sorted({**dict(state.marks), producer: batch}.items()))
    return state._replace(queue=kept(queue, limit), last_packet_id=last, marks=marks)


def page(state: Session, count: int, after: int | None = None) -> tuple[Entry, ...]:
    """What a fetch returns: the ``count`` oldest, or the oldest behind the message ``after`` of the previous page."""
    labels = [entry.label for entry in state.queue]
    start = labels.index(after) + 1 if after in labels else 0
    return state.queue[start : start + count]


def fetch(state: Session, count: int, after: int | None = None) -> Session:
    """The delivery of what the page holds has begun; nothing else changes."""
    labels = {entry.label for entry in page(state, count, after)}
    return state._replace(queue=tuple(e._replace(sent=True) if e.label in labels else e for e in state.queue))


def acknowledge(state: Session, label: int) -> Session:
    """PUBACK or PUBCOMP for the sending of ``label``. Guard: that message is live, under that identifier."""
    return state._replace(queue=tuple(entry for entry in state.queue if entry.label != label))


def release(state: Session, label: int) -> Session:
    """PUBREC: from now on a PUBREL is what is resent, under the same identifier and deadline. Guard: QoS 2 and live."""
    return state._replace(
        queue=tuple(e._replace(kind="PUBREL") if e.label == label and e.qos == 2 else e for e in state.queue)
    )


def clear(state: Session, epoch: int) -> Session:
    """Nothing of the session remains; what belongs to an earlier epoch is refused from now on."""
    return Session(epoch=max(epoch, state.epoch), now_ms=state.now_ms)


def expire(state: Session, now_ms: int) -> Session:
    """Time passes: messages at or past their deadline are gone. Guard: time does not go back."""
    assert now_ms >= state.now_ms
    return state._replace(queue=tuple(entry for entry in state.queue if entry.latest_ms > now_ms), now_ms=now_ms)


# -- invariants: each True in every reachable state ------------------------------------------------------------------


def packet_ids_are_distinct(state: Session, modulus: int = MODULUS) -> bool:
    """Law packet-id."""
    identifiers = [entry.packet_id for entry in state.queue]
    return len(set(identifiers)) == len(identifiers) and all(1 <= one <= modulus for one in identifiers)


def labels_are_distinct(state: Session) -> bool:
    """Law store-order: no message is in the queue twice."""
    return len({entry.label for entry in state.queue}) == len(state.queue)


def none_expired(state: Session) -> bool:
    """Law expiry."""
    return all(entry.latest_ms > state.now_ms for entry in state.queue)


# -- a small scope for the explorer ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scope:
    """Who does what: ``programs`` is, per writer, the messages that it saves one by one."""

    programs: tuple[tuple[Message, ...], ...] = (
        (Message(1, Lifetime(2000, 2000)), Message(2, Lifetime(FOREVER_MS, FOREVER_MS), qos=2)),
        (Message(3, Lifetime(1000, 1000)), Message(4, Lifetime(FOREVER_MS, FOREVER_MS))),
    )
    limit: int = 2
    modulus: int = 3
    count: int = 2
    horizon_ms: int = 3000
    clears: int = 1


class Situation(NamedTuple):
    """A session and how far each writer has come."""

    session: Session
    positions: tuple[int, ...]


class SessionSystem(TransitionSystem[Situation]):
    """The abstract session with writers, a reader, passing time and a clear: every interleaving of a small scope."""

    name: ClassVar[str] = "session"
    deadlock_is_violation: ClassVar[bool] = False

    def __init__(self, scope: Scope | None = None) -> None:
        self.scope = scope or Scope()

    def initial_states(self) -> Iterable[Situation]:
        return [Situation(Session(), (0,) * len(self.scope.programs))]

    def successors(self, state: Situation) -> Iterable[tuple[Label, Situation]]:
        scope, session = self.scope, state.session
        for writer, program in enumerate(scope.programs):
            at = state.positions[writer]
            if at < len(program):
                after = save(session, [program[at]], scope.limit, session.epoch, writer, at + 1, scope.modulus)
                moved = tuple(p + (w == writer) for w, p in enumerate(state.positions))
                yield Label(f"writer {writer + 1}", "save", (("message", program[at].label),)), Situation(after, moved)
                if session.epoch > 0:
                    after = save(session, [program[at]], scope.limit, session.epoch - 1, writer, at + 1, scope.modulus)
                    yield Label(f"writer {writer + 1}", LATE), Situation(after, moved)
            if at and session.mark(writer) == at:
                after = save(session, [program[at - 1]], scope.limit, session.epoch, writer, at, scope.modulus)
                yield Label(f"writer {writer + 1}", AGAIN), state._replace(session=after)
        yield Label("reader", "fetch"), state._replace(session=fetch(session, scope.count))
        for entry in session.queue:
            given = (("message", entry.label),)
            if entry.sent and (entry.qos == 1 or entry.kind == "PUBREL"):
                yield Label("reader", "acknowledge", given), state._replace(session=acknowledge(session, entry.label))
            if entry.sent and entry.qos == 2 and entry.kind == "PUBLISH":
                yield Label("reader", "release", given), state._replace(session=release(session, entry.label))
        if session.now_ms < scope.horizon_ms:
            yield Label("time", "expire"), state._replace(session=expire(session, session.now_ms + 1000))
        if session.epoch < scope.clears:
            yield Label("reader", "clear"), state._replace(session=clear(session, session.epoch + 1))

    def action_names(self) -> Sequence[str]:
        return ("save", LATE, AGAIN, "fetch", "acknowledge", "release", "expire", "clear")

    def laws(self) -> Sequence[Law]:
        scope = self.scope
        return (
            Invariant("packet-id", lambda s: packet_ids_are_distinct(s.session, scope.modulus)),
            Invariant("store-order", lambda s: labels_are_distinct(s.session)),
            Invariant("expiry", lambda s: none_expired(s.session)),
            Invariant("drain", lambda s: is_offered_what_is_due(s, scope, self.successors(s))),
            Invariant("all-or-nothing, marks", lambda s: marks_follow_saves(s)),
            *step_laws(scope),
            Sometimes("a full queue", lambda s: len(s.session.queue) == scope.limit),
            Sometimes("a wrapped identifier", lambda s: s.session.last_packet_id < sum(s.positions)),
        )

    def is_terminal(self, state: Situation) -> bool:
        return True

    def describe(self, state: Situation) -> Mapping[str, Any]:
        return {"queue": [entry._asdict() for entry in state.session.queue], "positions": state.positions}
