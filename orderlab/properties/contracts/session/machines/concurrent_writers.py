"""Several writers to one queue: operations that are stopped half-way, replies that are lost, retries, calls that
interleave.

The laws most at stake are all-or-nothing, counter and packet-id. Each writer sends its next batch or repeats its last
one; anything that ``orderlab.sim.redis.error_conditions`` knows can strike, a client can die between two calls of one
operation, an operator can kill a script and a node can crash before any call of it.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import precondition

from orderlab.model.contracts.client_steps import Fault
from orderlab.model.contracts.session.traces import (
    Acknowledge,
    Clear,
    Fetch,
    Interleave,
    Open,
    Release,
    Retry,
    Save,
    Wait,
)
from orderlab.properties.contracts.session import strategies as given
from orderlab.properties.contracts.session.machines.store import StoreMachine
from orderlab.properties.machines.tally import rule

WRITERS = 2
writers = st.integers(0, WRITERS - 1)
sizes = st.integers(1, 3)
BROKEN_INTERVALS = (None, 1000, 0, 1500, -1, 1e18)


class ConcurrentWriters(StoreMachine):
    """Two writers, one reader."""

    def save_of(self, writer: int, size: int, limit: int = 100, fault: Fault | None = None) -> Save:
        """The next batch of a writer."""
        return Save(self.batch([(None, 2), (None, 1), (None, 2)][:size]), 0, writer, limit, False, fault)

    @rule(writer=writers, size=sizes, limit=given.ordinary_limits)
    def save(self, writer: int, size: int, limit: int) -> None:
        """A batch goes through."""
        self.take(self.save_of(writer, size, limit))

    @rule(writer=writers)
    def reply_is_lost(self, writer: int) -> None:
        """The same call once more, however much the others have done since."""
        self.take(Retry(writer))

    @rule(writer=writers)
    def goes_back(self, writer: int) -> None:
        """A writer begins again at its last commit."""
        self.take(Retry(writer, older=True))
        self.take(Retry(writer))

    @rule(writer=writers, broken=st.sampled_from(BROKEN_INTERVALS), at=st.integers(0, 2))
    def save_with_broken_message(self, writer: int, broken: float | None, at: int) -> None:
        """A batch of three, one of which nobody should have sent; then the retry."""
        messages = [(broken if place == at else None, 1) for place in range(3)]
        self.take(Save(self.batch(messages), 0, writer, 100))
        self.take(Retry(writer))

    @precondition(lambda self: self.faults)
    @rule(writer=writers, size=sizes, fault=given.fault_numbers, limit=given.ordinary_limits)
    def node_in_trouble(self, writer: int, size: int, fault: int, limit: int) -> None:
        """The node refuses, wherever it does; then the retry."""
        self.take(self.save_of(writer, size, limit, self.fault(fault)))
        self.take(Retry(writer))

    @rule(writer=writers, size=sizes, key=st.integers(0, 20), found=given.found_types, limit=given.ordinary_limits)
    def wrong_type(self, writer: int, size: int, key: int, found: str, limit: int) -> None:
        """A key holds something else."""
        self.take_on_wrong_type(self.save_of(writer, size, limit), key, found)

    @precondition(lambda self: self.can_abort)
    @rule(writer=writers, size=sizes, kind=st.sampled_from(["killed", "crashed"]), before_call=st.integers(0, 12))
    def stopped(self, writer: int, size: int, kind: str, before_call: int) -> None:
        """An operator kills the script, or the node crashes; then the retry."""
        self.take(self.save_of(writer, size, 2, Fault(kind, before_call)))
        self.take(Retry(writer))

    @precondition(lambda self: self.has_gaps)
    @rule(writer=writers, other=writers, at=st.integers(1, 3), size=sizes)
    def interleave(self, writer: int, other: int, at: int, size: int) -> None:
        """Another writer's save between two calls of this one."""
        if other != writer:
            self.take(Interleave(self.save_of(writer, size), self.save_of(other, size), at))

    @precondition(lambda self: self.has_gaps)
    @rule(writer=writers, at=st.integers(1, 3), size=sizes)
    def client_dies(self, writer: int, at: int, size: int) -> None:
        """The writer ends between two calls."""
        self.take(self.save_of(writer, size, 100, Fault("client-dies", at)))

    @rule()
    def fetch(self) -> None:
        """The reader connects and is sent everything."""
        self.take(Fetch())

    @rule(first=st.booleans())
    def acknowledge(self, first: bool) -> None:
        """The oldest or the newest."""
        live = self.live(0)
        if live:
            self.take(Acknowledge(live[0] if first else live[-1]))

    @rule(writer=writers)
    def session_ends(self, writer: int) -> None:
        """The session is cleared; what was routed before arrives after it."""
        self.take(Clear())
        self.take(Open(clean_start=True))
        self.take(Save(self.batch([(None, 1)]), 0, writer, 100, stale=True))


KEYS_TRIED = 3
"""Of one operation; most use two or three."""
kinds = st.sampled_from(["save", "release", "acknowledge", "fetch", "clear", "connect", "clean start"])


class OperationsInTrouble(StoreMachine):
    """One client, one producer."""

    def operation(self, kind: str, newest: bool) -> Save | Acknowledge | Release | Fetch | Clear | Open:
        """An operation that has something to do."""
        if not self.live(0):
            self.take(Save(self.batch([(2000, 2), (None, 2)]), limit=3))
            self.take(Fetch())
        live = self.live(0) or [1]
        label = live[-1] if newest else live[0]
        if kind == "save":
            return Save(self.batch([(None, 2), (1000, 1)]), limit=3)
        others: dict[str, Acknowledge | Release | Fetch | Clear | Open] = {
            "acknowledge": Acknowledge(label),
            "release": Release(label),
            "fetch": Fetch(),
            "clear": Clear(),
            "connect": Open(),
            "clean start": Open(clean_start=True),
        }
        return others[kind]

    @rule(kind=kinds, newest=st.booleans(), found=given.found_types)
    def wrong_type(self, kind: str, newest: bool, found: str) -> None:
        """Each key that it meets, or would make, holds something else, one after the other."""
        for which in range(KEYS_TRIED):
            self.take_on_wrong_type(self.operation(kind, newest), which, found)

    @precondition(lambda self: self.faults)
    @rule(one=kinds, other=kinds, newest=st.booleans(), fault=given.fault_numbers)
    def node_refuses(self, one: str, other: str, newest: bool, fault: int) -> None:
        """A condition of the node, under which two operations come."""
        for kind in (one, other):
            self.take(replace(self.operation(kind, newest), fault=self.fault(fault)))

    @precondition(lambda self: self.can_abort)
    @rule(kind=kinds, newest=st.booleans(), how=st.sampled_from(["killed", "crashed"]), before_call=st.integers(0, 8))
    def stopped(self, kind: str, newest: bool, how: str, before_call: int) -> None:
        """Before one of its calls."""
        self.take(replace(self.operation(kind, newest), fault=Fault(how, before_call)))

    @rule(kind=kinds, newest=st.booleans())
    def nothing_is_wrong(self, kind: str, newest: bool) -> None:
        """The same in quiet times."""
        self.take(self.operation(kind, newest))

    @rule(ms=st.sampled_from([999, 1000, 2000]))
    def wait(self, ms: int) -> None:
        """Some of what waits expires."""
        if self.can_wait:
            self.take(Wait(ms))
