"""What a run on a session store remembers, as values, and what it needs of the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from orderlab.model.contracts.session.refinement import Account, Store, Told
from orderlab.model.contracts.trace import Fault, Save
from orderlab.sim.stores.binding.results import Failed, Fields, Result

EVERYTHING = 65535
"""A page size that no queue exceeds."""

Between = Callable[[int], None]


class Endless(Failed):
    """An operation whose script was stopped at its limit; what it had done until then stays."""


class ClientDied(Exception):
    """The client is gone between two calls of one operation."""


class SessionStore(Protocol):
    """A store as its callers see it: operations in, results out, on a clock."""

    terms: Store
    operations: frozenset[str]
    default_expiry_ms: int
    largest_batch: int
    limit: int
    """A limit that the store takes, where it does not matter which."""
    limit_max: int
    """The highest that callers may give."""
    fetch_is_read_only: bool
    """Fetch is declared to write nothing: leftovers have to wait for the next save."""

    @property
    def now_ms(self) -> int: ...

    def perform(self, operation: str, client: bytes, fields: Fields, between: Between | None = None) -> Result:
        """Carry out one operation. ``between`` is told after each of its calls but the last how many there were."""
        ...

    def acknowledge_all(self, client: bytes, fields: Sequence[Fields]) -> None:
        """Many acknowledgements, one after the other; nobody looks at the replies."""
        ...

    def listing(self, client: bytes) -> Result:
        """A fetch of everything that leaves no trace in the store."""
        ...

    def aside(self) -> AbstractContextManager[None]:
        """Whatever is done within leaves no trace."""
        ...

    def listing_later(self, client: bytes, ms: int) -> Result:
        """A listing ``ms`` from now, after which it is now again; where time can go back, which is on the kernel."""
        ...

    def advance(self, ms: int) -> None: ...

    @property
    def lag_ms(self) -> int:
        """By how much the callers' clock is behind that of the node, which goes on while they work."""
        ...

    def redis_deadlines_ms(self) -> Iterable[int]:
        """Deadlines that Redis itself keeps for the store's keys."""
        ...

    def under(self, fault: Fault, operation: str, client: bytes, fields: Fields) -> AbstractContextManager[None]:
        """Within it, the operation that is about to come meets ``fault``."""
        ...


class Sending(NamedTuple):
    """Under what a message was last sent to the subscriber."""

    packet_id: int
    sequence: int | None
    epoch: int = 1


class Batch(NamedTuple):
    """A producer's last save."""

    number: int = 0
    step: Save | None = None
    epoch: int = 1
    was_done: bool = False
    told: tuple[Told, ...] = ()
    """What the first reply told of its messages, as far as one has come."""
    earlier: Batch | None = None
    """The one that was done before it; that one's is left out."""


class Cursor(NamedTuple):
    """Where a reader is: the token of the last message of its last page, and everything up to that message."""

    sequence: int = 0
    passed: frozenset[int] = frozenset()


class Connection(NamedTuple):
    """Where a client stands with its session."""

    connects: int = 1
    """Number of its last CONNECT."""
    is_open: bool = True
    """Whether it has a session: a store with ``open`` has none between a clear and the next CONNECT."""
    cleared_epoch: int = 0
    """Epoch of its last session that was cleared; 0 before the first."""
    begun: int = 1
    """Number of the CONNECT that began its session: those that go on with a session do not begin one."""
    answer: tuple[bool, bool | None, int | None] | None = None
    """Clean Start of its last CONNECT, and the session present and epoch that were the reply; None: not kept."""


class RunState(NamedTuple):
    """Everything that a run remembers beside the store's own keys."""

    accounts: tuple[Account, ...]
    sendings: tuple[tuple[int, Sending], ...] = ()
    batches: tuple[Batch, ...] = ()
    cursors: tuple[Cursor, ...] = ()
    connections: tuple[Connection, ...] = ()
    forbidden: str = ""
    """What has been given so far that no caller may give, the first of it (``orderlab.model.contracts.session.refinement.callers``)."""
