"""The contract of MQTT sessions in the nouns of every contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orderlab.model.contracts.base import AnyTrace, Situation
from orderlab.model.contracts.client_steps import fault_of
from orderlab.model.contracts.session.refinement import Account
from orderlab.model.contracts.session.refinement.account import RunState
from orderlab.model.contracts.session.traces import (
    FAULTS,
    Acknowledge,
    Churn,
    Clear,
    DrainQueue,
    Fetch,
    Interleave,
    Open,
    Publication,
    Quiesce,
    Retry,
    Save,
    Step,
    Trace,
    Wait,
    told_step,
)
from orderlab.model.laws import LAWS, STORE_LAWS

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


BUDGETS = ("crashes", "lost_replies", "duplicates", "expiries", "clears", "errors", "script_flush", "failover")
"""What of a ``Scope`` is used up along a path."""


@dataclass(frozen=True)
class Scope:
    """How small the world is: what each writer saves in order, and how often trouble may come on one path."""

    name: str
    programs: tuple[tuple[Save, ...], ...]
    """One for each writer. Where there are several readers, each save is for whichever its writer chooses."""
    readers: int = 1
    """Each with a session of its own."""
    renames: bool = False
    """Messages and writers are called in the order in which they come to a session, so that names tell no states apart.
    Else they are called as the programs call them."""
    pages: tuple[int | None, ...] = (None,)
    overlaps: bool = False
    """Where a save takes several calls, another one may come in between."""
    deaths: bool = False
    """Where an operation takes several calls, its client may die in between; at no cost."""
    late: bool = False
    """What was overtaken comes as well: the save before the last one, the end of an earlier session, an earlier
    CONNECT."""
    settles: bool = False
    """What a session without live messages has left behind is looked at in every state."""
    drains: bool = False
    """From every state, whether the queue drains and settles; that leads nowhere."""
    crashes: int = 0
    """The node stops within an operation and comes back with what had reached its append-only file."""
    lost_replies: int = 0
    """An operation is carried out and its caller does not hear of it."""
    duplicates: int = 0
    """A save that was answered arrives a second time."""
    expiries: int = 0
    """Time passes until just before, or at, the next deadline."""
    clears: int = 0
    """The session ends, or its client connects again."""
    errors: int = 0
    """An operation meets a node that refuses writes, or a key of another type."""
    script_flush: int = 0
    """The node forgets its scripts."""
    failover: int = 0
    """The node is replaced by a replica that has missed everything since some earlier moment."""

    @property
    def budgets(self) -> tuple[int, ...]:
        """How much of each budget there is, in the order of ``BUDGETS``."""
        return tuple(getattr(self, name) for name in BUDGETS)

    @property
    def has_lost_scripts(self) -> bool:
        """Whether the node may stand there without the scripts."""
        return bool(self.script_flush or self.crashes or self.failover)

    @property
    def messages(self) -> tuple[Publication, ...]:
        """All that are saved."""
        return tuple(one for program in self.programs for step in program for one in step.messages)

    @property
    def limit(self) -> int:
        """The limit of the first save."""
        return self.programs[0][0].limit


def message(label: int, interval_ms: float | None = None, qos: int = 1, payload: bytes | None = None) -> Publication:
    """A message of a scope."""
    return Publication(label, b"<%d>payload" % label if payload is None else payload, b"t", qos, interval_ms)


def save(producer: int, *messages: Publication, limit: int = 2) -> Save:
    """A save of a scope."""
    return Save(messages, producer=producer, limit=limit)


SHORTEST_MS = 1000


def dealt(writers: int = 2, readers: int = 1, messages: int = 4, limit: int = 2, qos: int = 1, **budgets: int) -> Scope:
    """``messages`` dealt out to writers, each saved alone. Where time passes, the first of each two lives twice as
    long."""

    def program(quota: int) -> tuple[Save, ...]:
        lives_ms = [SHORTEST_MS * (2 - at % 2) if budgets.get("expiries") else None for at in range(quota)]
        return tuple(save(0, message(0, ms, qos), limit=limit) for ms in lives_ms)

    quotas = [messages // writers + (one < messages % writers) for one in range(writers)]
    scope = Scope("store", tuple(map(program, quotas)), readers, renames=True, overlaps=True, settles=True)
    return replace(scope, **budgets)  # type: ignore[arg-type]


SCOPES: tuple[Scope, ...] = (
    Scope(
        "identifiers",
        (
            (save(0, message(1)), save(0, message(2)), save(0, message(3))),
            (save(1, message(4)), save(1, message(5), limit=3)),
        ),
    ),
    Scope(
        "time",
        (
            (save(0, message(1, 2000)), save(0, message(2))),
            (save(1, message(3, 1000)), save(1, message(4, 40_000))),
        ),
        expiries=3,
    ),
    Scope(
        "drains",
        ((save(0, message(1, 1000)), save(0, message(2, 1000), limit=3)), (save(1, message(3), limit=3),)),
        pages=(1,),
        expiries=2,
        drains=True,
    ),
    Scope(
        "faults",
        (
            (save(0, message(1, None, 2), message(2, 1000)), save(0, message(3))),
            (save(1, message(4, 0), message(5)),),
        ),
        expiries=1,
        clears=1,
        duplicates=1,
        errors=1,
        late=True,
    ),
    Scope(
        "sessions",
        ((save(0, message(1)), save(0, message(2))), (save(1, message(3)),)),
        clears=2,
        duplicates=2,
        late=True,
    ),
    Scope(
        "pages",
        (
            (save(0, message(1), message(2), limit=3), save(0, message(3), limit=3)),
            (save(1, message(4), message(5), limit=3),),
        ),
        pages=(1, 2),
    ),
    Scope(
        "releases",
        ((save(0, message(1, 2000, 2)), save(0, message(2))), (save(1, message(3, None, 2), message(4, 1000)),)),
        expiries=2,
    ),
    Scope(
        "values",
        (
            (save(0, message(1), message(2, 0), message(3, 1000), limit=3), save(0, message(4, 0), message(5))),
            (save(1, message(6, 4294967295000), message(7, 2147483648000)), save(1, message(8), limit=1)),
        ),
        expiries=1,
    ),
    Scope(
        "forbidden",
        (
            (save(0, message(1), message(2, 1500), limit=3), save(0, message(3, -1000), message(4))),
            (save(1, message(5), message(6, 1e19)), save(1, message(7), limit=0)),
        ),
    ),
    Scope(
        "overlaps",
        ((save(0, message(1)), save(0, message(2))), (save(1, message(3)), save(1, message(4)))),
        overlaps=True,
        deaths=True,
    ),
)
"""What is explored, the most telling first."""


SMALL_LIMIT = 5
"""A limit that is worth a word: the witness would have a plain one otherwise."""
INTERVALS = 3
"""Intervals that are named."""


def circumstances(trace: Trace) -> Iterator[str]:
    """What is out of the ordinary in a short trace: without it the law would have held."""
    if not trace.steps:
        return
    last = trace.steps[-1]
    inner = last.step if isinstance(last, Interleave) else last
    fault = fault_of(last)
    if fault is not None:
        yield FAULTS.get(fault.kind, fault.kind)
    if isinstance(last, Interleave):
        yield "another save comes between its calls"
    if isinstance(inner, Save):
        yield from _of_last_save(inner)
    elif isinstance(inner, Wait):
        yield f"after {inner.ms:,} ms"
    elif isinstance(inner, Retry):
        yield "the save before the last comes again" if inner.older else "the same save comes again"
    elif isinstance(inner, Open) and inner.again:
        yield "the same CONNECT comes again"
    if getattr(inner, "stale", False):
        yield "it comes late, from an earlier session"
    if any(isinstance(step, Churn) for step in trace.steps):
        yield "identifiers have come round"


def _of_last_save(step: Save) -> Iterator[str]:
    if not step.messages:
        yield "an empty batch"
    intervals = dict.fromkeys(one.interval_ms for one in step.messages if one.interval_ms is not None)
    yield from (f"expiry {ms / 1000:g}" for ms in list(intervals)[:INTERVALS])
    if step.limit <= SMALL_LIMIT:
        yield f"limit {step.limit}"


@dataclass(frozen=True)
class SessionTerms:
    """The terms of session stores, and of pending sets: a session store without ``release`` (``lua/pending``)."""

    name: str

    @property
    def laws(self) -> Mapping[str, str]:
        """Law -> statement."""
        return {law: LAWS[law].statement for law in STORE_LAWS}

    @property
    def situations(self) -> Mapping[str, Sequence[Situation]]:
        """Law -> what must come about before it has been tested."""
        return BY_LAW

    @property
    def scopes(self) -> Sequence[Scope]:
        """What is explored, the most telling first."""
        return SCOPES

    def reads(self, data: Mapping[str, Any]) -> bool:
        """Whether the JSON is a trace of this kind: it does not name a contract."""
        return "contract" not in data

    def trace_from_json(self, data: Any, place: str) -> AnyTrace:
        """The trace. Raises InputError that names what is wrong where."""
        return Trace.from_json(data, place)

    def told_step(self, step: Step, trace: AnyTrace) -> str:
        """One step as a sentence."""
        assert isinstance(trace, Trace)
        return told_step(step, trace)

    state_words = "the specification has live"
    states_name = "live_after"

    def circumstances(self, trace: AnyTrace) -> Iterator[str]:
        """What is out of the ordinary in a short trace."""
        assert isinstance(trace, Trace)
        return circumstances(trace)

    def one_sided(self, law: str) -> str:
        """What a law that holds leaves open all the same."""
        return LAWS[law].one_sided

    def clauses(self, law: str) -> Sequence[str]:
        """Clauses of the standard that the law rests on."""
        return LAWS[law].clauses
