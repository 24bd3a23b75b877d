"""Each operation while something is wrong: the node refuses, a key holds another type, an operator kills the script.

The law at stake is all-or-nothing. Every rule first sees to it that messages wait, so that there is something to lose.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import precondition

from orderlab.model.contracts.session.steps import Acknowledge, Clear, Fetch, Open, Release, Save, Wait
from orderlab.model.contracts.steps import Fault
from orderlab.properties.machines.store import StoreMachine
from orderlab.properties.machines.tally import rule
from orderlab.properties.strategies import session as given

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
