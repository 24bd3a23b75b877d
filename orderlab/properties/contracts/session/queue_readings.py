"""The situations in which operations of a session store are measured: one client's queue of many messages."""

from __future__ import annotations

from collections.abc import Iterator

from orderlab.model.contracts.session.traces import (
    Acknowledge,
    Clear,
    Fetch,
    Open,
    Publication,
    Release,
    Save,
    Step,
    Wait,
)
from orderlab.model.errors import InputError
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.properties.costs.readings import BATCH, LENGTH, PAYLOAD, SIZES, CallMeter, CostReading
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.redis.shard import Effect
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.results import Failed
from orderlab.sim.stores.bound import BoundStore

CLIENT = b"plain-client"
FOREVER_MS = 864_000_000
SHORT_MS = 1000
PAYLOAD_BYTES, PAGE, FEW = 62, 10, 10
FILLED_AT_ONCE = 100


def readings(binding: Binding, now_ms: int) -> Iterator[CostReading]:
    """Every operation, by the length of the queue, by the messages of one save or page, and by bytes of payload."""
    if binding.tables is not None:
        raise InputError("cost: it has no scripts; name a folder with a store.toml")
    longest = _Queue(binding, now_ms).limit
    for size in (one for one in SIZES[LENGTH] if one <= longest):
        yield from _by_length(binding, now_ms, size)
    for size in SIZES[BATCH]:
        queue = _Queue(binding, now_ms)
        if size <= min(queue.store.largest_batch, longest):
            yield queue.read("save", BATCH, size, Save(queue.messages(size), limit=queue.limit))
            queue.fill(max(size, FEW))
            yield queue.read("fetch", BATCH, size, Fetch(count=size))
    for size in SIZES[PAYLOAD]:
        queue = _Queue(binding, now_ms, size)
        yield queue.read("save", PAYLOAD, size, Save(queue.messages(1), limit=queue.limit))
        queue.fill(FEW)
        yield queue.read("fetch of a page of 10", PAYLOAD, size, Fetch(count=PAGE))


def _by_length(binding: Binding, now_ms: int, size: int) -> Iterator[CostReading]:
    queue = _Queue(binding, now_ms)
    queue.fill(size)
    if size < queue.limit:
        yield queue.read("save", LENGTH, size, Save(queue.messages(1), limit=queue.limit))
    if binding.fixed.get("limit", size) == size:
        yield queue.read("save that trims one", LENGTH, size, Save(queue.messages(1), limit=size))
    yield queue.read("fetch of a page of 10", LENGTH, size, Fetch(count=PAGE))
    yield queue.read("fetch of everything", LENGTH, size, Fetch())
    queue.run.perform(Fetch())
    middle = max(size // 2, 1)
    steps: tuple[tuple[str, Step], ...] = (
        ("acknowledge", Acknowledge(middle)), ("release", Release(middle)), ("clear", Clear()), ("open", Open()),
    )  # fmt: skip
    for name, step in steps:
        if name in binding.operations:
            yield queue.read(name, LENGTH, size, step)
    lapsed = _Queue(binding, now_ms)
    lapsed.fill(size, SHORT_MS)
    lapsed.run.perform(Wait(SHORT_MS + 1))
    yield lapsed.read("fetch with everything expired", LENGTH, size, Fetch())
    yield lapsed.read("save with everything expired", LENGTH, size, Save(lapsed.messages(1), limit=lapsed.limit))


class _Queue:
    """One client's queue, whose operations are measured and not judged."""

    def __init__(self, binding: Binding, now_ms: int, payload_bytes: int = PAYLOAD_BYTES) -> None:
        backend = KernelBackend(now_ms, binding.server)
        self.store = BoundStore(binding, backend, FOREVER_MS)
        self.limit = binding.fixed.get("limit", binding.modulus)
        self.run = SessionRun(self.store, (CLIENT,))
        self.run.stop_judging()
        self.meter = CallMeter(backend)
        self.payload_bytes = payload_bytes
        self.last = 0

    def messages(self, count: int, interval_ms: int = FOREVER_MS) -> tuple[Publication, ...]:
        """The next messages, which have QoS 2."""
        labels = range(self.last + 1, self.last + 1 + count)
        self.last += count
        return tuple(
            Publication(label, (b"m%d" % label).ljust(self.payload_bytes, b"."), b"t", 2, interval_ms)
            for label in labels
        )

    def fill(self, count: int, interval_ms: int = FOREVER_MS) -> None:
        """So many messages come."""
        at_once = min(self.store.largest_batch, FILLED_AT_ONCE)
        for first in range(0, count, at_once):
            self.run.perform(Save(self.messages(min(at_once, count - first), interval_ms), limit=self.limit))

    def read(self, situation: str, axis: str, size: int, step: Step) -> CostReading:
        """What a step takes, after which all is as before it."""
        remembered = self.run.state
        with self.store.backend.undone():
            found = self.meter.read(situation, axis, size, lambda effects: self._perform(step, effects))
        self.run.state = remembered
        return found

    def _perform(self, step: Step, effects: list[Effect]) -> str:
        with self.store.backend.noting(effects):
            result = self.run.perform(step).result
        return result.error.decode("utf-8", "replace") if isinstance(result, Failed) else ""
