"""Packet identifiers and their wrap: the counter starts anywhere, identifiers pass by the ten thousand, answers come late.

The laws most at stake are packet-id, store-order and counter. In the small world (identifiers 1..3) a handful of saves
goes round; at full scale ``pass_by`` takes up to 200,000 saves through the store in one rule.
"""

from __future__ import annotations

from typing import ClassVar

from hypothesis import strategies as st

from orderlab.model.contracts.session.steps import Acknowledge, Churn, Fetch, Release, Save
from orderlab.properties.contracts.session.machines.store import StoreMachine
from orderlab.properties.machines.tally import initialize, rule

FULL_SCALE = 65535
SMALL = 8
"""Identifiers of a world small enough to go round it one by one."""
near_the_wrap = st.integers(-4, 4)


class PacketIdentifiers(StoreMachine):
    """One queue, one producer. ``passes_max`` is how many messages may pass in one example."""

    passes_max: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0

    @initialize(start=st.one_of(near_the_wrap, st.integers(0, FULL_SCALE)))
    def start_anywhere(self, start: int) -> None:
        """Bring the counter to ``start`` (from the wrap on, below 5)."""
        self.pass_by_count(start % FULL_SCALE)

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
        """The oldest or newest that waits, one of the last, or one of the first, whose identifier may be in use again."""
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
            self.pass_by_count(FULL_SCALE + past)
            return
        modulus = self.run.store.capabilities.modulus
        for _ in range(min(modulus + past, SMALL)):
            self.take(Save(self.batch([(None, 1)]), limit=modulus))
            self.take(Fetch())
            self.take(Acknowledge(self.labels))
