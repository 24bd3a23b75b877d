"""A Kafka producer: accumulator with linger and batch size, requests in flight, retries, idempotence, acks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import simpy

from sim.kafka.broker import KafkaCluster, Partition
from sim.kafka.log import AppendError


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The settings of the Java client that matter to order and loss, by its names."""

    acks: Literal["0", "1", "all"] = "1"
    linger_us: int = 5_000
    batch_records: int = 400
    """``batch.size`` divided by the size of a record."""
    max_in_flight: int = 5
    retries: int = 1
    retry_backoff_us: int = 100_000
    request_timeout_us: int = 30_000_000
    idempotent: bool = False


@dataclass(slots=True)
class _Request:
    records: list[int]
    attempts: int = 0
    sequence: int | None = None


@dataclass(slots=True)
class _Accumulator:
    open: list[int] = field(default_factory=list)
    sealed: deque[_Request] = field(default_factory=deque)
    in_flight: int = 0
    next_sequence: int = 0
    timer: int = 0
    """Number of the open batch, so that a late timer does not seal its successor."""


OnAnswered = Callable[[Sequence[int], AppendError | None], None]


class Producer:
    """One producer of a broker node. ``on_answered`` hears of each batch: acknowledged (None) or given up."""

    def __init__(
        self,
        env: simpy.Environment,
        cluster: KafkaCluster,
        settings: ProducerSettings,
        on_answered: OnAnswered,
        one_way_us: Callable[[], int] = lambda: 100,
    ) -> None:
        self.env = env
        self.cluster = cluster
        self.settings = settings
        self.on_answered = on_answered
        self.one_way_us = one_way_us
        self.producer_id = cluster.new_producer_id()
        self._partitions: dict[Partition, _Accumulator] = {}
        self._connection_free_us: dict[int, int] = {}
        self.lose_requests: deque[Literal["request", "response"]] = deque()
        """Fault injection: what is lost of the next requests, in order."""

    def send(self, partition: Partition, records: Sequence[int]) -> None:
        """Hand over records now. A batch leaves when it is full, or ``linger_us`` after its first record."""
        accumulator = self._partitions.get(partition)
        if accumulator is None:
            accumulator = self._partitions[partition] = _Accumulator()
        size = self.settings.batch_records
        start = 0
        while start < len(records):
            if not accumulator.open and self.settings.linger_us:
                self._start_linger(partition, accumulator)
            room = size - len(accumulator.open)
            accumulator.open.extend(records[start : start + room])
            start += room
            if len(accumulator.open) >= size or not self.settings.linger_us:
                self._seal(partition, accumulator)

    def _start_linger(self, partition: Partition, accumulator: _Accumulator) -> None:
        number = accumulator.timer

        def expire(_: simpy.Event) -> None:
            if accumulator.timer == number and accumulator.open:
                self._seal(partition, accumulator)

        self.env.timeout(self.settings.linger_us).callbacks.append(expire)

    def _seal(self, partition: Partition, accumulator: _Accumulator) -> None:
        accumulator.timer += 1
        request = _Request(accumulator.open)
        accumulator.open = []
        accumulator.sealed.append(request)
        self._pump(partition, accumulator)

    def _pump(self, partition: Partition, accumulator: _Accumulator) -> None:
        while accumulator.sealed and accumulator.in_flight < self.settings.max_in_flight:
            request = accumulator.sealed.popleft()
            if self.settings.idempotent and request.sequence is None:
                request.sequence = accumulator.next_sequence
                accumulator.next_sequence += len(request.records)
            accumulator.in_flight += 1
            self.env.process(self._exchange(partition, accumulator, request))

    def _exchange(
        self, partition: Partition, accumulator: _Accumulator, request: _Request
    ) -> Generator[simpy.Event, Any, None]:
        request.attempts += 1
        lost = self.lose_requests.popleft() if self.lose_requests else None
        yield self.env.timeout(self._arrival(partition))
        error: Any = None
        if lost == "request":
            yield self.env.timeout(self.settings.request_timeout_us)
            error = AppendError.NOT_LEADER
        else:
            producer = self.producer_id if self.settings.idempotent else None
            outcome, answered_us = self.cluster.produce(
                partition, request.records, self.settings.acks == "all", producer, request.sequence or 0
            )
            error = outcome if isinstance(outcome, AppendError) else None
            if lost == "response":
                yield self.env.timeout(self.settings.request_timeout_us)
                error = AppendError.NOT_LEADER
            elif self.settings.acks != "0":
                yield self.env.timeout(answered_us - int(self.env.now) + self.one_way_us())
        if error is not None and request.attempts <= self._retries():
            yield self.env.timeout(self.settings.retry_backoff_us)
            accumulator.in_flight -= 1
            self._put_back(accumulator, request)
        else:
            accumulator.in_flight -= 1
            self.on_answered(request.records, error)
        self._pump(partition, accumulator)

    def _retries(self) -> int:
        """An idempotent producer retries until ``delivery.timeout.ms``; here: without end."""
        return 2**31 if self.settings.idempotent else self.settings.retries

    @staticmethod
    def _put_back(accumulator: _Accumulator, request: _Request) -> None:
        """In front, as the Java client does; behind what is in flight already. Idempotent batches stay in sequence."""
        sealed = accumulator.sealed
        place = 0
        if request.sequence is not None:
            while place < len(sealed):
                other = sealed[place].sequence
                if other is None or other > request.sequence:
                    break
                place += 1
        sealed.insert(place, request)

    def _arrival(self, partition: Partition) -> int:
        """Delay until the request is at the leader: one connection per broker keeps requests in order."""
        now = int(self.env.now)
        at = max(now + self.one_way_us(), self._connection_free_us.get(partition.leader, 0))
        self._connection_free_us[partition.leader] = at
        return at - now
