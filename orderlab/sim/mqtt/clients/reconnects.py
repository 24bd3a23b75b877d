"""Subscribers that lose their connection again and again and come back, with or without their session, or that connect
elsewhere while they are still connected."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any, Literal

import numpy as np
import simpy

from orderlab.sim.mqtt.world import Fabric


class Reconnects:
    """``share`` of the subscribers alternate between times with and without a connection: ``exponential`` around the given
    means; ``regular``, exactly as long; ``together``, all connections lost at the same instants, exponential times without. Of
    their connects ``clean_start_share`` ask for a new session, and ``takeover_share`` come before the old connection is gone.
    """

    def __init__(
        self,
        fabric: Fabric,
        share: float,
        online_s: float,
        offline_s: float,
        clean_start_share: float = 0.0,
        takeover_share: float = 0.0,
        pattern: Literal["exponential", "regular", "together"] = "exponential",
    ) -> None:
        self.fabric = fabric
        self.clean_start_share = clean_start_share
        self.takeover_share = takeover_share
        self.pattern = pattern
        self.count = round(share * len(fabric.subscribers))
        self.online_us = round(online_s * 1e6)
        self.offline_us = offline_s * 1e6

    def start(self) -> None:
        """The first ``count`` subscribers begin with a connection."""
        self.fabric.brokers[0].ingest.introduce(np.arange(self.count), np.zeros(self.count, np.int64))
        for subscriber in range(self.count):
            self.fabric.env.process(self._live(subscriber))

    def _live(self, subscriber: int) -> Generator[simpy.Event, Any, None]:
        fabric = self.fabric
        stream = fabric.streams.stream(f"reconnects/{subscriber}")
        if self.pattern == "regular":
            yield fabric.env.timeout(int(stream.uniform(0, self.online_us)))
        while True:
            yield fabric.env.timeout(self._until_loss(stream))
            if fabric.is_draining:
                return  # who is here stays, so that the backlog can empty
            if not fabric.sessions.connected[subscriber]:
                continue  # a fault was faster
            if self.takeover_share and stream.random() < self.takeover_share:
                self._take_over(subscriber, stream)
                continue
            fabric.disconnect(subscriber)
            away_us = self.offline_us if self.pattern == "regular" else stream.expovariate(1 / self.offline_us)
            yield fabric.env.timeout(int(away_us))
            if not fabric.sessions.connected[subscriber]:
                fabric.next_broker(stream.randrange(len(fabric.brokers))).connect(subscriber, self._starts_clean(stream))

    def _until_loss(self, stream: Random) -> int:
        if self.pattern == "together":
            return int(self.online_us - self.fabric.env.now % self.online_us)
        return int(self.online_us if self.pattern == "regular" else stream.expovariate(1 / self.online_us))

    def _starts_clean(self, stream: Random) -> bool:
        return bool(self.clean_start_share) and stream.random() < self.clean_start_share

    def _take_over(self, subscriber: int, stream: Random) -> None:
        """The broker that had the client closes the old connection (MQTT-3.1.4-3)."""
        fabric = self.fabric
        fabric.count("takeovers")
        fabric.disconnect(subscriber)
        old = int(fabric.subscribers.broker[subscriber])
        fabric.next_broker(old).connect(subscriber, self._starts_clean(stream))
