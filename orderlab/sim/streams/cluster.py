"""What the parts of the cluster share: nodes with their clocks and cores, the network, what is noted of messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from orderlab.model.history.events import EventBatch, EventKind
from orderlab.sim.costs.cost_model import load_costs
from orderlab.sim.engine.clock import Station
from orderlab.sim.streams.settings import StreamsSettings
from orderlab.sim.streams.shard import Message
from orderlab.sim.systems.series import Slices
from orderlab.sim.systems.system import TICK_US, FollowedSystem, Served

OnSpan = Callable[[str, str, float, float, int], None]
SKEW_TICKS = 60_000
"""Milliseconds by which a wrong clock is behind."""


class Sender(Protocol):
    """Whose message it is."""

    @property
    def name(self) -> str: ...

    def answered(self, attempt: int, message: Message) -> None:
        """Over the connection of that attempt the server says that it has the message."""


class Follower(Protocol):
    """A reader that a shard wakes when it has grown."""

    code: int

    def wake(self, number: int) -> None:
        """There may be something in the shard."""


class StreamsSeries(Slices):
    """The run in slices of a tick: what was published and delivered to readers, how late first deliveries were."""

    def __init__(self) -> None:
        super().__init__(TICK_US)
        self._due_us: dict[tuple[int, int], float] = {}

    def published(self, topic: int, sequence: int, due_us: float) -> None:
        self._due_us[topic, sequence] = due_us
        self.came += 1

    def delivered(self, topic: int, sequence: int, now_us: float) -> None:
        """For the first time."""
        self.took("latency_ms", 1, now_us - self._due_us[topic, sequence])


class StreamsCluster(FollowedSystem[StreamsSettings]):
    """The state; ``active`` publishers have something to publish yet."""

    series: StreamsSeries

    def __init__(self, settings: StreamsSettings, seed: int, sinks: list[Callable[[EventBatch], None]]) -> None:
        super().__init__(settings, seed, sinks, ("sent_again", "repeated", "told_dropped"))
        costs = load_costs(settings.costs)
        self.broker, self.network = costs.broker, costs.network
        self._draws = self.streams.stream("network")
        self.interval_us = 1e6 / settings.rate
        self.stations = [Station(settings.node_cores) for _ in range(settings.nodes)]
        self.down_until_us = [0.0] * settings.nodes
        self.behind = [0] * settings.nodes
        self.topic_names = [
            f"site/{publisher}/{topic}" for publisher in range(settings.publishers) for topic in range(settings.topics)
        ]
        self.topic_codes = {name: code for code, name in enumerate(self.topic_names)}
        self.publisher_shares, self.topic_shares = (
            _zipf(settings.publishers, settings.zipf),
            _zipf(settings.topics, settings.zipf),
        )
        self.series = StreamsSeries()
        self.readers: Sequence[Follower] = ()
        self.auditor: Follower
        self.on_span: OnSpan | None = None
        self.active = settings.publishers

    def servers(self) -> dict[str, tuple[Sequence[Served], int]]:
        """The nodes."""
        return {"node": (self.stations, self.settings.node_cores)}

    def clock(self, node: int) -> int:
        """Milliseconds, by the node's own clock."""
        return max(int(self.env.now) // 1000 + 2 * SKEW_TICKS - self.behind[node], 0)

    def hop(self) -> float:
        """Microseconds of one way."""
        return float(
            self.network.floor_us + self.network.median_us * np.exp(self.network.sigma * self._draws.gauss(0, 1))
        )

    def is_down(self, node: int) -> bool:
        return self.down_until_us[node] > self.env.now

    def serve(self, node: int, work_us: float, what: str, messages: int) -> float:
        """When a node will have done a batch that it gets now."""
        begin = self.env.now
        done = self.stations[node].serve(begin, work_us)
        if self.on_span is not None:
            self.on_span(f"node-{node}", what, begin, done, messages)
        return done

    # -- what is noted -----------------------------------------------------------------------------------------

    def note(self, kind: EventKind, publisher: int, topic: int, sequence: int, dup: int) -> None:
        """A row about a message."""
        self.recorder.add(
            kind, np.array([int(self.env.now)]), publisher=publisher, topic=topic, qos=1, sequence=sequence, dup=dup
        )

    def deliver(self, publisher: int, topic: int, sequence: int, reader: int, again: bool) -> None:
        """A reader was handed a message; ``again`` after a lost connection."""
        now = int(self.env.now)
        self.recorder.add(
            EventKind.DELIVER,
            np.array([now]),
            publisher=publisher,
            topic=topic,
            qos=1,
            sequence=sequence,
            subscriber=reader,
            delivered_qos=1,
            dup=int(again),
        )
        if reader != self.auditor.code:
            self.series.went += 1
            if not again:
                self.series.delivered(topic, sequence, self.env.now)
        self.delivered += self.is_measured()
        self.counts["repeated"] += again

    # -- whoever watches a message -----------------------------------------------------------------------------

    def tell(
        self,
        stage: str,
        place: str,
        node: int | str,
        messages: list[Message],
        reader: int | None = None,
        at_us: float | None = None,
        offset: int = 0,
        by: str = "",
    ) -> None:
        """A stage has these messages, now unless told otherwise."""
        assert self.watch is not None
        for message in messages:
            key = int(message.publisher), self.topic_codes[message.topic], int(message.payload)
            where = node if isinstance(node, str) else f"node-{node}"
            self.watch.reached(
                key, stage, place, where, self.env.now if at_us is None else at_us, reader, offset, by=by
            )


def _zipf(count: int, exponent: float) -> list[float]:
    """Shares that sum to one."""
    shares = [1 / (at + 1) ** exponent for at in range(count)]
    all_of_them = sum(shares)
    return [one / all_of_them for one in shares]
