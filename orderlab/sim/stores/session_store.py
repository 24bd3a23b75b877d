"""What callers see of a session store, whatever it runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from orderlab.model.contracts.session.capabilities import Capabilities
from orderlab.model.contracts.steps import Fault
from orderlab.sim.stores.binding.results import Failed, Fields, Result

EVERYTHING = 65535
"""A page size that no queue exceeds."""

Interruption = Callable[[int], None]
"""Told after each call of an operation but the last how many there were."""


class TimedOut(Failed):
    """An operation whose script was stopped at its limit; what it had done until then stays."""


class ClientDied(Exception):
    """The client is gone between two calls of one operation."""


class SessionStore(Protocol):
    """A session store as its callers see it: operations in, results out, on a clock."""

    capabilities: Capabilities
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

    def perform(self, operation: str, client: bytes, fields: Fields, between: Interruption | None = None) -> Result:
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
