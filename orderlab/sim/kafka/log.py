"""The log of one partition: batches, replication by lag, high watermark, idempotent append, retention.

A record is an integer: an index into the run's table of messages. Replication costs no events: each batch carries the
instant at which the in-sync followers have it, so a failover at any instant knows what survives.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

SEQUENCES_REMEMBERED = 5
"""Batches per idempotent producer that the leader can recognise again (as many as may be in flight)."""


class AppendError(StrEnum):
    """Why the leader refused a batch, by Kafka's name."""

    NOT_LEADER = "NOT_LEADER_OR_FOLLOWER"
    OUT_OF_ORDER_SEQUENCE = "OUT_OF_ORDER_SEQUENCE_NUMBER"
    DUPLICATE_SEQUENCE = "DUPLICATE_SEQUENCE_NUMBER"
    """Appended so long ago that the leader has forgotten where. Clients take it for success."""
    TIMED_OUT = "REQUEST_TIMED_OUT"
    DISCONNECTED = "NETWORK_EXCEPTION"


@dataclass(slots=True)
class Batch:
    """Records appended together. ``replicated_us`` is when all in-sync followers have them."""

    base_offset: int
    records: Sequence[int]
    appended_us: int
    replicated_us: int

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.records)


@dataclass(slots=True)
class _ProducerState:
    next_sequence: int = 0
    recent: list[tuple[int, Batch]] = field(default_factory=list)


class PartitionLog:
    """The leader's log. Instants never go back: each call's ``now_us`` is at least that of the one before."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self._bases: list[int] = []
        self._producers: dict[int, _ProducerState] = {}
        self._visible = 0
        """Index of the first batch that is not replicated yet."""
        self.start_offset = 0
        self.end_offset = 0
        self.leader_epoch = 0

    def append(
        self, records: Sequence[int], now_us: int, lag_us: int, producer: int | None = None, sequence: int = 0
    ) -> Batch | AppendError:
        """Append a batch. With ``producer`` (idempotent), a repeated batch gives the first one again, or is refused as
        a duplicate if that was long ago, and a batch that comes before its predecessor is refused."""
        state = None
        if producer is not None:
            state = self._producers.setdefault(producer, _ProducerState())
            for known, batch in state.recent:
                if known == sequence:
                    return batch
            if sequence < state.next_sequence:
                return AppendError.DUPLICATE_SEQUENCE
            if sequence != state.next_sequence:
                return AppendError.OUT_OF_ORDER_SEQUENCE
        replicated_us = now_us + lag_us
        if self._batches:
            replicated_us = max(replicated_us, self._batches[-1].replicated_us)
        batch = Batch(self.end_offset, records, now_us, replicated_us)
        self._batches.append(batch)
        self._bases.append(batch.base_offset)
        self.end_offset = batch.end_offset
        if state is not None:
            state.next_sequence = sequence + len(records)
            state.recent = [*state.recent[1 - SEQUENCES_REMEMBERED :], (sequence, batch)]
        return batch

    def high_watermark(self, now_us: int) -> int:
        """The offset up to which consumers may read at ``now_us``."""
        batches, visible = self._batches, self._visible
        while visible < len(batches) and batches[visible].replicated_us <= now_us:
            visible += 1
        self._visible = visible
        return batches[visible - 1].end_offset if visible else self.start_offset

    def read(self, offset: int, count: int, now_us: int) -> tuple[int, list[int]]:
        """(offset of the first, records) from ``offset`` on: at most ``count``, below the high watermark.

        An offset before the log's start begins at the start, as ``auto.offset.reset=earliest`` does.
        """
        end = self.high_watermark(now_us)
        first = max(offset, self.start_offset)
        found: list[int] = []
        position = first
        at = bisect_right(self._bases, position) - 1
        while position < end and len(found) < count:
            batch = self._batches[at]
            begin = position - batch.base_offset
            part = batch.records[begin : begin + count - len(found)]
            found.extend(part)
            position += len(part)
            at += 1
        return first, found

    def next_visible_us(self, offset: int) -> int | None:
        """When a record at or after ``offset`` becomes readable; None if no such record is in the log."""
        offset = max(offset, self.start_offset)
        if offset >= self.end_offset:
            return None
        return self._batches[max(bisect_right(self._bases, offset) - 1, 0)].replicated_us

    def fail_over(self, now_us: int) -> list[int]:
        """An in-sync follower becomes leader with what it has at ``now_us``. Returns the records that are gone."""
        end = self.high_watermark(now_us)
        lost = [record for batch in self._batches[self._visible :] for record in batch.records]
        del self._batches[self._visible :], self._bases[self._visible :]
        self.end_offset = end
        self.leader_epoch += 1
        for state in self._producers.values():
            gone = [sequence for sequence, batch in state.recent if batch.end_offset > end]
            if gone:
                state.next_sequence = min(gone)
                state.recent = [(sequence, batch) for sequence, batch in state.recent if batch.end_offset <= end]
        return lost

    def retain(self, before_us: int, committed: int | None = None) -> None:
        """Retention: drop whole batches appended before ``before_us``; of those, where ``committed`` is given, only what lies
        below that offset."""
        end = self.end_offset if committed is None else committed
        keep = 0
        while keep < self._visible and self._batches[keep].appended_us < before_us and self._batches[keep].end_offset <= end:
            keep += 1
        if keep:
            self.start_offset = self._batches[keep - 1].end_offset
            del self._batches[:keep], self._bases[:keep]
            self._visible -= keep
