"""Kafka brokers in time: logs of partitions, their leaders, request service, replication lag, high watermark, leader
change.

A record is an integer: an index into the run's table of messages. Replication costs no events: each batch carries the
instant at which the in-sync followers have it, so a failover at any instant knows what survives.

Followers that cannot keep up (``follow_no_more``) leave the in-sync replicas after ``replica.lag.time.max.ms``; from
then on the leader alone decides what is committed, until they have caught up. With ``min.insync.replicas`` above 1 it
refuses what asks for acks=all meanwhile, and nothing else. A leader that dies while it is alone takes its partition
along until it is back, or, with an unclean election, a follower leads with what it had: what was acknowledged since
then is gone, and its offsets are given out again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from orderlab.sim.engine.clock import Clock, Station

SEQUENCES_REMEMBERED = 5
"""Batches per idempotent producer that the leader can recognise again (as many as may be in flight)."""


OFFSETS_PARTITIONS = 50
"""``offsets.topic.num.partitions``: of `__consumer_offsets`."""
OFFSETS_COMMIT_TIMEOUT_US = 5_000_000
"""``offsets.commit.timeout.ms``: for so long a coordinator waits until all in-sync replicas have a commit."""


def java_hash(text: str) -> int:
    """``String.hashCode`` of Java, for text of the Basic Multilingual Plane."""
    hashed = 0
    for letter in text:
        hashed = hashed * 31 + ord(letter) & 0xFFFFFFFF
    return hashed - (1 << 32) if hashed >= 1 << 31 else hashed


def offsets_partition_for(group_id: str) -> int:
    """The partition of `__consumer_offsets` that keeps a group's commits, and whose leader coordinates the group
    (``GroupMetadataManager.partitionFor``)."""
    hashed = java_hash(group_id)
    # Kafka's own abs: the smallest integer has none.
    return (0 if hashed == -1 << 31 else abs(hashed)) % OFFSETS_PARTITIONS


class AppendError(StrEnum):
    """Why the leader refused a batch, by Kafka's name."""

    NOT_LEADER = "NOT_LEADER_OR_FOLLOWER"
    OUT_OF_ORDER_SEQUENCE = "OUT_OF_ORDER_SEQUENCE_NUMBER"
    DUPLICATE_SEQUENCE = "DUPLICATE_SEQUENCE_NUMBER"
    """Appended so long ago that the leader has forgotten where. Clients take it for success."""
    NOT_ENOUGH_REPLICAS = "NOT_ENOUGH_REPLICAS"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    NOT_COORDINATOR = "NOT_COORDINATOR"
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
    next_sequence: int | None = 0
    """None: whichever comes first, as the producer begins a new epoch (KIP-360)."""
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
            if state.next_sequence is not None and sequence < state.next_sequence:
                return AppendError.DUPLICATE_SEQUENCE
            if state.next_sequence is not None and sequence != state.next_sequence:
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

    def truncate(self, end: int) -> list[int]:
        """A follower that has fallen behind becomes leader with what lies below ``end``. Returns the records that are
        gone, acknowledged and read or not; their offsets are given to others."""
        end = max(min(end, self.end_offset), self.start_offset)
        keep = next((place for place, batch in enumerate(self._batches) if batch.end_offset > end), len(self._batches))
        lost = [record for batch in self._batches[keep:] for record in batch.records]
        end = self._batches[keep - 1].end_offset if keep else self.start_offset
        del self._batches[keep:], self._bases[keep:]
        self._visible = min(self._visible, keep)
        self.end_offset = end
        self.leader_epoch += 1
        for state in self._producers.values():
            if any(batch.end_offset > end for _, batch in state.recent):
                state.next_sequence, state.recent = None, []
        return lost

    def retain(self, before_us: int, committed: int | None = None) -> None:
        """Drop, as retention does, whole batches appended before ``before_us``; of those, where ``committed`` is given,
        only what lies below that offset."""
        end = self.end_offset if committed is None else committed
        keep = 0
        while (
            keep < self._visible
            and self._batches[keep].appended_us < before_us
            and self._batches[keep].end_offset <= end
        ):
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


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """Settings of Kafka's brokers about replicas, by their names."""

    min_insync_replicas: int = 1
    is_unclean: bool = False
    """``unclean.leader.election.enable``."""
    lag_max_us: int = 30_000_000
    """``replica.lag.time.max.ms``."""
    offsets_lag_us: int = 0
    """How much of the offsets' topic a new coordinator has not got. 0 is what Kafka promises: a commit is answered when
    all in-sync replicas have it."""


@dataclass(frozen=True, slots=True)
class Behind:
    """The followers of a partition have stood still since they had what lies below ``end_offset``. They leave the
    in-sync replicas at ``out_us``, if they do not go on before, at ``resume_us``, and are in sync again at
    ``caught_up_us``."""

    end_offset: int
    out_us: int
    resume_us: int
    caught_up_us: int
    since_us: int

    def is_alone(self, now_us: int) -> bool:
        """Whether the leader is the only in-sync replica."""
        return self.out_us < self.resume_us and self.out_us <= now_us < self.caught_up_us

    def lag_us(self, now_us: int) -> int:
        """How long what is appended now waits until all in-sync replicas have it."""
        return max(now_us, self.out_us if self.out_us < self.resume_us else self.caught_up_us) - now_us


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
        self.behind: Behind | None = None
        """Followers that cannot keep up."""
        self.truncations: list[tuple[int, int]] = []
        """(instant, end of the log) of each unclean election."""
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

    def __init__(
        self, env: Clock, brokers: int, costs: BrokerCosts | None = None, replicas: ReplicaSettings | None = None
    ) -> None:
        self.env = env
        self.costs = costs or BrokerCosts()
        self.replicas = replicas or ReplicaSettings()
        self.offsets = [
            Partition("__consumer_offsets", number, number % brokers) for number in range(OFFSETS_PARTITIONS)
        ]
        """Their leaders coordinate the groups whose commits they keep; the commits themselves are with the groups."""
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
        behind = partition.behind
        if behind is not None and served >= behind.caught_up_us:
            behind = partition.behind = None
        wants_more = (
            acks_all
            and behind is not None
            and self.replicas.min_insync_replicas > 1
            and behind.out_us < behind.resume_us
        )
        if wants_more and behind is not None and behind.is_alone(served):
            return AppendError.NOT_ENOUGH_REPLICAS, served
        lag_us = self.replication_lag_us() if behind is None else behind.lag_us(served)
        outcome = partition.log.append(records, served, lag_us, producer, sequence)
        if isinstance(outcome, AppendError):
            return outcome, served
        if self.on_append is not None:
            self.on_append(partition, outcome)
        partition.appended_us = served
        partition.wake()
        if wants_more and behind is not None and outcome.replicated_us >= behind.out_us:
            return AppendError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, behind.out_us
        return outcome, outcome.replicated_us if acks_all else served

    def commit(self, offsets: Partition) -> tuple[AppendError | None, int]:
        """An offset commit reaches the leader of ``offsets`` now. Returns why it is refused, and the instant of the
        response. Kafka appends a commit with acks=all, whatever producers ask for; the usual lag of the followers is
        left out of it (notes/decisions.md)."""
        now = int(self.env.now)
        if now < offsets.leaderless_until_us:
            return AppendError.NOT_COORDINATOR, now
        self.requests += 1
        served = round(self.stations[offsets.leader].serve(now, self.costs.request_us))
        if self.on_request is not None:
            self.on_request(offsets.leader, "commit", now, served, 0)
        behind = offsets.behind
        if behind is None or served >= behind.caught_up_us:
            return None, served
        if behind.is_alone(served) and self.replicas.min_insync_replicas > 1:
            return AppendError.NOT_ENOUGH_REPLICAS, served
        lag_us = behind.lag_us(served)
        if lag_us > OFFSETS_COMMIT_TIMEOUT_US:
            return AppendError.TIMED_OUT, served + OFFSETS_COMMIT_TIMEOUT_US
        return None, served + lag_us

    def fetch_served_us(self, leader: int, records: int) -> int:
        """When the response to a fetch request leaves that is served now with ``records``."""
        work = self.costs.request_us + self.costs.fetched_record_us * records
        self.requests += 1
        served = round(self.stations[leader].serve(int(self.env.now), work))
        if self.on_request is not None:
            self.on_request(leader, "fetch", self.env.now, served, records)
        return served

    def follow_no_more(self, partition: Partition, duration_us: int) -> None:
        """The partition's followers cannot keep up for a while."""
        now = int(self.env.now)
        resume_us = now + duration_us
        partition.behind = Behind(
            partition.log.end_offset,
            now + self.replicas.lag_max_us,
            resume_us,
            resume_us + self.costs.replication_lag_us,
            now,
        )

    def fail_leader(self, partition: Partition, back_us: int = 0) -> list[int]:
        """The partition's leader dies; the next broker takes over after the election. Returns the lost records.

        If no other replica is in sync, and an election must be clean, nobody leads until the dead one is back after
        ``back_us``."""
        now = int(self.env.now)
        behind, partition.failed_us = partition.behind, now
        if behind is not None and behind.is_alone(now):
            if not self.replicas.is_unclean:
                partition.leaderless_until_us = now + max(back_us, self.costs.leader_election_us)
                return []
            lost = partition.log.truncate(behind.end_offset)
            partition.truncations.append((now, partition.log.end_offset))
        else:
            lost = partition.log.fail_over(now)
        partition.behind = None
        if self.on_lost is not None and lost:
            self.on_lost(partition, partition.leader, lost)
        partition.leader = (partition.leader + 1) % len(self.stations)
        partition.leaderless_until_us = now + self.costs.leader_election_us
        return lost
