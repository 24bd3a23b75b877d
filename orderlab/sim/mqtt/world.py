"""The simulated world: all parts of one system, for its assembly, for faults, and for the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from orderlab.model.history.events import NameTable
from orderlab.sim.costs.cost_model import Costs
from orderlab.sim.engine.clock import Clock
from orderlab.sim.engine.network import Latency, Link, Network
from orderlab.sim.engine.random_streams import RandomStreams
from orderlab.sim.engine.recorder import HistoryRecorder
from orderlab.sim.mqtt.brokers import Brokers
from orderlab.sim.mqtt.clients import Ints, where
from orderlab.sim.mqtt.parts import DeliveryState, KafkaTopics, Measurements, Storage, Traffic
from orderlab.sim.mqtt.presence import Presence


class NodeNames:
    """Names of nodes and of faults in the history, and their codes: brokers first, then Redis nodes, then Kafka
    brokers, then databases."""

    def __init__(self, brokers: Brokers, storage: Storage, kafka: KafkaTopics) -> None:
        self.brokers, self.storage, self.kafka = brokers, storage, kafka
        self.operations = NameTable()
        """Names of the faults that struck."""

    def code(self, kind: Literal["broker", "redis", "kafka", "postgres"], number: int) -> int:
        """The code of a node."""
        before = {"broker": 0, "redis": len(self.brokers), "kafka": len(self.brokers) + len(self.storage.nodes)}
        before["postgres"] = before["kafka"] + len(self.kafka.cluster.stations)
        return before[kind] + number

    def all(self) -> list[str]:
        """The names of all nodes, by their codes."""
        kafka = [f"kafka-{number}" for number in range(len(self.kafka.cluster.stations))]
        servers = (
            [node.name for node in self.storage.nodes] + kafka + [database.name for database in self.storage.databases]
        )
        return [f"broker-{broker.number}" for broker in self.brokers] + servers


@dataclass
class World:
    """All parts of one system. Stages of brokers take those that they use, and have no world."""

    env: Clock
    costs: Costs
    streams: RandomStreams
    recorder: HistoryRecorder
    traffic: Traffic
    kafka: KafkaTopics
    storage: Storage
    delivery: DeliveryState
    measured: Measurements
    introduced: Ints | None = None
    """Per subscriber, 1 if the history knows it; None: the history knows all from its beginning."""
    healed_us: float = 0
    """When the last fault of the schedule strikes, and those that have struck have healed."""
    is_draining: bool = False
    """Nobody publishes any more; who is connected stays connected."""
    brokers: Brokers = field(init=False)
    presence: Presence = field(init=False)
    names: NodeNames = field(init=False)

    def __post_init__(self) -> None:
        self.network = Network(self.env, self.costs.network.gbit_per_s)
        self.brokers = Brokers(self.traffic.subscribers.broker, self.delivery.connections)
        self.presence = Presence(
            self.recorder, self.measured, self.traffic, self.delivery, self.brokers, self.introduced
        )
        self.names = NodeNames(self.brokers, self.storage, self.kafka)
        self.measured.watch(self.storage.nodes)

    # -- the network ---------------------------------------------------------------------------------------

    def one_way(self, name: str) -> Callable[[], int]:
        """Delays between servers of the cluster, drawn from the stream ``name``."""
        costs = self.costs.network
        return Latency(costs.floor_us, costs.median_us, costs.sigma).delays(self.streams.vector_stream(name))

    def to_kafka(self, name: str, one_way_us: Callable[[], int]) -> Callable[[int], Link]:
        """What connects the node ``name`` to Kafka brokers, by their numbers."""
        return lambda broker: self.network.connect(name, f"kafka-{broker}", one_way_us)

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

    def ensure_open_on(self, node: int) -> None:
        """All sessions of a Redis node, before something happens to it: what is in the store only later would come out
        of it unharmed, or meet a node that refuses it."""
        storage, traffic = self.storage, self.traffic
        if storage.store.opens_sessions:
            for subscriber, its_node in enumerate(storage.node_of):
                if its_node == node:
                    storage.ensure_open(subscriber)
        if storage.inbound is not None:
            publishers = np.arange(len(traffic.publishers))
            for publisher in where(traffic.qos.of_publishers(publishers) == 2, publishers).tolist():
                name = traffic.publishers.name(publisher)
                if storage.inbound.store.node_of(name) == node:
                    storage.inbound.ensure_open(storage.nodes, publisher, name)
