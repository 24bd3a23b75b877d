"""What every simulated system is: settings, a clock, a measured interval and a history. And what those have in common
that are no brokers of sessions: readers who follow, faults of their own, and a report of one kind of request."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from orderlab.model.history.events import EventBatch, EventKind, Names, NameTable
from orderlab.platform import collect_when_grown, rare_collections
from orderlab.sim.engine.clock import Clock, Waits, call_at
from orderlab.sim.engine.random_streams import RandomStreams
from orderlab.sim.engine.recorder import HistoryRecorder
from orderlab.sim.engine.statistics import LatencyHistogram
from orderlab.sim.fault_schedule import faults_among
from orderlab.sim.systems.blame import FeedWatch
from orderlab.sim.systems.progress import SimulationProgress
from orderlab.sim.systems.report import latency, warm_up
from orderlab.sim.systems.series import Series, Slices

TICK_US = 50_000
"""A slice of the series of systems that readers follow."""


class Timed(Protocol):
    """Settings of a run: how long it warms up, is measured, and goes on when nothing is published any more."""

    @property
    def warm_up_s(self) -> float: ...
    @property
    def duration_s(self) -> float: ...
    @property
    def drain_s(self) -> float: ...


class Faulty(Timed, Protocol):
    """Settings with a schedule of faults, and those that there are."""

    @property
    def faults(self) -> str: ...
    @property
    def lasts_s(self) -> Mapping[str, float]: ...


T = TypeVar("T", bound=Timed)
F = TypeVar("F", bound=Faulty)


class AssembledSystem(Generic[T]):
    """``run`` once. ``sinks`` get the history, batch by batch."""

    series: Series | Slices
    """The run over time."""
    world: Any
    """The parts of the system, with what they have measured."""

    def __init__(
        self,
        settings: T,
        seed: int,
        sinks: list[Callable[[EventBatch], None]],
        slack_us: int = 4 * TICK_US,
    ) -> None:
        collect_when_grown()
        self.settings, self.seed = settings, seed
        self.env = Clock()
        self.streams = RandomStreams(seed)
        self.begin_us = round(settings.warm_up_s * 1e6)
        self.end_us = self.begin_us + round(settings.duration_s * 1e6)
        self.over_us = self.end_us + round(settings.drain_s * 1e6)
        self.recorder = HistoryRecorder(sinks, slack_us=slack_us, more=self.more_columns())

    def more_columns(self) -> list[str]:
        """Of the history: those that only some runs have anything for."""
        return []

    @property
    def digest(self) -> str:
        """Digest of the bytes of the history."""
        return self.recorder.digest

    def run(self, on_progress: Callable[[SimulationProgress], None] | None = None) -> dict[str, Any]:
        """Run to the end; the report."""
        raise NotImplementedError

    def names(self) -> Names:
        """The names behind the codes of the history."""
        raise NotImplementedError

    def is_quiet(self) -> bool:
        """Whether all that was published has been delivered and acknowledged."""
        raise NotImplementedError

    def is_drained(self) -> bool:
        """Whether nothing is under way, and nothing was lost for want of room; what nobody is owed is not missed."""
        return self.is_quiet()


class Served(Protocol):
    """What serves and makes wait."""

    busy_us: float

    @property
    def waits(self) -> Waits: ...


@dataclass
class MeasuredDelivery:
    """What others observe of a run."""

    delivery_latency: LatencyHistogram


class FollowedSystem(AssembledSystem[F]):
    """Somebody publishes, readers follow. ``watch``, if there is one, is told where messages are."""

    series: Slices

    def __init__(
        self, settings: F, seed: int, sinks: list[Callable[[EventBatch], None]], counted: Sequence[str]
    ) -> None:
        super().__init__(settings, seed, sinks)
        self.counts = dict.fromkeys((*counted, "faults"), 0)
        self.published = self.delivered = 0
        self.operations = NameTable()
        self.latency = LatencyHistogram(self.begin_us, self.end_us)
        self.watch: FeedWatch | None = None
        self._usage: list[dict[str, list[tuple[float, float]]]] = []

    def servers(self) -> dict[str, tuple[Sequence[Served], int]]:
        """By kind, what serves, and the cores of each."""
        raise NotImplementedError

    def is_measured(self) -> bool:
        """Whether what happens now counts."""
        return self.begin_us <= self.env.now < self.end_us

    # -- faults ------------------------------------------------------------------------------------------------

    def schedule_faults(self, among: str, targets: Callable[[str], int]) -> None:
        """Let those of the settings strike. ``targets``: how many there are for a fault. Raises InputError."""
        for fault in faults_among(self.settings.faults, tuple(self.settings.lasts_s), among, targets, self.over_us):
            lasts_us = (
                round(self.settings.lasts_s[fault.name] * 1e6) if fault.duration_us is None else fault.duration_us
            )
            call_at(self.env, fault.at_us, partial(self.strike, fault.name, fault.target, lasts_us))

    def strike(self, name: str, target: int, lasts_us: int) -> None:
        """Let a fault happen, and ``struck`` write it down."""
        raise NotImplementedError

    def struck(self, name: str, where: str, lasts_us: int, node: int, reader: int = -1) -> None:
        """A fault has struck, and heals in time. ``reader``: whose connection is lost, who is handed again what it had
        not answered; nobody else is."""
        now = int(self.env.now)
        self.counts["faults"] += 1
        self.series.struck.append((name, where, now))
        self.recorder.add(
            EventKind.FAULT, np.array([now]), operation=self.operations.code(name), node=node, subscriber=reader
        )
        call_at(self.env, now + lasts_us, lambda: self.recorder.add(EventKind.HEAL, np.array([int(self.env.now)])))

    # -- the run -----------------------------------------------------------------------------------------------

    def steps(
        self, step_us: int, until_us: int, on_progress: Callable[[SimulationProgress], None] | None
    ) -> Iterator[int]:
        """Go on to the end, and look at the servers where the measured interval begins and ends; the instant after each
        step."""
        begun = time.perf_counter()
        for at in (self.begin_us, self.end_us):
            call_at(self.env, at, self._look)
        with rare_collections():
            for at in range(step_us, until_us, step_us):
                self.env.run(until=at)
                yield at
                if on_progress is not None:
                    on_progress(
                        SimulationProgress(at / 1e6, self.over_us / 1e6, self.published, time.perf_counter() - begun)
                    )

    def _look(self) -> None:
        now = self.env.now
        self._usage.append(
            {kind: [(one.busy_us, one.waits.until(now)) for one in each] for kind, (each, _) in self.servers().items()}
        )

    def figures(self, incoming: int) -> dict[str, Any]:
        """The part of the report that is the same for all. ``incoming``: requests that were answered in time."""
        before, after = self._usage
        span = self.end_us - self.begin_us
        loads, waits = (
            {
                kind: [
                    float(f"{(late[at] - early[at]) / span / (cores if at == 0 else 1):.4g}")
                    for early, late in zip(before[kind], after[kind], strict=True)
                ]
                for kind, (_, cores) in self.servers().items()
            }
            for at in (0, 1)
        )
        seconds = span / 1e6
        return {
            "measured_s": seconds,
            "warm_up": warm_up(self.latency),
            "throughput_per_s": {"in": round(incoming / seconds), "out": round(self.delivered / seconds)},
            "latency": {"request": latency(self.latency)},
            "utilisation": {kind: [min(load, 1.0) for load in each] for kind, each in loads.items()},
            "offered_load": loads,
            "mean_queue_length": waits,
        }

    def all_counts(self, **more: int) -> dict[str, int]:
        """All counters of the report."""
        return {
            **self.counts,
            **more,
            "delivered": self.delivered,
            "published": self.published,
            "requests": self.latency.count,
        }
