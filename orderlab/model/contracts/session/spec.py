"""The abstract session: one client's queue as a state, its actions, and the invariants that they keep.

Variables: ``queue`` (live messages, oldest first), ``last_packet_id``, ``epoch`` (number of the CONNECT that began the
session), ``marks`` (last batch accepted from each producer), ``now_ms``. Actions: open, save, fetch, acknowledge,
release, clear, expire. Each is a function from a state to the next one; a guard that fails leaves the state as it is,
which is what a store that refuses does. ``SessionSystem`` closes it into a transition system for the explorer;
``refinement`` holds a real store against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from orderlab.model.protocol.packet_id import MODULUS
from orderlab.model.spec.transition_system import Invariant, Label, Law, Sometimes, StepInvariant, TransitionSystem

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
    """End the session: nothing of it remains; what belongs to an earlier epoch is refused from now on."""
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


Judge = Callable[["Session", str, "Message | None", "Session", "Scope"], bool]
"""(before, action, the message it is about, after, scope) -> whether the law holds."""

AGAIN, LATE = "save again", "save late"
"""The last save once more, its reply lost; a save that was routed before the session was cleared."""
DELIVERY = ("sent", "kind")
"""What of an entry may change while it waits."""


def no_loss(before: Session, action: str, message: Message | None, after: Session, scope: Scope) -> bool:
    """A message goes only by its acknowledgement, at its deadline, by a trim, or with its session; and one that is
    saved is there."""
    left = {entry.label for entry in after.queue}
    gone = [entry for entry in before.queue if entry.label not in left]
    if action == "save" and message is not None:
        arrived = after.queue[-1:] if message.lifetime.longest_ms > 0 else ()
        return [entry.label for entry in arrived] == [message.label]
    if action == "acknowledge":
        return [entry.label for entry in gone] == [message.label if message else None]
    if action == "expire":
        return all(entry.latest_ms <= after.now_ms for entry in gone)
    return not gone or action == "clear"


def trims_are_legal(before: Session, action: str, message: Message | None, after: Session, scope: Scope) -> bool:
    """A save takes the oldest away, as many as there is no room for and no more: so a queue never outgrows the
    limit."""
    if action != "save":
        return True
    left = {entry.label for entry in after.queue}
    gone = [entry for entry in before.queue if entry.label not in left]
    return gone == list(before.queue[: max(len(before.queue) + 1 - scope.limit, 0)])


def nothing_from_nowhere(before: Session, action: str, message: Message | None, after: Session, scope: Scope) -> bool:
    """Only a save brings a message, and only the one that it saves, as it was given."""
    known = {entry.label for entry in before.queue}
    new = [entry for entry in after.queue if entry.label not in known]
    if action != "save" or message is None:
        return not new
    life = message.lifetime
    return all(
        (entry.label, entry.qos, entry.carries_interval) == (message.label, message.qos, message.carries_interval)
        and (entry.earliest_ms, entry.latest_ms) == (before.now_ms + life.shortest_ms, before.now_ms + life.longest_ms)
        and (entry.kind, entry.sent) == ("PUBLISH", False)
        for entry in new
    )


def order_is_kept(before: Session, action: str, message: Message | None, after: Session, scope: Scope) -> bool:
    """Messages that stay, stay in their order, as they were but for their delivery."""
    kept = {entry.label: entry for entry in after.queue}
    stayed = [entry for entry in before.queue if entry.label in kept]
    if [entry.label for entry in stayed] != [entry.label for entry in after.queue][: len(stayed)]:
        return False
    unchanging = [name for name in before.queue[0]._fields if name not in DELIVERY] if before.queue else []
    return all(getattr(entry, name) == getattr(kept[entry.label], name) for entry in stayed for name in unchanging)


def counter_advances(before: Session, action: str, message: Message | None, after: Session, scope: Scope) -> bool:
    """Whether the counter advances by exactly the message saved, over the identifiers that are live, round after the
    last; and by nothing else."""
    if action == "clear":
        return after.last_packet_id == 0
    if action != "save" or message is None:
        return after.last_packet_id == before.last_packet_id
    live = {entry.packet_id for entry in before.queue}
    after_it = [(before.last_packet_id + step) % scope.modulus + 1 for step in range(scope.modulus)]
    free = [one for one in after_it if one not in live]
    return not free or [after.last_packet_id, *(entry.packet_id for entry in after.queue[-1:])] == [free[0], free[0]]


def delivery_is_told(before: Session, action: str, message: Message | None, after: Session, scope: Scope) -> bool:
    """A fetch begins the delivery of the oldest and of no other; a release turns its PUBLISH into a PUBREL, and only
    that."""
    then = {entry.label: entry for entry in before.queue}
    oldest = {entry.label for entry in before.queue[: scope.count]}
    for now in after.queue:
        old = then.get(now.label)
        if old is None:
            continue
        sent = old.sent or (action == "fetch" and now.label in oldest)
        is_released = action == "release" and message is not None and now.label == message.label and old.qos == 2
        if now.sent != sent or now.kind != ("PUBREL" if is_released else old.kind):
            return False
    return True


def an_answer_is_due(before: Session, action: str, message: Message | None, after: Session, scope: Scope) -> bool:
    """Only what was sent is answered: a QoS 1 message once, a QoS 2 message first by a PUBREC."""
    if action not in ("acknowledge", "release") or message is None:
        return True
    entry = next((one for one in before.queue if one.label == message.label), None)
    if entry is None or not entry.sent:
        return False
    return (entry.qos == 2 and entry.kind == "PUBLISH") == (action == "release")


def time_passes(before: Session, action: str, message: Message | None, after: Session, scope: Scope) -> bool:
    """Time goes on by whole steps when it passes, and stands otherwise."""
    return after.now_ms - before.now_ms == (1000 if action == "expire" else 0) and after.now_ms <= scope.horizon_ms


def sessions_end(before: Session, action: str, message: Message | None, after: Session, scope: Scope) -> bool:
    """A clear leaves nothing of the session, marks included, and begins the next epoch; nothing else does."""
    if action == "clear":
        return not after.queue and not after.marks and after.epoch == before.epoch + 1 <= scope.clears
    return after.epoch == before.epoch


def a_batch_counts_once(before: Session, action: str, message: Message | None, after: Session, scope: Scope) -> bool:
    """What a producer has saved is written down, so that the same save changes nothing when it comes again."""
    if action in (AGAIN, LATE):
        return after == before
    then, now = dict(before.marks), dict(after.marks)
    grown = [producer for producer in now if now[producer] > then.get(producer, 0)]
    if action == "clear":
        return True
    return len(grown) == (action == "save") and all(
        now.get(one) == mark for one, mark in then.items() if one not in grown
    )


LAWS: dict[str, tuple[Judge, ...]] = {
    "no-loss": (no_loss,),
    "legal-trim": (trims_are_legal,),
    "no-phantom": (nothing_from_nowhere,),
    "store-order, step by step": (order_is_kept,),
    "counter": (counter_advances,),
    "retransmission": (delivery_is_told, an_answer_is_due),
    "expiry, step by step": (time_passes,),
    "no-residue": (sessions_end,),
    "all-or-nothing": (a_batch_counts_once,),
}
"""By the names of the laws; those that are invariants of states as well say that they are of steps."""


def step_laws(scope: Scope) -> list[StepInvariant[Any]]:
    """The laws of the steps of one scope."""
    messages = {message.label: message for program in scope.programs for message in program}
    return [StepInvariant(name, _holds(judges, messages, scope)) for name, judges in LAWS.items()]


def _holds(
    judges: tuple[Judge, ...], messages: dict[int, Message], scope: Scope
) -> Callable[[Situation, Label, Situation], bool]:
    def holds(before: Situation, label: Label, after: Situation) -> bool:
        message = messages.get(dict(label.arguments).get("message", 0))
        return all(judge(before.session, label.action, message, after.session, scope) for judge in judges)

    return holds


Offer = tuple[str, str, int | None]
"""Who, what, and for which message."""


def offered(steps: Iterable[tuple[Label, Situation]]) -> list[Offer]:
    """The labels of steps, as offers."""
    return sorted(((label.actor, label.action, dict(label.arguments).get("message")) for label, _ in steps), key=repr)


def answers_are_due(session: Session) -> Iterator[Offer]:
    """Whatever is in flight is answered: QoS 1 by a PUBACK; QoS 2 by a PUBREC, then by a PUBCOMP (4.3.2, 4.3.3)."""
    for entry in session.queue:
        if entry.sent:
            is_released = entry.qos == 2 and entry.kind == "PUBLISH"
            yield "reader", "release" if is_released else "acknowledge", entry.label


def saves_are_due(state: Situation, scope: Scope) -> Iterator[Offer]:
    """Each writer saves in order; its record may be late once a session was cleared; what was accepted may come
    again."""
    for writer, (program, sent) in enumerate(zip(scope.programs, state.positions, strict=True)):
        actor = f"writer {writer + 1}"
        if program[sent:]:
            yield actor, "save", program[sent].label
            if state.session.epoch >= 1:
                yield actor, LATE, None
        if 1 <= sent == state.session.mark(writer):
            yield actor, AGAIN, None


def is_offered_what_is_due(state: Situation, scope: Scope, steps: Iterable[tuple[Label, Situation]]) -> bool:
    """Every step that is due is offered once, and no other is."""
    due: list[Offer] = [("reader", "fetch", None), *answers_are_due(state.session), *saves_are_due(state, scope)]
    if scope.horizon_ms - state.session.now_ms > 0:
        due.append(("time", "expire", None))
    if scope.clears - state.session.epoch > 0:
        due.append(("reader", "clear", None))
    return offered(steps) == sorted(due, key=repr)


def marks_follow_saves(state: Situation) -> bool:
    """A producer's mark is the number of a batch that it has sent, and batches are numbered one by one."""
    return all(0 <= state.session.mark(writer) <= sent for writer, sent in enumerate(state.positions))
