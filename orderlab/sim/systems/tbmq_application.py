"""`tbmq-application`: fan-in. Many devices publish; a few persistent APPLICATION clients read, alone or sharing the
work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from orderlab.model.history.events import EventKind, Names, NameTable
from orderlab.model.history.topics import split_shared
from orderlab.sim.engine.clock import Station
from orderlab.sim.engine.network import Network
from orderlab.sim.kafka.consumer_group import ConsumerGroup, ConsumerSettings
from orderlab.sim.kafka.producer import Producer, partitions_for_rows
from orderlab.sim.mqtt.application.broker import ApplicationBroker, ApplicationDelivery
from orderlab.sim.mqtt.application.sessions import Applications, Queue
from orderlab.sim.mqtt.clients import QosLevels, numbered_names
from orderlab.sim.mqtt.connections import UNLIMITED
from orderlab.sim.mqtt.ports import Persistence, StoreDriver
from orderlab.sim.mqtt.world import World
from orderlab.sim.servers.redis import RedisNode
from orderlab.sim.systems.behaviour import levels_of
from orderlab.sim.systems.devices import TOPIC_PREFIX, DeviceSystem
from orderlab.sim.systems.progress import SimulationProgress
from orderlab.sim.systems.settings import RATE_MIN, DeviceSettings

ALL = "p/#"
"""What applications subscribe to: the topics of all devices."""


class ApplicationSettings(DeviceSettings):
    """Devices as publishers, applications and groups as subscribers. ``offline_share`` is of the applications."""

    publishers: int = Field(default=2_000, ge=1, le=500_000)
    rate: float = Field(default=10.0, ge=RATE_MIN, le=1000, allow_inf_nan=False)
    applications: int = Field(default=1, ge=0, le=1000)
    """Each subscribes to all topics and gets every message."""
    shared_groups: int = Field(default=1, ge=0, le=1000)
    """Each gets every message, once for all of its members."""
    group_members: int = Field(default=4, ge=1, le=1000)
    device_groups: int = Field(default=1, ge=1, le=1000)
    """Of publishers, by turns: with more than one, an application or a group reads the topics of one of them,
    ``p/3/+``, again by turns."""
    application_partitions: int = Field(default=1, ge=1, le=1000)
    """Of the Kafka topic of an application."""
    shared_partitions: int = Field(default=12, ge=1, le=1000)
    """Of the Kafka topic of a group: more members than partitions are idle."""
    receive_maximum: int = Field(default=1000, ge=1, le=UNLIMITED)
    application_us: float = Field(default=10.0, ge=0, le=1e9)
    """What an application takes for one message, one after the other."""

    @model_validator(mode="after")
    def _sessions_of_members_stay(self) -> ApplicationSettings:
        """The history knows a group as one subscriber, whose session does not end with a member's."""
        if self.sessions_end and self.shared_groups:
            raise ValueError(
                "members of groups keep their sessions; set shared_groups=0, or leave out clean_start_share and "
                "session_expiry_s"
            )
        return self

    @model_validator(mode="after")
    def _queues_are_their_own(self) -> ApplicationSettings:
        for name in ("ownership", "socket_packets", "removals"):
            if name in self.model_fields_set and getattr(self, name) not in ("at-once", "once", 0):
                raise ValueError(
                    f"{name} is of subscribers with a session in a store; applications read queues of their own, "
                    "leave it out"
                )
        return self

    @model_validator(mode="after")
    def _somebody_reads(self) -> ApplicationSettings:
        if not self.applications and not self.shared_groups:
            raise ValueError("nobody subscribes; set applications or shared_groups above 0")
        return self


@dataclass
class NoSessions:
    """Applications need no session store: neither nodes nor calls."""

    nodes: list[RedisNode] = field(default_factory=list)
    flushes: int = 0
    is_busy: bool = False
    opens_sessions: bool = False
    numbers_batches: bool = False
    has_tokens: bool = False
    refuses_closed: bool = False

    @property
    def store(self) -> Any:
        return self

    def node_of(self, client: bytes) -> int:
        return 0

    def driver(self, cpu: Station, one_way_us: Callable[[], int]) -> Any:
        return self

    def join(self, network: Network, name: str) -> None:
        pass

    def lose(self, node: int) -> None:
        pass

    def close(self) -> None:
        pass


class ApplicationSystem(DeviceSystem[ApplicationSettings]):
    """Applications come first among the subscribers, then the members of the groups, group by group."""

    stages = ("msg.all", "msg.app")
    introduces_late = False

    def _persistence(self, lengths: tuple[int, int]) -> Persistence:
        return NoSessions()

    def _subscriber_count(self) -> int:
        settings = self.settings
        return settings.applications + settings.shared_groups * settings.group_members

    def _watched(self) -> int:
        """The Wills of applications are counted."""
        return 0

    @property
    def has_numbered_topics(self) -> bool:  # type: ignore[override]
        """Not where they begin with a group."""
        return self.settings.device_groups == 1

    def _topic_rows(self) -> npt.NDArray[np.uint8]:
        """``p/3/0000042`` where devices are in groups, and ``p/0000042`` where they are not."""
        settings, rows = self.settings, super()._topic_rows()
        groups = settings.device_groups
        if groups == 1:
            return rows
        first = len(TOPIC_PREFIX)
        names = numbered_names(TOPIC_PREFIX, groups, len(str(groups - 1)))[np.arange(settings.publishers) % groups]
        between = np.full((settings.publishers, 1), ord("/"), np.uint8)
        return np.concatenate((names, between, rows[:, first:]), axis=1)

    def _read(self) -> list[str]:
        """The filters that there are, without groups that share one."""
        groups = self.settings.device_groups
        return [ALL] if groups == 1 else [f"p/{number:0{len(str(groups - 1))}}/+" for number in range(groups)]

    def _filters(self) -> list[str]:
        """What each queue subscribes to: the applications', then the groups'."""
        settings, read = self.settings, self._read()
        alone = [read[number % len(read)] for number in range(settings.applications)]
        return alone + [f"$share/g{number}/{read[number % len(read)]}" for number in range(settings.shared_groups)]

    def _subscriptions(self, topics: Sequence[bytes]) -> Iterable[tuple[str, int]]:
        return (
            (split_shared(written)[1], first) for first, written in zip(self._firsts(), self._filters(), strict=True)
        )

    def _firsts(self) -> list[int]:
        """Per queue the number of its application, or of the first member of its group."""
        settings = self.settings
        groups = range(settings.applications, self._subscriber_count(), settings.group_members)
        return [*range(settings.applications), *groups]

    def groups(self) -> Mapping[int, range]:
        members = self.settings.group_members
        return {
            queue.code: range(queue.first, queue.first + members)
            for queue in self.applications.queues
            if queue.is_shared
        }

    def history_codes(self, subscribers: list[int]) -> npt.NDArray[np.int64]:
        """Those of applications with a connection of their own: nothing is owed to one member of a group."""
        queues = [self.applications.sessions[one].queue for one in subscribers]
        return np.array([queue.code for queue in queues if not queue.is_shared], np.int64)

    def _levels(self) -> QosLevels:
        """The members of a group have one subscription, and so one QoS."""
        settings, queue_of = self.settings, np.array(self._queue_of())
        levels = levels_of(settings, settings.publishers, len(self._filters()), self.streams)
        return replace(levels, granted=levels.granted if isinstance(levels.granted, int) else levels.granted[queue_of])

    def _start(self, world: World, persistence: Persistence) -> None:
        self.applications = Applications(
            self._queues(world), self._queue_of(), self.settings.receive_maximum, self.settings.application_us
        )
        world.presence.on_disconnect.append(self._disconnected)
        super()._start(world, persistence)
        codes = np.array([queue.code for queue in self.applications.queues])
        at, granted = np.zeros(len(codes), np.int64), world.traffic.qos.granted_to(np.array(self._firsts()))
        world.recorder.add(EventKind.CONNECT, at, subscriber=codes, **world.delivery.windows.columns)
        world.recorder.add(
            EventKind.SUBSCRIBE,
            at,
            subscriber=codes,
            topic=np.array([queue.filter_code for queue in self.applications.queues]),
            qos=granted,
        )
        for number in range(self._subscriber_count()):
            delivery = self.brokers[int(world.traffic.subscribers.broker[number])].delivery
            assert isinstance(delivery, ApplicationDelivery)
            delivery.begin(number)
        for queue in self.applications.queues:
            queue.group.join()

    def _queues(self, world: World) -> list[Queue]:
        settings, kafka = self.settings, world.kafka.cluster
        consuming = ConsumerSettings(
            max_poll_records=settings.max_poll_records, session_timeout_us=round(settings.session_timeout_s * 1e6)
        )
        topic_rows, read = self._topic_rows(), self._read()
        queues = []
        for number, (first, written) in enumerate(zip(self._firsts(), self._filters(), strict=True)):
            shared, _ = split_shared(written)
            name = f"msg.app.{number}" if shared is None else f"msg.app.shared.{shared}"
            count = settings.application_partitions if shared is None else settings.shared_partitions
            kafka.create_topic(name, count)
            group = ConsumerGroup(self.env, kafka, name, consuming)
            world.kafka.groups.append(group)
            code = settings.publishers + (first if shared is None else self._subscriber_count() + number)
            filter_code = len(world.traffic.topics) + read.index(split_shared(written)[1])
            queues.append(
                Queue(
                    group, partitions_for_rows(topic_rows, count), first, code, shared is not None, written, filter_code
                )
            )
        return queues

    def _queue_of(self) -> list[int]:
        settings = self.settings
        return list(range(settings.applications)) + [
            settings.applications + group
            for group in range(settings.shared_groups)
            for _ in range(settings.group_members)
        ]

    def _broker(
        self, world: World, number: int, producer: Producer, driver: StoreDriver, cpu: Station
    ) -> ApplicationBroker:
        return ApplicationBroker(world, number, self._broker_settings(), producer, driver, cpu, self.applications)

    def _disconnected(self, number: int) -> None:
        broker = self.world.brokers[int(self.world.traffic.subscribers.broker[number])]
        self.applications.sessions[number].lose_connection(
            int(self.world.delivery.connections.lost_us[number]), not broker.is_dead
        )

    def is_quiet(self) -> bool:
        """Whether all that was published is in the queues, delivered, acknowledged and committed."""
        world = self.world
        if world.awaits_answers() or not self.applications.is_idle():
            return False
        # Nobody reads what is left there.
        left = {consumer.group for broker in world.brokers if broker.is_dead for consumer in broker.downlink_consumers}
        return not any(
            group.committed[part] < part.log.end_offset
            for group in world.kafka.groups
            if group not in left
            for part in group.partitions
        )

    def is_drained(self) -> bool:
        """The same: what is not read stays in the queues."""
        return self.is_quiet()

    def run(self, on_progress: Callable[[SimulationProgress], None] | None = None) -> dict[str, Any]:
        """The report, with the queues as they are left at the end."""
        report = super().run(on_progress)
        return {
            **report,
            "lag_at_the_end": {queue.group.partitions[0].topic: queue.lag for queue in self.applications.queues},
        }

    def names(self) -> Names:
        """The names behind the codes: groups follow the clients, and stand for their members in the history; the filter
        follows the topics."""
        world, settings = self.world, self.settings
        clients = [name.decode() for name in self._client_names()]
        clients += ["" for _ in range(settings.applications)]
        clients += [f"$share/g{number}" for number in range(settings.shared_groups)]
        return Names(
            clients=NameTable(name or f"unused-{place}" for place, name in enumerate(clients)),
            topics=NameTable([*(topic.decode() for topic in world.traffic.topics), *self._read()]),
            nodes=self._nodes(), operations=world.names.operations,
        )  # fmt: skip
