"""Sessions end and begin: clean starts, records that were routed before, answers to what an earlier session was sent.

The laws most at stake are no-phantom, no-residue, and counter: identifiers go on from where the last session left off.
"""

from __future__ import annotations

from hypothesis import strategies as st

from orderlab.model.contracts.session.steps import Acknowledge, Clear, Fetch, Open, Quiesce, Save, Wait
from orderlab.properties.machines.store import StoreMachine
from orderlab.properties.machines.tally import rule

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
