"""`emqx-streams`: durable streams of a broker cluster, as its proposal has them with the repairs of notes/streams.md.

Publishers send each message when it is due, in order, with so many unanswered as the server allows; latency counts from
when it was due, so that what waits is seen. Who has no answer in time connects anew and sends all of them again. A
message goes to the leader of its shard (by topic or by publisher), waits there for the next flush, and is committed
when a follower has the batch too; then publishers are answered and readers woken.
Wildcard readers follow each shard by an iterator that they commit after delivery; those of a group ($share) have a
shard each, or more, and one checkpoint. What is committed is kept by the real `orderlab.sim.streams.shard.Shard`;
schema, patterns, times and walks are those of the store, the leader's clock with its skew too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from orderlab.model.errors import InputError
from orderlab.model.history.events import EventBatch, EventKind, Names, NameTable
from orderlab.model.history.topics import check_topic_filter, split_shared
from orderlab.sim.engine.clock import call_at
from orderlab.sim.streams.cluster import SKEW_TICKS, OnSpan, StreamsCluster
from orderlab.sim.streams.keys import level_hash
from orderlab.sim.streams.publisher import Publisher
from orderlab.sim.streams.reader import PAGE, Group, Reader
from orderlab.sim.streams.replicated_shard import ReplicatedShard
from orderlab.sim.streams.settings import StreamsSettings
from orderlab.sim.streams.shard import Message
from orderlab.sim.systems.blame import Key, Reached
from orderlab.sim.systems.progress import SimulationProgress
from orderlab.sim.systems.system import TICK_US, MeasuredDelivery


class _TopicNames(list[str]):
    def name(self, code: int) -> bytes:
        """As the publishers of other systems are named."""
        return self[code].encode()


@dataclass(frozen=True)
class _Schedule:
    publishers: _TopicNames
    mean_per_s: float

    @property
    def count(self) -> int:
        return len(self.publishers)


@dataclass(frozen=True)
class _Traffic:
    schedule: _Schedule


class _StreamsNames:
    """Names of nodes and of faults in the history."""

    def __init__(self, system: StreamsCluster) -> None:
        self.operations = system.operations
        self._nodes = system.settings.nodes

    def all(self) -> list[str]:
        """The names of all nodes, by their codes."""
        return [f"node-{number}" for number in range(self._nodes)] + ["reader"]


class StreamsWorld:
    """What others observe: what was measured, the names, and the work of nodes."""

    def __init__(self, system: StreamsCluster) -> None:
        self._system = system
        self.measured = MeasuredDelivery(system.latency)
        self.names = _StreamsNames(system)
        self.traffic = _Traffic(
            _Schedule(_TopicNames(system.topic_names), system.settings.rate * system.settings.publishers)
        )

    def observe(self, on_span: OnSpan) -> None:
        """Tell of each batch that a node stores, copies or replays: (node, what, begin, end, messages)."""
        self._system.on_span = on_span


class StreamsSystem(StreamsCluster):
    """The assembled system."""

    def __init__(self, settings: StreamsSettings, seed: int, sinks: list[Callable[[EventBatch], None]]) -> None:
        check_topic_filter(settings.topic_filter)
        self.is_group = split_shared(settings.topic_filter)[0] is not None
        if 0 < settings.retention_s < 0.01:
            raise InputError(
                f"retention_s {settings.retention_s:g}: clocks of the store tick in milliseconds; give 0.01 or more, "
                "or 0 to keep all"
            )
        if self.is_group and not settings.readers:
            raise InputError(
                f"topic_filter {settings.topic_filter}: a group of no readers; set readers to 1 or more, or leave "
                "$share/GROUP/ out"
            )
        super().__init__(settings, seed, sinks)
        phases = self.streams.stream("phases")
        self.shards = [ReplicatedShard(self, number) for number in range(settings.shards)]
        self.publishers = [
            Publisher(self, number, phases.random(), self.shard_of) for number in range(settings.publishers)
        ]
        kind, count = (Group, 1) if self.is_group else (Reader, settings.readers)
        self.readers: list[Reader] = [
            kind(self, settings.publishers + number, settings.topic_filter, self.shards) for number in range(count)
        ]
        self.auditor: Reader = Reader(self, settings.publishers + count, "#", self.shards)
        self.world = StreamsWorld(self)
        self.schedule_faults("target", lambda name: settings.readers if name == "client-link-cut" else settings.nodes)

    def shard_of(self, topic: str, publisher: int) -> ReplicatedShard:
        name = topic if self.settings.shard_by == "topic" else str(publisher)
        return self.shards[level_hash(name, 32) % len(self.shards)]

    def held(self, message: Key, reader: int, way: Sequence[Reached]) -> list[str]:
        """What has it, after the run: a buffer, a batch, its shard, a socket."""
        publisher, topic, sequence = message
        name, payload = self.topic_names[topic], b"%d" % sequence
        replicated = self.shard_of(name, publisher)

        def has(messages: Iterable[Message]) -> bool:
            return any(one.topic == name and one.payload == payload for one in messages)

        at = f"shard {replicated.number} on node-{replicated.leader}"
        held = [f"buffer of {at}"] if has(one for *_, one in replicated.buffer) else []
        held += [f"batch of {at}, which a follower copies"] if has(one for *_, one in replicated.under_way) else []
        follows = next((one for one in (*self.readers, self.auditor) if one.code == reader), None)
        numbers = sorted(
            reached.offset for reached in way if reached.stage == "store" and reached.offset > replicated.dropped
        )
        if numbers:
            stands = (
                ""
                if follows is None
                else f"; {follows.who(replicated.number)} "
                + ("comes to it yet" if follows.comes_to(replicated.number, numbers[-1]) else "is past it")
            )
            held.append(f"{at}, number {numbers[-1]} of {replicated.shard.sequence}{stands}")
        if follows is not None and has(follows.under_way.get(replicated.number, ())):
            held.append(f"socket of node-{replicated.leader} to {follows.who(replicated.number)}")
        return held

    def blamable(self, message: Key, reader: int, published_us: float) -> list[tuple[str, str, int]]:
        """What struck nodes, which may have been down before the message was published, and the reader itself, or one
        of the group."""
        names = (
            [f"reader-{number}" for number in range(self.settings.readers)]
            if self.is_group
            else [f"reader-{reader - self.settings.publishers}"]
        )
        return [fault for fault in self.series.struck if fault[0] != "client-link-cut" or fault[1] in names]

    # -- faults ------------------------------------------------------------------------------------------------

    def strike(self, name: str, target: int, lasts_us: int) -> None:
        """A reader's connection is cut, a clock is behind, or a node is gone for a while."""
        until = int(self.env.now) + lasts_us
        if name == "client-link-cut":
            reader = self.readers[0 if self.is_group else target]
            reader.cut(target, until)
            self.struck(name, f"reader-{target}", lasts_us, -1, reader.code)
            return
        if name == "broker-clock-skew":
            self.behind[target] = SKEW_TICKS
            call_at(self.env, until, lambda: self.behind.__setitem__(target, 0))
        else:
            self.down_until_us[target] = max(self.down_until_us[target], until)
            for replicated in self.shards:
                if replicated.leader == target:
                    replicated.lose_leader()
            call_at(self.env, until, partial(self._come_back, target))
        self.struck(name, f"node-{target}", lasts_us, target)

    def _come_back(self, node: int) -> None:
        """A node is up again, with new connections; shards that had too few nodes get a leader."""
        for replicated in self.shards:
            if replicated.leader == node:
                replicated.link += 1
            replicated.elect()

    # -- the run -----------------------------------------------------------------------------------------------

    def run(self, on_progress: Callable[[SimulationProgress], None] | None = None) -> dict[str, Any]:
        """Run to the end; the report."""
        env, code = self.env, len(self.topic_names)
        for reader in (*self.readers, self.auditor):
            topic = code + (reader is self.auditor)
            self.recorder.add(EventKind.SUBSCRIBE, np.array([0]), subscriber=reader.code, topic=topic, qos=1)
        for publisher in self.publishers:
            call_at(env, publisher.due_us, publisher.publish)
        if self.settings.retention_s:
            call_at(env, self.settings.retention_s * 5e5, self._expire)
        for at in self.steps(TICK_US, self.over_us + TICK_US, on_progress):
            self.recorder.advance(at)
            self._sample()
        self._audit()
        if any(reader.is_behind() for reader in self.readers):
            self.recorder.add(EventKind.CUT, np.array([int(env.now)]))
        self.recorder.close(int(env.now))
        return self._report()

    def _sample(self) -> None:
        """Look at the slice that ends now."""
        now = float(self.env.now)
        waited = sum(station.waits.until(now) for station in self.stations)
        waiting = sum(len(replicated.buffer) for replicated in self.shards)
        self.series.close(now, ("latency_ms",), {"node": waited}, uncommitted_shards=waiting)

    def _audit(self) -> None:
        """The auditor reads all that it has not."""
        for number, replicated in enumerate(self.shards):
            page = True
            while page:
                messages, iterator = replicated.shard.next(self.auditor.iterators[number], PAGE)
                self.auditor.iterators[number] = self.auditor.committed[number] = iterator
                self.auditor.hand(number, messages)
                page = bool(messages)

    def _expire(self) -> None:
        """Retention; the auditor is an archive, and reads before anything is dropped."""
        self._audit()
        for replicated in self.shards:
            replicated.expire(round(self.settings.retention_s * 1000))
        call_at(self.env, self.env.now + self.settings.retention_s * 5e5, self._expire)

    def _report(self) -> dict[str, Any]:
        held = [one.shard.sequence for one in self.shards]
        cost = [one.shard.cost for one in self.shards]
        return {
            **self.figures(self.latency.count),
            "recovery": self.series.recoveries(self.end_us, self.over_us),
            "redis_commands_per_s": {"per_node": [], "all": 0},
            "redis_requests_per_s": 0,
            "driver_flushes_per_s": 0,
            "streams": {
                "messages_per_shard": held,
                "skew": float(f"{max(held) * len(held) / max(sum(held), 1):.4g}"),
                "generations_kept": max(len(one.shard.generations) for one in self.shards),
                **({"group": one.report()} if isinstance(one := next(iter(self.readers), None), Group) else {}),
                "seeks_per_delivery": float(
                    f"{sum(one.seeks for one in cost) / max(sum(one.steps for one in cost), 1):.4g}"
                ),
            },
            "counts": self.all_counts(),
        }

    def is_quiet(self) -> bool:
        """Whether every publisher was answered."""
        return self.active == 0 and not any(one.under_way for one in self.publishers)

    def names(self) -> Names:
        """The names behind the codes of the history."""
        settings = self.settings
        clients = [
            *(f"publisher-{number}" for number in range(settings.publishers)),
            *(["group"] if self.is_group else (f"reader-{number}" for number in range(settings.readers))),
            "auditor",
        ]
        return Names(
            clients=NameTable(clients),
            topics=NameTable([*self.topic_names, settings.topic_filter, "#"]),
            nodes=NameTable(f"node-{number}" for number in range(settings.nodes)),
            operations=self.operations,
        )
