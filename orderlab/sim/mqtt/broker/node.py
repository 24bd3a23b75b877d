"""A broker node below its stages: its processor, its clients of Kafka and of the store, batches under way, calls that
are made again.

Calls on the store that fail are made again after pauses that grow: each is twice the last one, up to a longest. So does
Lettuce wait between attempts to reconnect (exponential by powers of two, up to 30 s). The first and the longest pause
here are ours: short against the faults of a simulation, long against a call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import simpy

from orderlab.sim.engine.clock import Clock, Station, call_at
from orderlab.sim.kafka.broker import AppendError, Partition
from orderlab.sim.kafka.consumer_group import Consumer, ConsumerGroup, Polled
from orderlab.sim.kafka.producer import Producer
from orderlab.sim.mqtt.parts import Storage
from orderlab.sim.mqtt.ports import Call, StoreDriver
from orderlab.sim.mqtt.sessions import EPOCH_MS
from orderlab.sim.mqtt.world import World

BURST = 16
"""Messages that a network thread takes from one socket buffer or event loop turn."""
RETENTION_US = 1_000_000
FIRST_PAUSE_US = 10_000
LONGEST_PAUSE_US = 1_000_000
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """One broker."""

    tick_us: int = 500
    """How long publishes that arrive are gathered before they are worked on: the simulation's own grain."""
    pack_retries: int = 3
    pack_pause_us: int = 1_000_000
    producer_records_max: int = 0
    """Records without an answer of Kafka above which the broker reads nothing from its publishers; 0: no bound."""
    awaits_removals: bool = False
    """Whether what is acknowledged is removed from the store, however often that fails, before its session is read."""
    hands_over_first: bool = False
    """Whether what was saved is sent on before it is committed."""


class BrokerNode:
    """What the stages of a broker compute and talk with. ``is_dead`` after a crash: nothing that it had begun goes
    on."""

    def __init__(
        self, world: World, number: int, settings: BrokerSettings, producer: Producer, driver: StoreDriver, cpu: Station
    ) -> None:
        """Takes from ``world`` what the node keeps."""
        self.env = world.env
        self.measured = world.measured
        self.recorder = world.recorder
        self.peers = world.brokers
        """All brokers, itself among them."""
        self.number = number
        self.settings = settings
        self.costs = world.costs.broker
        self.threads = world.costs.threads
        self.cpu = cpu
        self.producer = producer
        self.driver = driver
        self.is_dead = False
        self.downlink: Sequence[Partition] = ()
        """The partitions of `msg.downlink.<number>`; none for the only broker."""
        self.on_pack: Callable[[str, float, float, int], None] | None = None
        """Told of every pack: its consumer, when it was polled, when it was committed, records."""
        self.clock_skew_us = 0
        """By how much its clock is ahead."""
        self.crash_at_commit: Literal["before", "after"] | None = None
        self.retrying = RetryingCaller(self, world.storage)
        self._to_kafka = world.to_kafka(f"broker-{number}", producer.one_way_us)

    def crash(self) -> None:
        """The process dies, with all that the assembly holds."""
        raise NotImplementedError

    def consumer(self, group: ConsumerGroup, name: str) -> Consumer:
        """A consumer of this broker, which has to join its group yet."""
        return Consumer(group, name, self.producer.one_way_us, self._to_kafka)

    # -- the processor and the clock -----------------------------------------------------------------------

    def burst(self, count: int, each_us: float) -> float:
        """When ``count`` messages are done that the network threads take in bursts from now on."""
        return self.cpu.serve_bursts(self.env.now, count, BURST, each_us) + self.costs.thread_hop_us

    def work(self, work_us: float) -> simpy.Event:
        """Let one thread work, for which a core is needed; the event comes when it is done."""
        return self.env.timeout(-int(-self.cpu.serve(self.env.now, work_us) // 1) - int(self.env.now))

    def taken(self, consumer: Consumer) -> Generator[simpy.Event, Any, tuple[Polled, list[Any]]]:
        """What a consumer polls next, and its records, once the threads have taken them from the wire."""
        polled = yield from consumer.poll()
        records = [record for _, _, records in polled for record in records]
        yield self.work(self.costs.poll_us)
        done = self.burst(len(records), self.costs.downlink_us)
        yield self.env.timeout(int(done - self.env.now))
        return polled, records

    def dispatch(self, count: int, each_us: float) -> Generator[simpy.Event, Any, float]:
        """Let the threads of a pack do their share of ``count`` messages; when others have done the rest."""
        threads, now = self.threads, self.env.now
        parts = [count // threads.pack + (number < count % threads.pack) for number in range(threads.pack)]
        done = max(self.cpu.serve(now, part * each_us * threads.consumer_share) for part in parts)
        yield self.env.timeout(-int(-done // 1) - int(now))
        return self.burst(count, each_us * (1 - threads.consumer_share)) if threads.consumer_share < 1 else self.env.now

    def now_ms(self) -> int:
        """What the clock of this broker shows."""
        return EPOCH_MS + (int(self.env.now) + self.clock_skew_us) // 1000

    # -- batches -------------------------------------------------------------------------------------------

    def complete(self, batch: InFlightBatch) -> Generator[simpy.Event, Any, None]:
        """Wait for the batch; what failed is tried again ``pack_retries`` times, each after a pause."""
        yield batch.done
        for _ in range(self.settings.pack_retries):
            if not batch.failed or self.is_dead:
                return
            yield self.env.timeout(self.settings.pack_pause_us)
            batch.retry()
            yield batch.done

    def commit(self, consumer: Consumer, polled: Polled) -> Generator[simpy.Event, Any, None]:
        """What was polled is done. A member that has lost its partitions meanwhile joins again."""
        self._crash_if_due("before")
        if self.is_dead:
            return
        accepted = yield from consumer.commit(polled)
        self.measured.note_pack(consumer, sum(len(records) for _, _, records in polled))
        if self.on_pack is not None:
            self.on_pack(consumer.name, consumer.polled_us, self.env.now, sum(len(records) for _, _, records in polled))
        self._crash_if_due("after")
        self.drop_old(consumer, polled)
        if not accepted:
            self.measured.count("fenced_commits")
            if not self.is_dead:
                consumer.group.rejoin(consumer)

    def drop_old(self, consumer: Consumer, polled: Polled) -> None:
        """A run needs no more memory the longer it is: of what was read only that stays which may be read again. Kafka
        keeps it for days, and so longer than any run lasts."""
        for partition, _, _ in polled:
            partition.log.retain(int(self.env.now) - RETENTION_US, consumer.group.needed_from(partition))

    def _crash_if_due(self, at_commit: Literal["before", "after"]) -> None:
        """Carry out ``crash_at_commit``, unless all others have died since it was set: somebody has to take over."""
        if self.crash_at_commit == at_commit:
            self.crash_at_commit = None
            if self.is_last:
                self.measured.count("faults_skipped")
            else:
                self.crash()

    @property
    def is_last(self) -> bool:
        """Whether no other broker is alive."""
        return all(other.is_dead for other in self.peers if other.number != self.number)


class InFlightBatch:
    """The messages of one poll that are worked on together. Counts down ``left``; ``done`` is triggered at zero.
    ``failed`` holds what has to go again."""

    def __init__(self, env: Clock, left: int, resend: Callable[[Sequence[int], InFlightBatch], None] | None) -> None:
        self.env = env
        self.left = left
        self.failed: list[int] = []
        self.done = env.event()
        self._resend = resend
        self.answered = self._on_answered  # one object, so that the producer can tell its batches belong together

    def expect(self, more: int) -> None:
        """Wait for ``more`` (or fewer)."""
        self.left += more
        self._check()

    def count(self, answered: int, failed: Sequence[int] = ()) -> None:
        """Note that ``answered`` are done, ``failed`` of them in vain."""
        self.failed.extend(failed)
        self.left -= answered
        self._check()

    def renew(self, left: int) -> None:
        """Wait again, for ``left``."""
        self.left = left
        self.done = self.env.event()

    def retry(self) -> None:
        """Send again what failed."""
        assert self._resend is not None
        again, self.failed = self.failed, []
        self.renew(len(again))
        self._resend(again, self)

    def _on_answered(self, records: Sequence[int], error: AppendError | None) -> None:
        if error is not None:
            self.failed.extend(records)
        self.left -= len(records)
        if not self.left:
            self._check()

    def _check(self) -> None:
        if self.left == 0 and not self.done.triggered:
            self.done.succeed()


def _nothing() -> None:
    """Do nothing, where nobody waits for the end."""


class RetryingCaller:
    """Calls on the store that one broker makes again until they get through. ``waiting``: those that pause now and may
    still get through."""

    def __init__(self, node: BrokerNode, storage: Storage) -> None:
        self.node = node
        self.storage = storage
        self.waiting = 0

    def make(
        self,
        subscriber: int,
        call: Call,
        read: Callable[[Any], T | None],
        then: Callable[[T], None],
        still_matters: Callable[[], bool],
        failures: str,
        otherwise: Callable[[], None] = _nothing,
    ) -> None:
        """Call until ``read`` makes something of the reply, and hand that to ``then``; ``otherwise`` when the call does
        not matter any more. ``failures``: the counter of replies that say nothing."""
        node, storage = self.node, self.storage
        nodes, pause_us, may_get_through = [storage.node_of[subscriber]], FIRST_PAUSE_US, False

        def replied(replies: Sequence[Any]) -> None:
            nonlocal pause_us, may_get_through
            if node.is_dead or not still_matters():
                otherwise()
                return
            found = read(replies[0])
            if found is not None:
                then(found)
                return
            node.measured.count(failures)
            may_get_through = not storage.store.is_damaged(replies[0])
            self.waiting += may_get_through
            call_at(node.env, node.env.now + pause_us, again)
            pause_us = min(2 * pause_us, LONGEST_PAUSE_US)

        def again() -> None:
            self.waiting -= may_get_through
            if node.is_dead or not still_matters():
                otherwise()
            else:
                node.driver.submit(nodes, [call], replied)

        node.driver.submit(nodes, [call], replied)
