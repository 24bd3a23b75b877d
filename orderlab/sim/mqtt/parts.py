"""What the brokers of one system share, part by part: who publishes for whom, Kafka, the store, deliveries under way,
figures. A stage takes the parts that it uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from orderlab.sim.engine.clock import Clock, Station, Waits
from orderlab.sim.engine.packs import NumberedNames
from orderlab.sim.engine.statistics import DeliveryHistogram, LatencyHistogram
from orderlab.sim.kafka.broker import KafkaCluster, Partition
from orderlab.sim.kafka.consumer_group import Consumer, ConsumerGroup
from orderlab.sim.mqtt.clients import NAME_BYTES, Clients, Ints, QosLevels, Schedule, SlowReaders, WillMessages
from orderlab.sim.mqtt.connections import (
    ConnectionTable,
    Deliveries,
    InflightWindows,
    ReplayFilter,
    Transit,
    TrimTracker,
)
from orderlab.sim.mqtt.links import PublishWindows, SocketBuffers
from orderlab.sim.mqtt.ports import SessionStore
from orderlab.sim.mqtt.sessions import Inbound
from orderlab.sim.mqtt.topics import Matches, RetainedByTopic
from orderlab.sim.servers.moving_slots import MovingSlots
from orderlab.sim.servers.postgres import PostgresServer
from orderlab.sim.servers.redis import RedisNode


@dataclass
class Traffic:
    """Who publishes what and when, who has subscribed to it, and how clients behave."""

    publishers: Clients
    subscribers: Clients
    schedule: Schedule
    topics: list[bytes]
    topic_of: Ints
    """Per publisher, the number of its topic."""
    matches: Matches
    qos: QosLevels
    expiry_us: int | None = None
    """Message Expiry Interval of every message."""
    session_expiry_us: int | None = None
    """Session Expiry Interval of every subscriber; None: sessions do not expire."""
    retaining: RetainedByTopic | None = None
    """Where publishers set RETAIN."""
    resubscribes: bool = False
    """Whether subscribers send SUBSCRIBE after every CONNECT, though they have a session."""
    think_us: int = 0
    """How long a subscriber takes to acknowledge."""
    reconnect_us: int = 100_000
    """How long a client takes to connect anew."""
    slow_readers: SlowReaders = field(default_factory=SlowReaders)
    keep_alive_us: int | None = None
    """The server's, where it has one, and else that of every subscriber; None: nobody notices that a link is dead."""
    wills: WillMessages | None = None
    """Where subscribers have one."""
    publish_windows: PublishWindows | None = None
    """Where the server has a Receive Maximum."""
    last_sent_us: Ints | None = None
    """Per publisher, when it sent its last message, where that may be later than its application asked for it."""
    sockets: SocketBuffers | None = None
    """Where the sockets of subscribers take so many packets only."""

    topic_prefix: bytes | None = None
    """Where each topic is it and the topic's number, as in ``numbered_names``."""

    def topics_of(self, messages: Ints) -> Sequence[bytes]:
        """The topics of messages, by their numbers."""
        numbers = self.topic_of[messages % self.schedule.count]
        if self.topic_prefix is None:
            return list(map(self.topics.__getitem__, numbers.tolist()))
        return NumberedNames(self.topic_prefix, NAME_BYTES - 1, numbers)

    def columns_of(self, messages: Ints) -> dict[str, Ints]:
        """What the history says of messages, by their numbers."""
        sequence, publisher = np.divmod(messages, self.schedule.count)
        return {
            "publisher": publisher,
            "topic": self.topic_of[publisher],
            "qos": self.qos.of_publishers(publisher),
            "sequence": sequence,
        }


@dataclass
class KafkaTopics:
    """Kafka, and where in it a message goes on its way."""

    cluster: KafkaCluster
    all_partitions: list[Partition]
    all_partition_of: Ints
    """Per topic."""
    persisted_partitions: list[Partition]
    persisted_partition_of: Ints
    """Per subscriber."""
    downlink_partition_of: Ints
    """Per subscriber, of the topic of the broker where it is connected."""
    groups: list[ConsumerGroup] = field(default_factory=list)


@dataclass
class Storage:
    """What keeps the sessions."""

    store: SessionStore
    subscribers: Clients
    nodes: list[RedisNode]
    """Empty where the store is not Redis."""
    node_of: list[int]
    """Per subscriber, its Redis node."""
    inbound: Inbound | None = None
    """Where the store keeps which publishes with QoS 2 were received."""
    slots: MovingSlots | None = None
    """Where the store is a Redis Cluster."""
    databases: list[PostgresServer] = field(default_factory=list)
    """Where PostgreSQL is the store."""
    opened: set[int] = field(default_factory=set)
    """Subscribers whose sessions the store has heard of."""

    def ensure_open(self, subscriber: int) -> None:
        """The session was opened long before the run; the store hears of it when it first matters."""
        if subscriber not in self.opened:
            self.opened.add(subscriber)
            node = self.nodes[self.node_of[subscriber]]
            node.preload(self.store.open(self.subscribers.name(subscriber), clean_start=True, epoch=1))


@dataclass
class DeliveryState:
    """What is under way to subscribers, and what stays behind."""

    connections: ConnectionTable
    replayed: ReplayFilter
    windows: InflightWindows
    trims: TrimTracker
    in_transit: Transit = field(default_factory=Transit)

    def forget(self, subscriber: int) -> None:
        """The connection is gone, and with it what was kept for it alone."""
        self.windows.forget(subscriber)
        self.replayed.forget(subscriber)


SLICE_US = 20_000
"""Of the run over time: a slice begins where the last one has ended, so that one is shorter where the measured interval
begins or ends."""


@dataclass
class Measurements:
    """Counters and histograms of the report, and who else listens."""

    clock: Clock
    puback_latency: LatencyHistogram
    delivery_latency: DeliveryHistogram
    stage_latency: dict[str, LatencyHistogram]
    node_waits: list[Waits]
    """Per Redis node, the requests that have waited for its one thread."""
    counts: dict[str, int] = field(default_factory=dict)
    other_stations: dict[str, Station] = field(default_factory=dict)
    """What else is busy: the machine that all share, a database."""
    packs: dict[str, tuple[int, int, float]] = field(default_factory=dict)
    """Per consumer: packs that it has committed, their records, microseconds from each poll to its commit."""
    faults: list[tuple[str, int, int]] = field(default_factory=list)
    """Those that struck: name, code of the node, instant."""
    on_stage: Callable[[str, Ints, int], None] | None = None
    """Told of all messages that a consumer gets: the topic, their numbers, the instant."""
    on_way: Callable[[str, int, Deliveries], None] | None = None
    """Told of deliveries on their way: the stage that has them (``store``, ``broker``, ``socket``), the number of the
    broker."""

    def count(self, what: str, times: int = 1) -> None:
        """Add to a counter of the report."""
        self.counts[what] = self.counts.get(what, 0) + times

    def note_pack(self, consumer: Consumer, records: int) -> None:
        """A consumer is done with ``records`` that it had polled."""
        count, before, busy_us = self.packs.get(consumer.name, (0, 0, 0.0))
        self.packs[consumer.name] = count + 1, before + records, busy_us + self.clock.now - consumer.polled_us

    def note_stage(self, stage: str, messages: Ints) -> None:
        """Count how long ago ``messages``, which a consumer has in its hands now, were published."""
        now_us = int(self.clock.now)
        if self.on_stage is not None:
            self.on_stage(stage, messages, now_us)
        self.stage_latency[stage].add_messages(messages, np.full(len(messages), now_us))

    def watch(self, nodes: Sequence[RedisNode]) -> None:
        """Note how long requests wait for each node."""
        for node, waits in zip(nodes, self.node_waits, strict=True):
            node.on_service = self._noting(waits)

    def _noting(self, waits: Waits) -> Callable[[str, float, float, int], None]:
        def note(_: str, begun_us: float, __: float, requests: int) -> None:
            if begun_us > self.clock.now:
                waits.add(self.clock.now, begun_us, requests)

        return note
