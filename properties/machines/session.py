"""A Hypothesis state machine over any session store on any backend: the rules are what can happen to a session.

Every rule makes one step of a trace; the judge of ``model.refinement`` looks at each. Subclasses say which store; what
is found goes to ``found``, or, where ``raises`` is set, fails the test with the steps that led there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from model.trace import (
    Acknowledge,
    Answer,
    Clear,
    Drain,
    Fault,
    Fetch,
    Open,
    Overlap,
    Publication,
    Release,
    Repeat,
    Save,
    Settle,
    Step,
    Wait,
)
from properties.strategies import session as given
from sim.session_run import SessionRun

MESSAGES = st.lists(
    st.tuples(given.payload_bodies, given.intervals_ms, st.sampled_from([1, 2]), st.booleans()), max_size=4
)
PLAIN_MESSAGES = st.lists(st.tuples(given.ordinary_intervals_ms, st.sampled_from([1, 2])), min_size=1, max_size=3)


class SessionMachine(RuleBasedStateMachine):
    """Two clients, two producers. Override ``make_run``."""

    make_run: ClassVar[Callable[[], SessionRun]]
    """A run at the beginning of an example: its store empty, or prepared."""
    prefix: ClassVar[tuple[Step, ...]] = ()
    """Steps that ``make_run`` has taken already; part of every witness."""
    can_fault: ClassVar[bool] = True
    can_wait: ClassVar[bool] = True
    limit: ClassVar[int | None] = None
    """The limit that the store fixes itself, if it does."""
    raises: ClassVar[bool] = True
    found: ClassVar[Callable[..., None] | None] = None
    """Told the discrepancies and the steps that led to them."""
    has_gaps: ClassVar[bool] = False
    """Whether some operation takes several calls, so that others can come between."""
    largest_batch: ClassVar[int] = 4
    is_over: ClassVar[Callable[[], bool]] = lambda: False
    """Whether the time for all examples together has run out."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = type(self).is_over()
        self.steps: list[Step] = list(self.prefix)
        self.labels = 0
        if not self.ended:
            self.run = type(self).make_run()
            self.labels = len(self.run.publications)

    def take(self, step: Step) -> None:
        """One step, judged."""
        if self.ended:
            return
        self.steps.append(step)
        report = self.run.perform(step)
        if report.result is None:
            self.steps.pop()
            return
        if report.discrepancies:
            trace = tuple(self.steps)
            if self.found is not None:
                self.found(report.discrepancies, trace)
            if self.raises:
                told = "; ".join(f"{one.law}: {one.text}" for one in report.discrepancies)
                raise AssertionError(f"{told}\nafter {len(trace)} steps: {trace}")
            self.ended = report.diverges

    # -- rules -----------------------------------------------------------------------------------------------------

    @rule(client=st.integers(0, 1), producer=st.integers(0, 1), messages=PLAIN_MESSAGES, limit=given.ordinary_limits)
    def save(self, client: int, producer: int, messages: list[tuple[int | None, int]], limit: int) -> None:
        """An ordinary batch."""
        batch = [self.publication(b"", interval_ms, qos) for interval_ms, qos in messages[: self.largest_batch]]
        self.take(Save(tuple(batch), client, producer, self.limit or limit))

    @rule(
        client=st.integers(0, 1),
        producer=st.integers(0, 1),
        messages=MESSAGES,
        limit=given.limits,
        stale=st.sampled_from([False, False, True]),
    )
    def save_anything(
        self,
        client: int,
        producer: int,
        messages: list[tuple[bytes, float | None, int, bool]],
        limit: int,
        stale: bool,
    ) -> None:
        """A batch with hostile contents: the payload alone, or the interval, but not both, must tell messages apart."""
        batch = []
        for body, interval_ms, qos, equal in messages[: self.largest_batch]:
            alike = equal and interval_ms is None
            one = self.publication(body, interval_ms, qos)
            batch.append(replace(one, payload=body) if alike else one)
        self.take(Save(tuple(batch), client, producer, self.limit or limit, stale))

    def publication(self, body: bytes, interval_ms: float | None, qos: int) -> Publication:
        """The next message of the run, with a payload of its own."""
        self.labels += 1
        return Publication(self.labels, b"<%d>payload" % self.labels + body, b"topic/%d" % (self.labels % 3), qos, interval_ms)

    @rule(producer=st.integers(0, 1))
    def repeat(self, producer: int) -> None:
        """A lost reply, and the retry."""
        self.take(Repeat(producer))

    @rule(client=st.integers(0, 1), count=given.page_sizes, onward=st.booleans())
    def fetch(self, client: int, count: int | None, onward: bool) -> None:
        """A page."""
        self.take(Fetch(client, count, onward))

    @rule(back=st.integers(0, 12))
    def acknowledge(self, back: int) -> None:
        """One of the last messages, however late."""
        self.take(Acknowledge(max(self.labels - back, 1)))

    @rule(client=st.integers(0, 1), first=st.booleans())
    def acknowledge_live(self, client: int, first: bool) -> None:
        """The oldest or the newest that was sent and waits."""
        if not self.ended:
            sent = [entry.label for entry in self.run.state.accounts[client].queue if entry.sent]
            if sent:
                self.take(Acknowledge(sent[0] if first else sent[-1]))

    @rule(back=st.integers(0, 12))
    def release(self, back: int) -> None:
        """PUBREC for one of the last messages."""
        self.take(Release(max(self.labels - back, 1)))

    @rule(client=st.integers(0, 1), packet_id=st.sampled_from([0, 1, 7, 65535, 65536, -1]), release=st.booleans())
    def answer_nothing(self, client: int, packet_id: int, release: bool) -> None:
        """An answer to something that was never sent."""
        self.take(Answer(packet_id, client, release))

    @rule(client=st.integers(0, 1), clean=st.sampled_from([False, True]))
    def reconnect(self, client: int, clean: bool) -> None:
        """CONNECT."""
        self.take(Open(client, clean))

    @rule(client=st.integers(0, 1), often=st.integers(0, 3))
    def clear(self, client: int, often: int) -> None:
        """The end of the session, and where there is an ``open`` the next CONNECT."""
        if often == 0:
            self.take(Clear(client))
            self.take(Open(client, True))

    @precondition(lambda self: self.can_wait)
    @rule(ms=given.waits_ms)
    def wait(self, ms: int) -> None:
        """Time passes."""
        self.take(Wait(ms))

    @precondition(lambda self: self.can_wait)
    @rule(client=st.integers(0, 1), which=st.integers(0, 3), offset_ms=st.sampled_from([-1, 0, 1]))
    def wait_for_deadline(self, client: int, which: int, offset_ms: int) -> None:
        """Until just before, at or just after the deadline of a message."""
        if not self.ended:
            account = self.run.state.accounts[client]
            left = [entry.latest_ms - account.session.now_ms + offset_ms for entry in account.queue]
            ms = left[which % len(left)] if left else 0
            if 0 < ms < 1 << 45:
                self.take(Wait(ms))

    @precondition(lambda self: self.can_fault)
    @rule(client=st.integers(0, 1), producer=st.integers(0, 1), messages=PLAIN_MESSAGES, fault=given.node_faults)
    def save_in_trouble(self, client: int, producer: int, messages: list[tuple[int | None, int]], fault: Fault) -> None:
        """The node is full, a replica, without replicas, without a disk, or giving its slot away; then a retry."""
        batch = [self.publication(b"", interval_ms, qos) for interval_ms, qos in messages[: self.largest_batch]]
        self.take(Save(tuple(batch), client, producer, self.limit or 3, False, fault))
        self.take(Repeat(producer))

    @precondition(lambda self: self.can_fault)
    @rule(
        client=st.integers(0, 1),
        producer=st.integers(0, 1),
        messages=PLAIN_MESSAGES,
        key=st.integers(0, 40),
        found=given.found_types,
    )
    def save_on_wrong_type(
        self, client: int, producer: int, messages: list[tuple[int | None, int]], key: int, found: str
    ) -> None:
        """One of the keys holds something else."""
        if not self.ended:
            keys = sorted(self.run.store.backend.keyspace())  # type: ignore[attr-defined]
            batch = [self.publication(b"", interval_ms, qos) for interval_ms, qos in messages[: self.largest_batch]]
            if keys:
                fault = Fault("wrong-type", key=keys[key % len(keys)], found=found)
                self.take(Save(tuple(batch), client, producer, self.limit or 3, False, fault))

    @precondition(lambda self: self.can_fault)
    @rule(
        back=st.integers(0, 6),
        kind=st.sampled_from(["acknowledge", "release", "clear", "fetch"]),
        fault=given.node_faults,
    )
    def do_in_trouble(self, back: int, kind: str, fault: Fault) -> None:
        """Any other operation while the node is in trouble."""
        label = max(self.labels - back, 1)
        steps: dict[str, Step] = {
            "acknowledge": Acknowledge(label, fault),
            "release": Release(label, fault),
            "clear": Clear(back % 2, fault),
            "fetch": Fetch(back % 2, None, False, fault),
        }
        self.take(steps[kind])

    @precondition(lambda self: self.has_gaps)
    @rule(producer=st.integers(0, 1), at=st.integers(1, 3), limit=given.ordinary_limits)
    def overlap(self, producer: int, at: int, limit: int) -> None:
        """Two saves for one client at the same time; of consequence where a save takes more than one call."""
        outer, inner = self.publication(b"", None, 1), self.publication(b"", None, 1)
        during = Save((inner,), 0, 1 - producer, self.limit or limit)
        self.take(Overlap(Save((outer,), 0, producer, self.limit or limit), during, at))

    def teardown(self) -> None:
        """Once the trouble is over, everything comes out in the end and nothing stays behind."""
        for client in range(2):
            self.take(Drain(client, 1 + client))
            self.take(Settle(client))
