"""One long run of a store at full scale: what small scopes never reach.

Thousands of messages in one call (scripts split what they hand to ``unpack``), thousands that expire or are trimmed at
once (sweeps have a budget), messages that outlive a whole round of packet identifiers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from orderlab.properties.mutants.beside import told
from orderlab.properties.validation.subject import DEFAULT_EXPIRY_MS
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.results import Fetched, Message
from orderlab.sim.stores.bound import BoundStore
from orderlab.sim.stores.session_store import EVERYTHING

CLIENT = b"client-one"
MANY = 6500
"""Messages at once: more than what scripts hand to one command."""
FOREVER_MS = 864_000_000


class Step(NamedTuple):
    """One operation: digests of its result, as the binding reads it, and of all keys after it."""

    operation: str
    replies: str
    keys: str


class _Run:
    """The run so far: numbers of batches and of messages."""

    def __init__(self, binding: Binding) -> None:
        self.store = BoundStore(binding, KernelBackend(), DEFAULT_EXPIRY_MS)
        self.batch = 0
        self.saved = 0
        self.last: Any = None

    def perform(self, operation: str, **fields: Any) -> Iterator[Step]:
        if operation not in self.store.operations:
            return
        self.last = self.store.perform(operation, CLIENT, {"epoch": 1, **fields})
        keys = repr(sorted(self.store.backend.keyspace().items()))
        yield Step(operation, _digest(told(self.last)), _digest(keys))

    def save(self, *intervals_ms: int | None, limit: int = 7000) -> Iterator[Step]:
        """One message for each interval, in as many calls as the store needs."""
        limit = self.store.binding.fixed.get("limit", min(limit, self.store.binding.modulus))
        at_once = self.store.largest_batch
        for start in range(0, len(intervals_ms), at_once):
            part = intervals_ms[start : start + at_once]
            messages = tuple(self._message(interval_ms) for interval_ms in part)
            self.batch += len(part)
            yield from self.perform("save", limit=limit, producer=b"p0", batch=self.batch, messages=messages)

    def _message(self, interval_ms: int | None) -> Message:
        self.saved += 1
        return Message(b"message %d" % self.saved, b"t", 1 + self.saved % 2, interval_ms, self.store.now_ms)

    def fetch(self, count: int = EVERYTHING, after: int = 0) -> Iterator[Step]:
        yield from self.perform("fetch", count=count, after=after)

    def answer(self, operation: str, position: int) -> Iterator[Step]:
        """Acknowledge or release a message of the last fetch."""
        fetched = self.last.messages if isinstance(self.last, Fetched) else ()
        if len(fetched) > position and fetched[position].packet_id is not None:
            one, page = fetched[position], self.last
            yield from self.perform(operation, packet_id=one.packet_id, sequence=one.sequence or 0)
            self.last = page


def long_run(binding: Binding) -> Iterator[Step]:
    """The operations one after the other. Single messages are few where a store takes no batches."""
    run = _Run(binding)
    many = MANY if run.store.largest_batch >= 100 else 40
    yield from run.perform("open", clean_start=1)
    yield from run.save(*[FOREVER_MS] * many)
    yield from run.save(None, 1000)
    yield from run.fetch(10)
    yield from run.answer("acknowledge", 0)
    yield from run.answer("release", 5)
    yield from run.answer("acknowledge", 9)
    yield from run.fetch()
    run.store.advance(1000)
    yield from run.save(*[3000] * 100, *[1000] * (many // 5), limit=many)  # trims and sends early deadlines
    run.store.advance(1000)
    yield from run.save(5000, limit=many)
    yield from run.fetch(100)
    run.store.advance(2000)
    yield from run.save(None)
    yield from run.save(*[FOREVER_MS] * 3, limit=many // 2)  # trims about half
    yield from run.fetch()
    yield from _round(run, many)
    yield from run.perform("open", epoch=2, clean_start=0)
    yield from run.fetch(3)
    yield from run.perform("open", epoch=3, clean_start=1)
    yield from run.fetch()
    yield from run.perform("save", epoch=3, limit=10, producer=b"p0", batch=1, messages=())
    yield from run.perform("clear", epoch=3)


def _round(run: _Run, many: int) -> Iterator[Step]:
    """Messages with a short life until the identifiers come round to those that have waited from before."""
    if many < MANY:
        return
    while run.saved < run.store.binding.modulus - MANY:
        yield from run.save(*[1000] * MANY, limit=60_000)
        run.store.advance(1000)
    yield from run.save(*[FOREVER_MS] * 600, limit=60_000)
    yield from run.save(*[FOREVER_MS] * (2 * MANY), limit=60_000)  # past the identifiers that still wait
    yield from run.fetch(100)
    yield from run.save(FOREVER_MS, limit=60_000)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
