"""Kafka brokers in time: leaders of partitions, request service, replication lag, leader change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import simpy

from orderlab.sim.engine.stations import Station
from orderlab.sim.kafka.log import AppendError, Batch, PartitionLog


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
        self.replication_lag_us: Callable[[], int] = lambda: self.costs.replication_lag_us if brokers > 1 else 0

    def new_producer_id(self) -> int:
        """What InitProducerId gives: a number of its own for each producer."""
        self._producers += 1
        return self._producers

    def create_topic(self, name: str, partitions: int) -> list[Partition]:
        """Partitions are led by the brokers in turn."""
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
        partition.leader = (partition.leader + 1) % len(self.stations)
        partition.leaderless_until_us = now + self.costs.leader_election_us
        partition.failed_us = now
        return lost
