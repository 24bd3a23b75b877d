"""The session store against its specification: the rules are all that can happen to a session, hostile things included.

The machine that `orderlab validate` runs, and the general one of the pytest plugin.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import precondition

from orderlab.model.contracts.session.traces import (
    Acknowledge,
    Answer,
    Clear,
    Fetch,
    Interleave,
    Open,
    Quiesce,
    Release,
    Retry,
    Save,
    Step,
    Upkeep,
    Wait,
)
from orderlab.model.protocol.packet_id import MODULUS
from orderlab.properties.contracts.session import strategies as given
from orderlab.properties.contracts.session.machines.store import StoreMachine
from orderlab.properties.machines.tally import rule

MESSAGES = st.lists(
    st.tuples(given.payload_bodies, given.intervals_ms, st.sampled_from([1, 2]), st.booleans()), min_size=1, max_size=4
)
PLAIN_MESSAGES = st.lists(st.tuples(given.ordinary_intervals_ms, st.sampled_from([1, 2])), min_size=1, max_size=3)


class SessionMachine(StoreMachine):
    """Two clients, two producers, and every operation."""

    @rule(client=st.integers(0, 1), producer=st.integers(0, 1), messages=PLAIN_MESSAGES, limit=given.ordinary_limits)
    def save(self, client: int, producer: int, messages: list[tuple[int | None, int]], limit: int) -> None:
        """An ordinary batch."""
        self.take(Save(self.batch(messages), client, producer, limit))

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
        self.take(Save(tuple(batch), client, producer, limit, stale))

    @rule(producer=st.integers(0, 1))
    def repeat(self, producer: int) -> None:
        """A lost reply, and the retry."""
        self.take(Retry(producer))

    @rule(producer=st.integers(0, 1))
    def go_back(self, producer: int) -> None:
        """A batch older than the last comes again, and the last after it."""
        self.take(Retry(producer, older=True))
        self.take(Retry(producer))

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

    @rule(client=st.integers(0, 1), packet_id=st.sampled_from([1, 7, MODULUS]), release=st.booleans())
    def answer_nothing(self, client: int, packet_id: int, release: bool) -> None:
        """An answer to something that was never sent."""
        self.take(Answer(packet_id, client, release))

    @precondition(lambda self: len(self.steps) > self.forbidden_after)
    @rule(
        client=st.integers(0, 1),
        interval_ms=given.forbidden_intervals_ms,
        packet_id=st.sampled_from([0, MODULUS + 1, -1]),
        kind=st.sampled_from(["interval", "limit", "answer", "nothing"]),
    )
    def give_what_is_forbidden(self, client: int, interval_ms: float, packet_id: int, kind: str) -> None:
        """Late in an example, for it accuses of little from then on."""
        one, other = self.publication(), self.publication(b"", interval_ms)
        steps: dict[str, Step] = {
            "interval": Save((one, other)[: self.largest_batch][-2:], client, limit=3),
            "limit": Save((one,), client, limit=0),
            "answer": Answer(packet_id, client, packet_id < 0),
            "nothing": Save((), client, limit=3),
        }
        if kind != "limit" or self.limit is None:
            self.take_as_it_is(steps[kind])

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
            if ms > 0:
                self.take(Wait(ms))

    @precondition(lambda self: self.faults)
    @rule(client=st.integers(0, 1), producer=st.integers(0, 1), messages=PLAIN_MESSAGES, fault=given.fault_numbers)
    def save_in_trouble(self, client: int, producer: int, messages: list[tuple[int | None, int]], fault: int) -> None:
        """The node is full, a replica, without replicas, without a disk, or giving its slot away; then a retry."""
        self.take(Save(self.batch(messages), client, producer, 3, False, self.fault(fault)))
        self.take(Retry(producer))

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
        """One of the keys holds something else, or one that the save is about to make."""
        self.take_on_wrong_type(Save(self.batch(messages), client, producer, 3), key, found)

    @precondition(lambda self: self.faults)
    @rule(
        back=st.integers(0, 6),
        kind=st.sampled_from(["acknowledge", "release", "clear", "fetch", "connect", "clean start"]),
        fault=given.fault_numbers,
    )
    def do_in_trouble(self, back: int, kind: str, fault: int) -> None:
        """Any other operation while the node is in trouble."""
        label, met = max(self.labels - back, 1), self.fault(fault)
        steps: dict[str, Step] = {
            "acknowledge": Acknowledge(label, met),
            "release": Release(label, met),
            "clear": Clear(back % 2, met),
            "fetch": Fetch(back % 2, None, False, met),
            "connect": Open(back % 2, False, met),
            "clean start": Open(back % 2, True, met),
        }
        self.take(steps[kind])

    @precondition(lambda self: self.has_gaps)
    @rule(producer=st.integers(0, 1), at=st.integers(1, 3), limit=given.ordinary_limits)
    def overlap(self, producer: int, at: int, limit: int) -> None:
        """Two saves for one client at the same time; of consequence where a save takes more than one call."""
        outer, inner = self.publication(), self.publication()
        during = Save((inner,), 0, 1 - producer, limit)
        self.take(Interleave(Save((outer,), 0, producer, limit), during, at))


clients = st.sampled_from([0, 0, 0, 1])


class Sessions(StoreMachine):
    """Two clients that come and go."""

    @rule(client=clients, size=st.integers(1, 3), stale=st.booleans(), producer=st.integers(0, 1))
    def save(self, client: int, size: int, stale: bool, producer: int) -> None:
        """A batch, or one that was routed to the session before this one."""
        self.take(Save(self.batch([(None, 1)] * size), client, producer, 3, stale))

    @rule(client=clients)
    def fetch(self, client: int) -> None:
        """Everything."""
        self.take(Fetch(client))

    @rule(client=clients, clean=st.booleans())
    def connect(self, client: int, clean: bool) -> None:
        """CONNECT."""
        self.take(Open(client, clean))

    @rule(client=clients, opens=st.booleans())
    def end(self, client: int, opens: bool) -> None:
        """The session ends; the client comes back at once, or has not come back yet."""
        self.take(Clear(client))
        if opens:
            self.take(Open(client, True))

    @rule(client=clients)
    def end_late(self, client: int) -> None:
        """What ends the session before this one comes only now."""
        self.take(Clear(client, stale=True))

    @rule(back=st.integers(0, 4))
    def acknowledge(self, back: int) -> None:
        """One of the last messages, of whichever session."""
        self.take(Acknowledge(max(self.labels - back, 1)))

    @rule(client=clients)
    def empty(self, client: int) -> None:
        """All that waits is acknowledged, and what remains is looked at."""
        self.take(Fetch(client))
        for label in self.live(client):
            self.take(Acknowledge(label))
        self.take(Quiesce(client))

    @rule(ms=st.sampled_from([1000, 30_000, 1_000_000_000]))
    def wait(self, ms: int) -> None:
        """Quiet for a while, or for long."""
        if self.can_wait:
            self.take(Wait(ms))


class KeptUpMachine(SessionMachine):
    """With what a store does by itself now and then."""

    @rule(which=st.integers(0, 9))
    def keep_up(self, which: int) -> None:
        """Have the store do one of the things that it does by itself now and then."""
        upkeep = () if self.ended else self.run.store.upkeep
        if upkeep:
            self.take(Upkeep(upkeep[which % len(upkeep)]))
