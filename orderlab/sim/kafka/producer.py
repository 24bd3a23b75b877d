"""A Kafka producer: the partition of a key, accumulator with linger and batch size, requests in flight, retries,
idempotence, acks.

A key's partition is exactly that of Kafka's Java client (``BuiltInPartitioner.partitionForKey``, murmur2).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from orderlab.sim.engine.clock import Clock, call_at
from orderlab.sim.engine.network import Link
from orderlab.sim.engine.packs import grouped
from orderlab.sim.kafka.broker import AppendError, KafkaCluster, Partition

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash of the Java client, as the signed integer that Java prints."""
    length = len(data)
    hashed = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        hashed = hashed * _MULTIPLIER & _MASK ^ word
    if whole < length:
        hashed ^= int.from_bytes(data[whole:], "little")
        hashed = hashed * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    hashed ^= hashed >> 15
    return hashed - (1 << 32) if hashed >= 1 << 31 else hashed


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a keyed record: the hash with its sign bit cleared, modulo the number of partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2_rows(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """``murmur2`` of every row of bytes, as unsigned integers: the same hash for many keys of one length."""
    count, length = rows.shape
    whole = length & ~3
    hashed = np.full(count, (_SEED ^ length) & _MASK, np.uint64)
    mask, multiplier, shift = np.uint64(_MASK), np.uint64(_MULTIPLIER), np.uint64(24)
    words = np.ascontiguousarray(rows[:, :whole]).view("<u4").astype(np.uint64)
    for column in range(whole // 4):
        word = words[:, column] * multiplier & mask
        word = (word ^ word >> shift) * multiplier & mask
        hashed = hashed * multiplier & mask ^ word
    if whole < length:
        rest = np.zeros(count, np.uint64)
        for column in range(length - 1, whole - 1, -1):
            rest = rest << np.uint64(8) | rows[:, column].astype(np.uint64)
        hashed = (hashed ^ rest) * multiplier & mask
    hashed = (hashed ^ hashed >> np.uint64(13)) * multiplier & mask
    return (hashed ^ hashed >> np.uint64(15)).astype(np.int64)


def partitions_for_rows(rows: npt.NDArray[np.uint8], partitions: int) -> npt.NDArray[np.int64]:
    """``partition_for_key`` of every row of bytes."""
    return (murmur2_rows(rows) & 0x7FFFFFFF) % partitions


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The settings of the Java client that matter to order and loss, by its names."""

    acks: Literal["0", "1", "all"] = "1"
    linger_us: int = 5_000
    batch_records: int = 400
    """``batch.size`` divided by the size of a record."""
    max_in_flight: int = 5
    """Requests that are unanswered on a connection, each with a batch of any number of partitions."""
    retries: int = 1
    retry_backoff_us: int = 100_000
    request_timeout_us: int = 30_000_000
    idempotent: bool = False


RECORD_BYTES = 300
"""On the wire."""
RESPONSE_BYTES = 100
OnAnswered = Callable[[Sequence[int], AppendError | None], None]
"""Hears of the records of one ``send`` that a batch held: acknowledged (None), or given up and why."""


@dataclass(slots=True)
class _Request:
    records: list[int]
    parts: list[tuple[int, OnAnswered]]
    """Where the records of each ``send`` end, and who wants to hear of them."""
    attempts: int = 0
    sequence: int | None = None
    sent_in: tuple[int, tuple[float, int]] = (-1, (-1.0, 0))
    """The leader that it was sent to last, and the request."""


@dataclass(slots=True)
class _Requests:
    """What is unanswered on the connection to a Kafka broker: batches that leave at one instant, one of each partition,
    are one request."""

    unanswered: dict[tuple[float, int], int] = field(default_factory=dict)
    """Batches of each request, by the instant at which it left and its place there."""
    waiting: dict[Partition, None] = field(default_factory=dict)
    """Partitions that have something to send when a request is answered."""


@dataclass(slots=True)
class _Accumulator:
    open: list[int] = field(default_factory=list)
    parts: list[tuple[int, OnAnswered]] = field(default_factory=list)
    sealed: deque[_Request] = field(default_factory=deque)
    next_sequence: int = 0
    resumes_us: float = 0
    """Before that nothing of the partition leaves, as a batch that failed is its first and waits for its back-off."""
    last_left: tuple[float, int] = (-1, 0)
    """When a batch left last, and how many had left at that instant."""
    timer: int = 0
    """Number of the open batch, so that a late timer does not seal its successor."""
    lingering: deque[int] = field(default_factory=deque)
    """The numbers of the batches that timers were set for, whose time is not over."""
    expire: Callable[[], None] | None = None
    """What they call."""


class _Attempt:
    """A batch on its way to the leader, and the answer on its way back."""

    __slots__ = (
        "accumulator",
        "answered_us",
        "arrived_us",
        "error",
        "is_over",
        "link",
        "loses_answer",
        "partition",
        "producer",
        "request",
        "timeout_us",
    )

    def __init__(
        self,
        producer: Producer,
        partition: Partition,
        accumulator: _Accumulator,
        request: _Request,
        timeout_us: float,
        loses_answer: bool,
    ) -> None:
        self.producer = producer
        self.partition = partition
        self.accumulator = accumulator
        self.request = request
        self.timeout_us = timeout_us
        self.loses_answer = loses_answer
        self.link = producer.link(partition.leader)
        self.is_over = False
        self.error: AppendError | None = None
        self.arrived_us: float = 0
        self.answered_us = 0

    def arrive(self) -> None:
        """The batch is at the leader."""
        producer, partition, settings = self.producer, self.partition, self.producer.settings
        if self.is_over and settings.acks != "0":
            return  # the client has closed the connection that this came on
        cluster, request = producer.cluster, self.request
        number = producer.producer_id if settings.idempotent else None
        outcome, answered_us = cluster.produce(
            partition, request.records, settings.acks == "all", number, request.sequence or 0
        )
        if settings.acks == "0":
            return
        # A known sequence is a success: the records are in the log, and only the answer had been lost.
        if isinstance(outcome, AppendError) and outcome is not AppendError.DUPLICATE_SEQUENCE:
            self.error = outcome
        self.arrived_us, self.answered_us = producer.env.now, answered_us
        if self.loses_answer or answered_us > self.timeout_us:
            self.time_out()
        else:
            self.link.back.send(RESPONSE_BYTES, self.back, answered_us, self.time_out)

    def back(self) -> None:
        """The answer is here."""
        died = self.arrived_us <= self.partition.failed_us < self.answered_us  # before it could answer
        self.answer(AppendError.DISCONNECTED if died else self.error)

    def time_out(self) -> None:
        """Give up a request that takes too long. Only what a fault holds up can take so long; so only then there is a
        timer."""
        call_at(self.producer.env, self.timeout_us, partial(self.answer, AppendError.TIMED_OUT))

    def answer(self, error: AppendError | None) -> None:
        """Take the answer or the timeout, whichever comes first; the other is nobody's."""
        if not self.is_over:
            self.is_over = True
            self.producer.answered(self.partition, self.accumulator, self.request, error)


class Producer:
    """One producer of a broker node."""

    def __init__(
        self,
        env: Clock,
        cluster: KafkaCluster,
        settings: ProducerSettings,
        one_way_us: Callable[[], int] = lambda: 100,
        connect: Callable[[int], Link] | None = None,
    ) -> None:
        """``connect`` makes the connection to a leader; without it, one of unlimited bandwidth with delays
        ``one_way_us``."""
        self.env = env
        self.cluster = cluster
        self.settings = settings
        self.one_way_us = one_way_us
        self.producer_id = cluster.new_producer_id()
        self.is_dead = False
        """The process of the producer is gone: nothing leaves any more, nobody hears of an answer."""
        self.batches: dict[str, tuple[int, int, int]] = {}
        """Per topic, the batches that left because they were full, those that had lingered, and the records of all."""
        self.unanswered = 0
        """Records that were handed over and are neither acknowledged nor given up."""
        self.lose_requests: deque[Literal["request", "response"]] = deque()
        """Fault injection: what is lost of the next requests, in order."""
        self._partitions: dict[Partition, _Accumulator] = {}
        self._connect = connect or (lambda leader: Link.plain(env, one_way_us))
        self._links: dict[int, Link] = {}
        self._requests: dict[int, _Requests] = {}

    def send(self, partition: Partition, records: Sequence[int], on_answered: OnAnswered) -> None:
        """Hand over records now. A batch leaves when it is full, or ``linger_us`` after its first record."""
        accumulator = self._partitions.get(partition)
        if accumulator is None:
            accumulator = self._partitions[partition] = _Accumulator()
        settings, size = self.settings, self.settings.batch_records
        start, count = 0, len(records)
        self.unanswered += count
        while start < count:
            held = accumulator.open
            if not held and settings.linger_us:
                self._start_linger(partition, accumulator)
            room = size - len(held)
            held.extend(records[start : start + room] if start or room < count else records)
            start += room
            parts = accumulator.parts
            if parts and parts[-1][1] is on_answered:
                parts[-1] = (len(held), on_answered)
            else:
                parts.append((len(held), on_answered))
            if len(held) >= size or not settings.linger_us:
                self._seal(partition, accumulator)

    def send_each(
        self,
        partitions: Sequence[Partition],
        records: Sequence[int],
        numbers: Sequence[int],
        on_answered: OnAnswered,
        in_order: bool = False,
    ) -> None:
        """Hand over records now, each to the one of ``partitions`` with its number: those of one partition together,
        partitions as they first come or ``in_order`` of their numbers."""
        size = self.settings.batch_records
        split, taken = grouped(records, numbers).items(), 0
        for number, mine in sorted(split) if in_order else split:
            accumulator = self._partitions.get(partitions[number])
            if accumulator is None or not (held := accumulator.open) or len(held) + len(mine) >= size:
                self.send(partitions[number], mine, on_answered)
                continue
            # As `send` does it where a batch waits that stays open: most packs have a few records for each of many
            # partitions.
            held += mine
            parts = accumulator.parts
            if parts[-1][1] is on_answered:
                parts[-1] = (len(held), on_answered)
            else:
                parts.append((len(held), on_answered))
            taken += len(mine)
        self.unanswered += taken

    def _start_linger(self, partition: Partition, accumulator: _Accumulator) -> None:
        if accumulator.expire is None:
            accumulator.expire = partial(self._expire, partition, accumulator)
        accumulator.lingering.append(accumulator.timer)
        call_at(self.env, self.env.now + self.settings.linger_us, accumulator.expire)

    def _expire(self, partition: Partition, accumulator: _Accumulator) -> None:
        # All linger equally long, so that the timer that was set first is over first.
        number = accumulator.lingering.popleft()
        if accumulator.timer == number and accumulator.open:
            self._seal(partition, accumulator)

    def _seal(self, partition: Partition, accumulator: _Accumulator) -> None:
        accumulator.timer += 1
        full, lingered, records = self.batches.get(partition.topic, (0, 0, 0))
        size = len(accumulator.open)
        is_full = size >= self.settings.batch_records
        self.batches[partition.topic] = full + is_full, lingered + (not is_full), records + size
        accumulator.sealed.append(_Request(accumulator.open, accumulator.parts))
        accumulator.open, accumulator.parts = [], []
        self._pump(partition, accumulator)

    def _pump(self, partition: Partition, accumulator: _Accumulator) -> None:
        now = self.env.now
        while accumulator.sealed and accumulator.resumes_us <= now and not self.is_dead:
            requests = self._requests.setdefault(partition.leader, _Requests())
            left_us, count = accumulator.last_left
            key = (now, count + 1 if left_us == now else 0)
            if key not in requests.unanswered and len(requests.unanswered) >= self.settings.max_in_flight:
                requests.waiting[partition] = None
                return
            requests.unanswered[key] = requests.unanswered.get(key, 0) + 1
            accumulator.last_left = key
            request = accumulator.sealed.popleft()
            request.sent_in = partition.leader, key
            # Numbered when it first leaves and never again: by the number the leader knows a repetition, and a gap.
            if self.settings.idempotent and request.sequence is None:
                request.sequence = accumulator.next_sequence
                accumulator.next_sequence += len(request.records)
            self._transmit(partition, accumulator, request)

    def _transmit(self, partition: Partition, accumulator: _Accumulator, request: _Request) -> None:
        request.attempts += 1
        lost = self.lose_requests.popleft() if self.lose_requests else None
        attempt = _Attempt(
            self, partition, accumulator, request, self.env.now + self.settings.request_timeout_us, lost == "response"
        )
        if self.settings.acks == "0":  # done when it is written to the socket: what becomes of it nobody hears
            call_at(self.env, self.env.now, partial(attempt.answer, None))
        elif lost == "request":
            attempt.time_out()
        if lost != "request":
            on_held = None if self.settings.acks == "0" else attempt.time_out
            attempt.link.there.send(RECORD_BYTES * len(request.records), attempt.arrive, None, on_held)

    def answered(
        self, partition: Partition, accumulator: _Accumulator, request: _Request, error: AppendError | None
    ) -> None:
        """Tell those who handed its records over, or let it go again."""
        if self.is_dead:
            return
        if error is not None and request.attempts <= self._retries():
            self._put_back(accumulator, request)
            accumulator.resumes_us = self.env.now + self.settings.retry_backoff_us
            call_at(self.env, accumulator.resumes_us, lambda: self._pump(partition, accumulator))
        else:
            start = 0
            self.unanswered -= len(request.records)
            for end, on_answered in request.parts:
                on_answered(request.records[start:end], error)
                start = end
        self._free(request)
        self._pump(partition, accumulator)

    def _free(self, request: _Request) -> None:
        """The batch has its answer: if it was the last of its request, another one may leave."""
        leader, key = request.sent_in
        requests = self._requests[leader]
        requests.unanswered[key] -= 1
        if requests.unanswered[key]:
            return
        del requests.unanswered[key]
        waiting, requests.waiting = list(requests.waiting), {}
        for partition in waiting:
            self._pump(partition, self._partitions[partition])

    def _retries(self) -> int:
        """An idempotent producer retries until ``delivery.timeout.ms``; here: without end."""
        return 2**31 if self.settings.idempotent else self.settings.retries

    @staticmethod
    def _put_back(accumulator: _Accumulator, request: _Request) -> None:
        """Put a batch in front again, as the Java client does; behind what is in flight already. Idempotent batches
        stay in sequence."""
        sealed = accumulator.sealed
        place = 0
        if request.sequence is not None:
            while place < len(sealed):
                other = sealed[place].sequence
                if other is None or other > request.sequence:
                    break
                place += 1
        sealed.insert(place, request)

    def link(self, leader: int) -> Link:
        """The connection to a broker: it keeps requests in order."""
        link = self._links.get(leader)
        if link is None:
            link = self._links[leader] = self._connect(leader)
        return link
