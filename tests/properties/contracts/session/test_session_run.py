"""The judge, on a store in plain Python: right, it is never accused; with one flaw, the law that it breaks is named."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest

from orderlab.model.contracts.client_steps import Fault
from orderlab.model.contracts.session.capabilities import Capabilities
from orderlab.model.contracts.session.traces import (
    Acknowledge,
    Clear,
    DrainQueue,
    Fetch,
    Publication,
    Release,
    Retry,
    Save,
    Step,
    Wait,
)
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.sim.stores.binding.results import (
    Assigned,
    Cleared,
    Failed,
    Fetched,
    FetchedMessage,
    Fields,
    Removed,
    Result,
    Saved,
)


@dataclass
class Kept:
    payload: bytes
    packet_id: int
    sequence: int
    deadline_ms: float
    explicit: bool
    qos: int
    kind: str = "PUBLISH"


@dataclass
class Queue:
    kept: list[Kept] = field(default_factory=list)
    last: int = 0
    sequence: int = 0
    epoch: int = 0
    marks: dict[bytes, int] = field(default_factory=dict)


class PlainStore:
    """The abstract session, executed. ``flaw`` names the one thing that it does wrong."""

    operations = frozenset(("save", "fetch", "acknowledge", "release", "clear"))
    default_expiry_ms = 60_000
    largest_batch = 100
    limit = 3
    limit_max = 4
    fetch_is_read_only = False

    def __init__(self, flaw: str = "", modulus: int = 4) -> None:
        self.flaw = flaw
        self.capabilities = Capabilities(
            modulus, has_tokens=flaw != "late-acknowledgement", keeps_sent=False, checks_limit=True
        )
        self.now = 1_000_000
        self.queues: dict[bytes, Queue] = {}

    @property
    def now_ms(self) -> int:
        return self.now

    def advance(self, ms: int) -> None:
        self.now += ms

    def serve(self, version: str) -> bool:
        return False

    def redis_deadlines_ms(self) -> Iterable[int]:
        return ()

    @contextmanager
    def under(self, fault: Fault, operation: str, client: bytes, fields: Fields) -> Iterator[None]:
        self.failing = True
        yield
        self.failing = False

    failing = False

    def queue(self, client: bytes) -> Queue:
        return self.queues.setdefault(b"" if self.flaw == "shared" else client, Queue())

    def perform(self, operation: str, client: bytes, fields: Fields, between: Any = None) -> Result:
        done: Result = getattr(self, operation)(self.queue(client), dict(fields))
        return done

    def acknowledge_all(self, client: bytes, fields: Iterable[Fields]) -> None:
        for one in fields:
            self.perform("acknowledge", client, one)

    @contextmanager
    def aside(self) -> Iterator[None]:
        before = deepcopy(self.queues)
        yield
        self.queues = before

    def listing_later(self, client: bytes, ms: int) -> Result:
        return Fetched()

    def listing(self, client: bytes) -> Result:
        return self.page(self.queue(client), 0, 1 << 20)

    def live(self, queue: Queue) -> list[Kept]:
        late = 1 if self.flaw == "expires-late" else -1 if self.flaw == "expires-early" else 0
        return [one for one in queue.kept if one.deadline_ms + late > self.now]

    def page(self, queue: Queue, after: int, count: int) -> Fetched:
        live = [one for one in self.live(queue) if one.sequence > after]
        if self.flaw == "order-by-identifier":
            live.sort(key=lambda one: one.packet_id)
        if self.flaw == "ghosts-fill-pages":
            shown = [one for one in queue.kept if one.sequence > after][:count]
            live = [one for one in shown if one in live]
        return Fetched(tuple(self.shown(one) for one in live[:count]))

    def shown(self, one: Kept) -> FetchedMessage:
        left = None if not one.explicit else one.deadline_ms - self.now
        if left is not None and self.flaw == "interval-rounded-up-twice":
            left = -(-left // 1000) * 1000 + 1000
        kind = "PUBLISH" if self.flaw == "release-forgotten" else one.kind
        return FetchedMessage(one.payload, one.packet_id, one.sequence, kind, left)

    def save(self, queue: Queue, fields: dict[str, Any]) -> Result:
        limit, messages = fields["limit"], fields["messages"]
        if not 1 <= limit <= self.capabilities.modulus and self.flaw != "limit-zero":
            return Failed(b"ERR limit")
        if fields["epoch"] < queue.epoch and self.flaw != "stale-record":
            return Saved(refused="stale")
        if fields["batch"] <= queue.marks.get(fields["producer"], 0) and self.flaw != "repeated-save":
            return Saved(refused="repeated")
        if self.failing and self.flaw != "half-a-batch":
            return Failed(b"OOM")
        if self.flaw != "ghosts-trim":
            queue.kept = self.live(queue)
        assigned = []
        for number, message in enumerate(messages):
            if self.failing and number == 1:
                return Failed(b"OOM")
            assigned.append(Assigned(self.append(queue, message, fields), queue.sequence))
        queue.marks[fields["producer"]] = fields["batch"]
        surplus = len(queue.kept) - limit
        if self.flaw == "trim-newest" and surplus > 0:
            del queue.kept[limit:]
        elif surplus > 0 and self.flaw != "no-trim":
            del queue.kept[: surplus + (self.flaw == "trim-one-more")]
        return Saved(tuple(assigned))

    def append(self, queue: Queue, message: Any, fields: dict[str, Any]) -> int:
        modulus = self.capabilities.modulus
        live = {one.packet_id for one in queue.kept}
        while len(queue.kept) >= modulus and message.expiry_ms != 0:
            live.discard(queue.kept.pop(0).packet_id)
        queue.last = queue.last % (modulus + (self.flaw == "wraps-late")) + 1
        while (
            len(live) < modulus
            and queue.last in live
            and self.flaw not in ("identifier-reused", "wraps-late", "counter-lost")
        ):
            queue.last = queue.last % modulus + 1
        queue.sequence += 1
        interval = message.expiry_ms
        if self.flaw == "zero-is-forever" and interval == 0:
            interval = None
        if interval is not None and not 0 <= interval < 1 << 40:
            interval = None
        deadline_ms = self.now + (fields["default_expiry_ms"] if interval is None else interval)
        if self.flaw == "identifier-reused":
            queue.kept = [one for one in queue.kept if one.packet_id != queue.last]
        if deadline_ms > self.now:
            explicit = message.expiry_ms is not None
            one = Kept(message.payload, queue.last, queue.sequence, deadline_ms, explicit, message.qos)
            queue.kept.append(one)
        return queue.last

    def fetch(self, queue: Queue, fields: dict[str, Any]) -> Result:
        page = self.page(queue, fields["after"], fields["count"])
        if self.flaw == "fetch-removes":
            queue.kept = [one for one in queue.kept if one.sequence not in {m.sequence for m in page.messages}]
        elif self.flaw != "ghosts-fill-pages":
            queue.kept = self.live(queue)
        return page

    def target(self, queue: Queue, fields: dict[str, Any]) -> list[Kept]:
        key = "packet_id" if self.flaw == "late-acknowledgement" else "sequence"
        return [one for one in queue.kept if getattr(one, key) == fields[key]]

    def acknowledge(self, queue: Queue, fields: dict[str, Any]) -> Result:
        target = self.target(queue, fields)
        if self.flaw != "acknowledgement-ignored":
            queue.kept = [one for one in queue.kept if one not in target]
        if not queue.kept and self.flaw == "counter-lost":
            queue.last = 0
        return Removed(len(target) + (self.flaw == "count-lies"))

    def release(self, queue: Queue, fields: dict[str, Any]) -> Result:
        for one in self.target(queue, fields):
            if one.qos == 2:
                one.kind = "PUBREL"
                if self.flaw == "release-extends":
                    one.deadline_ms += 5000
        return Removed()

    def clear(self, queue: Queue, fields: dict[str, Any]) -> Result:
        if self.flaw == "clear-keeps-newest":
            del queue.kept[:-1]
        else:
            queue.kept.clear()
        queue.epoch = max(queue.epoch, fields["epoch"])
        queue.last, queue.marks = 0, {}
        return Cleared()


PERMITTED = (None, None, 1000, 2000, 3000, 0)
FORBIDDEN = (*PERMITTED, -1, 1500, 1e18)


def random_step(draw: random.Random, label: int, intervals_ms: Sequence[float | None]) -> Step:
    client, producer, seen = draw.randrange(2), draw.randrange(2), draw.randint(1, max(label, 1))
    faults = [None, None, None, Fault("out-of-memory")]

    def message(offset: int) -> Publication:
        interval_ms = draw.choice(intervals_ms)
        # Of two equal messages nobody can tell which one a store refused or expired: equal ones last equally long.
        payload = (
            draw.choice([b"same", b"", b"m%d" % (label + offset)]) if interval_ms is None else b"m%d" % (label + offset)
        )
        return Publication(label + offset, payload, b"t", draw.choice([1, 2]), interval_ms)

    size = draw.choice([intervals_ms is PERMITTED, 1, 1, 2, 3])
    messages = tuple(message(offset) for offset in range(1, size + 1))
    return draw.choice(
        [
            lambda: Save(messages, client, producer, draw.choice([1, 2, 3, 9, 0, -1]), False, draw.choice(faults)),
            lambda: Save(messages, client, producer, draw.choice([2, 3, 4]), draw.random() < 0.2),
            lambda: Save(messages, client, producer, 3),
            lambda: Retry(producer),
            lambda: Fetch(client, draw.choice([None, 1, 2, 5]), draw.random() < 0.5),
            lambda: Acknowledge(seen),
            lambda: Release(seen),
            lambda: Clear(client) if draw.random() < 0.3 else Fetch(client),
            lambda: Wait(draw.choice([1, 500, 999, 1000, 2000, 60_000])),
            lambda: DrainQueue(client, draw.choice([1, 2])) if draw.random() < 0.2 else Fetch(client, 2),
        ]
    )()


def laws_broken(flaw: str, wanted: str = "", runs: int = 150, steps: int = 40) -> dict[str, str]:
    """The first reason found for each law; no more runs once the one that is wanted has been found."""
    found: dict[str, str] = {}
    for seed in range(runs):
        draw = random.Random(seed)
        run = SessionRun(PlainStore(flaw), (b"c1", b"c2"))
        for at in range(steps):
            step = (
                random_step(draw, len(run.publications), FORBIDDEN if seed % 5 == 4 else PERMITTED)
                if at < steps - 2
                else DrainQueue(at % 2, 1)
            )
            report = run.perform(step)
            for one in report.discrepancies if flaw else (*report.discrepancies, *report.beside):
                found.setdefault(one.law, f"seed {seed}: {step}: {one.text}")
            if report.diverges:
                break
        if wanted in found:
            break
    return found


@pytest.mark.parametrize(
    "step",
    [
        Save((Publication(3, b"m3", interval_ms=-1000),), limit=4),
        Save((Publication(3, b"m3", interval_ms=1500),), limit=4),
        Save((Publication(3, b"m3", interval_ms=4_294_967_296_000),), limit=4),
        Save((Publication(3, b"m3", b""),), limit=4),
        Save((Publication(3, b"m3", b"a/#"),), limit=4),
        Save((Publication(3, b"m3", qos=3),), limit=4),
        Save((), limit=4),
    ],
)
def test_what_no_caller_may_give_accuses_of_nothing_but_being_no_whole(step: Step) -> None:
    """A store that forgets everything at such a value, and one that does at any."""
    for flaw, given in (("", step), ("forgets", step), ("forgets", Save((Publication(3, b"m3"),), limit=4))):
        run = SessionRun(PlainStore(), (b"c1",))
        run.perform(Save((Publication(1, b"m1"), Publication(2, b"m2")), limit=4))
        if flaw:
            run.store.queue(b"c1").kept.clear()  # type: ignore[attr-defined]
        report = run.perform(given)
        assert report.diverges == bool(flaw)
        assert {one.law for one in report.discrepancies} == ({"no-loss"} if flaw and given is not step else set())
        assert {one.law for one in report.beside} == ({"no-loss"} if flaw and given is step else set())


def test_a_client_that_mqtt_cannot_name_accuses_of_nothing() -> None:
    for client, forbidden in ((b"", True), (b"a\0b", True), (b"\xff", True), (b"}", False), ("ü".encode(), False)):
        assert bool(SessionRun(PlainStore(), (client,)).state.forbidden) == forbidden


def test_a_correct_store_is_never_accused() -> None:
    assert laws_broken("", runs=400) == {}


@pytest.mark.parametrize(
    ("flaw", "law"),
    [
        ("order-by-identifier", "store-order"),
        ("fetch-removes", "no-loss"),
        ("identifier-reused", "packet-id"),
        ("identifier-reused", "no-loss"),
        ("late-acknowledgement", "packet-id"),
        ("acknowledgement-ignored", "packet-id"),
        ("count-lies", "packet-id"),
        ("wraps-late", "packet-id"),
        ("counter-lost", "counter"),
        ("ghosts-trim", "legal-trim"),
        ("trim-newest", "legal-trim"),
        ("trim-one-more", "legal-trim"),
        ("no-trim", "legal-trim"),
        ("limit-zero", "legal-trim"),
        ("expires-late", "expiry"),
        ("expires-early", "expiry"),
        ("zero-is-forever", "expiry"),
        ("interval-rounded-up-twice", "expiry"),
        ("release-extends", "expiry"),
        ("half-a-batch", "all-or-nothing"),
        ("repeated-save", "all-or-nothing"),
        ("stale-record", "no-phantom"),
        ("clear-keeps-newest", "no-residue"),
        ("release-forgotten", "retransmission"),
        ("ghosts-fill-pages", "drain"),
        ("shared", "no-phantom"),
    ],
)
def test_a_flaw_is_named_by_the_law_that_it_breaks(flaw: str, law: str) -> None:
    assert law in laws_broken(flaw, law)
