"""From settings to how clients behave: schedules, QoS, RETAIN, reconnects, slow readers."""

from __future__ import annotations

import numpy as np

from orderlab.sim.engine.random_streams import RandomStreams
from orderlab.sim.mqtt.broker.lifetimes import expire_sessions
from orderlab.sim.mqtt.broker.retaining import Retaining
from orderlab.sim.mqtt.clients.bursts import BurstSchedule
from orderlab.sim.mqtt.clients.population import Clients, Ints, Schedule
from orderlab.sim.mqtt.clients.reconnects import Reconnects
from orderlab.sim.mqtt.rules.qos import QosLevels, draw_levels, parse_shares
from orderlab.sim.mqtt.rules.retained import RetainHandling
from orderlab.sim.mqtt.world import Fabric
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
        draw(settings.publish_qos, publishers, "publish_qos"), draw(settings.subscription_qos, subscribers, "subscription_qos")
    )


def retaining_of(
    settings: ClientSettings, schedule: Schedule, topics: list[bytes], topic_of: Ints, expiry_us: int | None, streams: RandomStreams
) -> Retaining | None:
    """Who sets RETAIN, if anybody does."""
    count = round(settings.retained_share * schedule.count)
    if not count:
        return None
    by_publisher = streams.vector_stream("retained").permutation(np.arange(schedule.count) < count)
    return Retaining(
        by_publisher, topics, topic_of, RetainHandling(settings.retain_handling), settings.retain_as_published,
        settings.retained_clear_every, schedule, expiry_us,
    )  # fmt: skip


def set_off(fabric: Fabric, settings: ClientSettings) -> None:
    """Subscribers begin to come and go, to read slowly, and to lose their sessions."""
    Reconnects(
        fabric, settings.offline_share, settings.online_s, settings.offline_s, settings.clean_start_share,
        settings.takeover_share, settings.reconnect_pattern,
    ).start()  # fmt: skip
    count = round(settings.slow_share * len(fabric.subscribers))
    if count:
        slow = fabric.streams.vector_stream("slow").permutation(len(fabric.subscribers))[:count]
        fabric.reading.slow_down(slow.tolist(), round(settings.slow_read_ms * 1000))
    expire_sessions(fabric)
