"""The simulated world as the brokers of one system share it: who publishes for whom, Kafka, the store, deliveries under
way, figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from orderlab.model.history.events import EventKind, NameTable
from orderlab.sim.costs.cost_model import Costs
from orderlab.sim.engine.clock import Clock, Station, Waits
from orderlab.sim.engine.network import Latency, Link, Network
from orderlab.sim.engine.packs import NumberedNames
from orderlab.sim.engine.random_streams import RandomStreams
from orderlab.sim.engine.recorder import HistoryRecorder
from orderlab.sim.engine.statistics import DeliveryHistogram, LatencyHistogram
from orderlab.sim.kafka.broker import KafkaCluster, Partition
from orderlab.sim.kafka.consumer_group import Consumer, ConsumerGroup
from orderlab.sim.mqtt.clients import NAME_BYTES, Clients, Ints, QosLevels, Schedule, SlowReaders, WillMessages, where
from orderlab.sim.mqtt.connections import (
    ConnectionTable,
    Deliveries,
    InflightWindows,
    ReplayFilter,
    Transit,
    TrimTracker,
)
from orderlab.sim.mqtt.links import PublishWindows, SocketBuffers
from orderlab.sim.mqtt.ports import Broker, Ownership, SessionStore
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


@dataclass
class World:
    """Handed to every broker."""

    env: Clock
    costs: Costs
    streams: RandomStreams
    recorder: HistoryRecorder
    traffic: Traffic
    kafka: KafkaTopics
    storage: Storage
    delivery: DeliveryState
    measured: Measurements
    hands_over_first: bool = False
    """Whether brokers send on what was saved before they commit."""
    brokers: list[Broker] = field(default_factory=list)
    operations: NameTable = field(default_factory=NameTable)
    """Names of the faults that struck, for the history."""
    healed_us: float = 0
    """When the last fault of the schedule strikes, and those that have struck have healed."""
    is_draining: bool = False
    """Nobody publishes any more; who is connected stays connected."""
    on_disconnect: list[Callable[[int], None]] = field(default_factory=list)
    """Hear of every subscriber that loses its connection."""
    on_notice: list[Callable[[int, int, int], None]] = field(default_factory=list)
    """Hear of subscriber, broker and number of every connection that its broker knows to have ended."""
    unnoticed: dict[tuple[int, int], int] = field(default_factory=dict)
    """(subscriber, number) of connections that have ended, whose brokers do not know it yet → broker."""
    goodbyes: set[tuple[int, int]] = field(default_factory=set)
    """(subscriber, number) of connections that ended with Reason Code 0, where there are Wills to discard."""
    admit: Callable[[int, int, bool], bool] | None = None
    """Asked before a subscriber connects at a broker, with Clean Start 1 or not: whether it may now, or will be let in
    later."""
    on_session_end: list[Callable[[int], None]] = field(default_factory=list)
    """Hear of every subscriber whose session ends."""
    on_silence: list[Callable[[int, float], None]] = field(default_factory=list)
    """Hear of every broker of which the others have not heard for the session timeout, and until when it can do
    nothing, if it is alive."""
    ownership: Ownership | None = None
    """What brokers have heard of who is connected where; None: all know it at once."""
    introduced: Ints | None = None
    """Per subscriber, 1 if the history knows it; None: the history knows all from its beginning."""

    def __post_init__(self) -> None:
        self.network = Network(self.env, self.costs.network.gbit_per_s)
        self.on_disconnect += [self.delivery.forget, self.traffic.slow_readers.forget]
        if self.traffic.sockets is not None:
            self.on_disconnect.append(self.traffic.sockets.forget)
        for node, waits in zip(self.storage.nodes, self.measured.node_waits, strict=True):
            node.on_service = self._noting(waits)

    # -- what is measured ----------------------------------------------------------------------------------

    def count(self, what: str, times: int = 1) -> None:
        """Add to a counter of the report."""
        counts = self.measured.counts
        counts[what] = counts.get(what, 0) + times

    def note_pack(self, consumer: Consumer, records: int) -> None:
        """A consumer is done with ``records`` that it had polled."""
        packs = self.measured.packs
        count, before, busy_us = packs.get(consumer.name, (0, 0, 0.0))
        packs[consumer.name] = count + 1, before + records, busy_us + self.env.now - consumer.polled_us

    def _noting(self, waits: Waits) -> Callable[[str, float, float, int], None]:
        def note(_: str, begun_us: float, __: float, requests: int) -> None:
            if begun_us > self.env.now:
                waits.add(self.env.now, begun_us, requests)

        return note

    def note_stage(self, stage: str, messages: Ints) -> None:
        """Count how long ago ``messages``, which a consumer has in its hands now, were published."""
        measured, now = self.measured, int(self.env.now)
        if measured.on_stage is not None:
            measured.on_stage(stage, messages, now)
        measured.stage_latency[stage].add_messages(messages, np.full(len(messages), now))

    # -- the network, and the names of its nodes in the history --------------------------------------------

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
        before = {"broker": 0, "redis": len(self.brokers), "kafka": len(self.brokers) + len(self.storage.nodes)}
        before["postgres"] = before["kafka"] + len(self.kafka.cluster.stations)
        return before[kind] + number

    def node_names(self) -> list[str]:
        """The names behind those codes."""
        kafka = [f"kafka-{number}" for number in range(len(self.kafka.cluster.stations))]
        servers = (
            [node.name for node in self.storage.nodes] + kafka + [database.name for database in self.storage.databases]
        )
        return [f"broker-{broker.number}" for broker in self.brokers] + servers

    # -- brokers and clients -------------------------------------------------------------------------------

    def next_broker(self, number: int) -> Broker:
        """The next broker after ``number`` that is alive."""
        order = self.brokers[number + 1 :] + self.brokers[: number + 1]
        return next(broker for broker in order if not broker.is_dead)

    def introduce(self, subscribers: Ints, at_us: Ints) -> None:
        """Those whom the history does not know are connected, and subscribed to the topic of their own number."""
        if self.introduced is None:
            return
        is_new = self.introduced[subscribers] == 0
        self.introduced[subscribers] = 1
        new, since_us = subscribers[is_new], at_us[is_new]
        code = new + self.traffic.schedule.count
        self.recorder.add(EventKind.CONNECT, since_us, subscriber=code, **self.connect_columns(new))
        self.recorder.add(
            EventKind.SUBSCRIBE, since_us, subscriber=code, topic=new, qos=self.traffic.qos.granted_to(new)
        )

    def connect_columns(self, subscribers: Ints) -> dict[str, Any]:
        """What the history says of the CONNECTs of these, beside who and when."""
        wills, columns = self.traffic.wills, self.delivery.windows.columns
        if wills is None or not wills.count:
            return columns
        return {**columns, **wills.columns(subscribers, self.delivery.connections.connection_number[subscribers])}

    def disconnect(self, subscriber: int, is_noticed: bool = True, says_goodbye: bool = False) -> None:
        """A subscriber loses its connection now. The history must know that it had one. ``is_noticed``: so does its
        broker; otherwise it hears of it with a CONNECT elsewhere, or by ``notice``. ``says_goodbye``: it sends
        DISCONNECT with Reason Code 0, which discards its Will."""
        now = int(self.env.now)
        broker, connection = (
            int(self.traffic.subscribers.broker[subscriber]),
            int(self.delivery.connections.connection_number[subscriber]),
        )
        self.introduce(np.array([subscriber]), np.array([now]))
        self.delivery.connections.disconnect(subscriber, now)
        for function in self.on_disconnect:
            function(subscriber)
        code = np.array([subscriber + self.traffic.schedule.count])
        wills = self.traffic.wills
        if says_goodbye and wills is not None and wills.count:
            self.recorder.add(EventKind.DISCONNECT, np.array([now]), subscriber=code, reason_code=0)
            self.goodbyes.add((subscriber, connection))
        else:
            self.recorder.add(EventKind.DISCONNECT, np.array([now]), subscriber=code)
        if is_noticed or self.ownership is None:
            self._tell(subscriber, broker, connection)
        else:
            self.unnoticed[subscriber, connection] = broker

    def notice(self, subscriber: int, connection: int, here: int | None = None) -> None:
        """The broker that had a connection knows now that it has ended, if it did not know; ``here``: if it is that
        broker."""
        broker = self.unnoticed.get((subscriber, connection))
        if broker is not None and here in (None, broker):
            del self.unnoticed[subscriber, connection]
            self._tell(subscriber, broker, connection)

    def are_unnoticed(self, broker: int, subscribers: Ints, connections: Ints) -> npt.NDArray[np.bool_]:
        """Of these connections that have ended, those that a broker still reads."""
        pairs = zip(subscribers.tolist(), connections.tolist(), strict=True)
        return np.array([self.unnoticed.get(pair) == broker for pair in pairs], np.bool_)

    def _tell(self, subscriber: int, broker: int, connection: int) -> None:
        for function in self.on_notice:
            function(subscriber, broker, connection)

    def owners(self, here: int, subscribers: Ints) -> Ints:
        """The brokers to which broker ``here`` sends on what is for these; -1: to none."""
        return (
            self.traffic.subscribers.broker[subscribers]
            if self.ownership is None
            else self.ownership.owners(here, subscribers)
        )

    def wake(self, here: int, subscriber: int) -> None:
        """Let the broker that has a client, as broker ``here`` knows, read its session anew."""
        owner = int(self.owners(here, np.array([subscriber]))[0])
        if owner >= 0:
            self.brokers[owner].wake(subscriber)

    def knows_newer(self, here: int, subscriber: int, connection: int) -> bool:
        """Whether broker ``here`` knows of a later connection of the client than that, were it over."""
        if self.ownership is not None:
            return self.ownership.knows_newer(here, subscriber, connection)
        table = self.delivery.connections
        return bool(table.connection_number[subscriber] + table.connected[subscriber] > connection + 1)

    # -- whether anything is left to do --------------------------------------------------------------------

    def awaits_answers(self) -> bool:
        """Whether a publisher has no PUBACK or PUBREC for something, and may publish it again."""
        return any(broker.owes_answers for broker in self.brokers if not broker.is_dead)

    def has_wills_waiting(self) -> bool:
        """Whether a broker is about to publish a Will."""
        wills = self.traffic.wills
        return wills is not None and any(
            count and not self.brokers[broker].is_dead for broker, count in wills.waiting.items()
        )

    def has_work_left(self) -> bool:
        """Whether something is still on its way: records that nobody has committed or Kafka has not got yet, commands
        and packets without an answer, calls that are to be made again."""
        alive = [group for group in self.kafka.groups if any(not member.is_dead for member in group.members)]
        if any(group.committed[part] < part.log.end_offset for group in alive for part in group.partitions):
            return True
        if self.delivery.connections.has_packets_on_the_way():
            return True
        return any(broker.is_busy for broker in self.brokers if not broker.is_dead)

    # -- sessions in the store -----------------------------------------------------------------------------

    def ensure_open(self, subscriber: int) -> None:
        """The session was opened long before the run; the store hears of it when it first matters."""
        storage = self.storage
        if subscriber not in storage.opened:
            storage.opened.add(subscriber)
            node = storage.nodes[storage.node_of[subscriber]]
            node.preload(storage.store.open(self.traffic.subscribers.name(subscriber), clean_start=True, epoch=1))

    def ensure_open_on(self, node: int) -> None:
        """All sessions of a Redis node, before something happens to it: what is in the store only later would come out
        of it unharmed, or meet a node that refuses it."""
        storage, traffic = self.storage, self.traffic
        if storage.store.opens_sessions:
            for subscriber, its_node in enumerate(storage.node_of):
                if its_node == node:
                    self.ensure_open(subscriber)
        if storage.inbound is not None:
            publishers = np.arange(len(traffic.publishers))
            for publisher in where(traffic.qos.of_publishers(publishers) == 2, publishers).tolist():
                name = traffic.publishers.name(publisher)
                if storage.inbound.store.node_of(name) == node:
                    storage.inbound.ensure_open(storage.nodes, publisher, name)
