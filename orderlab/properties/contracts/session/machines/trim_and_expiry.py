"""Trim and expiry: intervals of every length, limits that change, a clock that jumps to deadlines and stops 1 ms beside them.

The laws most at stake are legal-trim, expiry, no-loss, no-residue and drain.
"""

from __future__ import annotations

from hypothesis import strategies as st

from orderlab.model.contracts.session.steps import Acknowledge, DrainQueue, Fetch, Quiesce, Release, Save, Wait
from orderlab.properties.contracts.session import strategies as given
from orderlab.properties.contracts.session.machines.store import WAITS_MAX_MS, StoreMachine
from orderlab.properties.machines.tally import rule

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
