"""Kafka brokers in time: logs of partitions, their leaders, request service, replication lag, high watermark, leader change.

A record is an integer: an index into the run's table of messages. Replication costs no events: each batch carries the
instant at which the in-sync followers have it, so a failover at any instant knows what survives.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import simpy

from orderlab.sim.engine.clock import Station

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
        """Drop, as retention does, whole batches appended before ``before_us``; of those, where ``committed`` is given, only what lies
        below that offset."""
        end = self.end_offset if committed is None else committed
        keep = 0
        while keep < self._visible and self._batches[keep].appended_us < before_us and self._batches[keep].end_offset <= end:
            keep += 1
        if keep:
            self.start_offset = self._batches[keep - 1].end_offset
            del self._batches[:keep], self._bases[:keep]
            self._visible -= keep


@dataclass(frozen=True, slots=True)
class BrokerCosts:
    """What a request costs on a broker, and how long replication takes. Microseconds."""

    threads: int = 2
    """Cores of a broker."""
    request_us: float = 60.0
    """Per produce or fetch request."""
    record_us: float = 0.6
    """Per record appended."""
    fetched_record_us: float = 0.2
    """Per record fetched: cheaper, as batches go out as they came in."""
    replication_lag_us: int = 1500
    """From the leader's append until every in-sync follower has it. A broker that is alone has no followers."""
    leader_election_us: int = 200_000
    """How long a partition has no leader after its leader died."""


class Partition:
    """A partition and the broker that leads it."""

    def __init__(self, topic: str, number: int, leader: int) -> None:
        self.topic = topic
        self.number = number
        self.leader = leader
        self.log = PartitionLog()
        self.leaderless_until_us = 0
        self.appended_us = 0
        """When the last batch was appended."""
        self.failed_us = -1
        """When a leader died last: what it had not answered by then, it never answers."""
        self._waiting: list[Callable[[], None]] = []

    def wait_for_records(self, wake: Callable[[], None]) -> None:
        """``wake`` is called at the next append, so that an idle consumer need not poll."""
        self._waiting.append(wake)

    def wake(self) -> None:
        """Tell those who wait that there is something to read, or will be soon."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for function in waiting:
                function()


class KafkaCluster:
    """Brokers and topics; each broker serves its requests on its cores, first come first served."""

    def __init__(self, env: simpy.Environment, brokers: int, costs: BrokerCosts | None = None) -> None:
        self.env = env
        self.costs = costs or BrokerCosts()
        self.stations = [Station(self.costs.threads) for _ in range(brokers)]
        self.requests = 0
        self.records = 0
        self.topics: dict[str, list[Partition]] = {}
        self._producers = 0
        self.on_request: Callable[[int, str, float, float, int], None] | None = None
        """Told of every request: the broker, what it is, when it arrived, when it is served, records."""
        self.on_append: Callable[[Partition, Batch], None] | None = None
        """Told of every batch that a leader has appended, of a repetition of the first one."""
        self.on_lost: Callable[[Partition, int, Sequence[int]], None] | None = None
        """Told of records that are gone with a leader, the broker of that number."""
        self.replication_lag_us: Callable[[], int] = lambda: self.costs.replication_lag_us if brokers > 1 else 0

    def new_producer_id(self) -> int:
        """What InitProducerId gives: a number of its own for each producer."""
        self._producers += 1
        return self._producers

    def create_topic(self, name: str, partitions: int) -> list[Partition]:
        """Create a topic, whose partitions are led by the brokers in turn."""
        brokers = len(self.stations)
        offset = len(self.topics)
        made = [Partition(name, number, (number + offset) % brokers) for number in range(partitions)]
        self.topics[name] = made
        return made

    def produce(
        self, partition: Partition, records: Sequence[int], acks_all: bool, producer: int | None, sequence: int
    ) -> tuple[Batch | AppendError, int]:
        """A produce request reaches the leader now. Returns the outcome and the instant of the response."""
        now = int(self.env.now)
        if now < partition.leaderless_until_us:
            return AppendError.NOT_LEADER, now
        work = self.costs.request_us + self.costs.record_us * len(records)
        served = max(round(self.stations[partition.leader].serve(now, work)), partition.appended_us)
        self.requests += 1
        self.records += len(records)
        if self.on_request is not None:
            self.on_request(partition.leader, f"produce {partition.topic}", now, served, len(records))
        outcome = partition.log.append(records, served, self.replication_lag_us(), producer, sequence)
        if isinstance(outcome, AppendError):
            return outcome, served
        if self.on_append is not None:
            self.on_append(partition, outcome)
        partition.appended_us = served
        partition.wake()
        return outcome, outcome.replicated_us if acks_all else served

    def fetch_served_us(self, leader: int, records: int) -> int:
        """When the response to a fetch request leaves that is served now with ``records``."""
        work = self.costs.request_us + self.costs.fetched_record_us * records
        self.requests += 1
        served = round(self.stations[leader].serve(int(self.env.now), work))
        if self.on_request is not None:
            self.on_request(leader, "fetch" if records else "commit", self.env.now, served, records)
        return served

    def fail_leader(self, partition: Partition) -> list[int]:
        """The partition's leader dies; the next broker takes over after the election. Returns the lost records."""
        now = int(self.env.now)
        lost = partition.log.fail_over(now)
        if self.on_lost is not None and lost:
            self.on_lost(partition, partition.leader, lost)
        partition.leader = (partition.leader + 1) % len(self.stations)
        partition.leaderless_until_us = now + self.costs.leader_election_us
        partition.failed_us = now
        return lost
