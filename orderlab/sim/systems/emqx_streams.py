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

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from orderlab.model.errors import InputError
from orderlab.model.history.events import EventBatch, EventKind, Names, NameTable
from orderlab.model.history.topics import check_topic_filter, split_shared
from orderlab.sim.costs import load_costs
from orderlab.sim.engine.clock import Clock, Station, call_at
from orderlab.sim.engine.random_streams import RandomStreams
from orderlab.sim.engine.recorder import HistoryRecorder
from orderlab.sim.engine.statistics import LatencyHistogram
from orderlab.sim.fault_schedule import parse_faults
from orderlab.sim.streams.keys import HashedLevels, LearnedPatterns, level_hash
from orderlab.sim.streams.ordered_store import MemoryStore
from orderlab.sim.streams.shard import Dropped, Iterator, Message, Schema, Shard
from orderlab.sim.systems.report import latency, warm_up
from orderlab.sim.systems.running import SimulationProgress, rare_collections
from orderlab.sim.systems.series import Slices
from orderlab.sim.systems.settings import RATE_MIN, Settings

if TYPE_CHECKING:
    from orderlab.sim.systems.whereabouts import FeedWatch, Key, Reached

FAULTS = {"broker-crash": 0.2, "broker-clock-skew": 0.5, "client-link-cut": 0.05}
"""What can strike, and for how long unless told otherwise, in seconds: a node (its shards are led by the next one after
that time), the clock of a node, which is behind for that time, a reader's connection."""
OnSpan = Callable[[str, str, float, float, int], None]
TICK_US = 50_000
PAGE = 100
REPLICAS = 3
"""Nodes that have a shard, if there are so many; what two of them have is committed."""
SKEW_TICKS = 60_000
"""Milliseconds by which a wrong clock is behind."""


class StreamsSettings(Settings):
    """The costs of the store are those that `orderlab bench streams` measured (notes/streams.md, Figures)."""

    publishers: int = Field(default=100, ge=1, le=100_000)
    rate: float = Field(default=20.0, ge=RATE_MIN, le=1000, allow_inf_nan=False)
    """Messages of a publisher in a second, in the mean of all; each begins at an instant of its own."""
    server_receive_maximum: int = Field(default=32, ge=1, le=65_535)
    """Messages of a publisher that may be under way; more wait for answers."""
    zipf: float = Field(default=0.0, ge=0, le=3, allow_inf_nan=False)
    """Exponent of uneven load: the n-th publisher's rate is as 1 / n ** zipf, and so are its topics'."""
    topics: int = Field(default=2, ge=1, le=100)
    """Of each publisher: ``site/PUBLISHER/TOPIC``."""
    readers: int = Field(default=2, ge=0, le=1000)
    topic_filter: str = "site/+/0"
    """Of every reader; with $share/GROUP/ before it they are one group. A last reader reads everything."""
    lease_ms: float = Field(default=50.0, ge=0.1, le=60_000)
    """After which what a member of the group had goes to others, once its connection is lost."""
    retention_s: float = Field(default=0.0, ge=0, le=86_400, allow_inf_nan=False)
    """What was stored longer ago is dropped, by generations of half that time; 0 keeps all."""
    nodes: int = Field(default=3, ge=2, le=100)
    node_cores: int = Field(default=8, ge=1, le=1024)
    shards: int = Field(default=6, ge=1, le=1000)
    shard_by: Literal["topic", "publisher"] = "topic"
    schema_kind: Literal["learned", "hashed"] = "learned"
    flush_ms: float = Field(default=2.0, ge=0.01, le=10_000)
    """Between two batches of a shard."""
    acknowledge: Literal["committed", "buffered"] = "committed"
    """When a publisher is answered; ``buffered`` is a specimen."""
    commit: Literal["delivered", "read"] = "delivered"
    """When a reader's iterator is committed; ``read``, before what it read has arrived, is a specimen."""
    reconnect_ms: float = Field(default=20.0, ge=0.1, le=60_000)
    resend_ms: float = Field(default=300.0, ge=1, le=60_000)
    """After which a publisher without an answer sends again."""
    store_us: float = Field(default=2.09, ge=0, le=1e6)
    """Of a core, for a message that is stored, on the leader and on a follower: ``ingest`` of the bench."""
    read_us: float = Field(default=0.47, ge=0, le=1e6)
    """Of a core, for a message that is replayed: ``replay`` of the bench."""
    faults: str = ""
    """``name@seconds:target:duration``: broker-crash and broker-clock-skew strike a node, client-link-cut a reader."""
    costs: str = "cluster"
    warm_up_s: float = Field(default=0.3, ge=0, le=3600)
    duration_s: float = Field(default=2.0, ge=0.001, le=86_400)
    drain_s: float = Field(default=1.0, ge=0.001, le=3600)


class _Partition:
    """A shard with its leader and what waits there for the next flush."""

    def __init__(self, system: StreamsSystem, number: int) -> None:
        settings = system.settings
        self.system, self.number = system, number
        self.replicas = [(number + more) % settings.nodes for more in range(min(REPLICAS, settings.nodes))]
        self.leader = number % settings.nodes
        self.term = 0
        self.link = 0
        """What publishers send over a connection that is older than this does not arrive: its leader is gone, or has
        dropped a batch, and what came behind that must not be stored before it comes again."""
        self.buffer: list[_Sent] = []
        self.under_way: list[_Sent] = []
        """The batch that a follower copies."""
        self.is_flushing = False
        self.shard = Shard(
            MemoryStore(),
            lambda: system.clock(self.leader),
            self.schema(),
            elapsed_ms=lambda: int(system.env.now) // 1000,
        )

    def schema(self) -> Schema:
        """A fresh one for a generation."""
        return LearnedPatterns() if self.system.settings.schema_kind == "learned" else HashedLevels()

    def expire(self, age_ms: int) -> None:
        """Begin a generation, and drop those whose messages were all stored longer ago."""
        if self.shard.has_fresh:
            self.shard.new_generation(self.schema())
        self.shard.expire(age_ms)
        if self.system.watch is not None:
            self.system.watch.expired(self.number, self.dropped, self.system.env.now)

    @property
    def dropped(self) -> int:
        """Up to which number retention has dropped messages."""
        return self.shard.generations[min(self.shard.generations)].since

    def take(self, publisher: _Publisher, attempt: int, link: int, message: Message) -> None:
        """A message arrives at the leader; one that is down does not hear it, nor another than it was sent to."""
        system = self.system
        if system.is_down(self.leader) or link != self.link:
            if system.watch is not None:
                system.tell(
                    "publisher",
                    f"{publisher.name}, not heard by node-{self.leader}, which is down or did not lead yet",
                    self.leader,
                    [message],
                )
            return
        if system.watch is not None:
            system.tell(
                "leader",
                f"buffer of shard {self.number} on node-{self.leader}",
                self.leader,
                [message],
                offset=len(self.buffer),
            )
        done = system.stations[self.leader].serve(system.env.now, system.broker.ingest_us)
        self.buffer.append((publisher, attempt, message))
        if system.settings.acknowledge == "buffered":
            call_at(system.env, done + system.hop(), partial(publisher.answered, attempt, message))
        if not self.is_flushing:
            self.is_flushing = True
            call_at(system.env, done + system.settings.flush_ms * 1000, partial(self.flush, self.term))

    def flush(self, term: int) -> None:
        """Send the batch to a follower."""
        if term != self.term:
            return
        system = self.system
        batch, self.buffer = self.buffer, []
        work = system.settings.store_us * len(batch)
        here = system.serve(self.leader, work, "store", len(batch))
        others = [node for node in sorted(self.replicas) if node != self.leader and not system.is_down(node)]
        if not others:  # no majority: what is in the batch is not answered, and sent again by its publishers
            self.is_flushing = False
            self.link += 1
            if system.watch is not None:
                system.tell(
                    "loss",
                    f"lost with a batch of shard {self.number} that no node was up to copy",
                    "",
                    [message for *_, message in batch],
                    by="broker-crash",
                )
            return
        self.under_way = batch
        if system.watch is not None:
            copied = f"batch of shard {self.number}, sent from node-{self.leader} to node-{others[0]} to be copied"
            system.tell("follower", copied, self.leader, [message for *_, message in batch])
        call_at(system.env, here + system.hop(), partial(self.copy, term, batch, others[0]))

    def copy(self, term: int, batch: list[_Sent], node: int) -> None:
        """The batch arrives at a follower."""
        system = self.system
        there = system.serve(node, system.settings.store_us * len(batch), "copy", len(batch))
        call_at(system.env, there + system.hop(), partial(self.committed, term, batch))

    def committed(self, term: int, batch: list[_Sent]) -> None:
        """Two nodes have it: answer publishers, wake readers."""
        if term != self.term:
            return
        system = self.system
        self.under_way = []
        self.shard.append([message for _, _, message in batch])
        if system.watch is not None:
            first = self.shard.sequence - len(batch) + 1
            for number, (_, _, message) in enumerate(batch, first):
                system.tell(
                    "store",
                    f"shard {self.number}, number {number}, on node-{self.leader} and a follower",
                    self.leader,
                    [message],
                    offset=number,
                )
        if system.settings.acknowledge == "committed":
            for publisher, attempt, message in batch:
                done = system.stations[self.leader].serve(system.env.now, system.broker.puback_us)
                call_at(system.env, done + system.hop(), partial(publisher.answered, attempt, message))
        for reader in system.readers:
            reader.wake(self.number)
        self.is_flushing = bool(self.buffer)
        if self.is_flushing:
            call_at(system.env, system.env.now + system.settings.flush_ms * 1000, partial(self.flush, term))

    def lose_leader(self) -> None:
        """What it had not committed is gone. The next node that is up takes over."""
        system = self.system
        self.term += 1
        self.link += 1
        if system.watch is not None:
            lost = f"lost with node-{self.leader}, which led shard {self.number} and had not committed it"
            system.tell(
                "loss",
                lost,
                self.leader,
                [message for *_, message in (*self.under_way, *self.buffer)],
                by="broker-crash",
            )
        self.buffer, self.under_way, self.is_flushing = [], [], False
        self.elect()

    def elect(self) -> None:
        """The next node of the shard's takes over, if most of them are up: one of any two has all that is committed.
        Of only two nodes each has."""
        nodes = self.system.settings.nodes
        up = [node for node in self.replicas if not self.system.is_down(node)]
        if self.leader not in up and len(up) >= min(REPLICAS, nodes) - 1:
            self.leader = min(up, key=lambda node: (node - self.leader) % nodes)
            self.link += 1


class _Publisher:
    """Sends when a message is due, and all that is not answered again when an answer does not come in time."""

    def __init__(self, system: StreamsSystem, number: int, phase: float) -> None:
        """``phase``: from 0 to 1, of the interval, when it begins."""
        self.system, self.number = system, number
        self.sequences = [0] * system.settings.topics
        self.attempt = 0
        """Counts connections."""
        self.interval_us = system.interval_us / (system.settings.publishers * system.publisher_shares[number])
        self.due_us = phase * self.interval_us
        self.credits = [0.0] * system.settings.topics
        self.under_way: dict[tuple[str, bytes], tuple[Message, float]] = {}
        """By topic and payload, what is not answered, and when it was due; in the order in which it was published."""
        self.links: dict[int, tuple[int, float]] = {}
        """By shard, over which connection to its leader messages go, and when the last will have arrived."""
        self.is_held_up = False

    def publish(self) -> None:
        """The next message, which is due."""
        system = self.system
        if self.due_us >= system.end_us:
            system.active -= 1
            return
        self.is_held_up = len(self.under_way) >= system.settings.server_receive_maximum
        if self.is_held_up:
            return
        # the topic that is furthest behind its share
        self.credits = [credit + weight for credit, weight in zip(self.credits, system.topic_shares, strict=True)]
        topic = max(range(len(self.credits)), key=lambda at: (round(self.credits[at], 9), -at))
        self.credits[topic] -= 1
        self.sequences[topic] += 1
        code = self.number * system.settings.topics + topic
        message = Message(system.topic_names[code], str(self.number), b"%d" % self.sequences[topic])
        self.under_way[message.topic, message.payload] = message, self.due_us
        system.series.published(code, self.sequences[topic], self.due_us)
        system.published += self.due_us >= system.begin_us
        self.send(message, 0)
        self.due_us += self.interval_us
        call_at(system.env, max(system.env.now, self.due_us), self.publish)

    def send(self, message: Message, dup: int) -> None:
        """To whoever leads the shard, behind what was sent there; again if no answer comes."""
        system = self.system
        self.note(EventKind.PUBLISH, message, dup)
        partition = system.partition_of(message.topic, self.number)
        link, last_us = self.links.get(partition.number, (partition.link, 0.0))
        arrives_us = max(system.env.now + system.hop(), last_us)
        self.links[partition.number] = link, arrives_us
        if system.watch is not None:
            system.tell(
                "publisher",
                f"{self.name}, sent to node-{partition.leader}, which leads shard {partition.number}",
                partition.leader,
                [message],
            )
        call_at(system.env, arrives_us, partial(partition.take, self, self.attempt, link, message))
        again_us = system.env.now + system.settings.resend_ms * 1000
        call_at(system.env, again_us, partial(self.send_again, self.attempt, message))

    def note(self, kind: EventKind, message: Message, dup: int = 0) -> None:
        """A row about a message."""
        self.system.note(kind, self.number, self.system.topic_codes[message.topic], int(message.payload), dup=dup)

    @property
    def name(self) -> str:
        return f"publisher-{self.number}"

    def send_again(self, attempt: int, message: Message) -> None:
        """No answer in time: over a new connection all that is not answered, in the order in which it was published
        (MQTT-4.4.0-1)."""
        if attempt != self.attempt or (message.topic, message.payload) not in self.under_way:
            return
        self.attempt += 1
        self.links.clear()
        self.system.counts["sent_again"] += len(self.under_way)
        for one, _ in list(self.under_way.values()):
            self.send(one, 1)

    def answered(self, attempt: int, message: Message) -> None:
        """Over the connection that there is; what was stored over an earlier one is stored twice."""
        system = self.system
        if attempt != self.attempt or (message.topic, message.payload) not in self.under_way:
            return
        _, due = self.under_way.pop((message.topic, message.payload))
        now, due_us = int(system.env.now), int(due)
        self.note(EventKind.PUBLISH_ACKNOWLEDGED, message)
        system.latency.add(np.array([due_us]), np.array([now - due_us]))
        if self.is_held_up:
            self.publish()


_Sent = tuple[_Publisher, int, Message]
"""A message as the leader has it: whose, and over which of its connections."""


class _Reader:
    """Follows every shard by an iterator. One page of a shard is under way at a time."""

    def __init__(self, system: StreamsSystem, code: int, topic_filter: str) -> None:
        self.system, self.code = system, code
        self.iterators: list[Iterator] = [one.shard.replay(topic_filter) for one in system.partitions]
        self.committed = list(self.iterators)
        self.is_busy = [False] * len(self.iterators)
        self.connections = [0] * len(self.iterators)
        """By shard: what was sent over an earlier one does not arrive."""
        self.under_way: dict[int, list[Message]] = {}
        """By shard, the page that has left for the reader."""
        self.delivered: set[tuple[int, int]] = set()
        self.down_until_us = 0.0

    def who(self, number: int) -> str:
        """Who is sent the shard."""
        settings = self.system.settings
        return "auditor" if self is self.system.auditor else f"reader-{self.code - settings.publishers}"

    def hears(self, number: int) -> bool:
        """Whether pages of the shard can be sent."""
        return self.system.env.now >= self.down_until_us

    def wake(self, number: int) -> None:
        """There may be something in the shard."""
        if not self.is_busy[number] and self.hears(number):
            self.is_busy[number] = True
            self.read(number, self.connections[number])

    def page(self, number: int) -> tuple[list[Message], Iterator]:
        """The next page; behind what retention has dropped, if it has."""
        shard = self.system.partitions[number].shard
        try:
            return shard.next(self.iterators[number], PAGE)
        except Dropped as told:
            self.system.counts["told_dropped"] += 1
            return shard.next(told.iterator, PAGE)

    def comes_to(self, number: int, sequence: int | None) -> bool:
        """Whether what is behind the committed iterator has the message of that number in the shard, or any at all."""
        shard, iterator = self.system.partitions[number].shard, self.committed[number]
        while True:
            try:
                page, iterator = shard.next(iterator, PAGE)
            except Dropped as told:
                iterator = told.iterator
                continue
            if not page or sequence is None or any(message.sequence == sequence for message in page):
                return bool(page)

    def is_behind(self) -> bool:
        """Whether something that is still to be read, or has been and is under way, would come were the run longer."""
        return any(
            (is_busy or not self.hears(number)) and self.comes_to(number, None)
            for number, is_busy in enumerate(self.is_busy)
        )

    def read(self, number: int, connection: int) -> None:
        """The next page leaves."""
        system = self.system
        if connection != self.connections[number]:
            return
        leader = system.partitions[number].leader
        if system.is_down(leader):
            call_at(
                system.env, system.env.now + system.settings.reconnect_ms * 1000, partial(self.read, number, connection)
            )
            return
        page, iterator = self.page(number)
        if not page:
            self.iterators[number] = self.committed[number] = iterator
            self.is_busy[number] = False
            return
        if system.settings.commit == "read":
            self.committed[number] = iterator
        self.under_way[number] = page
        done = system.serve(
            leader, (system.settings.read_us + system.broker.deliver_us) * len(page), "replay", len(page)
        )
        if system.watch is not None:
            system.tell(
                "page", f"page of shard {number}, read on node-{leader} for {self.who(number)}", leader, page, self.code
            )
            system.tell("socket", f"socket of node-{leader} to {self.who(number)}", leader, page, self.code, at_us=done)
        call_at(system.env, done + system.hop(), partial(self.receive, number, connection, page, iterator))

    def receive(self, number: int, connection: int, page: list[Message], iterator: Iterator) -> None:
        """The page arrives, unless the connection is lost; its answer commits the iterator."""
        if connection != self.connections[number]:
            return
        self.under_way.pop(number, None)
        self.hand(number, page)
        call_at(
            self.system.env,
            self.system.env.now + self.system.hop(),
            partial(self.answered, number, connection, iterator),
        )

    def answered(self, number: int, connection: int, iterator: Iterator) -> None:
        """The broker hears that the page has arrived. If the connection is lost before, the next brings the page
        again."""
        if connection != self.connections[number]:
            return
        self.iterators[number] = self.committed[number] = iterator
        self.read(number, connection)

    def hand(self, number: int, page: list[Message]) -> None:
        system = self.system
        if system.watch is not None:
            system.tell("reader", f"{self.who(number)} is handed it", 0, page, self.code)
        for message in page:
            again = (number, message.sequence) in self.delivered
            self.delivered.add((number, message.sequence))
            system.deliver(
                int(message.publisher), system.topic_codes[message.topic], int(message.payload), self.code, again
            )

    def lose(self, number: int) -> None:
        """The connection over which the shard is read is gone; the next goes on at the committed iterator."""
        page = self.under_way.pop(number, [])
        if self.system.watch is not None:
            self.system.tell(
                "loss",
                f"lost with the connection of {self.who(number)}",
                self.who(number),
                page,
                self.code,
                by="client-link-cut",
            )
        self.connections[number] += 1
        self.iterators[number] = self.committed[number]
        self.is_busy[number] = False

    def cut(self, _: int, until_us: float) -> None:
        """The connection is lost for a while."""
        self.down_until_us = until_us
        for number in range(len(self.iterators)):
            self.lose(number)
            call_at(self.system.env, until_us, partial(self.wake, number))


class _Group(_Reader):
    """Members that share a replay. Each shard is one member's; the checkpoints are the group's, and so is what the
    history says of it."""

    def __init__(self, system: StreamsSystem, code: int, topic_filter: str) -> None:
        super().__init__(system, code, topic_filter)
        members = system.settings.readers
        self.owners: list[int | None] = [number % members for number in range(len(self.iterators))]
        self.asked: dict[int, int] = {}
        """Shards that another member has asked for: their owners give them up with the page under way."""
        self.member_down_until_us = [0.0] * members
        self.by_member = [0] * members
        self.redispatched = self.stolen = 0

    def is_up(self, member: int) -> bool:
        return self.system.env.now >= self.member_down_until_us[member]

    def load(self, member: int) -> int:
        return sum(self.asked.get(number, owner) == member for number, owner in enumerate(self.owners))

    def who(self, number: int) -> str:
        owner = self.owners[number]
        return "the group" if owner is None else f"reader-{owner}"

    def hears(self, number: int) -> bool:
        owner = self.owners[number]
        return owner is not None and self.is_up(owner)

    def hand(self, number: int, page: list[Message]) -> None:
        owner = self.owners[number]
        assert owner is not None
        self.by_member[owner] += len(page)
        super().hand(number, page)

    def read(self, number: int, connection: int) -> None:
        """Between two pages what another has asked for changes hands."""
        if connection == self.connections[number]:
            self.give(number)
        super().read(number, connection)

    def give(self, number: int) -> None:
        if number in self.asked:
            self.owners[number] = self.asked.pop(number)
            self.stolen += 1

    def cut(self, member: int, until_us: float) -> None:
        """A member is gone for a while: after the lease others have its shards, and when it is back it asks for
        some."""
        self.member_down_until_us[member] = max(self.member_down_until_us[member], until_us)
        self.asked = {number: to for number, to in self.asked.items() if to != member}
        now, lease_us = self.system.env.now, self.system.settings.lease_ms * 1000
        for number, owner in enumerate(self.owners):
            if owner == member:
                self.lose(number)
                self.owners[number] = None
                call_at(self.system.env, now + lease_us, partial(self.redispatch, number))
        call_at(self.system.env, until_us, partial(self.steal, member))

    def redispatch(self, number: int) -> None:
        """To who has least; if nobody is there, to the first that comes back."""
        up = [member for member in range(len(self.by_member)) if self.is_up(member)]
        if up and self.owners[number] is None:
            self.owners[number] = self.asked.pop(number, min(up, key=self.load))
            self.redispatched += 1
            self.wake(number)

    def steal(self, member: int) -> None:
        """A member without work asks the one that has most, until no other has two more."""
        if not self.is_up(member):
            return
        for number, owner in enumerate(self.owners):
            if owner is None:
                call_at(
                    self.system.env,
                    self.system.env.now + self.system.settings.lease_ms * 1000,
                    partial(self.redispatch, number),
                )
        while True:
            busiest = max(range(len(self.by_member)), key=self.load)
            if self.load(busiest) < self.load(member) + 2:
                return
            number = next(at for at, owner in enumerate(self.owners) if self.asked.get(at, owner) == busiest)
            self.asked[number] = member
            if not self.is_busy[number]:
                self.give(number)
                self.wake(number)

    def report(self) -> dict[str, Any]:
        """What each member was sent, and how often shards changed hands."""
        return {"by_member": self.by_member, "redispatched": self.redispatched, "stolen": self.stolen}


def _zipf(count: int, exponent: float) -> list[float]:
    """Shares that sum to one."""
    shares = [1 / (at + 1) ** exponent for at in range(count)]
    all_of_them = sum(shares)
    return [one / all_of_them for one in shares]


class _Measured:
    def __init__(self, delivery_latency: LatencyHistogram) -> None:
        self.delivery_latency = delivery_latency


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


class StreamsSeries(Slices):
    """The run in slices of a tick: what was published and delivered to readers, how late first deliveries were, what
    waits."""

    def __init__(self, system: StreamsSystem) -> None:
        super().__init__(TICK_US)
        self._system = system
        self._due_us: dict[tuple[int, int], float] = {}

    def published(self, topic: int, sequence: int, due_us: float) -> None:
        self._due_us[topic, sequence] = due_us
        self.came += 1

    def delivered(self, topic: int, sequence: int, again: bool) -> None:
        self.went += 1
        if not again:
            self.took("latency_ms", 1, self._system.env.now - self._due_us[topic, sequence])

    def sample(self) -> None:
        """Look at the slice that ends now."""
        system, now = self._system, float(self._system.env.now)
        waited = sum(station.waits.until(now) for station in system.stations)
        self.close(
            now, ("latency_ms",), {"node": waited}, uncommitted_shards=sum(len(one.buffer) for one in system.partitions)
        )


class StreamsWorld:
    """What others observe: what was measured, the names, and the work of nodes."""

    def __init__(self, system: StreamsSystem) -> None:
        self._system = system
        self.measured = _Measured(system.latency)
        self.operations = system.operations
        self.traffic = _Traffic(
            _Schedule(_TopicNames(system.topic_names), system.settings.rate * system.settings.publishers)
        )

    def observe(self, on_span: OnSpan) -> None:
        """Tell of each batch that a node stores, copies or replays: (node, what, begin, end, messages)."""
        self._system.on_span = on_span

    def node_names(self) -> list[str]:
        return [f"node-{number}" for number in range(self._system.settings.nodes)] + ["reader"]


class StreamsSystem:
    """The assembled system; ``run`` once. ``sinks`` get the history, batch by batch."""

    def __init__(self, settings: StreamsSettings, seed: int, sinks: list[Callable[[EventBatch], None]]) -> None:
        self.settings, self.seed = settings, seed
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
        self.env = Clock()
        costs = load_costs(settings.costs)
        self.broker, self.network = costs.broker, costs.network
        streams = RandomStreams(seed)
        self._draws, phases = streams.stream("network"), streams.stream("phases")
        self.begin_us = round(settings.warm_up_s * 1e6)
        self.end_us = self.begin_us + round(settings.duration_s * 1e6)
        self.over_us = self.end_us + round(settings.drain_s * 1e6)
        self.interval_us = 1e6 / settings.rate
        self.recorder = HistoryRecorder(sinks, slack_us=4 * TICK_US)
        self.stations = [Station(settings.node_cores) for _ in range(settings.nodes)]
        self.down_until_us = [0.0] * settings.nodes
        self.behind = [0] * settings.nodes
        self.counts = dict.fromkeys(("sent_again", "repeated", "faults", "told_dropped"), 0)
        self.published = self.delivered = 0
        self.operations = NameTable()
        self.latency = LatencyHistogram(self.begin_us, self.end_us)
        self.topic_names = [
            f"site/{publisher}/{topic}" for publisher in range(settings.publishers) for topic in range(settings.topics)
        ]
        self.topic_codes = {name: code for code, name in enumerate(self.topic_names)}
        self.publisher_shares, self.topic_shares = (
            _zipf(settings.publishers, settings.zipf),
            _zipf(settings.topics, settings.zipf),
        )
        self.partitions = [_Partition(self, number) for number in range(settings.shards)]
        self.publishers = [_Publisher(self, number, phases.random()) for number in range(settings.publishers)]
        kind, self.reader_count = (_Group, 1) if self.is_group else (_Reader, settings.readers)
        self.readers = [
            kind(self, settings.publishers + number, settings.topic_filter) for number in range(self.reader_count)
        ]
        self.world = StreamsWorld(self)
        self.series = StreamsSeries(self)
        self.auditor = _Reader(self, settings.publishers + self.reader_count, "#")
        self.on_span: OnSpan | None = None
        self.watch: FeedWatch | None = None
        self.active = settings.publishers
        self._schedule()

    # -- what parts ask ----------------------------------------------------------------------------------------

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

    def partition_of(self, topic: str, publisher: int) -> _Partition:
        name = topic if self.settings.shard_by == "topic" else str(publisher)
        return self.partitions[level_hash(name, 32) % len(self.partitions)]

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
            self.series.delivered(topic, sequence, again)
        self.delivered += self.begin_us <= now < self.end_us
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

    def held(self, message: Key, reader: int, way: Sequence[Reached]) -> list[str]:
        """What has it, after the run: a buffer, a batch, its shard, a socket."""
        publisher, topic, sequence = message
        name, payload = self.topic_names[topic], b"%d" % sequence
        partition = self.partition_of(name, publisher)

        def has(messages: Iterable[Message]) -> bool:
            return any(one.topic == name and one.payload == payload for one in messages)

        at = f"shard {partition.number} on node-{partition.leader}"
        held = [f"buffer of {at}"] if has(one for *_, one in partition.buffer) else []
        held += [f"batch of {at}, which a follower copies"] if has(one for *_, one in partition.under_way) else []
        follows = next((one for one in (*self.readers, self.auditor) if one.code == reader), None)
        numbers = sorted(
            reached.offset for reached in way if reached.stage == "store" and reached.offset > partition.dropped
        )
        if numbers:
            stands = (
                ""
                if follows is None
                else f"; {follows.who(partition.number)} "
                + ("comes to it yet" if follows.comes_to(partition.number, numbers[-1]) else "is past it")
            )
            held.append(f"{at}, number {numbers[-1]} of {partition.shard.sequence}{stands}")
        if follows is not None and has(follows.under_way.get(partition.number, ())):
            held.append(f"socket of node-{partition.leader} to {follows.who(partition.number)}")
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

    def _schedule(self) -> None:
        for fault in parse_faults(self.settings.faults):
            if fault.name not in FAULTS:
                raise InputError(f"faults: {fault.name}: does not strike this system; it is one of {', '.join(FAULTS)}")
            there = self.settings.readers if fault.name == "client-link-cut" else self.settings.nodes
            if fault.target >= there:
                raise InputError(
                    f"faults: {fault}: target {fault.target} is not there; there are {there}, numbered from 0"
                )
            if fault.at_us >= self.over_us:
                raise InputError(
                    f"faults: {fault}: the run is over after {self.over_us / 1e6:g} s; let it strike before that"
                )
            lasts_us = round(FAULTS[fault.name] * 1e6) if fault.duration_us is None else fault.duration_us
            call_at(self.env, fault.at_us, partial(self._strike, fault.name, fault.target, lasts_us))

    def _strike(self, name: str, target: int, lasts_us: int) -> None:
        now = int(self.env.now)
        until = now + lasts_us
        if name == "client-link-cut":
            self.readers[0 if self.is_group else target].cut(target, until)
        elif name == "broker-clock-skew":
            self.behind[target] = SKEW_TICKS
            call_at(self.env, until, lambda: self.behind.__setitem__(target, 0))
        else:
            self.down_until_us[target] = max(self.down_until_us[target], until)
            for partition in self.partitions:
                if partition.leader == target:
                    partition.lose_leader()
            call_at(self.env, until, partial(self._come_back, target))
        self.counts["faults"] += 1
        node = -1 if name == "client-link-cut" else target
        self.series.struck.append((name, f"reader-{target}" if node < 0 else f"node-{target}", now))
        # whose connection is lost is handed again what it had not answered; nobody else is
        reader = -1 if node >= 0 else self.readers[0 if self.is_group else target].code
        self.recorder.add(
            EventKind.FAULT, np.array([now]), operation=self.operations.code(name), node=node, subscriber=reader
        )
        call_at(self.env, until, lambda: self.recorder.add(EventKind.HEAL, np.array([int(self.env.now)])))

    def _come_back(self, node: int) -> None:
        """A node is up again, with new connections; shards that had too few nodes get a leader."""
        for partition in self.partitions:
            if partition.leader == node:
                partition.link += 1
            partition.elect()

    # -- the run -----------------------------------------------------------------------------------------------

    def run(self, on_progress: Callable[[SimulationProgress], None] | None = None) -> dict[str, Any]:
        """Run to the end; the report."""
        env, begun = self.env, time.perf_counter()
        code = len(self.topic_names)
        for reader in self.readers:
            self.recorder.add(EventKind.SUBSCRIBE, np.array([0]), subscriber=reader.code, topic=code, qos=1)
        self.recorder.add(
            EventKind.SUBSCRIBE,
            np.array([0]),
            subscriber=self.settings.publishers + len(self.readers),
            topic=code + 1,
            qos=1,
        )
        for publisher in self.publishers:
            call_at(env, publisher.due_us, publisher.publish)
        if self.settings.retention_s:
            call_at(env, self.settings.retention_s * 5e5, self._expire)
        busy: list[list[tuple[float, float]]] = []
        for at in (self.begin_us, self.end_us):
            call_at(
                env,
                at,
                lambda: busy.append([(station.busy_us, station.waits.until(env.now)) for station in self.stations]),
            )
        with rare_collections():
            for at in range(TICK_US, self.over_us + TICK_US, TICK_US):
                env.run(until=at)
                self.recorder.advance(at)
                self.series.sample()
                if on_progress is not None:
                    on_progress(
                        SimulationProgress(at / 1e6, self.over_us / 1e6, self.published, time.perf_counter() - begun)
                    )
        self._audit()
        if any(reader.is_behind() for reader in self.readers):
            self.recorder.add(EventKind.CUT, np.array([int(env.now)]))
        self.recorder.close(int(env.now))
        return self._report(busy)

    def _audit(self) -> None:
        """The auditor reads all that it has not."""
        for number, partition in enumerate(self.partitions):
            page = True
            while page:
                messages, iterator = partition.shard.next(self.auditor.iterators[number], PAGE)
                self.auditor.iterators[number] = self.auditor.committed[number] = iterator
                self.auditor.hand(number, messages)
                page = bool(messages)

    def _expire(self) -> None:
        """Retention; the auditor is an archive, and reads before anything is dropped."""
        self._audit()
        for partition in self.partitions:
            partition.expire(round(self.settings.retention_s * 1000))
        call_at(self.env, self.env.now + self.settings.retention_s * 5e5, self._expire)

    def _report(self, busy: list[list[tuple[float, float]]]) -> dict[str, Any]:
        seconds = (self.end_us - self.begin_us) / 1e6
        held = [one.shard.sequence for one in self.partitions]
        cost = [one.shard.cost for one in self.partitions]
        span = self.end_us - self.begin_us
        loads, queues = (
            [float(f"{(after[at] - before[at]) / span / each:.4g}") for before, after in zip(*busy, strict=True)]
            for at, each in ((0, self.settings.node_cores), (1, 1))
        )
        return {
            "measured_s": seconds,
            "warm_up": warm_up(self.latency),
            "throughput_per_s": {"in": round(self.latency.count / seconds), "out": round(self.delivered / seconds)},
            "latency": {"request": latency(self.latency)},
            "utilisation": {"node": [min(load, 1.0) for load in loads]},
            "offered_load": {"node": loads},
            "mean_queue_length": {"node": queues},
            "recovery": self.series.recoveries(self.end_us, self.over_us),
            "redis_commands_per_s": {"per_node": [], "all": 0},
            "redis_requests_per_s": 0,
            "driver_flushes_per_s": 0,
            "streams": {
                "messages_per_shard": held,
                "skew": float(f"{max(held) * len(held) / max(sum(held), 1):.4g}"),
                "generations_kept": max(len(one.shard.generations) for one in self.partitions),
                **({"group": one.report()} if isinstance(one := next(iter(self.readers), None), _Group) else {}),
                "seeks_per_delivery": float(
                    f"{sum(one.seeks for one in cost) / max(sum(one.steps for one in cost), 1):.4g}"
                ),
            },
            "counts": {
                **self.counts,
                "delivered": self.delivered,
                "published": self.published,
                "requests": self.latency.count,
            },
        }

    @property
    def digest(self) -> str:
        """Digest of the bytes of the history."""
        return self.recorder.digest

    def is_quiet(self) -> bool:
        """Whether every publisher was answered."""
        return self.active == 0 and not any(one.under_way for one in self.publishers)

    def is_drained(self) -> bool:
        """Whether nothing is under way any more: here, whether it is quiet."""
        return self.is_quiet()

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
