"""What every simulated system is assembled from and how it is run: brokers, Kafka, clients and faults around any session store."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import simpy

from orderlab.model.history.events import EventBatch, EventKind, Names, NameTable
from orderlab.sim.costs import Costs, load_costs
from orderlab.sim.engine.clock import Station
from orderlab.sim.engine.random_streams import RandomStreams
from orderlab.sim.engine.recorder import HistoryRecorder
from orderlab.sim.engine.statistics import LatencyHistogram
from orderlab.sim.faults.schedule import schedule as schedule_faults
from orderlab.sim.kafka.broker import BrokerCosts, KafkaCluster
from orderlab.sim.kafka.consumer_group import Consumer, ConsumerGroup, ConsumerSettings
from orderlab.sim.kafka.partitioner import partitions_for_rows
from orderlab.sim.kafka.producer import Producer, ProducerSettings
from orderlab.sim.mqtt.broker.broker import BrokerSettings, MqttBroker
from orderlab.sim.mqtt.broker.matches import Matches
from orderlab.sim.mqtt.broker.persistence import Persistence, SessionStore
from orderlab.sim.mqtt.broker.qos2_receiver import Inbound
from orderlab.sim.mqtt.broker.trim_tracker import Trims
from orderlab.sim.mqtt.clients.population import NAME_BYTES, Clients, numbered_names
from orderlab.sim.mqtt.connections import SessionTable
from orderlab.sim.mqtt.rules.inflight_window import UNLIMITED, InflightWindows
from orderlab.sim.mqtt.rules.qos import QosLevels
from orderlab.sim.mqtt.rules.subscription_trie import SubscriptionTrie
from orderlab.sim.mqtt.sessions import StoredSessions
from orderlab.sim.mqtt.world import Fabric
from orderlab.sim.servers.slot_migration import MovingSlots
from orderlab.sim.systems.client_behaviour import levels_of, retaining_of, schedule_of, set_off
from orderlab.sim.systems.report import Measured, figures, measure
from orderlab.sim.systems.settings import DeviceSettings

NAMED_MAX = 10_000
"""Up to so many publishers the history holds names."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Virtual time, messages published and delivered so far, and the wall time that it took."""

    simulated_s: float
    total_s: float
    messages: int
    wall_s: float


NEW_OBJECTS = 50_000
"""Between two collections; Python's own 700 would look at every batch of messages under way again and again."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """What exists now is not looked at until the end, what comes is looked at less often."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


S = TypeVar("S", bound=DeviceSettings)


class DeviceSystem(Generic[S]):
    """The assembled system around any persistence; ``run`` once. ``sinks`` get the history, batch by batch."""

    def __init__(self, settings: S, seed: int, sinks: list[Callable[[EventBatch], None]]) -> None:
        self.settings = settings
        self.seed = seed
        self.env = simpy.Environment()
        self.streams = RandomStreams(seed)
        self.costs: Costs = self._costs()
        self.begin_us = round(settings.warm_up_s * 1e6)
        self.end_us = self.begin_us + round(settings.duration_s * 1e6)
        self.over_us = self.end_us + round(settings.drain_s * 1e6)
        expiry_s = getattr(settings, "expiry_s", None)
        self.expiry_us = None if expiry_s is None else expiry_s * 1_000_000
        more = [name for name, is_there in self._more_columns().items() if is_there]
        self.recorder = HistoryRecorder(sinks, slack_us=200_000 + settings.tick_us, more=more)
        self.measured: Measured | None = None
        with rare_collections():
            self.fabric = self._assemble()

    def _more_columns(self) -> dict[str, bool]:
        """Columns of the history that only some runs have anything for."""
        return {"expiry_interval_us": self.expiry_us is not None, "retained": self.settings.retained_share > 0,
                "receive_maximum": self.settings.receive_maximum < UNLIMITED}  # fmt: skip

    def _persistence(self, lengths: tuple[int, int]) -> Persistence:
        """What keeps the sessions. ``lengths``: bytes of a client's name and of a topic."""
        raise NotImplementedError

    stages: tuple[str, ...] = ("msg.all", "msg.persisted")
    """Kafka topics that a message passes."""

    def _subscriber_count(self) -> int:
        return self.settings.publishers

    def _subscriptions(self, topics: Sequence[bytes]) -> Iterable[tuple[str, int]]:
        """(filter, who gets what it matches)."""
        return ((topic.decode(), number) for number, topic in enumerate(topics))

    def _levels(self) -> QosLevels:
        return levels_of(self.settings, self.settings.publishers, self._subscriber_count(), self.streams)

    def _costs(self) -> Costs:
        return load_costs(self.settings.costs)

    def _station(self, kind: str, cores: int) -> Station:
        """What a node of some kind computes on."""
        return Station(cores)

    # -- assembly ------------------------------------------------------------------------------------------

    def _assemble(self) -> Fabric:
        settings, env, costs = self.settings, self.env, self.costs
        network, count = costs.network, settings.publishers
        draw = (settings.brokers, self.streams, network.floor_us, network.median_us, network.sigma)
        publishers = Clients.draw("p", count, *draw)
        subscribers = Clients.draw("s", self._subscriber_count(), *draw)
        topic_rows = numbered_names(b"p/", count)
        kafka_costs = BrokerCosts(**costs.kafka.model_dump(exclude={"record_overhead_bytes"}))
        kafka = KafkaCluster(env, settings.kafka_brokers, kafka_costs)
        persistence = self._persistence((NAME_BYTES, topic_rows.shape[1]))
        store = persistence.store
        trie: SubscriptionTrie[int] = SubscriptionTrie()
        topics = [row.tobytes() for row in topic_rows]
        for topic_filter, number in self._subscriptions(topics):
            trie.subscribe(topic_filter, str(number), number)
        schedule = schedule_of(settings, publishers, self.streams, self.end_us)
        topic_of = np.arange(count)
        fabric = Fabric(
            env=env, costs=costs, streams=self.streams, recorder=self.recorder, kafka=kafka, nodes=persistence.nodes,
            store=store,
            publishers=publishers, subscribers=subscribers,
            schedule=schedule, matches=Matches(trie, topics), topics=topics, topic_of=topic_of,
            qos=self._levels(), expiry_us=self.expiry_us,
            inbound=self._inbound(store),
            retaining=retaining_of(settings, schedule, topics, topic_of, self.expiry_us, self.streams),
            resubscribes=settings.resubscribe,
            trims=Trims(settings.limit if isinstance(store, StoredSessions) and settings.may_fill else None),
            windows=InflightWindows(settings.receive_maximum),
            hands_over_first=settings.handover == "before-commit",
            all_partitions=kafka.create_topic("msg.all", settings.partitions),
            all_partition_of=partitions_for_rows(topic_rows, settings.partitions),
            persisted_partitions=kafka.create_topic("msg.persisted", settings.partitions),
            persisted_partition_of=partitions_for_rows(subscribers.names(), settings.partitions),
            node_of=[store.node_of(subscribers.name(number)) for number in range(len(subscribers))],
            sessions=SessionTable.all_connected(len(subscribers), settings.sessions_end),
            session_expiry_us=None if settings.session_expiry_s is None else round(settings.session_expiry_s * 1e6),
            puback_latency=self._histogram(), delivery_latency=self._histogram(),
            stage_latency={stage: self._histogram() for stage in self.stages},
        )  # fmt: skip
        self._start(fabric, persistence)
        if isinstance(store, StoredSessions):
            fabric.slots = MovingSlots(env, fabric.nodes, store.owner_of, store.slot_of)
        schedule_faults(fabric, settings.faults, settings.fault_rates, self.end_us, self.over_us)
        set_off(fabric, settings)
        return fabric

    def _inbound(self, store: SessionStore) -> Inbound | None:
        if getattr(self.settings, "inbound", "memory") == "memory" or not isinstance(store, StoredSessions):
            return None
        return Inbound(store.keeping_all())

    def _record_bytes(self) -> int:
        """Of a message in Kafka."""
        return self.costs.kafka.record_overhead_bytes + self.settings.payload_bytes

    def _histogram(self) -> LatencyHistogram:
        return LatencyHistogram(self.begin_us, self.end_us)

    def _start(self, fabric: Fabric, persistence: Persistence) -> None:
        settings, env, kafka = self.settings, self.env, fabric.kafka
        consumers = ConsumerSettings(
            max_poll_records=settings.max_poll_records, session_timeout_us=round(settings.session_timeout_s * 1e6)
        )
        groups = {topic: ConsumerGroup(env, kafka, topic, consumers) for topic in ("msg.all", "msg.persisted")}
        producing = ProducerSettings(
            acks=settings.acks, linger_us=round(settings.linger_ms * 1000),
            batch_records=max(1, settings.batch_bytes // self._record_bytes()),
            idempotent=settings.idempotent, retries=settings.retries,
            request_timeout_us=round(settings.request_timeout_s * 1e6),
        )  # fmt: skip
        fabric.groups.extend(groups.values())
        per_broker = -(-settings.partitions // settings.brokers)
        members: dict[str, list[Consumer]] = {topic: [] for topic in groups}
        for number in range(settings.brokers):
            name = f"broker-{number}"
            one_way, cpu = fabric.one_way(name), self._station("broker", settings.broker_cores)
            connect = fabric.to_kafka(name, one_way)
            driver = persistence.driver(cpu, one_way)
            driver.join(fabric.network, name)
            fabric.brokers.append(
                MqttBroker(
                    fabric, number,
                    BrokerSettings(settings.tick_us, settings.pack_retries, round(settings.pack_pause_s * 1e6)),
                    Producer(env, kafka, producing, one_way, connect),
                    driver,
                    cpu,
                )
            )  # fmt: skip
            for topic, group in groups.items():
                members[topic] += [
                    Consumer(group, f"{name}/{topic}/{i}", one_way, connect) for i in range(per_broker)
                ]
        for topic, group in groups.items():
            group.join(*_in_turns(members[topic], settings.brokers))
        for number, broker in enumerate(fabric.brokers):
            downlink = None
            if settings.brokers > 1:
                topic = f"msg.downlink.{number}"
                (broker.downlink,) = kafka.create_topic(topic, 1)
                one_way = broker.producer.one_way_us
                connect = fabric.to_kafka(f"broker-{number}", one_way)
                downlink = Consumer(ConsumerGroup(env, kafka, topic, consumers), topic, one_way, connect)
                downlink.group.join(downlink)
                fabric.groups.append(downlink.group)
            mine = slice(number * per_broker, (number + 1) * per_broker)
            self._equip(broker)
            broker.start(members["msg.all"][mine], members["msg.persisted"][mine], downlink)

    def _equip(self, broker: MqttBroker) -> None:
        """A broker is about to start: the place for stages of another kind."""

    # -- run -----------------------------------------------------------------------------------------------

    def run(self, on_progress: Callable[[Progress], None] | None = None) -> dict[str, Any]:
        """Warm-up, measurement, and the rest until what was under way has arrived; the report."""
        with rare_collections():
            return self._run(on_progress)

    def _run(self, on_progress: Callable[[Progress], None] | None) -> dict[str, Any]:
        begun, env, fabric = time.perf_counter(), self.env, self.fabric
        before = None
        step = 20_000
        while env.now < self.over_us:
            if before is None and env.now >= self.begin_us:
                before = measure(fabric)
            if self.measured is None and env.now >= self.end_us:
                assert before is not None
                self.measured = measure(fabric).since(before)
                fabric.is_draining = True
                for broker in fabric.brokers:
                    broker.ingest.stop()
            bound = next(at for at in (self.begin_us, self.end_us, self.over_us) if at > env.now)
            env.run(until=min(int(env.now) + step, bound))
            self.recorder.advance(int(env.now))
            if on_progress is not None:
                messages = fabric.counts.get("published", 0) + fabric.counts.get("delivered", 0)
                on_progress(Progress(env.now / 1e6, self.over_us / 1e6, messages, time.perf_counter() - begun))
            if self.measured is not None and self._is_over():
                break
        if fabric.has_work_left():
            self.recorder.add(EventKind.CUT, np.array([int(env.now)]))
        self.recorder.close()
        assert self.measured is not None
        return figures(self.measured, fabric)

    @property
    def digest(self) -> str:
        """Of the bytes of the history."""
        return self.recorder.digest

    def _is_over(self) -> bool:
        """Whether nothing can happen any more: no fault is to come or to heal, nothing is under way, and no consumer, a fenced one
        included, has a pack in its hands."""
        fabric = self.fabric
        if self.env.now <= fabric.healed_us or not self.is_quiet() or fabric.has_work_left():
            return False
        alive = [broker for broker in fabric.brokers if not broker.is_dead]
        return not any(consumer.is_busy for broker in alive for consumer in (*broker.all_consumers, *broker.persisted_consumers))

    def is_quiet(self) -> bool:
        """Whether all that was published has been acknowledged, delivered and acknowledged again: by numbers, so that repetitions
        may stand for what is missing."""
        fabric, counts = self.fabric, self.fabric.counts
        has_all = counts.get("published", 0) == counts.get("delivered", 0)
        return has_all and not fabric.sessions.in_flight and not fabric.awaits_answers()

    def names(self) -> Names:
        """The names behind the codes of the history. A large population keeps its numbers."""
        if self.settings.publishers > NAMED_MAX:
            return Names(nodes=self._nodes(), operations=self.fabric.operations)
        clients = NameTable(name.decode() for name in self._client_names())
        return Names(
            clients=clients,
            topics=NameTable(topic.decode() for topic in self.fabric.topics),
            nodes=self._nodes(),
            operations=self.fabric.operations,
        )

    def _nodes(self) -> NameTable:
        return NameTable(self.fabric.node_names())

    def _client_names(self) -> list[bytes]:
        fabric = self.fabric
        return [
            clients.name(number)
            for clients in (fabric.publishers, fabric.subscribers)
            for number in range(len(clients))
        ]


def _in_turns(members: list[Consumer], brokers: int) -> list[Consumer]:
    """First a member of each broker, then the second of each: so that range assignment spreads over the brokers."""
    per_broker = len(members) // brokers
    return [members[broker * per_broker + number] for number in range(per_broker) for broker in range(brokers)]
