"""One queue: identifiers that go round and acknowledgements that come late; trims, deadlines and a clock that jumps to
them."""

from __future__ import annotations

from typing import ClassVar

from hypothesis import strategies as st

from orderlab.model.contracts.session.traces import Acknowledge, Churn, DrainQueue, Fetch, Quiesce, Release, Save, Wait
from orderlab.model.protocol.packet_id import MODULUS
from orderlab.properties.contracts.session import strategies as given
from orderlab.properties.contracts.session.machines.store import WAITS_MAX_MS, StoreMachine
from orderlab.properties.machines.tally import initialize, rule

SMALL = 8
"""Identifiers of a world small enough to go round it one by one."""
near_the_wrap = st.integers(-4, 4)


class PacketIdentifiers(StoreMachine):
    """One queue, one producer. ``passes_max`` is how many messages may pass in one example."""

    passes_max: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0

    @initialize(start=st.one_of(near_the_wrap, st.integers(0, MODULUS)))
    def start_anywhere(self, start: int) -> None:
        """Bring the counter to ``start`` (from the wrap on, below 5)."""
        self.pass_by_count(start % MODULUS)

    def pass_by_count(self, count: int) -> None:
        """So many messages come and go, if the example may still afford them."""
        if 0 < count <= self.passes_max - self.passed:
            self.passed += count
            self.take(Churn(count, by_expiry=True))

    @rule(size=st.integers(1, 4), qos=st.sampled_from([1, 2]), keeps=st.integers(1, 5))
    def save(self, size: int, qos: int, keeps: int) -> None:
        """A few messages that live long."""
        self.take(Save(self.batch([(864_000_000 if self.passes_max else None, qos)] * size), limit=keeps))

    @rule(count=st.sampled_from([None, 1, 2]))
    def fetch(self, count: int | None) -> None:
        """Send what waits."""
        self.take(Fetch(count=count))

    @rule(which=st.sampled_from(["oldest", "newest", "recent", "first"]), back=st.integers(0, 4))
    def acknowledge(self, which: str, back: int) -> None:
        """The oldest or newest that waits, one of the last, or one of the first, whose identifier may be in use
        again."""
        live = self.live(0)
        labels = {"recent": self.labels - back, "first": 1 + back}
        if live:
            labels |= {"oldest": live[0], "newest": live[-1]}
        if which in labels:
            self.take(Acknowledge(max(labels[which], 1)))

    @rule(back=st.integers(0, 4))
    def release(self, back: int) -> None:
        """PUBREC."""
        self.take(Release(max(self.labels - back, 1)))

    @rule(past=st.integers(-1, 1))
    def go_round(self, past: int) -> None:
        """As many messages as there are identifiers, or one more or less, come and are acknowledged; others stay."""
        if self.passes_max or self.ended:
            self.pass_by_count(MODULUS + past)
            return
        modulus = self.run.store.capabilities.modulus
        for _ in range(min(modulus + past, SMALL)):
            self.take(Save(self.batch([(None, 1)]), limit=modulus))
            self.take(Fetch())
            self.take(Acknowledge(self.labels))


LIFETIMES_MS = (None, 1000, 2000, 3000, 40_000)
batches = st.lists(st.sampled_from(LIFETIMES_MS), min_size=1, max_size=4)
clients = st.sampled_from([0, 0, 0, 1])
limits = st.sampled_from([3, 2, 1, 4, 5, 0, -1])


class TrimAndExpiry(StoreMachine):
    """One busy client and a quiet one."""

    @rule(client=clients, lifetimes=batches, limit=limits, qos=st.sampled_from([1, 1, 2]))
    def save(self, client: int, lifetimes: list[int | None], limit: int, qos: int) -> None:
        """A batch; a store that fixes its limit keeps it."""
        self.take(Save(self.batch([(ms, qos) for ms in lifetimes]), client, limit=limit))

    @rule(client=clients, short=st.integers(1, 3), before=st.booleans(), limit=st.integers(2, 5))
    def leave_ghosts(self, client: int, short: int, before: bool, limit: int) -> None:
        """One message that lives long and some that do not, before it or behind it; then their time is over."""
        long, ghosts = (40_000, 1), [(1000, 1)] * short
        for message in [long, *ghosts] if before else [*ghosts, long]:
            self.take(Save(self.batch([message]), client, limit=limit))
        self.take(Wait(1000))

    @rule(client=clients, count=st.sampled_from([None, 1, 2, 3]), onward=st.booleans())
    def fetch(self, client: int, count: int | None, onward: bool) -> None:
        """A page."""
        self.take(Fetch(client, count, onward))

    @rule(client=clients, which=st.integers(0, 4), offset_ms=st.sampled_from([0, -1, 1]))
    def jump_to_deadline(self, client: int, which: int, offset_ms: int) -> None:
        """Until just before, at or just after the deadline of a message that waits."""
        if not self.ended and self.can_wait:
            account = self.run.state.accounts[client]
            left = sorted(entry.latest_ms - account.session.now_ms for entry in account.queue)
            ms = left[which % len(left)] + offset_ms if left else 0
            if 0 < ms <= WAITS_MAX_MS:
                self.take(Wait(int(ms)))

    @rule(ms=given.waits_ms)
    def wait(self, ms: int) -> None:
        """Any time."""
        if self.can_wait:
            self.take(Wait(ms))

    @rule(client=clients, last=st.booleans())
    def acknowledge(self, client: int, last: bool) -> None:
        """The oldest or the newest that waits."""
        live = self.live(client)
        if live:
            self.take(Acknowledge(live[-1] if last else live[0]))

    @rule(client=clients)
    def release(self, client: int) -> None:
        """PUBREC for the oldest."""
        live = self.live(client)
        if live:
            self.take(Release(live[0]))

    @rule(client=clients, count=st.integers(1, 2))
    def drain(self, client: int, count: int) -> None:
        """A subscriber that stays connected."""
        self.take(DrainQueue(client, count))
        self.take(Quiesce(client))
