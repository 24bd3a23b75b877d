"""Kafka brokers in time: leaders of partitions, request service, replication lag, leader change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import simpy

from sim.kafka.log import AppendError, Batch, PartitionLog


@dataclass(frozen=True, slots=True)
class BrokerCosts:
    """What a request costs on a broker, and how long replication takes. Microseconds."""

    request_us: float = 60.0
    """Per produce request, on one of the broker's request threads."""
    record_us: float = 0.6
    """Per record appended."""
    replication_lag_us: int = 1500
    """From the leader's append until every in-sync follower has it."""
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
        self._waiting: list[simpy.Event] = []

    def wait_for_records(self, event: simpy.Event) -> None:
        """``event`` succeeds with the next append, so that an idle consumer need not poll."""
        self._waiting.append(event)

    def wake(self) -> None:
        """Tell those who wait that there is something to read, or will be soon."""
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            if not event.triggered:
                event.succeed()


class KafkaCluster:
    """Brokers and topics. Each broker serves produce requests one after the other: its ``busy_until_us``."""

    def __init__(self, env: simpy.Environment, brokers: int, costs: BrokerCosts | None = None) -> None:
        self.env = env
        self.costs = costs or BrokerCosts()
        self.busy_until_us = [0.0] * brokers
        self.busy_us = [0.0] * brokers
        self.requests = [0] * brokers
        self.records = [0] * brokers
        self.topics: dict[str, list[Partition]] = {}
        self._producers = 0
        self.replication_lag_us: Callable[[], int] = lambda: self.costs.replication_lag_us

    def new_producer_id(self) -> int:
        """What InitProducerId gives: a number of its own for each producer."""
        self._producers += 1
        return self._producers

    def create_topic(self, name: str, partitions: int) -> list[Partition]:
        """Partitions are led by the brokers in turn."""
        brokers = len(self.busy_us)
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
        served = self._serve(partition.leader, len(records), now)
        outcome = partition.log.append(records, served, self.replication_lag_us(), producer, sequence)
        if isinstance(outcome, AppendError):
            return outcome, served
        partition.wake()
        return outcome, outcome.replicated_us if acks_all else served

    def _serve(self, broker: int, records: int, now: int) -> int:
        work = self.costs.request_us + self.costs.record_us * records
        done = max(self.busy_until_us[broker], now) + work
        self.busy_until_us[broker] = done
        self.busy_us[broker] += work
        self.requests[broker] += 1
        self.records[broker] += records
        return round(done)

    def fail_leader(self, partition: Partition) -> list[int]:
        """The partition's leader dies; the next broker takes over after the election. Returns the lost records."""
        now = int(self.env.now)
        lost = partition.log.fail_over(now)
        partition.leader = (partition.leader + 1) % len(self.busy_us)
        partition.leaderless_until_us = now + self.costs.leader_election_us
        return lost
