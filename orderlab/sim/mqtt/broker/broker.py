"""A broker, assembled: a node and the stages of a message's way through it.

Publish → `msg.all` → PUBACK (``ingest``); `msg.all` → subscription trie → `msg.persisted` (``routing``);
`msg.persisted` → one save script per client and poll → commit (``save_stage``) → the broker that holds the connection,
itself or another through `msg.downlink.<broker>` (``downlink``) → socket → the subscriber's PUBACK → remove script
(``delivery``; with QoS 2 ``qos2_sender``). Sessions begin and end in ``session_lifecycle``. Work is simulated per
batch, as it is done per batch; within a batch each message has its own instants where they differ.

Imports go one way: the node below, then what delivers, then what hands on to it. What must call back gets a port: a
Protocol beside the stage.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from orderlab.sim.engine.clock import Station, call_at
from orderlab.sim.kafka.consumer_group import Consumer
from orderlab.sim.kafka.producer import Producer
from orderlab.sim.mqtt.broker.delivery import Delivery
from orderlab.sim.mqtt.broker.downlink import Downlink
from orderlab.sim.mqtt.broker.ingest import Ingest
from orderlab.sim.mqtt.broker.node import BrokerNode, BrokerSettings
from orderlab.sim.mqtt.broker.publisher_links import PublisherLinks
from orderlab.sim.mqtt.broker.routing import Routing
from orderlab.sim.mqtt.broker.save_stage import SaveStage
from orderlab.sim.mqtt.broker.session_lifecycle import SessionLifecycle, Subscriptions
from orderlab.sim.mqtt.ports import Broker, StoreDriver
from orderlab.sim.mqtt.world import World


class MqttBroker(BrokerNode):
    """One node of the cluster, with all of its stages."""

    def __init__(
        self, world: World, number: int, settings: BrokerSettings, producer: Producer, driver: StoreDriver, cpu: Station
    ) -> None:
        super().__init__(world, number, settings, producer, driver, cpu)
        self.world = world
        self.all_consumers: Sequence[Consumer] = ()
        self.persisted_consumers: Sequence[Consumer] = ()
        self.downlink_consumers: Sequence[Consumer] = ()
        self.own_consumers: list[Consumer] = []
        """Of what every broker reads by itself."""
        self.ingest = Ingest(self, world.traffic, world.storage, world.kafka, world.presence)
        self.delivery = self._delivery()
        self.downlinks = Downlink(self, world.kafka, world.delivery.in_transit, self.delivery)
        self.routing = self._routing()
        self.save_stage = SaveStage(self, world.traffic, world.storage, self.downlinks, self.delivery)
        self.lifecycle = self._lifecycle()

    # -- the stages that depend on what kind of session subscribers have -----------------------------------

    def _delivery(self) -> Delivery:
        world = self.world
        return Delivery(self, world.traffic, world.storage, world.delivery, world.presence)

    def _routing(self) -> Routing:
        return Routing(self, self.world.traffic, self.world.kafka, self.delivery.table, self.downlinks)

    def _lifecycle(self) -> SessionLifecycle:
        world = self.world
        subscriptions = Subscriptions(self, world.traffic, world.storage, world.kafka, self.delivery)
        return SessionLifecycle(self, world.traffic, world.storage, world.presence, self.delivery, subscriptions)

    # -- as others see it ----------------------------------------------------------------------------------

    def start(
        self, all_consumers: Sequence[Consumer], persisted: Sequence[Consumer], downlink: Sequence[Consumer]
    ) -> None:
        """Begin to listen and to consume."""
        self.all_consumers, self.persisted_consumers, self.downlink_consumers = all_consumers, persisted, downlink
        self.env.process(self.ingest.listen())
        for consumer in all_consumers:
            self.env.process(self.routing.consume(consumer))
        for consumer in persisted:
            self.env.process(self.save_stage.consume(consumer))
        for consumer in downlink:
            self.env.process(self.downlinks.consume(consumer))

    @property
    def is_busy(self) -> bool:
        """Whether something is with its clients of Kafka and of the store, on the way to them, or to be tried again."""
        return bool(self.producer.unanswered or self.downlinks.leaving or self.driver.is_busy or self.retrying.waiting)

    @property
    def owes_answers(self) -> bool:
        """Whether a publisher of it has no PUBACK or PUBREC for something."""
        return self.ingest.is_owing

    def send_waiting(self, publishers: Sequence[int]) -> None:
        """Take in what waited for room at those of these publishers that are here."""
        self.ingest.send_waiting(publishers)

    def lose_pubacks(self, count: int) -> None:
        """Let the next ``count`` answers to publishers not arrive."""
        self.ingest.pubacks_to_lose = count

    # -- clients that move ---------------------------------------------------------------------------------

    def connect(self, subscriber: int, clean_start: bool = False) -> None:
        """Connect a subscriber here."""
        self.lifecycle.connect(subscriber, clean_start)

    def wake(self, subscriber: int) -> None:
        """Read the session of a subscriber anew, for whom something may wait in the store that was never sent here."""
        self.delivery.wake(subscriber)

    def expire(self, subscriber: int) -> None:
        """End the session of a subscriber that has been away for too long."""
        self.lifecycle.expire(subscriber)

    def crash(self) -> None:
        """Let the process die. Clients connect to the next broker; the groups notice after the session timeout."""
        if self.is_dead:
            return
        world = self.world
        self.is_dead = self.producer.is_dead = True
        self.driver.close()
        for consumer in (*self.all_consumers, *self.persisted_consumers):
            consumer.is_dead = True
            consumer.group.leave(consumer, consumer.group.settings.session_timeout_us)
        for consumer in (*self.downlink_consumers, *self.own_consumers):  # nobody else reads what waits there
            consumer.is_dead = True
        mine = np.flatnonzero(world.presence.broker_of == self.number).tolist()
        connected = [subscriber for subscriber in mine if world.delivery.connections.connected[subscriber]]
        for subscriber in connected:
            world.presence.disconnect(subscriber)
        world.delivery.connections.forget_releasing(self.number)

        def reconnect() -> None:
            other = world.brokers.next_after(self.number)
            other.take_over(self)
            for subscriber in connected:
                other.connect(subscriber)

        call_at(self.env, self.env.now + world.traffic.reconnect_us, reconnect)
        if self.peers.on_silence:
            call_at(self.env, self.env.now + self.all_consumers[0].group.settings.session_timeout_us, self._fell_silent)

    def _fell_silent(self, until_us: float = 0) -> None:
        for function in self.peers.on_silence:
            function(self.number, until_us)

    def pause(self, duration_us: int) -> None:
        """Stand still, as when the collector stops the world: no thread works. Consumers that are silent for longer
        than their session timeout lose their partitions; they learn it from a refused commit, or from the answer to a
        heartbeat."""
        now = self.env.now
        self.measured.count("pauses")
        counts = self.measured.counts
        counts["longest_pause_us"] = max(counts.get("longest_pause_us", 0), duration_us)
        self.cpu.stall(now + duration_us)
        consumers = (*self.all_consumers, *self.persisted_consumers)

        def answer_heartbeat() -> None:
            for consumer in consumers:
                if not consumer.is_busy:
                    consumer.group.rejoin(consumer)

        timeout_us = consumers[0].group.settings.session_timeout_us
        if duration_us > timeout_us:
            for consumer in consumers:
                consumer.group.leave(consumer, timeout_us)
            if self.peers.on_silence:
                call_at(self.env, now + timeout_us, lambda: self._fell_silent(now + duration_us))
            call_at(self.env, now + duration_us, answer_heartbeat)

    def publisher_links(self) -> PublisherLinks:
        """The links to its publishers, for faults."""
        return self.ingest.links_to_publishers()

    def move_publishers(self, other: Broker) -> None:
        """Let the publishers of this broker, which is alive, connect to another one."""
        assert isinstance(other, MqttBroker), "brokers of one system are of one kind"
        other.ingest.move_here(self.ingest.hand_over())

    def take_over(self, dead: Broker) -> None:
        """Take in the publishers of a broker that has died."""
        assert isinstance(dead, MqttBroker), "brokers of one system are of one kind"
        self.ingest.take_over(dead.ingest.left_behind())
