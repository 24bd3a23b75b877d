"""Client identifiers of every kind: all keys of one operation must hash to one slot, and the session must work as any
other.

Runs on the kernel, where what an operation touches can be recorded.
"""

from __future__ import annotations

from hypothesis import strategies as st

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.session.traces import Acknowledge, Clear, Fetch, Open, Release, Save, Step
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.properties.contracts.session.machines.store import StoreMachine
from orderlab.properties.contracts.session.run import StepReport
from orderlab.properties.contracts.session.strategies import clients
from orderlab.properties.machines.tally import initialize, rule
from orderlab.sim.redis.hash_slots import hash_slots


class HostileClients(StoreMachine):
    """One client with any identifier, and one beside it."""

    @initialize(client=clients)
    def connect_as(self, client: bytes) -> None:
        """Any identifier; the same run otherwise."""
        if not self.ended:
            met, store = self.run.coverage, self.run.store
            other = b"bystander" if client != b"bystander" else b"another"
            self.run = SessionRun(store, (client, other))
            self.run.coverage = met

    def perform(self, step: Step) -> StepReport:
        """As in any machine; and every operation by the slots of its keys."""
        with self.run.store.recording() as records:
            report = super().perform(step)
        for record in records if self.backend.shows_calls else ():
            self.run.coverage["an operation for a hostile client identifier"] += 1
            slots = hash_slots(record.declared | record.used)
            if len(slots) > 1:
                text = f"{record.operation}: the keys of one operation are in {len(slots)} slots"
                report.discrepancies.append(Discrepancy("one-slot", text, False))
        return report

    @rule(size=st.integers(1, 3), limit=st.integers(1, 3))
    def save(self, size: int, limit: int) -> None:
        """A batch."""
        self.take(Save(self.batch([(None, 2)] * size), limit=limit))

    @rule()
    def fetch(self) -> None:
        """Everything."""
        self.take(Fetch())

    @rule(back=st.integers(0, 3), release=st.booleans())
    def answer(self, back: int, release: bool) -> None:
        """PUBACK or PUBREC."""
        label = max(self.labels - back, 1)
        self.take(Release(label) if release else Acknowledge(label))

    @rule()
    def clear(self) -> None:
        """Clean start."""
        self.take(Clear())
        self.take(Open(clean_start=True))
