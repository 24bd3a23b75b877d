"""How settings become the behaviour of clients: schedules, QoS, RETAIN, slow readers, who comes and goes."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any, Literal

import numpy as np
import simpy

from orderlab.sim.engine.random_streams import RandomStreams
from orderlab.sim.mqtt.broker.session_lifecycle import expire_sessions
from orderlab.sim.mqtt.clients import BurstSchedule, Clients, Ints, QosLevels, Schedule, draw_levels, parse_shares
from orderlab.sim.mqtt.topics import RetainedByTopic, RetainHandling
from orderlab.sim.mqtt.wills import publish_wills
from orderlab.sim.mqtt.world import World
from orderlab.sim.systems.settings import ClientSettings


def schedule_of(settings: ClientSettings, publishers: Clients, streams: RandomStreams, until_us: int) -> Schedule:
    """Who publishes when. Raises InputError for more bursts than are kept."""
    if settings.publish_on_s is None or settings.publish_off_s is None:
        return Schedule(publishers, settings.rate, streams)
    on_us, off_us = settings.publish_on_s * 1e6, settings.publish_off_s * 1e6
    return BurstSchedule(publishers, settings.rate, streams, on_us, off_us, settings.publish_pattern, until_us)


def levels_of(settings: ClientSettings, publishers: int, subscribers: int, streams: RandomStreams) -> QosLevels:
    """The QoS of each publisher and of each subscription."""

    def draw(text: str, count: int, name: str) -> Ints | int:
        return draw_levels(parse_shares(name, text), count, streams, name) if text else settings.qos

    return QosLevels(
        draw(settings.publish_qos, publishers, "publish_qos"),
        draw(settings.subscription_qos, subscribers, "subscription_qos"),
        settings.outgoing_qos,
    )


def retaining_of(
    settings: ClientSettings,
    schedule: Schedule,
    topics: list[bytes],
    topic_of: Ints,
    expiry_us: int | None,
    streams: RandomStreams,
) -> RetainedByTopic | None:
    """Who sets RETAIN, if anybody does."""
    count = round(settings.retained_share * schedule.count)
    if not count:
        return None
    by_publisher = streams.vector_stream("retained").permutation(np.arange(schedule.count) < count)
    return RetainedByTopic(
        by_publisher, topics, topic_of, RetainHandling(settings.retain_handling), settings.retain_as_published,
        settings.retained_clear_every, schedule, expiry_us,
    )  # fmt: skip


def set_off(world: World, settings: ClientSettings) -> None:
    """Let subscribers come and go, read slowly, and lose their sessions."""
    Reconnects(
        world, settings.offline_share, settings.online_s, settings.offline_s, settings.clean_start_share,
        settings.takeover_share, settings.reconnect_pattern, settings.goodbye_share,
    ).start()  # fmt: skip
    count = round(settings.slow_share * len(world.traffic.subscribers))
    if count:
        slow = world.streams.vector_stream("slow").permutation(len(world.traffic.subscribers))[:count]
        world.traffic.slow_readers.slow_down(slow.tolist(), round(settings.slow_read_ms * 1000))
    expire_sessions(world)
    publish_wills(world, settings.wills)


class Reconnects:
    """``share`` of the subscribers alternate between times with and without a connection: ``exponential`` around the
    given means; ``regular``, exactly as long; ``together``, all connections lost at the same instants, exponential
    times without. Of their connects ``clean_start_share`` ask for a new session, and ``takeover_share`` come before the
    old connection is gone. Of the ends of their connections ``goodbye_share`` are a DISCONNECT with Reason Code 0.
    """

    def __init__(
        self,
        world: World,
        share: float,
        online_s: float,
        offline_s: float,
        clean_start_share: float = 0.0,
        takeover_share: float = 0.0,
        pattern: Literal["exponential", "regular", "together"] = "exponential",
        goodbye_share: float = 0.0,
    ) -> None:
        self.goodbye_share = goodbye_share
        self.world = world
        self.clean_start_share = clean_start_share
        self.takeover_share = takeover_share
        self.pattern = pattern
        wills = world.traffic.wills
        self.count = round(share * (len(world.traffic.subscribers) - (0 if wills is None else wills.count)))
        self.online_us = round(online_s * 1e6)
        self.offline_us = offline_s * 1e6

    def start(self) -> None:
        """Let the first ``count`` subscribers, who begin with a connection, come and go."""
        self.world.presence.introduce(np.arange(self.count), np.zeros(self.count, np.int64))
        for subscriber in range(self.count):
            self.world.env.process(self._live(subscriber))

    def _live(self, subscriber: int) -> Generator[simpy.Event, Any, None]:
        world = self.world
        stream = world.streams.stream(f"reconnects/{subscriber}")
        if self.pattern == "regular":
            yield world.env.timeout(int(stream.uniform(0, self.online_us)))
        while True:
            yield world.env.timeout(self._until_loss(stream))
            if world.is_draining:
                return  # who is here stays, so that the backlog can empty
            if not world.delivery.connections.connected[subscriber]:
                continue  # a fault was faster
            if self.takeover_share and stream.random() < self.takeover_share:
                self._take_over(subscriber, stream)
                continue
            world.presence.disconnect(
                subscriber, says_goodbye=bool(self.goodbye_share) and stream.random() < self.goodbye_share
            )
            away_us = self.offline_us if self.pattern == "regular" else stream.expovariate(1 / self.offline_us)
            yield world.env.timeout(int(away_us))
            if not world.delivery.connections.connected[subscriber]:
                world.brokers.next_after(stream.randrange(len(world.brokers))).connect(
                    subscriber, self._starts_clean(stream)
                )

    def _until_loss(self, stream: Random) -> int:
        if self.pattern == "together":
            return int(self.online_us - self.world.env.now % self.online_us)
        return int(self.online_us if self.pattern == "regular" else stream.expovariate(1 / self.online_us))

    def _starts_clean(self, stream: Random) -> bool:
        return bool(self.clean_start_share) and stream.random() < self.clean_start_share

    def _take_over(self, subscriber: int, stream: Random) -> None:
        """Connect anew; the broker that had the client closes the old connection (MQTT-3.1.4-3)."""
        world = self.world
        world.measured.count("takeovers")
        world.presence.disconnect(subscriber, is_noticed=False)
        old = int(world.traffic.subscribers.broker[subscriber])
        world.brokers.next_after(old).connect(subscriber, self._starts_clean(stream))
