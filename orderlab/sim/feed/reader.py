"""A reader of a queue, by a marker."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.model.history.events import EventKind
from orderlab.sim.engine.clock import call_at
from orderlab.sim.feed.feed import SharedFeed
from orderlab.sim.redis.replies import Reply

PAGE = 100


class Reader:
    """Follows a queue by a marker: the last message that it was handed."""

    def __init__(self, feed: SharedFeed, queue: int, code: int) -> None:
        self.feed, self.queue, self.code = feed, queue, code
        self.process = feed.processes[queue % len(feed.processes)]
        self.marker: bytes | None = None

    def poll(self) -> None:
        """List what comes after the marker, page by page, and come again."""
        feed = self.feed
        if self.process.down_until_us <= feed.env.now:
            while self.page() == PAGE:
                pass
        if feed.is_going():
            call_at(feed.env, feed.env.now + feed.settings.poll_ms * 1000, self.poll)

    def page(self) -> int:
        """List the next page; how many messages it has."""
        process, feed = self.process, self.feed
        now, key, start = feed.env.now, feed.feeds[self.queue], 0
        if self.marker is not None:
            place = process.run(now, None, [(b"ZRANK", key, self.marker)], 0.0)[0]
            assert isinstance(place, int)
            start = place + 1
        names = process.run(now, None, [(b"ZRANGE", key, b"%d" % start, b"%d" % (start + PAGE - 1))], feed.work.page)[0]
        assert isinstance(names, list)
        if names:
            self.hand(
                names, process.run(now, None, [(b"HGET", name, b"b") for name in names], feed.work.entry * len(names))
            )
            last = names[-1]
            assert isinstance(last, bytes)
            self.marker = last
        return len(names)

    def hand(self, names: Sequence[Reply], bodies: Sequence[Reply]) -> None:
        """Note what was handed over, and what was not as its time is over."""
        feed, now = self.feed, int(self.feed.env.now)
        feed.entries -= len(bodies)
        for name, body in zip(names, bodies, strict=True):
            if body is None:
                if isinstance(name, bytes) and name in feed.sent:
                    publisher, _, sequence = feed.sent[name].partition(b":")
                    feed.note(EventKind.EXPIRE, now, int(publisher), self.queue, int(sequence), self.code)
                continue
            assert isinstance(body, bytes)
            publisher, _, sequence = body.partition(b":")
            feed.deliver(now, int(publisher), self.queue, int(sequence), self.code)
            if feed.watch is not None and feed.watch.wants(message := feed.message(self.queue, body)):
                feed.watch.reached(
                    message, "reader", f"{feed.names().clients.label(self.code)} is handed it", "", now, self.code
                )
