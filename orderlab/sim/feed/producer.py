"""A producer: a closed loop that posts through the web head, with one of the cures."""

from __future__ import annotations

from collections.abc import Callable

from orderlab.model.history.events import EventKind
from orderlab.sim.engine.clock import call_at
from orderlab.sim.feed.feed import SharedFeed
from orderlab.sim.feed.process import POST, POST_SHA, Argv
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.replies import ErrorReply

MULTI: Argv = (b"MULTI",)
EXEC: Argv = (b"EXEC",)
NOTHING_QUEUED = (MULTI, EXEC)
"""A transaction that is bound to fail: the server forgets what is queued as it comes."""


class Producer:
    """A closed loop: one request after the other."""

    def __init__(self, feed: SharedFeed, number: int) -> None:
        self.feed = feed
        self.number = number
        self.clients = [Client() for _ in feed.processes]
        self.sequences = [0] * feed.settings.queues
        self.process = feed.processes[0]
        self.queue = self.place = self.generation = 0
        self.started_us = 0
        self.rank = 0
        self.names: list[bytes] = []
        self.bodies: list[bytes] = []
        self.first_trip: Callable[[], None] = self.write if feed.cure == "lua" else self.read

    def post(self) -> None:
        """Begin a request."""
        feed = self.feed
        now = self.started_us = int(feed.env.now)
        if now >= feed.end_us:
            feed.active -= 1
            return
        queue = self.queue = feed.draw_queue()
        self.place = queue % len(feed.processes)
        self.process = feed.processes[self.place]
        count = feed.settings.messages
        first = self.sequences[queue] + 1
        self.sequences[queue] += count
        self.bodies = [b"%d:%d" % (self.number, first + at) for at in range(count)]
        for at in range(count):
            feed.note(EventKind.PUBLISH, now, self.number, queue, first + at, 0)
        feed.series.posted(self.number, queue, count)
        feed.published += count * (now >= feed.begin_us)
        self.submit()

    def submit(self) -> None:
        """The web head takes the request up, with new names for its messages."""
        feed = self.feed
        self.names = [b"%016x" % feed.draw_name() for _ in self.bodies]
        if feed.may_expire:
            feed.sent.update(zip(self.names, self.bodies, strict=True))
        if feed.watch is not None:
            feed.tell("publisher", self, f"producer-{self.number}, posted to the web head", feed.env.now)
        done = feed.head.serve(feed.env.now, feed.web.request_us + feed.web.call_us)
        call_at(feed.env, done + feed.draw_hop(), self.first_trip)

    def send(self, then: Callable[[], None], work_us: float, window_us: float = 0.0) -> None:
        """The web head works, and lets a window pass; ``then`` is when what it sends arrives."""
        feed = self.feed
        env = feed.env
        done = feed.head.serve(env.now, work_us)
        if window_us:
            done += feed.draws_of_windows.expovariate(1 / window_us)
        call_at(env, done + feed.draw_hop(), then)

    def is_refused(self) -> bool:
        """The process is not there. The driver connects anew, later."""
        down_until_us = self.process.down_until_us
        if not down_until_us or down_until_us <= self.feed.env.now:
            return False
        self.fail()
        return True

    def fail(self) -> None:
        """The connection is lost: what it had watched too."""
        feed = self.feed
        feed.counts["connection_errors"] += 1
        if feed.watch is not None:
            feed.tell(
                "publisher",
                self,
                f"producer-{self.number}, whose connection to redis-{self.place} is lost",
                feed.env.now,
            )
        self.clients[self.place] = Client()
        if feed.env.now - self.started_us >= feed.settings.retry_s * 1e6:
            self.give_up()
        else:
            call_at(feed.env, feed.env.now + feed.settings.reconnect_ms * 1000, self.again)

    def again(self) -> None:
        """Make the request anew: nobody knows what was stored."""
        feed = self.feed
        for body in self.bodies:
            feed.note(EventKind.PUBLISH, int(feed.env.now), self.number, self.queue, int(body.partition(b":")[2]), 1)
        feed.counts["retried"] += 1
        self.submit()

    def give_up(self) -> None:
        """The client gets an error."""
        feed = self.feed
        feed.counts["errors"] += 1
        if feed.watch is not None:
            feed.tell(
                "publisher",
                self,
                f"producer-{self.number}, given up after {feed.settings.retry_s:g} s",
                feed.env.now,
            )
        self.post()

    def replied(self, then: Callable[[], None]) -> None:
        """Let the reply of the call that has just run arrive."""
        feed, process = self.feed, self.process
        self.generation = process.generation
        call_at(feed.env, process.busy_until_us + feed.draw_hop(), then)

    # -- WATCH, and the race without it ------------------------------------------------------------------------

    def read(self) -> None:
        """WATCH and GET arrive."""
        if self.is_refused():
            return
        feed, process = self.feed, self.process
        rank = process.run(feed.env.now, self.clients[self.place], feed.reads[self.queue], feed.work.read)[-1]
        assert rank is None or isinstance(rank, bytes)
        self.rank = int(rank or 0)
        if feed.watch is not None:
            feed.tell(
                "counter",
                self,
                f"counter of queue-{self.queue} on redis-{self.place}, read: {self.rank}",
                feed.env.now,
            )
        self.generation = process.generation
        # The second of the two round trips goes to the same place and back.
        at = process.busy_until_us + feed.draw_hop() + (2 * feed.draw_hop() if feed.cure == "watch" else 0)
        call_at(feed.env, at, self.prepared)

    def prepared(self) -> None:
        """The counter has arrived: the transaction is built and sent."""
        if self.generation != self.process.generation:
            self.fail()
            return
        feed = self.feed
        calls = 3 if feed.cure == "watch" else 2
        self.send(self.execute, calls * feed.web.call_us, feed.settings.window_us)

    def execute(self) -> None:
        """MULTI to EXEC arrive."""
        client, process = self.clients[self.place], self.process
        if self.generation != process.generation:
            self.fail()
            return
        if self.is_refused():
            return
        feed = self.feed
        more = 3 * len(self.names) + 1  # commands that are queued, or run by EXEC
        if client.is_dirty:
            reply = process.run(feed.env.now, client, NOTHING_QUEUED, feed.work.refused, more)[-1]
            assert reply is None, reply
            if feed.watch is not None:
                feed.tell(
                    "counter",
                    self,
                    f"refused by redis-{self.place}, where the counter of queue-{self.queue} is another",
                    feed.env.now,
                )
            self.replied(self.conflicted)
            return
        queue, ttl = self.queue, feed.ttl
        calls = [MULTI]
        for at, (name, body) in enumerate(zip(self.names, self.bodies, strict=True)):
            calls += (
                (b"HSET", name, b"b", body),
                (b"EXPIRE", name, ttl),
                (b"ZADD", feed.feeds[queue], b"%d" % (self.rank + at), name),
            )
        calls += ((b"INCRBY", feed.counters[queue], b"%d" % len(self.names)), EXEC)
        reply = process.run(feed.env.now, client, calls, feed.work.post, more)[-1]
        assert isinstance(reply, list), reply
        feed.entries += len(self.names) * feed.settings.readers
        if feed.watch is not None:
            feed.tell_stored(self)
        self.replied(self.stored)

    def conflicted(self) -> None:
        """EXEC has replied nil."""
        feed = self.feed
        if self.generation != self.process.generation:
            self.fail()
            return
        feed.conflicts += feed.begin_us <= feed.env.now < feed.end_us
        feed.series.conflicts += 1
        if feed.env.now - self.started_us >= feed.settings.retry_s * 1e6:
            self.give_up()
        else:
            self.send(self.read, feed.web.call_us)

    # -- the script --------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Let the hashes of a request arrive at the node."""
        if self.is_refused():
            return
        feed = self.feed
        calls = [MULTI]
        for name, body in zip(self.names, self.bodies, strict=True):
            calls += ((b"HSET", name, b"b", body), (b"EXPIRE", name, feed.ttl))
        calls.append(EXEC)
        self.process.run(feed.env.now, self.clients[self.place], calls, feed.work.hashes, len(calls) - 2)
        if feed.watch is not None:
            feed.tell("hash", self, f"hash on redis-{self.place}, without a rank", feed.env.now)
        self.replied(self.written)

    def written(self) -> None:
        """The script is called."""
        if self.generation != self.process.generation:
            self.fail()
            return
        self.send(self.rank_them, 2 * self.feed.web.call_us, self.feed.settings.window_us)

    def rank_them(self) -> None:
        """The script arrives; a process that has started again does not know it, and is told it."""
        if self.is_refused():
            return
        if self.generation != self.process.generation:
            self.fail()
            return
        feed = self.feed
        rest = (b"2", feed.counters[self.queue], feed.feeds[self.queue], *self.names)
        client = self.clients[self.place]
        reply = self.process.run(
            feed.env.now, client, [(b"EVALSHA", POST_SHA, *rest)], feed.work.script, 2 + len(self.names)
        )[0]
        if isinstance(reply, ErrorReply) and reply.message.startswith(b"NOSCRIPT"):
            reply = self.process.run(
                feed.env.now, client, [(b"EVAL", POST, *rest)], feed.work.script, 2 + len(self.names)
            )[0]
        assert not isinstance(reply, ErrorReply), reply
        feed.entries += len(self.names) * feed.settings.readers
        if feed.watch is not None:
            feed.tell_stored(self)
        self.replied(self.stored)

    # -- the end -----------------------------------------------------------------------------------------------

    def stored(self) -> None:
        """The reply has arrived: answer the client."""
        feed = self.feed
        if self.generation != self.process.generation:
            self.fail()
            return
        now = int(feed.env.now)
        for body in self.bodies:
            feed.note(EventKind.PUBLISH_ACKNOWLEDGED, now, self.number, self.queue, int(body.partition(b":")[2]), 0)
        feed.answered(self.started_us, now)
        self.post()
