"""Judge a whole history: every checker that its laws need, in one pass, and one more for the witnesses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Protocol

from orderlab.model.checkers import (
    causal,
    cursor,
    expiry,
    handshake,
    inflight,
    kafka_log,
    kafka_operations,
    retransmission,
    subscriptions,
    total_queue,
    wills,
)
from orderlab.model.checkers.delivery import checker as delivery
from orderlab.model.checkers.delivery.checker import DeliveryChecker, delivery_verdicts
from orderlab.model.checkers.expiry import ExpiryChecker, expiry_verdict
from orderlab.model.checkers.findings import VACUOUS, Finding, Partial, Parts, tell
from orderlab.model.checkers.handshake import HandshakeChecker, handshake_verdict
from orderlab.model.checkers.inflight import InflightChecker, inflight_verdicts
from orderlab.model.checkers.linearizability.decide import LAW as LINEARIZABILITY
from orderlab.model.checkers.linearizability.decide import decide, guess_model
from orderlab.model.checkers.linearizability.objects import MODELS
from orderlab.model.checkers.linearizability.operations import OperationLog, operations_of_history
from orderlab.model.checkers.retransmission import RetransmissionChecker, retransmission_verdict
from orderlab.model.checkers.subscriptions import SubscriptionChecker, subscription_verdicts
from orderlab.model.checkers.untested import RowsSeen, with_reasons
from orderlab.model.checkers.witness_rows import Judge, complete, rows_around
from orderlab.model.errors import InputError
from orderlab.model.history.events import STORE_KINDS, EventBatch, EventKind, Names
from orderlab.model.protocol.packet_id import MODULUS
from orderlab.model.verdict import UNFINISHED, Outcome, Verdict


class Checker(Protocol):
    """Folds batches in time order into a partial result that merges with those of other parts."""

    def observe(self, batch: EventBatch) -> None:
        """Take in the next rows."""

    def partial(self) -> Partial:
        """The result of the rows seen."""


@dataclass(frozen=True)
class Pass:
    """A checker of one pass: its laws, how it is made for a question, and what a result that covers the history comes
    to."""

    laws: tuple[str, ...]
    make: Callable[[Names, Question], Checker]
    verdicts: Callable[[Partial, Sequence[str], dict[str, float]], list[Verdict]]
    by_session: bool = False
    """Its laws need all rows of a subscriber together where deliveries carry packet identifiers; else those of a
    logical FIFO."""


PASSES: Mapping[str, Pass] = {
    "retransmission": Pass(
        retransmission.LAWS,
        lambda names, question: RetransmissionChecker(names),
        lambda partial, laws, work: [retransmission_verdict(partial, work)],
        by_session=True,
    ),
    "expiry": Pass(
        expiry.LAWS,
        lambda names, question: ExpiryChecker(names, question.expiry_tolerance_us),
        lambda partial, laws, work: [expiry_verdict(partial, work)],
    ),
    "inflight": Pass(
        inflight.LAWS,
        lambda names, question: InflightChecker(names, question.receive_maximum),
        inflight_verdicts,
        by_session=True,
    ),
    "handshake": Pass(
        handshake.LAWS,
        lambda names, question: HandshakeChecker(names),
        lambda partial, laws, work: [handshake_verdict(partial, work)],
        by_session=True,
    ),
    "subscriptions": Pass(
        subscriptions.LAWS,
        lambda names, question: SubscriptionChecker(names),
        subscription_verdicts,
    ),
}
"""Every checker beside that of deliveries, which is asked twice where parts of a history are judged apart
(`orderlab.spark_sweeps.histories`). A row here is judged in one process and on Spark alike."""
PIPELINE_LAWS = (*delivery.LAWS, *(law for one in PASSES.values() for law in one.laws))
OBJECT_LAWS = {kafka_operations.MODEL: kafka_log.LAWS, total_queue.MODEL: total_queue.LAWS}
"""The laws of objects that are not judged by linearizability."""
OPERATION_LAWS = tuple(dict.fromkeys((LINEARIZABILITY, *kafka_log.LAWS, *total_queue.LAWS)))
WHOLE_LAWS = (causal.LAW, *cursor.LAWS, wills.LAW)
"""Laws that no part of a history is judged by."""
LAWS = tuple(dict.fromkeys((*PIPELINE_LAWS, *WHOLE_LAWS, *OPERATION_LAWS)))
MODEL_NAMES = (*MODELS, *OBJECT_LAWS)
"""Every law that a history can be judged by. `causal`, `cursor-safe` and `no-repeat` are judged when they are asked
for, `drain` when its bound is, and `will` where somebody has one."""


class Source(Protocol):
    """Batches that can be gone through more than once, with the same codes each time."""

    @property
    def place(self) -> str: ...

    @property
    def names(self) -> Names: ...

    def __iter__(self) -> Iterator[EventBatch]: ...


@dataclass(frozen=True)
class Question:
    """What to judge. `laws` empty: all that apply. Units in the names; None: no bound, no budget, guess the object."""

    laws: tuple[str, ...] = ()
    model: str | None = None
    drain_bound_us: int | None = None
    expiry_tolerance_us: int = 0
    receive_maximum: int = MODULUS
    """Of connections whose rows do not say."""
    budget_s: float | None = None
    is_feed: bool = False
    """Whether the topics are feeds, which readers follow by a marker: then `cursor-safe` and `no-repeat` apply."""

    def __post_init__(self) -> None:
        for law in self.laws:
            if law not in LAWS:
                close = get_close_matches(law, LAWS, n=1)
                cure = f"did you mean {close[0]}?" if close else f"laws of histories: {', '.join(LAWS)}"
                raise InputError(f"--law {law}: no history is judged by it; {cure}")
        if self.model is not None and self.model not in MODEL_NAMES:
            raise InputError(f"--model {self.model}: unknown object; it is one of {', '.join(MODEL_NAMES)}")
        if "drain" in self.laws and self.drain_bound_us is None:
            raise InputError("--law drain: say within how long a backlog must be gone, with --drain-bound-ms")

    @property
    def named(self) -> frozenset[str]:
        """The laws that are asked for by name, `drain` also by its bound."""
        return frozenset(self.laws) | ({"drain"} if self.drain_bound_us is not None and not self.laws else set())

    def asks(self, law: str) -> bool:
        """Whether the law is to be judged."""
        if self.laws:
            return law in self.laws
        if law in cursor.LAWS:
            return self.is_feed
        return law != causal.LAW and (law != "drain" or self.drain_bound_us is not None)


def passes_for(laws: Iterable[str], names: Names, question: Question) -> dict[str, Checker]:
    """The checkers of PASSES that some of the laws need, made anew."""
    asked = set(laws)
    return {name: one.make(names, question) for name, one in PASSES.items() if asked & set(one.laws)}


def judge(source: Source, question: Question) -> tuple[list[Verdict], int]:
    """The verdicts, and the number of rows seen. Raises InputError as the source does, and for a law that no row of
    the history has to do with.
    """
    judgement = Judgement(source.names, question)
    for batch in source:
        judgement.observe(batch)
        if judgement.ran_out:
            break
    return judgement.verdicts(source), judgement.rows


class Judgement:
    """Takes in the batches of a history as they come, in order; then the verdicts."""

    def __init__(self, names: Names, question: Question) -> None:
        self.question = question
        self.rows = 0
        self.ran_out = False
        """Whether the budget of the question is over: what comes is not taken in any more."""
        self._started = time.perf_counter()
        self._names = names
        self._laws = [law for law in PIPELINE_LAWS if question.asks(law)]
        self._deliveries = (
            DeliveryChecker(names, question.drain_bound_us) if set(self._laws) & set(delivery.LAWS) else None
        )
        self._passes = passes_for(self._laws, names, question)
        self._checkers: list[Checker | DeliveryChecker] = [
            *([self._deliveries] if self._deliveries else []),
            *self._passes.values(),
        ]
        self._wills = wills.WillChecker(names) if question.asks(wills.LAW) else None
        self._stores: list[EventBatch] = []
        self._pipeline_rows = 0
        self._seen = RowsSeen()

    def observe(self, batch: EventBatch) -> None:
        """Take in the next rows."""
        budget_s = self.question.budget_s
        is_store = (batch.kind >= STORE_KINDS[0]) & (batch.kind <= STORE_KINDS[-1])
        self.rows += len(batch)
        self._seen.observe(batch)
        self._pipeline_rows += len(batch) - int(is_store.sum())
        if is_store.any():
            self._stores.append(batch.select(is_store))
        for checker in self._checkers:
            checker.observe(batch)
        if self._wills is not None:
            self._wills.observe(batch)
        self.ran_out = budget_s is not None and time.perf_counter() - self._started > budget_s
        if self.ran_out:
            for checker in self._checkers:
                checker.observe(EventBatch.of(event_id=[2**62], time_us=[batch.time_us[-1]], kind=[EventKind.CUT]))

    def verdicts(self, source: Source) -> list[Verdict]:
        """The verdicts on what was taken in. ``source`` has the same rows for whoever goes through them again; its
        codes may be others. Raises InputError as ``judge`` does."""
        question, names, rows, laws = self.question, source.names, self.rows, self._laws
        verdicts: list[Verdict] = []
        log = operations_of_history(source.place, self._stores, self._names) if self._stores else None
        asked = [law for law in OPERATION_LAWS if law in question.laws]
        if log is None or not kafka_operations.has_functions(log.used()):
            asked = [law for law in asked if law not in PIPELINE_LAWS]
        if self._pipeline_rows == 0:
            laws = [law for law in laws if law not in asked]
        if self._pipeline_rows or (question.laws and (laws or wills.LAW in question.laws)):
            verdicts += self._of_messages(laws, source)
            if self.ran_out:
                verdicts = [_unfinished(verdict, rows) for verdict in verdicts]
            # Sources that tell their batches one by one are cheaper to look into again; not all do.
            parts: Parts | None = getattr(source, "parts", None)
            verdicts = tell(verdicts, source, names, parts)
            verdicts = complete(verdicts, lambda findings: rows_around(findings, source, names), judge_again(question))
            if question.asks(causal.LAW):
                verdicts.append(causal.check_causal(source, names, question.budget_s))
            verdicts = with_reasons(verdicts, self._seen)
        if log is not None and (asked or not question.laws):
            told = judge_operations(source.place, log, replace(question, laws=tuple(asked)))
            verdicts += [_unfinished(verdict, rows) for verdict in told] if self.ran_out else told
        elif asked:
            raise InputError(
                f"{source.place}: no store operations (invoke, ok, fail, info rows) to judge by {asked[0]}"
            )
        return verdicts

    def _of_messages(self, laws: Sequence[str], source: Source) -> list[Verdict]:
        """The verdicts on what no store operation has to do with, without the rows that show them."""
        question = self.question
        work = {"rows": self.rows, "seconds": round(time.perf_counter() - self._started, 6)}
        verdicts: list[Verdict] = []
        if self._deliveries is not None:
            verdicts += delivery_verdicts(
                self._deliveries.partial(), [law for law in delivery.LAWS if law in laws], work
            )
        for name, checker in self._passes.items():
            verdicts += PASSES[name].verdicts(checker.partial(), laws, work)
        if self._wills is not None and (self._wills.has_any or wills.LAW in question.laws):
            verdicts.append(self._wills.verdict())
        if any(map(question.asks, cursor.LAWS)):
            verdicts += [one for one in cursor.check_cursors(source, source.names) if question.asks(one.law)]
        return verdicts

    def finding(self, source: Source) -> Finding | None:
        """What the law of the question comes to, without the rows that show it."""
        found = (verdict.witness for verdict in self._of_messages(self._laws, source))
        return next((one for one in found if isinstance(one, Finding)), None)


def judge_again(question: Question) -> Judge:
    """Judges some rows of a history by one law of the question, as the whole of it was judged."""

    def judge(law: str, rows: EventBatch, names: Names) -> Finding | None:
        judgement = Judgement(names, replace(question, laws=(law,), budget_s=None))
        judgement.observe(rows)
        return judgement.finding(in_memory("rows of a witness", [rows], names))

    return judge


def judge_operations(place: str, log: OperationLog, question: Question) -> list[Verdict]:
    """The verdicts on store operations. Raises InputError, with the place, for what their object does not have, and
    for a law that it is not judged by.
    """
    try:
        guessed = kafka_operations.MODEL if kafka_operations.has_functions(log.used()) else None
        if guessed is None and set(question.laws) & set(total_queue.LAWS):
            guessed = total_queue.MODEL
        model = question.model or guessed or guess_model(log)
        return with_reasons(_judged(model, log, question))
    except InputError as error:
        raise InputError(f"{place}: {error}") from error


def _judged(model: str, log: OperationLog, question: Question) -> list[Verdict]:
    """The verdicts of the object."""
    laws = OBJECT_LAWS.get(model, (LINEARIZABILITY,))
    for law in question.laws:
        if law not in laws:
            raise InputError(f"--law {law}: the operations of --model {model} are judged by {', '.join(laws)}")
    if model == kafka_operations.MODEL:
        return kafka_log.judge_kafka_log(log, question.laws, question.budget_s)
    if model == total_queue.MODEL:
        return total_queue.judge_total_queue(log, question.laws, question.budget_s)
    return [decide(model, log, question.budget_s)]


def _unfinished(verdict: Verdict, rows: int) -> Verdict:
    note = f"the budget ran out after {rows} rows"
    later = verdict.law in OPERATION_LAWS and verdict.law != LINEARIZABILITY and verdict.law not in PIPELINE_LAWS
    if later:  # what nobody has polled or dequeued may yet be
        verdict = replace(verdict, outcome=Outcome.UNKNOWN, witness=None)
    outcome = Outcome.UNKNOWN if verdict.outcome is Outcome.HOLDS else verdict.outcome
    notes = (*(told for told in verdict.not_covered if not told.startswith(VACUOUS)), note)
    return replace(verdict, outcome=outcome, work={**verdict.work, UNFINISHED: 1}, not_covered=notes)


def in_memory(place: str, batches: Iterable[EventBatch], names: Names) -> Source:
    """A source of batches that are in memory."""
    return _InMemory(place, tuple(batches), names)


@dataclass(frozen=True)
class _InMemory:
    place: str
    batches: tuple[EventBatch, ...]
    names: Names

    def __iter__(self) -> Iterator[EventBatch]:
        return iter(self.batches)
