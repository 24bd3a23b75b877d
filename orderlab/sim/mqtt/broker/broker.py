"""A broker node: its processor, its Redis and Kafka clients, its consumers, and the stages of a message's way through it.

Publish → `msg.all` → PUBACK (``ingest``); `msg.all` → subscription trie → `msg.persisted` (``routing``); `msg.persisted` →
one save script per client and pack → commit (``persisting``) → the broker that holds the connection, itself or another
through `msg.downlink.<broker>` (``downlink``) → socket → the subscriber's PUBACK → remove script (``delivery``; with QoS 2 ``releasing``). Work is
simulated per batch, as it is done per batch; within a batch each message has its own instants where they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import simpy

from orderlab.sim.engine.clock import Station, call_at
from orderlab.sim.kafka.broker import Partition
from orderlab.sim.kafka.consumer_group import Consumer, Polled
from orderlab.sim.kafka.producer import Producer
from orderlab.sim.mqtt.broker.delivery import Delivery
from orderlab.sim.mqtt.broker.downlink import Downlink
from orderlab.sim.mqtt.broker.inflight_batch import Pack
from orderlab.sim.mqtt.broker.ingest import Ingest
from orderlab.sim.mqtt.broker.lifetimes import Lifetimes
from orderlab.sim.mqtt.broker.persistence import StoreDriver
from orderlab.sim.mqtt.broker.qos2_sender import Releasing
from orderlab.sim.mqtt.broker.retrying_caller import RepeatedCalls
from orderlab.sim.mqtt.broker.routing import Routing
from orderlab.sim.mqtt.broker.save_stage import Persisting
from orderlab.sim.mqtt.broker.subscribing import Subscribing
from orderlab.sim.mqtt.world import Fabric

BURST = 16
"""Messages that a network thread takes from one socket buffer or event loop turn."""
RETENTION_US = 1_000_000


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """One broker."""

    tick_us: int = 500
    """How long publishes that arrive are gathered before they are worked on: the simulation's own grain."""
    pack_retries: int = 3
    pack_pause_us: int = 1_000_000


class MqttBroker:
    """One node of the cluster. ``is_dead`` after a crash: nothing that it had begun goes on."""

    def __init__(
        self, fabric: Fabric, number: int, settings: BrokerSettings, producer: Producer, driver: StoreDriver, cpu: Station
    ) -> None:
        self.fabric = fabric
        self.env = fabric.env
        self.number = number
        self.settings = settings
        self.costs = fabric.costs.broker
        self.cpu = cpu
        self.producer = producer
        self.driver = driver
        self.is_dead = False
        self.downlink: Partition | None = None
        """The partition of `msg.downlink.<number>`; None for the only broker."""
        self.all_consumers: Sequence[Consumer] = ()
        self.persisted_consumers: Sequence[Consumer] = ()
        self.downlink_consumer: Consumer | None = None
        self.on_pack: Callable[[str, float, float, int], None] | None = None
        """Told of every pack: its consumer, when it was polled, when it was committed, records."""
        self.clock_skew_us = 0
        """By how much its clock is ahead."""
        self.crash_at_commit: Literal["before", "after"] | None = None
        self.repeated_calls = RepeatedCalls(self)
        self.ingest = Ingest(self)
        self.routing = Routing(self)
        self.persisting = Persisting(self)
        self.downlinks = Downlink(self)
        self.delivery = Delivery(self)
        self.releasing = Releasing(self)
        self.lifetimes = Lifetimes(self)
        self.subscribing = Subscribing(self)

    def start(self, all_consumers: Sequence[Consumer], persisted: Sequence[Consumer], downlink: Consumer | None) -> None:
        """Begin to listen and to consume."""
        self.all_consumers, self.persisted_consumers, self.downlink_consumer = all_consumers, persisted, downlink
        self.env.process(self.ingest.listen())
        for consumer in all_consumers:
            self.env.process(self.routing.consume(consumer))
        for consumer in persisted:
            self.env.process(self.persisting.consume(consumer))
        if downlink is not None:
            self.env.process(self.downlinks.consume(downlink))

    # -- the processor -------------------------------------------------------------------------------------

    def burst(self, count: int, each_us: float) -> float:
        """When ``count`` messages are done that the network threads take in bursts from now on."""
        now, serve = self.env.now, self.cpu.serve
        done: float = now
        while count > 0:
            done = max(done, serve(now, min(count, BURST) * each_us))
            count -= BURST
        return done + self.costs.thread_hop_us

    def work(self, work_us: float) -> simpy.Event:
        """One thread works; a core is needed for it."""
        return self.env.timeout(-int(-self.cpu.serve(self.env.now, work_us) // 1) - int(self.env.now))

    @property
    def is_busy(self) -> bool:
        """Whether something is with its clients of Kafka and of the store, on the way to them, or to be tried again."""
        return bool(
            self.producer.unanswered or self.downlinks.leaving or self.driver.is_busy or self.repeated_calls.waiting
        )

    # -- packs ---------------------------------------------------------------------------------------------

    def complete(self, pack: Pack) -> Generator[simpy.Event, Any, None]:
        """Wait for the pack; what failed is tried again ``pack_retries`` times, each after a pause."""
        yield pack.done
        for _ in range(self.settings.pack_retries):
            if not pack.failed or self.is_dead:
                return
            yield self.env.timeout(self.settings.pack_pause_us)
            pack.retry()
            yield pack.done

    def commit(self, consumer: Consumer, polled: Polled) -> Generator[simpy.Event, Any, None]:
        """What was polled is done. A member that has lost its partitions meanwhile joins again."""
        self._crash_if_due("before")
        if self.is_dead:
            return
        accepted = yield from consumer.commit(polled)
        if self.on_pack is not None:
            self.on_pack(consumer.name, consumer.polled_us, self.env.now, sum(len(records) for _, _, records in polled))
        self._crash_if_due("after")
        self.drop_old(consumer, polled)
        if not accepted:
            self.fabric.count("fenced_commits")
            if not self.is_dead:
                consumer.group.rejoin(consumer)

    def drop_old(self, consumer: Consumer, polled: Polled) -> None:
        """A run needs no more memory the longer it is: of what was read only that stays which may be read again. Kafka keeps
        it for days, and so longer than any run lasts."""
        for partition, _, _ in polled:
            partition.log.retain(int(self.env.now) - RETENTION_US, consumer.group.committed[partition])

    # -- clients that move ---------------------------------------------------------------------------------

    def _crash_if_due(self, at_commit: Literal["before", "after"]) -> None:
        """Carry out ``crash_at_commit``, unless all others have died since it was set: somebody has to take over."""
        if self.crash_at_commit == at_commit:
            self.crash_at_commit = None
            if self.is_last:
                self.fabric.count("faults_skipped")
            else:
                self.crash()

    @property
    def is_last(self) -> bool:
        """Whether no other broker is alive."""
        return all(other.is_dead for other in self.fabric.brokers if other is not self)

    def crash(self) -> None:
        """The process dies. Clients connect to the next broker; the groups notice after the session timeout."""
        if self.is_dead:
            return
        fabric = self.fabric
        self.is_dead = self.producer.is_dead = True
        self.driver.close()
        for consumer in (*self.all_consumers, *self.persisted_consumers):
            consumer.is_dead = True
            consumer.group.leave(consumer, consumer.group.settings.session_timeout_us)
        if self.downlink_consumer is not None:  # nobody else reads what waits there
            self.downlink_consumer.is_dead = True
        mine = np.flatnonzero(fabric.subscribers.broker == self.number).tolist()
        connected = [subscriber for subscriber in mine if fabric.sessions.connected[subscriber]]
        for subscriber in connected:
            fabric.disconnect(subscriber)

        def reconnect() -> None:
            other = fabric.next_broker(self.number)
            other.ingest.take_over(self.ingest)
            for subscriber in connected:
                other.connect(subscriber)

        call_at(self.env, self.env.now + fabric.client_reconnect_us, reconnect)

    def connect(self, subscriber: int, clean_start: bool = False) -> None:
        """A subscriber connects here."""
        self.delivery.connect(subscriber, clean_start)
