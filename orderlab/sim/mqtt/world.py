"""What all brokers of one system share: clock, Kafka, store, clients, recorder, measurements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
import simpy

from orderlab.model.history.events import EventKind, NameTable
from orderlab.sim.costs import Costs
from orderlab.sim.engine.clock import Station, Waits
from orderlab.sim.engine.network import Latency, Link, Network
from orderlab.sim.engine.random_streams import RandomStreams
from orderlab.sim.engine.recorder import HistoryRecorder
from orderlab.sim.engine.statistics import LatencyHistogram
from orderlab.sim.kafka.broker import KafkaCluster, Partition
from orderlab.sim.kafka.consumer_group import ConsumerGroup
from orderlab.sim.mqtt.broker.downlink import Transit
from orderlab.sim.mqtt.broker.matches import Matches
from orderlab.sim.mqtt.broker.persistence import SessionStore
from orderlab.sim.mqtt.broker.qos2_receiver import Inbound
from orderlab.sim.mqtt.broker.replay_filter import ReadFromStore
from orderlab.sim.mqtt.broker.retaining import Retaining
from orderlab.sim.mqtt.broker.trim_tracker import Trims
from orderlab.sim.mqtt.clients.population import Clients, Ints, Schedule
from orderlab.sim.mqtt.clients.slow_readers import SlowReaders
from orderlab.sim.mqtt.connections import SessionTable
from orderlab.sim.mqtt.rules.inflight_window import UNLIMITED, InflightWindows
from orderlab.sim.mqtt.rules.qos import QosLevels, where
from orderlab.sim.servers.postgres import PostgresServer
from orderlab.sim.servers.redis import RedisNode
from orderlab.sim.servers.slot_migration import MovingSlots

if TYPE_CHECKING:
    from orderlab.sim.mqtt.broker.broker import MqttBroker


@dataclass
class Fabric:
    """Handed to every broker."""

    env: simpy.Environment
    costs: Costs
    streams: RandomStreams
    recorder: HistoryRecorder
    kafka: KafkaCluster
    nodes: list[RedisNode]
    """Empty where the store is not Redis."""
    store: SessionStore
    publishers: Clients
    subscribers: Clients
    schedule: Schedule
    matches: Matches
    topics: list[bytes]
    topic_of: Ints
    """Per publisher, the number of its topic."""
    qos: QosLevels
    all_partitions: list[Partition]
    all_partition_of: Ints
    """Per topic."""
    persisted_partitions: list[Partition]
    persisted_partition_of: Ints
    """Per subscriber."""
    node_of: list[int]
    """Per subscriber, its Redis node."""
    sessions: SessionTable
    puback_latency: LatencyHistogram
    delivery_latency: LatencyHistogram
    stage_latency: dict[str, LatencyHistogram]
    think_us: int = 0
    """How long a subscriber takes to acknowledge."""
    in_transit: Transit = field(default_factory=Transit)
    brokers: list[MqttBroker] = field(default_factory=list)
    groups: list[ConsumerGroup] = field(default_factory=list)
    operations: NameTable = field(default_factory=NameTable)
    """Names of the faults that struck, for the history."""
    client_reconnect_us: int = 100_000
    """How long a client takes to connect anew."""
    session_expiry_us: int | None = None
    """Session Expiry Interval of every subscriber; None: sessions do not expire."""
    healed_us: float = 0
    """When the last fault of the schedule strikes, and those that have struck have healed."""
    is_draining: bool = False
    """Nobody publishes any more; who is connected stays connected."""
    other_stations: dict[str, Station] = field(default_factory=dict)
    """What else is busy: the machine that all share, a database."""
    databases: list[PostgresServer] = field(default_factory=list)
    """Where PostgreSQL is the store."""
    opened: set[int] = field(default_factory=set)
    hands_over_first: bool = False
    """Whether brokers send on what was saved before they commit."""
    inbound: Inbound | None = None
    """Where the store keeps which publishes with QoS 2 were received."""
    expiry_us: int | None = None
    """Message Expiry Interval of every message."""
    slots: MovingSlots | None = None
    """Where the store is a Redis Cluster."""
    reading: SlowReaders = field(default_factory=lambda: SlowReaders())
    windows: InflightWindows = field(default_factory=lambda: InflightWindows(UNLIMITED))
    trims: Trims = field(default_factory=lambda: Trims(None))
    retaining: Retaining | None = None
    """Where publishers set RETAIN."""
    resubscribes: bool = False
    """Whether subscribers send SUBSCRIBE after every CONNECT, though they have a session."""
    on_stage: Callable[[str, Ints, int], None] | None = None
    """Told of all messages that a consumer gets: the topic, their numbers, the instant."""
    on_disconnect: list[Callable[[int], None]] = field(default_factory=list)
    """Hear of every subscriber that loses its connection."""
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, what: str, times: int = 1) -> None:
        """Add to a counter of the report."""
        self.counts[what] = self.counts.get(what, 0) + times

    def __post_init__(self) -> None:
        self.introduced = np.zeros(len(self.subscribers), np.bool_)
        """Whether the history knows each subscriber."""
        self.read = ReadFromStore(self.store.needs_open)
        self.on_disconnect += [self.windows.forget, self.reading.forget, self.read.forget]
        self.node_waits = [Waits() for _ in self.nodes]
        """Per Redis node, the requests that have waited for its one thread."""
        for node, waits in zip(self.nodes, self.node_waits, strict=True):
            node.on_service = self._noting(waits)
        self.network = Network(self.env, self.costs.network.gbit_per_s)

    def _noting(self, waits: Waits) -> Callable[[str, float, float, int], None]:
        def note(_: str, begun_us: float, __: float, requests: int) -> None:
            if begun_us > self.env.now:
                waits.add(self.env.now, begun_us, requests)

        return note

    def note_stage(self, stage: str, messages: Ints) -> None:
        """Count how long ago ``messages``, which a consumer has in its hands now, were published."""
        if self.on_stage is not None:
            self.on_stage(stage, messages, int(self.env.now))
        published = self.schedule.published_us(messages)
        self.stage_latency[stage].add(published, int(self.env.now) - published)

    def one_way(self, name: str) -> Callable[[], int]:
        """Delays between servers of the cluster, drawn from the stream ``name``."""
        costs = self.costs.network
        return Latency(costs.floor_us, costs.median_us, costs.sigma).delays(self.streams.vector_stream(name))

    def to_kafka(self, name: str, one_way_us: Callable[[], int]) -> Callable[[int], Link]:
        """What connects the node ``name`` to Kafka brokers, by their numbers."""
        return lambda broker: self.network.connect(name, f"kafka-{broker}", one_way_us)

    def operation_code(self, name: str) -> int:
        """The code of an operation in the history."""
        return self.operations.code(name)

    def node_code(self, kind: Literal["broker", "redis", "kafka", "postgres"], number: int) -> int:
        """The code of a node in the history: brokers first, then Redis nodes, then Kafka brokers, then databases."""
        before = {"broker": 0, "redis": len(self.brokers), "kafka": len(self.brokers) + len(self.nodes)}
        before["postgres"] = before["kafka"] + len(self.kafka.stations)
        return before[kind] + number

    def node_names(self) -> list[str]:
        """The names behind those codes."""
        kafka = [f"kafka-{number}" for number in range(len(self.kafka.stations))]
        servers = [node.name for node in self.nodes] + kafka + [database.name for database in self.databases]
        return [f"broker-{broker.number}" for broker in self.brokers] + servers

    def next_broker(self, number: int) -> MqttBroker:
        """The next broker after ``number`` that is alive."""
        order = self.brokers[number + 1 :] + self.brokers[: number + 1]
        return next(broker for broker in order if not broker.is_dead)

    def disconnect(self, subscriber: int) -> None:
        """A subscriber loses its connection now. The history must know that it had one."""
        now = int(self.env.now)
        if not self.introduced[subscriber]:
            self.brokers[0].ingest.introduce(np.array([subscriber]), np.array([now]))
        self.sessions.disconnect(subscriber, now)
        for function in self.on_disconnect:
            function(subscriber)
        code = np.array([subscriber + self.schedule.count])
        self.recorder.add(EventKind.DISCONNECT, np.array([now]), subscriber=code)

    def awaits_answers(self) -> bool:
        """Whether a publisher has no PUBACK or PUBREC for something, and may publish it again."""
        return any(broker.ingest.unacknowledged for broker in self.brokers if not broker.is_dead)

    def has_work_left(self) -> bool:
        """Whether something is still on its way: records that nobody has committed or Kafka has not got yet, commands and packets
        without an answer, calls that are to be made again."""
        alive = [group for group in self.groups if any(not member.is_dead for member in group.members)]
        if any(group.committed[part] < part.log.end_offset for group in alive for part in group.partitions):
            return True
        if self.sessions.has_packets_on_the_way():
            return True
        return any(broker.is_busy for broker in self.brokers if not broker.is_dead)

    def ensure_open(self, subscriber: int) -> None:
        """The session was opened long before the run; the store hears of it when it first matters."""
        if subscriber not in self.opened:
            self.opened.add(subscriber)
            node = self.nodes[self.node_of[subscriber]]
            node.preload(self.store.open(self.subscribers.name(subscriber), clean_start=True, epoch=1))

    def ensure_open_on(self, node: int) -> None:
        """All sessions of a Redis node, before something happens to it: what is in the store only later would come out of it
        unharmed, or meet a node that refuses it."""
        if self.store.needs_open:
            for subscriber, its_node in enumerate(self.node_of):
                if its_node == node:
                    self.ensure_open(subscriber)
        if self.inbound is not None:
            publishers = np.arange(len(self.publishers))
            for publisher in where(self.qos.of_publishers(publishers) == 2, publishers).tolist():
                name = self.publishers.name(publisher)
                if self.inbound.store.node_of(name) == node:
                    self.inbound.ensure_open(self.nodes, publisher, name)
