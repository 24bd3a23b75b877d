"""Subscribers that lose their connection again and again, and come back with Clean Start 0."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy

from sim.mqtt.fabric import Fabric


class Reconnects:
    """``share`` of the subscribers alternate between exponential times with and without a connection."""

    def __init__(self, fabric: Fabric, share: float, online_s: float, offline_s: float) -> None:
        self.fabric = fabric
        self.count = round(share * len(fabric.subscribers))
        self.online_us = online_s * 1e6
        self.offline_us = offline_s * 1e6

    def start(self) -> None:
        """The first ``count`` subscribers begin with a connection."""
        for subscriber in range(self.count):
            self.fabric.env.process(self._live(subscriber))

    def _live(self, subscriber: int) -> Generator[simpy.Event, Any, None]:
        fabric = self.fabric
        stream = fabric.streams.stream(f"reconnects/{subscriber}")
        while True:
            yield fabric.env.timeout(int(stream.expovariate(1 / self.online_us)))
            if fabric.is_draining:
                return  # who is here stays, so that the backlog can empty
            if not fabric.sessions.connected[subscriber]:
                continue  # a fault was faster
            fabric.disconnect(subscriber)
            yield fabric.env.timeout(int(stream.expovariate(1 / self.offline_us)))
            if not fabric.sessions.connected[subscriber]:
                fabric.next_broker(stream.randrange(len(fabric.brokers))).connect(subscriber)
