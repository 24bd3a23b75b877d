"""`zaqar-watch`, `zaqar-lua`, `zaqar-race`: a message feed in Redis, and two cures of its race.

Producers post through one web head to feeds on a machine with a few Redis processes; readers list after a marker. A
message is a hash, and a member of its feed's sorted set with a rank from a counter. Read apart from the write, the
counter gives two producers one rank: a message can appear behind a marker. `zaqar-race` does that. `zaqar-watch`
watches the counter and begins again on a conflict, at once, for 10 s at most; then the client gets an error.
`zaqar-lua` writes the hashes first and lets a script take rank and counter; if nothing runs the script, they stay until
they expire.

Every command runs on the kernel, on the producer's own connection, when it reaches its process. Producers are closed
loops: each posts again once it is answered, so there are as many requests under way as producers (Little's law). WATCH
and GET, two round trips, are carried out at the first: what comes between them breaks the transaction either way.
"""

from __future__ import annotations

import hashlib
import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from orderlab.model.errors import InputError
from orderlab.model.history.events import EventBatch, EventKind, Names, NameTable
from orderlab.sim.costs import Costs, WebCosts, load_costs
from orderlab.sim.engine.clock import Clock, Station, Waits, call_at
from orderlab.sim.engine.random_streams import RandomStreams
from orderlab.sim.engine.recorder import HistoryRecorder
from orderlab.sim.engine.statistics import LatencyHistogram
from orderlab.sim.fault_schedule import parse_faults
from orderlab.sim.mqtt.sessions import EPOCH_MS
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import Shard
from orderlab.sim.systems.report import latency, warm_up
from orderlab.sim.systems.running import SimulationProgress, rare_collections
from orderlab.sim.systems.series import Slices
from orderlab.sim.systems.settings import Settings

if TYPE_CHECKING:
    from orderlab.sim.systems.whereabouts import FeedWatch, Key, Reached

POST = b"""-- Gives hashes that are there their ranks. KEYS: counter, feed; ARGV: their names
local rank = tonumber(redis.call('GET', KEYS[1]) or 0)
for first = 1, #ARGV, 1000 do  -- unpack has a limit
  local ranked = {}
  for at = first, math.min(first + 999, #ARGV) do
    ranked[#ranked + 1] = rank
    ranked[#ranked + 1] = ARGV[at]
    rank = rank + 1
  end
  redis.call('ZADD', KEYS[2], unpack(ranked))
end
redis.call('SET', KEYS[1], rank)
return rank
"""
POST_SHA = hashlib.sha1(POST).hexdigest().encode()
FAULTS = {"redis-restart": 0.5, "redis-stall": 0.05, "redis-connection-loss": 0.0}
"""What can strike a Redis process here, and for how long unless told otherwise, in seconds. What was stored is there
after a restart."""
Argv = Sequence[bytes]
MULTI: Argv = (b"MULTI",)
EXEC: Argv = (b"EXEC",)
NOTHING_QUEUED = (MULTI, EXEC)
"""A transaction that is bound to fail: the server forgets what is queued as it comes."""
Cure = Literal["watch", "lua", "race"]
TICK_US = 50_000
PAGE = 100
PAST = ", past it"
"""Of a reader whose marker stands behind an entry."""


class ZaqarSettings(Settings):
    """The defaults are the published measurement."""

    cure: Cure = "watch"
    """What keeps two producers from taking one rank: a watched counter, a script, or nothing (race)."""
    producers: int = Field(default=18, ge=1, le=100_000)
    """Each posts again once it is answered: so many requests are under way."""
    queues: int = Field(default=4, ge=1, le=10_000)
    """A producer draws one for each request."""
    messages: int = Field(default=1, ge=1, le=1000)
    """In one request."""
    readers: int = Field(default=1, ge=0, le=100)
    """Of each queue; each lists after its own marker. One more lists all at the end."""
    poll_ms: float = Field(default=10.0, ge=0.1, le=60_000)
    """Between two lists of a reader."""
    window_us: float = Field(default=0.0, ge=0, le=1e9)
    """What passes at the web head between reading the counter and sending the transaction, or between hashes and
    script, beside its own work, on average; exponential. No core is busy with it."""
    retry_s: float = Field(default=10.0, ge=0.001, le=3600)
    """After a conflict a request begins again until it is so old; then its client gets an error."""
    reconnect_ms: float = Field(default=100.0, ge=1, le=60_000)
    """After a lost connection, before the request is made again, with new names for its messages."""
    web_cores: int = Field(default=8, ge=1, le=1024)
    redis_processes: int = Field(default=2, ge=1, le=100)
    ttl_s: int = Field(default=3600, ge=1, le=10**9)
    faults: str = ""
    """``name@seconds:process:duration``: redis-restart, redis-stall, redis-connection-loss."""
    costs: str = "zaqar"
    warm_up_s: float = Field(default=0.5, ge=0, le=3600)
    duration_s: float = Field(default=5.0, ge=0.001, le=86_400)
    drain_s: float = Field(default=1.0, ge=0.001, le=3600)


class LuaSettings(ZaqarSettings):
    """With the script."""

    cure: Cure = "lua"


class RaceSettings(ZaqarSettings):
    """Without a cure."""

    cure: Cure = "race"


@dataclass(slots=True)
class _Process:
    """A Redis process: one thread. ``generation`` changes when its connections are lost."""

    shard: Shard
    speed: float
    busy_until_us: float = 0.0
    busy_us: float = 0.0
    down_until_us: float = 0.0
    generation: int = 0
    requests: int = 0
    commands: int = 0
    waits: Waits = field(default_factory=Waits)

    def run(
        self, now_us: float, client: Client | None, calls: Sequence[Argv], work_us: float, inner: int = 0
    ) -> list[Reply]:
        """The replies to ``calls``, that leave at ``busy_until_us``. They run when they arrive: what came before them
        is served before."""
        begun = self.busy_until_us
        if begun > now_us:
            self.waits.add(now_us, begun)
        else:
            begun = now_us
        work_us /= self.speed
        self.busy_until_us = begun + work_us
        self.busy_us += work_us
        self.requests += 1
        self.commands += len(calls) + inner
        shard = self.shard
        shard.now_ms, shard.now_us = divmod(EPOCH_MS * 1000 + int(begun), 1000)
        execute = shard.execute
        return [execute(argv, client) for argv in calls]

    def lose_connections(self) -> None:
        """Whoever waits for a reply gets none."""
        self.generation += 1


@dataclass(frozen=True)
class _Work:
    """Microseconds of a Redis process for each round trip, from the cost model."""

    read: float
    post: float
    refused: float
    hashes: float
    script: float
    page: float
    entry: float

    @classmethod
    def of(cls, costs: Costs, messages: int) -> _Work:
        """``messages`` in a request."""
        redis = costs.redis

        def us(*names: str) -> float:
            return sum(redis.commands_us.get(name, redis.unknown_command_us) for name in names)

        def trip(count: int, inner_us: float) -> float:
            return redis.syscall_us + count * redis.io_us + inner_us

        hashes = messages * us("hset", "expire")
        ranked = messages * us("zadd") + us("incrby")
        queued = 2 + 3 * messages + 1
        return cls(
            2 * redis.syscall_us + 2 * redis.io_us + us("watch", "get"),
            trip(queued, hashes + ranked + us("multi", "exec")),
            trip(queued, us("multi", "exec")),
            trip(2 + 2 * messages, hashes + us("multi", "exec")),
            trip(1, redis.evalsha_us + us("get", "set") + ranked - us("incrby")),
            trip(2, us("zrank", "zrange")),
            redis.io_us + us("hget"),
        )


class _Producer:
    """A closed loop: one request after the other."""

    def __init__(self, system: ZaqarSystem, number: int) -> None:
        self.system = system
        self.number = number
        self.clients = [Client() for _ in system.processes]
        self.sequences = [0] * system.settings.queues
        self.process = system.processes[0]
        self.queue = self.place = self.generation = 0
        self.started_us = 0
        self.rank = 0
        self.names: list[bytes] = []
        self.bodies: list[bytes] = []
        self.first_trip: Callable[[], None] = self.write if system.cure == "lua" else self.read

    def post(self) -> None:
        """Begin a request."""
        system = self.system
        now = self.started_us = int(system.env.now)
        if now >= system.end_us:
            system.active -= 1
            return
        queue = self.queue = system.draw_queue()
        self.place = queue % len(system.processes)
        self.process = system.processes[self.place]
        count = system.settings.messages
        first = self.sequences[queue] + 1
        self.sequences[queue] += count
        self.bodies = [b"%d:%d" % (self.number, first + at) for at in range(count)]
        for at in range(count):
            system.note(EventKind.PUBLISH, now, self.number, queue, first + at, 0)
        system.series.posted(self.number, queue, count)
        system.published += count * (now >= system.begin_us)
        self.submit()

    def submit(self) -> None:
        """The web head takes the request up, with new names for its messages."""
        system = self.system
        self.names = [b"%016x" % system.draw_name() for _ in self.bodies]
        if system.may_expire:
            system.sent.update(zip(self.names, self.bodies, strict=True))
        if system.watch is not None:
            system.tell("publisher", self, f"producer-{self.number}, posted to the web head", system.env.now)
        done = system.head.serve(system.env.now, system.web.request_us + system.web.call_us)
        call_at(system.env, done + system.draw_hop(), self.first_trip)

    def send(self, then: Callable[[], None], work_us: float, window_us: float = 0.0) -> None:
        """The web head works, and lets a window pass; ``then`` is when what it sends arrives."""
        system = self.system
        env = system.env
        done = system.head.serve(env.now, work_us)
        if window_us:
            done += system.draws_of_windows.expovariate(1 / window_us)
        call_at(env, done + system.draw_hop(), then)

    def is_refused(self) -> bool:
        """The process is not there. The driver connects anew, later."""
        down_until_us = self.process.down_until_us
        if not down_until_us or down_until_us <= self.system.env.now:
            return False
        self.fail()
        return True

    def fail(self) -> None:
        """The connection is lost: what it had watched too."""
        system = self.system
        system.counts["connection_errors"] += 1
        if system.watch is not None:
            system.tell(
                "publisher",
                self,
                f"producer-{self.number}, whose connection to redis-{self.place} is lost",
                system.env.now,
            )
        self.clients[self.place] = Client()
        if system.env.now - self.started_us >= system.settings.retry_s * 1e6:
            self.give_up()
        else:
            call_at(system.env, system.env.now + system.settings.reconnect_ms * 1000, self.again)

    def again(self) -> None:
        """Make the request anew: nobody knows what was stored."""
        system = self.system
        for body in self.bodies:
            system.note(
                EventKind.PUBLISH, int(system.env.now), self.number, self.queue, int(body.partition(b":")[2]), 1
            )
        system.counts["retried"] += 1
        self.submit()

    def give_up(self) -> None:
        """The client gets an error."""
        system = self.system
        system.counts["errors"] += 1
        if system.watch is not None:
            system.tell(
                "publisher",
                self,
                f"producer-{self.number}, given up after {system.settings.retry_s:g} s",
                system.env.now,
            )
        self.post()

    def replied(self, then: Callable[[], None]) -> None:
        """Let the reply of the call that has just run arrive."""
        system, process = self.system, self.process
        self.generation = process.generation
        call_at(system.env, process.busy_until_us + system.draw_hop(), then)

    # -- WATCH, and the race without it ------------------------------------------------------------------------

    def read(self) -> None:
        """WATCH and GET arrive."""
        if self.is_refused():
            return
        system, process = self.system, self.process
        rank = process.run(system.env.now, self.clients[self.place], system.reads[self.queue], system.work.read)[-1]
        assert rank is None or isinstance(rank, bytes)
        self.rank = int(rank or 0)
        if system.watch is not None:
            system.tell(
                "counter",
                self,
                f"counter of queue-{self.queue} on redis-{self.place}, read: {self.rank}",
                system.env.now,
            )
        self.generation = process.generation
        # The second of the two round trips goes to the same place and back.
        at = process.busy_until_us + system.draw_hop() + (2 * system.draw_hop() if system.cure == "watch" else 0)
        call_at(system.env, at, self.prepared)

    def prepared(self) -> None:
        """The counter has arrived: the transaction is built and sent."""
        if self.generation != self.process.generation:
            self.fail()
            return
        system = self.system
        calls = 3 if system.cure == "watch" else 2
        self.send(self.execute, calls * system.web.call_us, system.settings.window_us)

    def execute(self) -> None:
        """MULTI to EXEC arrive."""
        client, process = self.clients[self.place], self.process
        if self.generation != process.generation:
            self.fail()
            return
        if self.is_refused():
            return
        system = self.system
        more = 3 * len(self.names) + 1  # commands that are queued, or run by EXEC
        if client.is_dirty:
            reply = process.run(system.env.now, client, NOTHING_QUEUED, system.work.refused, more)[-1]
            assert reply is None, reply
            if system.watch is not None:
                system.tell(
                    "counter",
                    self,
                    f"refused by redis-{self.place}, where the counter of queue-{self.queue} is another",
                    system.env.now,
                )
            self.replied(self.conflicted)
            return
        queue, ttl = self.queue, system.ttl
        calls = [MULTI]
        for at, (name, body) in enumerate(zip(self.names, self.bodies, strict=True)):
            calls += (
                (b"HSET", name, b"b", body),
                (b"EXPIRE", name, ttl),
                (b"ZADD", system.feeds[queue], b"%d" % (self.rank + at), name),
            )
        calls += ((b"INCRBY", system.counters[queue], b"%d" % len(self.names)), EXEC)
        reply = process.run(system.env.now, client, calls, system.work.post, more)[-1]
        assert isinstance(reply, list), reply
        system.entries += len(self.names) * system.settings.readers
        if system.watch is not None:
            system.tell_stored(self)
        self.replied(self.stored)

    def conflicted(self) -> None:
        """EXEC has replied nil."""
        system = self.system
        if self.generation != self.process.generation:
            self.fail()
            return
        system.conflicts += system.begin_us <= system.env.now < system.end_us
        system.series.conflicts += 1
        if system.env.now - self.started_us >= system.settings.retry_s * 1e6:
            self.give_up()
        else:
            self.send(self.read, system.web.call_us)

    # -- the script --------------------------------------------------------------------------------------------

    def write(self) -> None:
        """The hashes arrive."""
        if self.is_refused():
            return
        system = self.system
        calls = [MULTI]
        for name, body in zip(self.names, self.bodies, strict=True):
            calls += ((b"HSET", name, b"b", body), (b"EXPIRE", name, system.ttl))
        calls.append(EXEC)
        self.process.run(system.env.now, self.clients[self.place], calls, system.work.hashes, len(calls) - 2)
        if system.watch is not None:
            system.tell("hash", self, f"hash on redis-{self.place}, without a rank", system.env.now)
        self.replied(self.written)

    def written(self) -> None:
        """The script is called."""
        if self.generation != self.process.generation:
            self.fail()
            return
        self.send(self.rank_them, 2 * self.system.web.call_us, self.system.settings.window_us)

    def rank_them(self) -> None:
        """The script arrives; a process that has started again does not know it, and is told it."""
        if self.is_refused():
            return
        if self.generation != self.process.generation:
            self.fail()
            return
        system = self.system
        rest = (b"2", system.counters[self.queue], system.feeds[self.queue], *self.names)
        client = self.clients[self.place]
        reply = self.process.run(
            system.env.now, client, [(b"EVALSHA", POST_SHA, *rest)], system.work.script, 2 + len(self.names)
        )[0]
        if isinstance(reply, ErrorReply) and reply.message.startswith(b"NOSCRIPT"):
            reply = self.process.run(
                system.env.now, client, [(b"EVAL", POST, *rest)], system.work.script, 2 + len(self.names)
            )[0]
        assert not isinstance(reply, ErrorReply), reply
        system.entries += len(self.names) * system.settings.readers
        if system.watch is not None:
            system.tell_stored(self)
        self.replied(self.stored)

    # -- the end -----------------------------------------------------------------------------------------------

    def stored(self) -> None:
        """The reply has arrived: answer the client."""
        system = self.system
        if self.generation != self.process.generation:
            self.fail()
            return
        now = int(system.env.now)
        for body in self.bodies:
            system.note(EventKind.PUBLISH_ACKNOWLEDGED, now, self.number, self.queue, int(body.partition(b":")[2]), 0)
        system.answered(self.started_us, now)
        self.post()


class _Reader:
    """Follows a queue by a marker: the last message that it was handed."""

    def __init__(self, system: ZaqarSystem, queue: int, code: int) -> None:
        self.system, self.queue, self.code = system, queue, code
        self.process = system.processes[queue % len(system.processes)]
        self.marker: bytes | None = None

    def poll(self) -> None:
        """List what comes after the marker, page by page, and come again."""
        system = self.system
        if self.process.down_until_us <= system.env.now:
            while self.page() == PAGE:
                pass
        if system.env.now < system.over_us and (system.active or system.env.now < system.end_us):
            call_at(system.env, system.env.now + system.settings.poll_ms * 1000, self.poll)

    def page(self) -> int:
        """List the next page; how many messages it has."""
        process, system = self.process, self.system
        now, feed, start = system.env.now, system.feeds[self.queue], 0
        if self.marker is not None:
            place = process.run(now, None, [(b"ZRANK", feed, self.marker)], 0.0)[0]
            assert isinstance(place, int)
            start = place + 1
        names = process.run(
            now, None, [(b"ZRANGE", feed, b"%d" % start, b"%d" % (start + PAGE - 1))], system.work.page
        )[0]
        assert isinstance(names, list)
        if names:
            self.hand(
                names, process.run(now, None, [(b"HGET", name, b"b") for name in names], system.work.entry * len(names))
            )
            last = names[-1]
            assert isinstance(last, bytes)
            self.marker = last
        return len(names)

    def hand(self, names: Sequence[Reply], bodies: Sequence[Reply]) -> None:
        """Note what was handed over, and what was not as its time is over."""
        system, now = self.system, int(self.system.env.now)
        system.entries -= len(bodies)
        for name, body in zip(names, bodies, strict=True):
            if body is None:
                if isinstance(name, bytes) and name in system.sent:
                    publisher, _, sequence = system.sent[name].partition(b":")
                    system.note(EventKind.EXPIRE, now, int(publisher), self.queue, int(sequence), self.code)
                continue
            assert isinstance(body, bytes)
            publisher, _, sequence = body.partition(b":")
            system.deliver(now, int(publisher), self.queue, int(sequence), self.code)
            if system.watch is not None and system.watch.wants(message := system.message(self.queue, body)):
                system.watch.reached(
                    message, "reader", f"{system.names().clients.label(self.code)} is handed it", "", now, self.code
                )


class FeedSeries(Slices):
    """The run in slices of a tick. ``latency_ms`` is what producers wait for their answers, as in the report;
    ``delivery_ms`` from post to reader."""

    def __init__(self, system: ZaqarSystem) -> None:
        super().__init__(TICK_US)
        self._system = system
        self.conflicts = 0
        self._posted_us: dict[tuple[int, int], array[int]] = defaultdict(lambda: array("q"))
        """By producer and queue, when each of its messages was posted."""

    def posted(self, producer: int, queue: int, count: int) -> None:
        self._posted_us[producer, queue].extend([int(self._system.env.now)] * count)
        self.came += count

    def delivered(self, producer: int, queue: int, sequence: int) -> None:
        self.went += 1
        self.took("delivery_ms", 1, self._system.env.now - self._posted_us[producer, queue][sequence - 1])

    def sample(self) -> None:
        """Look at the slice that ends now."""
        system, now = self._system, float(self._system.env.now)
        waited = {"web": system.head.waits.until(now), "redis": sum(one.waits.until(now) for one in system.processes)}
        conflicts = {"conflicts_per_s": round(self.conflicts * 1e6 / TICK_US)} if system.cure == "watch" else {}
        unread = {"unread_feeds": system.entries} if system.settings.readers else {}
        self.close(now, ("latency_ms", "delivery_ms"), waited, **conflicts, **unread)
        self.conflicts = 0


@dataclass
class _Measured:
    delivery_latency: LatencyHistogram


@dataclass
class _World:
    measured: _Measured


class ZaqarSystem:
    """The assembled system; ``run`` once. ``sinks`` get the history, batch by batch."""

    def __init__(self, settings: ZaqarSettings, seed: int, sinks: list[Callable[[EventBatch], None]]) -> None:
        self.settings, self.seed = settings, seed
        self.cure = settings.cure
        self.env = Clock()
        streams = RandomStreams(seed)
        costs = load_costs(settings.costs)
        if costs.web is None:
            raise InputError(
                f"costs {settings.costs}: says nothing of a web head; add the table [web], as zaqar.toml has it"
            )
        self.web: WebCosts = costs.web
        self.work = _Work.of(costs, settings.messages)
        self.begin_us = round(settings.warm_up_s * 1e6)
        self.end_us = self.begin_us + round(settings.duration_s * 1e6)
        self.over_us = self.end_us + round(settings.drain_s * 1e6)
        self.recorder = HistoryRecorder(sinks, slack_us=4 * TICK_US)
        self.head = Station(settings.web_cores)
        self.processes = [_Process(Shard(), costs.redis.speed) for _ in range(settings.redis_processes)]
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
        self.counts = dict.fromkeys(("connection_errors", "errors", "retried", "faults"), 0)
        self.published = self.posted = self.conflicts = self.delivered = 0
        self.operations = NameTable()
        self.entries = 0
        """Of feeds, for each reader that has not been handed them."""
        self.series = FeedSeries(self)
        self.watch: FeedWatch | None = None
        self.latency = LatencyHistogram(self.begin_us, self.end_us)
        self.delivery = LatencyHistogram(self.begin_us, self.end_us)
        self.world = _World(_Measured(self.latency))
        self._squares = 0.0
        self._held: dict[EventKind, list[tuple[int, ...]]] = {
            kind: []
            for kind in (EventKind.PUBLISH, EventKind.PUBLISH_ACKNOWLEDGED, EventKind.DELIVER, EventKind.EXPIRE)
        }
        self._answered: list[tuple[int, int]] = []
        self.draw_hop: Callable[[], float] = _hops(streams, costs, self.web).__next__
        rng, self.draws_of_windows = streams.stream("names"), streams.stream("windows")
        self.draw_queue: Callable[[], int] = _below(streams, settings.queues).__next__
        self.draw_name: Callable[[], int] = partial(rng.getrandbits, 64)
        self.active = settings.producers
        self.producers = [_Producer(self, number) for number in range(settings.producers)]
        self.readers = [
            _Reader(self, queue, settings.producers + queue * settings.readers + number)
            for queue in range(settings.queues)
            for number in range(settings.readers)
        ]
        self.auditor = settings.producers + settings.queues * settings.readers
        self._schedule()

    # -- what is noted -----------------------------------------------------------------------------------------

    def note(self, kind: EventKind, now: int, publisher: int, queue: int, sequence: int, last: int) -> None:
        """A row about a message; ``last``: DUP, or the reader for whom its time is over."""
        self._held[kind].append((now, publisher, queue, sequence, last))

    def deliver(self, now: int, publisher: int, queue: int, sequence: int, reader: int) -> None:
        """A reader was handed a message."""
        self._held[EventKind.DELIVER].append((now, publisher, queue, sequence, reader))
        if reader != self.auditor:
            self.series.delivered(publisher, queue, sequence)
        self.delivered += self.begin_us <= now < self.end_us

    def answered(self, started_us: int, now: int) -> None:
        """A request is done."""
        self._answered.append((started_us, now - started_us))
        if self.begin_us <= now < self.end_us:
            self.posted += 1

    def _tick(self) -> None:
        """Hand over what is held, and end a slice."""
        self._hand_over()
        self.series.sample()
        if self.env.now < self.over_us and (self.active or self.env.now < self.end_us):
            call_at(self.env, self.env.now + TICK_US, self._tick)

    def _hand_over(self) -> None:
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

    # -- faults ------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        for fault in parse_faults(self.settings.faults):
            if fault.name not in FAULTS:
                raise InputError(f"faults: {fault.name}: does not strike this system; it is one of {', '.join(FAULTS)}")
            if fault.target >= len(self.processes):
                raise InputError(
                    f"faults: {fault}: process {fault.target} is not there; they are numbered 0 to "
                    f"{len(self.processes) - 1}"
                )
            if fault.at_us >= self.over_us:
                raise InputError(
                    f"faults: {fault}: the run is over after {self.over_us / 1e6:g} s; let it strike before that"
                )
            lasts_us = round(FAULTS[fault.name] * 1e6) if fault.duration_us is None else fault.duration_us
            call_at(self.env, fault.at_us, partial(self._strike, fault.name, fault.target, lasts_us))

    def _strike(self, name: str, target: int, lasts_us: int) -> None:
        now, process = int(self.env.now), self.processes[target]
        if name == "redis-stall":
            process.busy_until_us = max(process.busy_until_us, now + lasts_us)
        else:
            process.lose_connections()
        if name == "redis-restart":
            process.down_until_us = now + lasts_us
            process.busy_until_us = float(now)
            process.shard.execute((b"SCRIPT", b"FLUSH"))
        self.counts["faults"] += 1
        self.series.struck.append((name, f"redis-{target}", now))
        self.recorder.add(EventKind.FAULT, np.array([now]), operation=self.operations.code(name), node=target)
        call_at(self.env, now + lasts_us, lambda: self.recorder.add(EventKind.HEAL, np.array([int(self.env.now)])))

    # -- the run -----------------------------------------------------------------------------------------------

    def run(self, on_progress: Callable[[SimulationProgress], None] | None = None) -> dict[str, Any]:
        """Run to the end; the report."""
        env, begun = self.env, time.perf_counter()
        subscribed = [(reader.code, reader.queue) for reader in self.readers] + [
            (self.auditor, queue) for queue in range(self.settings.queues)
        ]
        self.recorder.add(
            EventKind.SUBSCRIBE,
            np.zeros(len(subscribed), np.int64),
            subscriber=np.array([code for code, _ in subscribed]),
            topic=np.array([queue for _, queue in subscribed]),
            qos=1,
        )
        for producer in self.producers:
            call_at(env, producer.number * 97 % 5000, producer.post)
        for number, reader in enumerate(self.readers):
            call_at(env, number * 977 % (self.settings.poll_ms * 1000), reader.poll)
        call_at(env, TICK_US, self._tick)
        usage: list[list[tuple[float, float]]] = []
        commands: list[tuple[int, int]] = []

        def look() -> None:
            usage.append(self._usage())
            commands.append(self._served())

        call_at(env, self.begin_us, look)
        call_at(env, self.end_us, look)
        with rare_collections():
            for at in range(TICK_US * 4, self.over_us + 1, TICK_US * 4):
                env.run(until=at)
                if on_progress is not None:
                    on_progress(
                        SimulationProgress(at / 1e6, self.over_us / 1e6, self.published, time.perf_counter() - begun)
                    )
            env.run(until=self.over_us + 1)
        self._end()
        return self._report(usage, commands)

    def _end(self) -> None:
        """All that readers still find, and one that lists everything from the start."""
        for reader in self.readers:
            while reader.page() == PAGE:
                pass
        for queue in range(self.settings.queues):
            reader = _Reader(self, queue, self.auditor)
            while reader.page() == PAGE:
                pass
        self._hand_over()
        self.recorder.close(self.over_us)

    def _usage(self) -> list[tuple[float, float]]:
        now = self.env.now
        return [
            (self.head.busy_us, self.head.waits.until(now)),
            *((one.busy_us, one.waits.until(now)) for one in self.processes),
        ]

    def _served(self) -> tuple[int, int]:
        return sum(one.requests for one in self.processes), sum(one.commands for one in self.processes)

    def _report(
        self, usage: Sequence[Sequence[tuple[float, float]]], served: Sequence[tuple[int, int]]
    ) -> dict[str, Any]:
        span = self.end_us - self.begin_us
        loads = [
            ((after[0] - before[0]) / span, (after[1] - before[1]) / span) for before, after in zip(*usage, strict=True)
        ]
        busy = {"web": [loads[0][0] / self.head.servers], "redis": [load for load, _ in loads[1:]]}
        told = latency(self.latency)
        mean = self.latency.mean_us()
        count = max(self.latency.count, 1)
        told["sd_ms"] = float(f"{max(self._squares / count - mean * mean, 0.0) ** 0.5 / 1000:.4g}")
        requests, commands = (after - before for before, after in zip(*served, strict=True))
        seconds = span / 1e6
        return {
            "measured_s": seconds,
            "warm_up": warm_up(self.latency),
            "throughput_per_s": {"in": round(self.posted / seconds), "out": round(self.delivered / seconds)},
            "latency": {"request": told},
            "utilisation": {kind: [float(f"{min(each, 1.0):.4g}") for each in of] for kind, of in busy.items()},
            "offered_load": {kind: [float(f"{each:.4g}") for each in of] for kind, of in busy.items()},
            "mean_queue_length": {
                "web": [float(f"{loads[0][1]:.4g}")],
                "redis": [float(f"{waits:.4g}") for _, waits in loads[1:]],
            },
            "redis_commands_per_s": {
                "per_node": [round(commands / seconds / len(self.processes))] * len(self.processes),
                "all": round(commands / seconds),
            },
            "redis_requests_per_s": round(requests / seconds),
            "driver_flushes_per_s": round(requests / seconds),
            **({"recovery": recovery} if (recovery := self.series.recoveries(self.end_us, self.over_us)) else {}),
            "contention": {"conflicts_per_request": float(f"{self.conflicts / max(self.posted, 1):.4g}")},
            "counts": {
                **self.counts,
                "conflicts": self.conflicts,
                "delivered": self.delivered,
                "orphans": self.orphans(),
                "published": self.published,
                "requests": self.latency.count,
            },
        }

    def orphans(self) -> int:
        """Hashes that no feed has an entry for."""
        left = 0
        for number, process in enumerate(self.processes):
            own = range(number, self.settings.queues, len(self.processes))
            keys = [key for queue in own for key in (self.counters[queue], self.feeds[queue])]
            expired = (
                self._expired(process, own) if self.may_expire else 0
            )  # asked for first: a key that is asked for goes when its time is over
            size, there, *entries = (
                reply if isinstance(reply, int) else 0
                for reply in map(
                    process.shard.execute,
                    [(b"DBSIZE",), (b"EXISTS", *(keys or [b""])), *((b"ZCARD", self.feeds[queue]) for queue in own)],
                )
            )
            left += size - there - (sum(entries) - expired)
        return left

    def _expired(self, process: _Process, own: range) -> int:
        """Entries of feeds whose hash is gone."""
        feeds = [process.shard.execute((b"ZRANGE", self.feeds[queue], b"0", b"-1")) for queue in own]
        names = [name for feed in feeds if isinstance(feed, list) for name in feed if isinstance(name, bytes)]
        return sum(process.shard.execute((b"EXISTS", name)) == 0 for name in names)

    # -- whoever watches a message -----------------------------------------------------------------------------

    def tell(self, stage: str, producer: _Producer, place: str, at_us: float) -> None:
        """A stage has the messages of a producer's request."""
        assert self.watch is not None
        for at, body in enumerate(producer.bodies):
            self.watch.reached(
                self.message(producer.queue, body), stage, place, f"redis-{producer.place}", at_us, offset=at
            )

    def tell_stored(self, producer: _Producer) -> None:
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

    def _entry(self, queue: int, name: bytes, reader: _Reader | None) -> str:
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

    @property
    def digest(self) -> str:
        """Digest of the bytes of the history."""
        return self.recorder.digest

    def is_quiet(self) -> bool:
        """Whether every request was answered."""
        return self.active == 0

    def is_drained(self) -> bool:
        """Whether nothing is under way any more: here, whether it is quiet."""
        return self.is_quiet()

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


def _hops(streams: RandomStreams, costs: Costs, web: WebCosts) -> Any:
    """Delays of one way each, pauses included."""
    rng, network = streams.vector_stream("network"), costs.network
    while True:
        delays = network.floor_us + network.median_us * np.exp(network.sigma * rng.standard_normal(4096))
        pauses = rng.exponential(web.pause_us, 4096) if web.pause_us else np.zeros(4096)
        yield from (delays + pauses * (rng.random(4096) < web.pause_share / 2)).tolist()


def _below(streams: RandomStreams, count: int) -> Any:
    rng = streams.vector_stream("queues")
    while True:
        yield from rng.integers(0, count, 4096).tolist()
