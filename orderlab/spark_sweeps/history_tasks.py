"""What one task of a history check does: pass over its part, and give back partial results of a few hundred bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from orderlab.model.checkers import expiry, inflight, retransmission
from orderlab.model.checkers.delivery import laws as delivery
from orderlab.model.checkers.delivery.laws import DeliveryChecker
from orderlab.model.checkers.expiry import ExpiryChecker
from orderlab.model.checkers.findings import Finding, Partial, is_about
from orderlab.model.checkers.inflight import InflightChecker
from orderlab.model.checkers.judge import Question
from orderlab.model.checkers.retransmission import RetransmissionChecker
from orderlab.model.errors import InputError
from orderlab.model.history.decoding import ArrowDecoder
from orderlab.model.history.events import STORE_KINDS, EventBatch, Names
from orderlab.model.history.writing import to_arrow
from orderlab.model.history_io import open_history
from orderlab.spark_sweeps.tasks import marked_errors

BY_FIFO, BY_SUBSCRIBER, BY_BOTH = "by fifo", "by subscriber", "by both"
BY_SESSION_LAWS = (*retransmission.LAWS, *inflight.LAWS, "exactly-once")
"""Laws that need a subscriber's rows together where deliveries carry packet identifiers."""


@dataclass(frozen=True)
class Task:
    """What to judge of a part. ``role``: by what its rows are whole."""

    laws: tuple[str, ...]
    drain_bound_us: int | None
    expiry_tolerance_us: int
    receive_maximum: int
    end_us: int | None
    role: str

    @classmethod
    def of(cls, question: Question, laws: tuple[str, ...], end_us: int | None, role: str) -> Task:
        """The task of a role: its share of the laws."""
        if role == BY_FIFO:
            laws = tuple(law for law in laws if law not in BY_SESSION_LAWS)
        elif role == BY_SUBSCRIBER:
            laws = tuple(law for law in laws if law in BY_SESSION_LAWS)
        return cls(
            laws, question.drain_bound_us, question.expiry_tolerance_us, question.receive_maximum, end_us, role
        )


@dataclass(frozen=True)
class PartResult:
    """Of one part, by checker. ``delivery_if``: the same if other parts have publish rows and this one has none;
    ``file``: the part, if it is one, which then has all rows that show its findings.
    """

    file: str | None
    laws: tuple[str, ...]
    delivery: Partial | None
    delivery_if: Partial | None
    published: int
    retransmission: Partial | None
    expiry: Partial | None
    inflight: Partial | None

    def found(self, finding: Finding) -> bool:
        """Whether this part gave the finding."""
        partials = (self.delivery, self.delivery_if, self.retransmission, self.expiry, self.inflight)
        return any(finding in partial.findings.values() for partial in partials if partial is not None)


def judge_part(task: Task, names: Names, batches: Iterable[EventBatch], file: str | None = None) -> PartResult:
    """One pass. Raises InputError for store operations, which no part can judge."""
    deliveries = DeliveryChecker(names, task.drain_bound_us) if set(task.laws) & set(delivery.LAWS) else None
    resent = RetransmissionChecker(names) if "retransmission" in task.laws else None
    expired = ExpiryChecker(names, task.expiry_tolerance_us) if set(task.laws) & set(expiry.LAWS) else None
    flying = InflightChecker(names, task.receive_maximum) if set(task.laws) & set(inflight.LAWS) else None
    checkers = [checker for checker in (deliveries, resent, expired, flying) if checker is not None]
    for batch in batches:
        if ((batch.kind >= STORE_KINDS[0]) & (batch.kind <= STORE_KINDS[-1])).any():
            cure = "name its files one by one, without --master"
            raise InputError(f"the history has store operations, which one process judges; {cure}")
        for checker in checkers:
            checker.observe(batch)
    partial = None if deliveries is None else deliveries.partial(task.end_us)
    published = 0 if partial is None else partial.counts.get("published", 0)
    other = deliveries.partial(task.end_us, published_elsewhere=True) if deliveries and not published else None
    return PartResult(
        file, task.laws, partial, other, published,
        None if resent is None else resent.partial(),
        None if expired is None else expired.partial(),
        None if flying is None else flying.partial(),
    )  # fmt: skip


def judge_file(task: Task, path: str) -> PartResult:
    """A part that is a file."""
    with marked_errors():
        reader = open_history(path)
        return judge_part(task, reader.names, reader, path)


def judge_rows(task: Task, place: str, rows: Iterable[pa.RecordBatch]) -> PartResult | None:
    """A part that came through a shuffle, sorted by event; None if it is empty."""
    decoder: ArrowDecoder | None = None

    def decoded() -> Iterator[EventBatch]:
        for batch in rows:
            assert decoder is not None
            yield decoder.decode(batch)

    rows = iter(rows)
    first = next(rows, None)
    if first is None:
        return None
    decoder = ArrowDecoder(place, first.schema)
    rows = chain([first], rows)
    with marked_errors():
        return judge_part(task, decoder.names, decoded())


def rows_about(findings: list[Finding], path: str) -> list[pa.RecordBatch]:
    """The rows of a file that a witness shows: none after the last event that breaks a law."""
    ends = [finding.event_id for finding in findings]
    found = []
    with marked_errors():
        reader = open_history(path)
        for batch in reader:
            about = sum(is_about(finding, batch, reader.names) for finding in findings) > 0
            if about.any():
                found.append(to_arrow(batch.select(about), reader.names))
            if all(end is not None and end < batch.event_id[-1] for end in ends):
                break
    return found
