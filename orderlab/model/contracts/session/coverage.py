"""The situations that the laws speak of, counted as they come about: what was never put to the test is not proved."""

from __future__ import annotations

from collections.abc import Iterator

from orderlab.model.contracts.contract import Situation
from orderlab.model.contracts.session.refinement import Account
from orderlab.model.contracts.session.run_state import RunState
from orderlab.model.contracts.session.steps import (
    Acknowledge,
    Clear,
    DrainQueue,
    Fetch,
    Open,
    Quiesce,
    Retry,
    Save,
    Step,
    Wait,
)

BY_LAW: dict[str, tuple[Situation, ...]] = {
    "store-order": (Situation("several messages live"), Situation("several live across the wrap")),
    "no-loss": (Situation("a live message outlives a step"),),
    "packet-id": (
        Situation("the identifier wraps"),
        Situation("a live message is acknowledged", ("acknowledge",)),
        Situation("an acknowledgement comes late", ("acknowledge",)),
        Situation("an acknowledgement comes late and its identifier is in use again", ("acknowledge",)),
    ),
    "legal-trim": (Situation("more than the limit"), Situation("expired leftovers before a full queue")),
    "expiry": (Situation("a deadline passes before delivery"), Situation("an interval left is told")),
    "no-residue": (Situation("an empty queue settles"), Situation("a session is cleared", ("clear",))),
    "all-or-nothing": (Situation("an operation fails"), Situation("a lost reply is followed by a retry")),
    "counter": (
        Situation("the counter advances"),
        Situation("the counter goes on after an empty queue", ("acknowledge",)),
    ),
    "retransmission": (Situation("a released message is fetched", ("release",)),),
    "no-phantom": (
        Situation("a message that is gone is not fetched"),
        Situation("a record comes after its session was cleared", ("clear",)),
    ),
    "drain": (Situation("a queue is drained", ("acknowledge",)),),
    "one-slot": (Situation("an operation for a hostile client identifier"),),
    "bounded": (Situation("an operation at the configured limit"), Situation("queue lengths are compared")),
}


def situations(before: RunState, after: RunState, step: Step, has_failed: bool) -> Iterator[str]:
    """What came about in one step that was carried out."""
    if has_failed:
        yield "an operation fails"
    for then, now in zip(before.accounts, after.accounts, strict=True):
        yield from _of_queue(then, now)
    match step:
        case Save(stale=True):
            yield "a record comes after its session was cleared"
        case Save(client=client):
            yield from _of_save(before.accounts[client], after.accounts[client], step)
        case Retry():
            yield "a lost reply is followed by a retry"
        case Fetch(client=client):
            yield from _of_fetch(after.accounts[client])
        case Acknowledge(label=label):
            yield from _of_acknowledgement(before, label)
        case Wait():
            yield from _of_time(before, after)
        case Clear(stale=False) | Open(clean_start=True, stale=False, again=False):
            yield "a session is cleared"
        case DrainQueue():
            yield "a queue is drained"
        case Quiesce():
            yield "an empty queue settles"


def _of_queue(then: Account, now: Account) -> Iterator[str]:
    if len(now.queue) > 1:
        yield "several messages live"
        if now.queue[0].packet_id > now.queue[-1].packet_id:
            yield "several live across the wrap"
    if then.queue and now.queue and then.queue[-1].label == now.queue[-1].label:
        yield "a live message outlives a step"


def _of_save(then: Account, now: Account, step: Save) -> Iterator[str]:
    if now.last_ids != then.last_ids:
        yield "the counter advances"
        if not then.queue and min(then.last_ids) > 0:
            yield "the counter goes on after an empty queue"
        if max(now.last_ids) < max(then.last_ids):
            yield "the identifier wraps"
    if len(then.queue) + len(step.messages) > step.limit > 0:
        yield "more than the limit"
    elif then.passed_ids and len(then.queue) + len(then.passed_ids) + len(step.messages) > step.limit > 0:
        yield "expired leftovers before a full queue"


def _of_fetch(now: Account) -> Iterator[str]:
    if now.fates:
        yield "a message that is gone is not fetched"
    for entry in now.queue:
        if entry.kind == "PUBREL":
            yield "a released message is fetched"
        elif entry.carries_interval:
            yield "an interval left is told"


def _of_acknowledgement(before: RunState, label: int) -> Iterator[str]:
    if any(account.session.entry(label) for account in before.accounts):
        yield "a live message is acknowledged"
        return
    yield "an acknowledgement comes late"
    sending = dict(before.sendings).get(label)
    if sending and any(e.packet_id == sending.packet_id for account in before.accounts for e in account.queue):
        yield "an acknowledgement comes late and its identifier is in use again"


def _of_time(before: RunState, after: RunState) -> Iterator[str]:
    for then, now in zip(before.accounts, after.accounts, strict=True):
        live = {entry.label for entry in now.queue}
        if any(entry.label not in live and not entry.sent for entry in then.queue):
            yield "a deadline passes before delivery"
