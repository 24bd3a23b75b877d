"""`tbmq-fan-out`: a few publishers, and many subscribers without a session that outlasts them, each with a wildcard
that takes all, at QoS 0.

Nothing is stored: `msg.all` → subscription trie → a copy for each subscriber → its socket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from orderlab.model.history.events import EventKind, Names, NameTable
from orderlab.sim.engine.clock import Station
from orderlab.sim.kafka.producer import Producer
from orderlab.sim.mqtt.broker.broker import MqttBroker
from orderlab.sim.mqtt.broker.delivery import Delivery
from orderlab.sim.mqtt.ports import Persistence, StoreDriver
from orderlab.sim.mqtt.world import World
from orderlab.sim.systems.devices import DeviceSystem
from orderlab.sim.systems.settings import RATE_MIN, DeviceSettings
from orderlab.sim.systems.tbmq_application import ALL, NoSessions


class FanOutSettings(DeviceSettings):
    """The defaults are the load of the published measurement."""

    publishers: int = Field(default=100, ge=1, le=10_000)
    rate: float = Field(default=10.0, ge=RATE_MIN, le=1000, allow_inf_nan=False)
    subscribers: int = Field(default=3000, ge=1, le=100_000)
    """Each gets every message."""
    qos: Literal[0] = 0  # what has a higher one is stored
    publish_qos: Literal[""] = ""
    subscription_qos: Literal[""] = ""
    retained_share: Literal[0] = 0
    payload_bytes: int = Field(default=66, ge=20, le=1_000_000)
    broker_cores: int = Field(default=32, ge=1, le=1024)
    costs: str = "cluster broker.deliver_us=4.5"
    """A copy without a packet identifier, encoded once for all: less than a delivery with QoS 1 (notes/predictions.md,
    Fan-out)."""
    warm_up_s: float = Field(default=0.1, ge=0, le=3600)
    duration_s: float = Field(default=0.2, ge=0.001, le=86_400)

    @model_validator(mode="after")
    def _nothing_is_kept(self) -> FanOutSettings:
        if self.sessions_end:
            raise ValueError(
                "no session outlasts its connection here; leave out clean_start_share and session_expiry_s"
            )
        return self


class StorelessDelivery(Delivery):
    """Delivery to subscribers for whom nothing waits when they come back: what was sent at QoS 0 while they were away
    is lost."""

    def send_backlog(self, subscriber: int, then: Callable[[], None]) -> None:
        """Note that a subscriber is back, and call ``then`` at once."""
        self.record_connect(subscriber)
        self._caught_up(subscriber, ())
        then()

    def wake(self, subscriber: int) -> None:
        """Do nothing: there is no session to read."""


class FanOutBroker(MqttBroker):
    """A broker without a session store."""

    def _delivery(self) -> Delivery:
        world = self.world
        return StorelessDelivery(self, world.traffic, world.storage, world.delivery, world.presence)


class FanOutSystem(DeviceSystem[FanOutSettings]):
    """Subscribers without a store."""

    stages = ("msg.all",)
    introduces_late = False

    def _persistence(self, lengths: tuple[int, int]) -> Persistence:
        return NoSessions()

    def _broker(self, world: World, number: int, producer: Producer, driver: StoreDriver, cpu: Station) -> MqttBroker:
        return FanOutBroker(world, number, self._broker_settings(), producer, driver, cpu)

    def _subscriber_count(self) -> int:
        return self.settings.subscribers

    def _watched(self) -> int:
        return 0

    def _subscriptions(self, topics: Sequence[bytes]) -> Iterable[tuple[str, int]]:
        return ((ALL, number) for number in range(self.settings.subscribers))

    def _start(self, world: World, persistence: Persistence) -> None:
        super()._start(world, persistence)
        codes = np.arange(self.settings.subscribers) + self.settings.publishers
        at = np.zeros(len(codes), np.int64)
        world.recorder.add(EventKind.CONNECT, at, subscriber=codes, **world.delivery.windows.columns)
        world.recorder.add(EventKind.SUBSCRIBE, at, subscriber=codes, topic=len(world.traffic.topics), qos=0)

    def is_quiet(self) -> bool:
        """Whether all that was published has reached everybody."""
        counts = self.world.measured.counts
        return counts.get("delivered", 0) >= counts.get("published", 0) * self.settings.subscribers

    def names(self) -> Names:
        """The names behind the codes of the history; the filter follows the topics."""
        return Names(
            clients=NameTable(name.decode() for name in self._client_names()),
            topics=NameTable([*(topic.decode() for topic in self.world.traffic.topics), ALL]),
            nodes=self._nodes(), operations=self.world.names.operations,
        )  # fmt: skip
