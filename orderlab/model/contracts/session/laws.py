"""The laws of the abstract session as laws of its steps: what each action may change, and what it must.

The invariants of ``session`` speak of single states; a message that vanishes breaks none of them. These speak of a
step: the session before, the action that was taken, the session after. They are written without the actions' own
functions, so that a flaw in those does not excuse itself.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from orderlab.model.spec.transition_system import Label, StepInvariant

if TYPE_CHECKING:
    from orderlab.model.contracts.session.spec import Message, Scope, Session, Situation


Judge = Callable[["Session", str, "Message | None", "Session", "Scope"], bool]
"""(before, action, the message it is about, after, scope) -> whether the law holds."""

AGAIN, LATE = "save again", "save late"
"""The last save once more, its reply lost; a save that was routed before the session was cleared."""
DELIVERY = ("sent", "kind")
"""What of an entry may change while it waits."""


def no_loss(before: Session, action: str, message: Message | None, after: Session, scope: Scope) -> bool:
    """A message goes only by its acknowledgement, at its deadline, by a trim, or with its session; and one that is saved
    is there."""
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
    """A save takes the oldest away, as many as there is no room for and no more: so a queue never outgrows the limit."""
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
    """By exactly the message saved, over the identifiers that are live, round after the last; and by nothing else."""
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
    """Each writer saves in order; its record may be late once a session was cleared; what was accepted may come again."""
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
