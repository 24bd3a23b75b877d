"""What a run on a session store remembers beside the store's keys, as values: the explorer can go back to any moment."""

from __future__ import annotations

from typing import NamedTuple

from orderlab.model.contracts.session.refinement.account import Account, SaveReplyRow
from orderlab.model.contracts.session.steps import Save


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
    told: tuple[SaveReplyRow, ...] = ()
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
    """What has been given so far that no caller may give, the first of it (``orderlab.model.contracts.session.refinement.account``)."""
