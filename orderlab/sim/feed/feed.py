"""What the parts of a feed share: queues, processes, draws, and what is noted of messages."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from orderlab.model.errors import InputError
from orderlab.model.history.events import EventBatch, EventKind, Names, NameTable
from orderlab.sim.costs.cost_model import Costs, WebCosts, load_costs
from orderlab.sim.engine.clock import Station
from orderlab.sim.engine.random_streams import RandomStreams
from orderlab.sim.feed.process import POST, Argv, RedisProcess, Work
from orderlab.sim.feed.settings import ZaqarSettings
from orderlab.sim.redis.shard import Shard
from orderlab.sim.redis.versions import VERSIONS
from orderlab.sim.systems.blame import Key, Reached
from orderlab.sim.systems.series import Slices
from orderlab.sim.systems.system import TICK_US, FollowedSystem, Served

PAST = ", past it"
"""Of a reader whose marker stands behind an entry."""


class Request(Protocol):
    """What a producer posts: to which queue, on which process, under which names."""

    queue: int
    place: int
    names: list[bytes]
    bodies: list[bytes]


class Follower(Protocol):
    """Who reads a queue, by the last message that it was handed."""

    queue: int
    code: int
    marker: bytes | None


class FeedSeries(Slices):
    """The run in slices of a tick. ``latency_ms`` is what producers wait for their answers, as in the report;
    ``delivery_ms`` from post to reader."""

    def __init__(self, feed: SharedFeed) -> None:
        super().__init__(TICK_US)
        self._feed = feed
        self.conflicts = 0
        self._posted_us: dict[tuple[int, int], array[int]] = defaultdict(lambda: array("q"))
        """By producer and queue, when each of its messages was posted."""

    def posted(self, producer: int, queue: int, count: int) -> None:
        self._posted_us[producer, queue].extend([int(self._feed.env.now)] * count)
        self.came += count

    def delivered(self, producer: int, queue: int, sequence: int) -> None:
        self.went += 1
        self.took("delivery_ms", 1, self._feed.env.now - self._posted_us[producer, queue][sequence - 1])

    def sample(self) -> None:
        """Look at the slice that ends now."""
        feed, now = self._feed, float(self._feed.env.now)
        waited = {"web": feed.head.waits.until(now), "redis": sum(one.waits.until(now) for one in feed.processes)}
        conflicts = {"conflicts_per_s": round(self.conflicts * 1e6 / TICK_US)} if feed.cure == "watch" else {}
        unread = {"unread_feeds": feed.entries} if feed.settings.readers else {}
        self.close(now, ("latency_ms", "delivery_ms"), waited, **conflicts, **unread)
        self.conflicts = 0


class SharedFeed(FollowedSystem[ZaqarSettings]):
    """The state; ``active`` producers have not been answered for the last time."""

    series: FeedSeries

    def __init__(self, settings: ZaqarSettings, seed: int, sinks: list[Callable[[EventBatch], None]]) -> None:
        super().__init__(settings, seed, sinks, ("connection_errors", "errors", "retried"))
        self.cure = settings.cure
        costs = load_costs(settings.costs)
        if costs.web is None:
            raise InputError(
                f"costs {settings.costs}: says nothing of a web head; add the table [web], as zaqar.toml has it"
            )
        self.web: WebCosts = costs.web
        self.work = Work.of(costs, settings.messages)
        self.head = Station(settings.web_cores)
        self.processes = [
            RedisProcess(Shard(version=VERSIONS[settings.server]), costs.redis.speed)
            for _ in range(settings.redis_processes)
        ]
        for process in self.processes:
            process.shard.execute((b"SCRIPT", b"LOAD", POST))
        self.counters = [b"%d.counter" % queue for queue in range(settings.queues)]
        self.reads: list[Sequence[Argv]] = [
            [(b"WATCH", key), (b"GET", key)][self.cure != "watch" :] for key in self.counters
        ]
        """How each counter is read."""
        self.feeds = [b"%d.messages" % queue for queue in range(settings.queues)]
        self.ttl = b"%d" % settings.ttl_s
        self.may_expire = settings.ttl_s * 1e6 <= self.over_us
        self.sent: dict[bytes, bytes] = {}
        """By name, what was posted, where its time may be over before the run is."""
        self.posted = self.conflicts = 0
        self.entries = 0
        """Of feeds, for each reader that has not been handed them."""
        self.series = FeedSeries(self)
        self._squares = 0.0
        self._held: dict[EventKind, list[tuple[int, ...]]] = {
            kind: []
            for kind in (EventKind.PUBLISH, EventKind.PUBLISH_ACKNOWLEDGED, EventKind.DELIVER, EventKind.EXPIRE)
        }
        self._answered: list[tuple[int, int]] = []
        self.draw_hop: Callable[[], float] = _hops(self.streams, costs, self.web).__next__
        rng, self.draws_of_windows = self.streams.stream("names"), self.streams.stream("windows")
        self.draw_queue: Callable[[], int] = _below(self.streams, settings.queues).__next__
        self.draw_name: Callable[[], int] = partial(rng.getrandbits, 64)
        self.active = settings.producers
        self.readers: Sequence[Follower] = ()
        self.auditor = settings.producers + settings.queues * settings.readers

    def servers(self) -> dict[str, tuple[Sequence[Served], int]]:
        """The web head, and the processes."""
        return {"web": ([self.head], self.head.servers), "redis": (self.processes, 1)}

    def is_going(self) -> bool:
        """Whether something may still be posted, or is under way."""
        return self.env.now < self.over_us and (self.active > 0 or self.env.now < self.end_us)

    def is_quiet(self) -> bool:
        """Whether every request was answered."""
        return self.active == 0

    def names(self) -> Names:
        """The names behind the codes of the history."""
        settings = self.settings
        readers = [f"reader-{queue}-{number}" for queue in range(settings.queues) for number in range(settings.readers)]
        return Names(
            clients=NameTable([*(f"producer-{number}" for number in range(settings.producers)), *readers, "auditor"]),
            topics=NameTable(f"queue-{queue}" for queue in range(settings.queues)),
            nodes=NameTable(f"redis-{number}" for number in range(settings.redis_processes)),
            operations=self.operations,
        )

    # -- what is noted -----------------------------------------------------------------------------------------

    def note(self, kind: EventKind, now: int, publisher: int, queue: int, sequence: int, last: int) -> None:
        """A row about a message; ``last``: DUP, or the reader for whom its time is over."""
        self._held[kind].append((now, publisher, queue, sequence, last))

    def deliver(self, now: int, publisher: int, queue: int, sequence: int, reader: int) -> None:
        """A reader was handed a message."""
        self._held[EventKind.DELIVER].append((now, publisher, queue, sequence, reader))
        if reader != self.auditor:
            self.series.delivered(publisher, queue, sequence)
        self.delivered += self.is_measured()

    def answered(self, started_us: int, now: int) -> None:
        """A request is done."""
        self._answered.append((started_us, now - started_us))
        self.posted += self.is_measured()

    def hand_over(self) -> None:
        for kind, rows in self._held.items():
            if rows:
                times, publishers, queues, sequences, last = np.array(rows, np.int64).T
                rows.clear()
                more = (
                    {"subscriber": last, "delivered_qos": 1}
                    if kind == EventKind.DELIVER
                    else {"subscriber" if kind == EventKind.EXPIRE else "dup": last}
                )
                self.recorder.add(kind, times, publisher=publishers, topic=queues, qos=1, sequence=sequences, **more)
        if self._answered:
            started, took = np.array(self._answered, np.int64).T
            self._answered.clear()
            self.latency.add(started, took)
            self.series.took("latency_ms", len(took), float(took.sum()))
            within = took[(started >= self.begin_us) & (started < self.end_us)].astype(np.float64)
            self._squares += float((within * within).sum())
        self.recorder.advance(int(self.env.now))

    def mean_square_us(self) -> float:
        """Of what requests took that were begun in the measured interval."""
        return self._squares / max(self.latency.count, 1)

    # -- whoever watches a message -----------------------------------------------------------------------------

    def tell(self, stage: str, producer: Request, place: str, at_us: float) -> None:
        """A stage has the messages of a producer's request."""
        assert self.watch is not None
        for at, body in enumerate(producer.bodies):
            self.watch.reached(
                self.message(producer.queue, body), stage, place, f"redis-{producer.place}", at_us, offset=at
            )

    def tell_stored(self, producer: Request) -> None:
        """Its messages are entries of their feed: which, and where readers stand."""
        assert self.watch is not None
        readers = [(reader.code, reader) for reader in self.readers if reader.queue == producer.queue]
        for at, (name, body) in enumerate(zip(producer.names, producer.bodies, strict=True)):
            message = self.message(producer.queue, body)
            if self.watch.wants(message):
                for code, reader in [*readers, (self.auditor, None)]:
                    entry = self._entry(producer.queue, name, reader)
                    self.watch.reached(
                        message, "store", entry, f"redis-{producer.place}", self.env.now, code, at, entry.endswith(PAST)
                    )

    @staticmethod
    def message(queue: int, body: bytes) -> Key:
        """Which one a hash holds."""
        publisher, _, sequence = body.partition(b":")
        return int(publisher), queue, int(sequence)

    def _entry(self, queue: int, name: bytes, reader: Follower | None) -> str:
        """An entry of a feed, beside where a reader stands."""
        place = queue % len(self.processes)
        execute, feed = self.processes[place].shard.execute, self.feeds[queue]
        number, size, rank = (
            execute((b"ZRANK", feed, name)),
            execute((b"ZCARD", feed)),
            execute((b"ZSCORE", feed, name)),
        )
        told = (
            f"queue-{queue} on redis-{place}, entry {number + 1 if isinstance(number, int) else 0} of {size}, "
            f"rank {rank.decode() if isinstance(rank, bytes) else rank}"
        )
        stands = execute((b"ZRANK", feed, reader.marker)) if reader is not None and reader.marker is not None else None
        if reader is not None and isinstance(stands, int) and isinstance(number, int):
            told += f"; {self.names().clients.label(reader.code)} stands at entry {stands + 1}" + (
                PAST if stands > number else ""
            )
        return told

    def held(self, message: Key, reader: int, way: Sequence[Reached]) -> list[str]:
        """What has it, after the run: an entry of its feed, or a hash that no entry leads to."""
        publisher, queue, sequence = message
        place = queue % len(self.processes)
        execute, body = self.processes[place].shard.execute, b"%d:%d" % (publisher, sequence)
        entries = execute((b"ZRANGE", self.feeds[queue], b"0", b"-1"))
        for name in entries if isinstance(entries, list) else []:
            if isinstance(name, bytes) and execute((b"HGET", name, b"b")) == body:
                return [self._entry(queue, name, next((one for one in self.readers if one.code == reader), None))]
        own, keys = {*self.feeds, *self.counters}, execute((b"KEYS", b"*"))
        hashes = [key for key in keys if isinstance(key, bytes) and key not in own] if isinstance(keys, list) else []
        return (
            [f"a hash on redis-{place} that no entry of queue-{queue} leads to"]
            if any(execute((b"HGET", key, b"b")) == body for key in hashes)
            else []
        )

    def blamable(self, message: Key, reader: int, published_us: float) -> list[tuple[str, str, int]]:
        """What struck the process of its queue since it was posted."""
        return [
            fault
            for fault in self.series.struck
            if fault[1] == f"redis-{message[1] % len(self.processes)}" and fault[2] >= published_us
        ]


def _hops(streams: RandomStreams, costs: Costs, web: WebCosts) -> Iterator[float]:
    """Delays of one way each, pauses included."""
    rng, network = streams.vector_stream("network"), costs.network
    while True:
        delays = network.floor_us + network.median_us * np.exp(network.sigma * rng.standard_normal(4096))
        pauses = rng.exponential(web.pause_us, 4096) if web.pause_us else np.zeros(4096)
        yield from (delays + pauses * (rng.random(4096) < web.pause_share / 2)).tolist()


def _below(streams: RandomStreams, count: int) -> Iterator[int]:
    rng = streams.vector_stream("queues")
    while True:
        yield from rng.integers(0, count, 4096).tolist()
