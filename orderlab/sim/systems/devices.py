"""What every simulated system is assembled from and how it is run: brokers, Kafka, clients and faults around any
session store."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import simpy

from orderlab.model.history.events import EventBatch, EventKind, Names, NameTable
from orderlab.platform import rare_collections
from orderlab.sim.costs.cost_model import Costs, load_costs
from orderlab.sim.engine.clock import Station, Waits
from orderlab.sim.engine.statistics import DeliveryHistogram, LatencyHistogram
from orderlab.sim.fault_schedule import schedule as schedule_faults
from orderlab.sim.kafka.broker import BrokerCosts, KafkaCluster, ReplicaSettings
from orderlab.sim.kafka.consumer_group import Consumer, ConsumerGroup, ConsumerSettings
from orderlab.sim.kafka.producer import Producer, ProducerSettings, partitions_for_rows
from orderlab.sim.mqtt.broker.broker import MqttBroker
from orderlab.sim.mqtt.broker.node import BrokerSettings
from orderlab.sim.mqtt.clients import (
    NAME_BYTES,
    Clients,
    PublishersAndWills,
    QosLevels,
    Schedule,
    ScheduleWithWills,
    WillMessages,
    numbered_names,
)
from orderlab.sim.mqtt.connections import UNLIMITED, ConnectionTable, InflightWindows, ReplayFilter, TrimTracker
from orderlab.sim.mqtt.links import PublishWindows, SocketBuffers
from orderlab.sim.mqtt.ownership import LateOwnership, Rule
from orderlab.sim.mqtt.parts import SLICE_US, DeliveryState, KafkaTopics, Measurements, Storage, Traffic
from orderlab.sim.mqtt.ports import Persistence, SessionStore, StoreDriver
from orderlab.sim.mqtt.sessions import Inbound, StoredSessions
from orderlab.sim.mqtt.topics import Matches, SubscriptionTrie
from orderlab.sim.mqtt.world import World
from orderlab.sim.servers.moving_slots import MovingSlots
from orderlab.sim.stores.binding import load_binding
from orderlab.sim.systems.behaviour import levels_of, retaining_of, schedule_of, set_off
from orderlab.sim.systems.progress import SimulationProgress
from orderlab.sim.systems.report import Measured, figures, measure
from orderlab.sim.systems.series import Series
from orderlab.sim.systems.settings import FENCED, DeviceSettings
from orderlab.sim.systems.system import AssembledSystem

OVERFLOWS = ("trimmed", "dropped_at_full_sockets")
GIVEN_UP = ("saves_given_up", "downlinks_given_up", "publishes_given_up")
"""What is counted where a message is lost since there was no room for it, or no answer in time."""


NAMED_MAX = 10_000
"""Up to so many publishers the history holds names."""


TOPIC_PREFIX = b"p/"


def collector_pauses(world: World, broker: MqttBroker, settings: DeviceSettings) -> Generator[simpy.Event, Any, None]:
    """Stop a broker at the instants of a Poisson process, each time for as long as a lognormal distribution says, until
    nobody publishes any more."""
    stream = world.streams.stream(f"collector/{broker.number}")
    while True:
        yield world.env.timeout(int(stream.expovariate(1 / settings.gc_every_s) * 1e6))
        if world.is_draining or broker.is_dead:
            return
        broker.pause(int(settings.gc_median_ms * 1000 * stream.lognormvariate(0, settings.gc_sigma)))


S = TypeVar("S", bound=DeviceSettings)


class DeviceSystem(AssembledSystem[S]):
    """The assembled system around any persistence."""

    series: Series
    world: World

    def __init__(self, settings: S, seed: int, sinks: list[Callable[[EventBatch], None]]) -> None:
        expiry_s = getattr(settings, "expiry_s", None)
        self.expiry_us = None if expiry_s is None else expiry_s * 1_000_000
        super().__init__(settings, seed, sinks, 200_000 + settings.tick_us)
        self.costs: Costs = self._costs()
        self.measured: Measured | None = None
        self.brokers: list[MqttBroker] = []
        with rare_collections():
            self.world = self._assemble()
        self.series = Series(self.world)

    def more_columns(self) -> list[str]:
        """Of the history: those that only some runs have anything for."""
        has_wills = self._watched() > 0
        columns = {
            "expiry_interval_us": self.expiry_us is not None,
            "retained": self.settings.retained_share > 0,
            "will_delay_us": has_wills,
            "connection": has_wills,
            "reason_code": has_wills,
            "receive_maximum": self.settings.receive_maximum < UNLIMITED,
        }
        return [name for name, is_there in columns.items() if is_there]

    def _persistence(self, lengths: tuple[int, int]) -> Persistence:
        """What keeps the sessions. ``lengths``: bytes of a client's name and of a topic."""
        raise NotImplementedError

    stages: tuple[str, ...] = ("msg.all", "msg.persisted")
    """Kafka topics that a message passes."""
    introduces_late: bool = True
    """Whether subscribers enter the history with the first message to them; otherwise at its beginning."""

    def _subscriber_count(self) -> int:
        return self.settings.publishers + self._watched()

    def _watched(self) -> int:
        """How many subscribers have a Will that somebody watches: the watchers are the last of the subscribers, in the
        same order."""
        settings = self.settings
        return 0 if settings.will_delay_s is None else round(settings.will_watched * settings.publishers)

    def _subscriptions(self, topics: Sequence[bytes]) -> Iterable[tuple[str, int]]:
        """(filter, who gets what it matches)."""
        return ((topic.decode(), number) for number, topic in enumerate(topics))

    has_numbered_topics: bool = True
    """Whether each topic is the prefix and its number."""

    def _topic_rows(self) -> npt.NDArray[np.uint8]:
        """The topic of each publisher, as rows of bytes."""
        return numbered_names(TOPIC_PREFIX, self.settings.publishers)

    def _levels(self) -> QosLevels:
        return levels_of(
            self.settings, self.settings.publishers + self._watched(), self._subscriber_count(), self.streams
        )

    def _costs(self) -> Costs:
        return load_costs(self.settings.costs)

    def _station(self, kind: str, cores: int) -> Station:
        """What a node of some kind computes on."""
        return Station(cores)

    # -- assembly ------------------------------------------------------------------------------------------

    def _assemble(self) -> World:
        settings, env, costs = self.settings, self.env, self.costs
        network, watched = costs.network, self._watched()
        draw = (settings.brokers, self.streams, network.floor_us, network.median_us, network.sigma)
        publishers = Clients.draw("p", settings.publishers, *draw)
        subscribers = Clients.draw("s", self._subscriber_count(), *draw)
        topic_rows = self._topic_rows()
        if watched:
            publishers = PublishersAndWills.of(publishers, watched)
            topic_rows = np.concatenate((topic_rows, numbered_names(b"w/", watched)))
        kafka = self._kafka()
        persistence = self._persistence((NAME_BYTES, topic_rows.shape[1]))
        store = persistence.store
        trie: SubscriptionTrie[int] = SubscriptionTrie()
        topics = [row.tobytes() for row in topic_rows]
        for topic_filter, number in self._subscriptions(topics):
            trie.subscribe(topic_filter, str(number), number)
        schedule = schedule_of(settings, publishers, self.streams, self.end_us)
        if watched:
            schedule = ScheduleWithWills(schedule, settings.publishers)
        subscriber_count = len(subscribers)
        measuring = self.begin_us, self.end_us, schedule.published_us
        world = World(
            env,
            costs,
            self.streams,
            self.recorder,
            traffic=self._traffic(publishers, subscribers, schedule, topics, Matches(trie, topics)),
            kafka=KafkaTopics(
                kafka,
                all_partitions=kafka.create_topic("msg.all", settings.partitions),
                all_partition_of=partitions_for_rows(topic_rows, settings.partitions),
                persisted_partitions=kafka.create_topic("msg.persisted", settings.partitions),
                persisted_partition_of=partitions_for_rows(subscribers.names(), settings.partitions),
                downlink_partition_of=partitions_for_rows(subscribers.names(), costs.threads.downlink_partitions),
            ),
            storage=Storage(
                store,
                subscribers,
                persistence.nodes,
                node_of=[store.node_of(subscribers.name(number)) for number in range(subscriber_count)],
                inbound=self._inbound(store),
            ),
            delivery=DeliveryState(
                ConnectionTable.all_connected(subscriber_count, settings.sessions_end),
                ReplayFilter(store.has_tokens),
                windows=InflightWindows(settings.receive_maximum),
                trims=TrimTracker(settings.limit if isinstance(store, StoredSessions) and settings.may_fill else None),
            ),
            measured=Measurements(
                env,
                puback_latency=LatencyHistogram(*measuring),
                delivery_latency=DeliveryHistogram(*measuring),
                stage_latency={stage: LatencyHistogram(*measuring) for stage in self.stages},
                node_waits=[Waits() for _ in persistence.nodes],
            ),
            introduced=np.zeros(subscriber_count, np.int64) if self.introduces_late else None,
        )
        self.recorder.derive = world.traffic.columns_of
        self._start(world, persistence)
        if isinstance(store, StoredSessions):
            world.storage.slots = MovingSlots(env, world.storage.nodes, store.owner_of, store.slot_of)
        if settings.gc_every_s:
            for broker in self.brokers:
                env.process(collector_pauses(world, broker, settings))
        schedule_faults(world, settings.faults, settings.fault_rates, self.end_us, self.over_us)
        set_off(world, settings)
        return world

    def _kafka(self) -> KafkaCluster:
        settings = self.settings
        kafka_costs = BrokerCosts(**self.costs.kafka.model_dump(exclude={"record_overhead_bytes"}))
        replicas = ReplicaSettings(
            settings.min_insync_replicas,
            settings.unclean_election,
            round(settings.replica_lag_max_s * 1e6),
            round(settings.offsets_lag_ms * 1000),
        )
        return KafkaCluster(self.env, settings.kafka_brokers, kafka_costs, replicas)

    def _traffic(
        self, publishers: Clients, subscribers: Clients, schedule: Schedule, topics: list[bytes], matches: Matches
    ) -> Traffic:
        settings, watched = self.settings, self._watched()
        count = settings.publishers + watched
        topic_of = np.arange(count)
        wills = None
        if settings.will_delay_s is not None:
            wills = WillMessages(round(settings.will_delay_s * 1e6), watched, settings.publishers)
        return Traffic(
            publishers,
            subscribers,
            schedule,
            topics,
            topic_of,
            matches=matches,
            qos=self._levels(),
            expiry_us=self.expiry_us,
            session_expiry_us=None if settings.session_expiry_s is None else round(settings.session_expiry_s * 1e6),
            retaining=retaining_of(settings, schedule, topics, topic_of, self.expiry_us, self.streams),
            resubscribes=settings.resubscribe,
            keep_alive_us=round((settings.server_keep_alive_s or settings.keep_alive_s) * 1e6) or None,
            wills=wills,
            publish_windows=PublishWindows(settings.server_receive_maximum)
            if settings.server_receive_maximum < UNLIMITED
            else None,
            last_sent_us=np.zeros(count, np.int64) if settings.holds_publishers_up else None,
            sockets=SocketBuffers(settings.socket_packets, settings.on_full_socket == "read-anew")
            if settings.socket_packets
            else None,
            topic_prefix=TOPIC_PREFIX if self.has_numbered_topics and not watched else None,
        )

    def _inbound(self, store: SessionStore) -> Inbound | None:
        where = getattr(self.settings, "inbound", "memory")
        if where == "memory" or not isinstance(store, StoredSessions):
            return None
        is_fenced = where == "fenced"
        keeping_all = store.keeping_all(load_binding(FENCED) if is_fenced else None)
        return Inbound(keeping_all, self.settings.partitions + self.settings.brokers, is_fenced)

    def _record_bytes(self) -> int:
        """Of a message in Kafka."""
        return self.costs.kafka.record_overhead_bytes + self.settings.payload_bytes

    def _start(self, world: World, persistence: Persistence) -> None:
        settings, env, kafka = self.settings, self.env, world.kafka.cluster
        consumers = ConsumerSettings(
            max_poll_records=settings.max_poll_records, session_timeout_us=round(settings.session_timeout_s * 1e6)
        )
        groups = {topic: ConsumerGroup(env, kafka, topic, consumers) for topic in ("msg.all", "msg.persisted")}
        producing = ProducerSettings(
            acks=settings.acks,
            linger_us=round(settings.linger_ms * 1000),
            batch_records=max(1, settings.batch_bytes // self._record_bytes()),
            idempotent=settings.idempotent,
            retries=settings.retries,
            max_in_flight=settings.max_in_flight,
            request_timeout_us=round(settings.request_timeout_s * 1e6),
        )
        world.kafka.groups.extend(groups.values())
        threads = self.costs.threads
        wanted = {"msg.all": threads.all_consumers, "msg.persisted": threads.persisted_consumers}
        most = -(-settings.partitions // settings.brokers)  # more would be idle until a broker dies
        per_broker = {topic: min(consumers, most) for topic, consumers in wanted.items()}
        members: dict[str, list[Consumer]] = {topic: [] for topic in groups}
        for number in range(settings.brokers):
            name = f"broker-{number}"
            one_way, cpu = world.one_way(name), self._station("broker", settings.broker_cores)
            connect = world.to_kafka(name, one_way)
            driver = persistence.driver(cpu, one_way)
            driver.join(world.network, name)
            self.brokers.append(
                self._broker(world, number, Producer(env, kafka, producing, one_way, connect), driver, cpu)
            )
            for topic, group in groups.items():
                members[topic] += [
                    Consumer(group, f"{name}/{topic}/{i}", one_way, connect) for i in range(per_broker[topic])
                ]
        for topic, group in groups.items():
            group.join(*_in_turns(members[topic], settings.brokers))
        world.brokers.extend(self.brokers)
        if settings.ownership != "at-once" and settings.brokers > 1:
            self._tell_late(world, settings.ownership, consumers)
        for number, broker in enumerate(self.brokers):
            downlink: list[Consumer] = []
            if settings.brokers > 1:
                topic = f"msg.downlink.{number}"
                broker.downlink = kafka.create_topic(topic, threads.downlink_partitions)
                one_way = broker.producer.one_way_us
                connect = world.to_kafka(f"broker-{number}", one_way)
                group = ConsumerGroup(env, kafka, topic, consumers)
                downlink = [
                    Consumer(group, f"{topic}/{i}", one_way, connect) for i in range(threads.downlink_consumers)
                ]
                group.join(*downlink)
                world.kafka.groups.append(group)
            all_, persisted = (
                members[topic][number * each : (number + 1) * each] for topic, each in per_broker.items()
            )
            broker.start(all_, persisted, downlink)

    def _tell_late(self, world: World, rule: Rule, settings: ConsumerSettings) -> None:
        """Let brokers hear through Kafka who is connected where."""
        (partition,) = world.kafka.cluster.create_topic("client.sessions", 1)
        ownership = world.brokers.ownership = LateOwnership(rule, partition, world.presence, world.measured)
        for broker in self.brokers:
            one_way = broker.producer.one_way_us
            group = ConsumerGroup(
                self.env, world.kafka.cluster, "client.sessions", settings, f"client.sessions.{broker.number}"
            )
            consumer = Consumer(
                group, f"client.sessions/{broker.number}", one_way, world.to_kafka(f"broker-{broker.number}", one_way)
            )
            group.join(consumer)
            world.kafka.groups.append(group)
            broker.own_consumers.append(consumer)
            self.env.process(ownership.consume(broker, consumer))

    def _broker(self, world: World, number: int, producer: Producer, driver: StoreDriver, cpu: Station) -> MqttBroker:
        return MqttBroker(world, number, self._broker_settings(), producer, driver, cpu)

    def _broker_settings(self) -> BrokerSettings:
        settings = self.settings
        return BrokerSettings(
            settings.tick_us,
            settings.pack_retries,
            round(settings.pack_pause_s * 1e6),
            settings.producer_records_max,
            settings.removals == "awaited",
            settings.handover == "before-commit",
        )

    # -- run -----------------------------------------------------------------------------------------------

    def run(self, on_progress: Callable[[SimulationProgress], None] | None = None) -> dict[str, Any]:
        """Run warm-up, measurement, and the rest until what was under way has arrived; the report."""
        with rare_collections():
            return self._run(on_progress)

    def _run(self, on_progress: Callable[[SimulationProgress], None] | None) -> dict[str, Any]:
        begun, env, world = time.perf_counter(), self.env, self.world
        before = None
        step = SLICE_US
        while env.now < self.over_us:
            if before is None and env.now >= self.begin_us:
                before = measure(world)
            if self.measured is None and env.now >= self.end_us:
                assert before is not None
                self.measured = measure(world).since(before)
                world.is_draining = True
                for broker in self.brokers:
                    broker.ingest.stop()
            bound = next(at for at in (self.begin_us, self.end_us, self.over_us) if at > env.now)
            env.run(until=min(int(env.now) + step, bound))
            self.series.sample()
            self.recorder.advance(int(env.now))
            if on_progress is not None:
                messages = world.measured.counts.get("published", 0) + world.measured.counts.get("delivered", 0)
                on_progress(
                    SimulationProgress(env.now / 1e6, self.over_us / 1e6, messages, time.perf_counter() - begun)
                )
            if self.measured is not None and self._is_over():
                break
        if world.has_work_left() or world.has_wills_waiting():
            self.recorder.add(EventKind.CUT, np.array([int(env.now)]))
        elif len(codes := self.history_codes(world.delivery.connections.waiting_on_dead_links())):
            # Were the whole recording cut, the losses of others would not be seen.
            self.recorder.add(EventKind.CUT, np.full(len(codes), int(env.now)), subscriber=codes)
        self.recorder.close(self.over_us)  # were it over earlier, nothing would come until then
        assert self.measured is not None
        recoveries = [each.to_json() for each in self.series.recoveries(self.end_us, self.over_us)]
        return {**figures(self.measured, world), **({"recovery": recoveries} if recoveries else {})}

    def _is_over(self) -> bool:
        """Whether nothing can happen any more: no fault is to come or to heal, nothing is under way, and no consumer, a
        fenced one included, has a pack in its hands."""
        world = self.world
        wills = world.traffic.wills
        if wills is not None and (self.env.now <= wills.last_us or world.has_wills_waiting()):
            return False
        if self.env.now <= world.healed_us or not self.is_quiet() or world.has_work_left():
            return False
        alive = [broker for broker in self.brokers if not broker.is_dead]
        return not any(
            consumer.is_busy for broker in alive for consumer in (*broker.all_consumers, *broker.persisted_consumers)
        )

    def is_quiet(self) -> bool:
        """Whether all that was published has been acknowledged, delivered and acknowledged again: by numbers, so that
        repetitions may stand for what is missing."""
        world, counts = self.world, self.world.measured.counts
        has_all = counts.get("published", 0) == counts.get("delivered", 0)
        return has_all and not world.delivery.connections.in_flight and not world.awaits_answers()

    def is_drained(self) -> bool:
        """Whether nothing is under way any more, and nothing was lost for want of room or, without a fault to blame,
        given up. What is delivered twice or is owed to nobody any more counts for neither, nor what is stored for
        somebody without a connection."""
        world, counts = self.world, self.world.measured.counts
        lost = OVERFLOWS if counts.get("faults") else (*OVERFLOWS, *GIVEN_UP)
        if any(counts.get(name) for name in lost):
            return False
        table = world.delivery.connections
        waits_for_somebody = any(table.connected[key >> 16] for key in table.in_flight)
        return not (waits_for_somebody or world.awaits_answers() or world.has_work_left())

    def history_codes(self, subscribers: list[int]) -> npt.NDArray[np.int64]:
        """The codes of subscribers in the history."""
        return np.array(subscribers, np.int64) + self.world.traffic.schedule.count

    def groups(self) -> Mapping[int, range]:
        """The members of those that share a subscription and are one subscriber in the history, by their codes
        there."""
        return {}

    def names(self) -> Names:
        """The names behind the codes of the history. A large population keeps its numbers."""
        if self.settings.publishers > NAMED_MAX:
            clients, topics = NameTable(numeric=True), NameTable(numeric=True)
            return Names(clients, topics, self._nodes(), self.world.names.operations)
        clients = NameTable(name.decode() for name in self._client_names())
        return Names(
            clients=clients,
            topics=NameTable(topic.decode() for topic in self.world.traffic.topics),
            nodes=self._nodes(),
            operations=self.world.names.operations,
        )

    def _nodes(self) -> NameTable:
        return NameTable(self.world.names.all())

    def _client_names(self) -> list[bytes]:
        world = self.world
        return [
            clients.name(number)
            for clients in (world.traffic.publishers, world.traffic.subscribers)
            for number in range(len(clients))
        ]


def _in_turns(members: list[Consumer], brokers: int) -> list[Consumer]:
    """The members in this order: the first of each broker, then the second of each, so that range assignment spreads
    over the brokers."""
    per_broker = len(members) // brokers
    return [members[broker * per_broker + number] for number in range(per_broker) for broker in range(brokers)]
