"""What a node remembers of one client connection: protocol, transaction, watched keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

_identifiers = count(1)


@dataclass(slots=True, eq=False)
class Client:
    """One connection. Pass it to ``Shard.execute``; without one a shard uses a connection of its own."""

    id: int = field(default_factory=lambda: next(_identifiers))
    resp: int = 2
    database: int = 0
    """The one that SELECT chose."""
    name: bytes = b""
    queue: list[Sequence[bytes]] | None = None
    """Commands queued since MULTI; None outside of a transaction."""
    is_aborted: bool = False
    """A command could not be queued: EXEC will refuse (EXECABORT)."""
    is_dirty: bool = False
    """A watched key has changed: EXEC will run nothing and reply nil."""
    watched: dict[bytes, bool] = field(default_factory=dict)
    """Name of a watched key -> whether it was already past its deadline when WATCH was called."""
    asking: bool = False
    """ASKING was sent: holds for the next command, or if that is MULTI to the end of the transaction."""
    reads_replicas: bool = False
    """READONLY was sent: a cluster replica serves its reads."""
    is_master: bool = False
    """The stream of a replica's master: its writes are obeyed, and nothing expires under it."""
