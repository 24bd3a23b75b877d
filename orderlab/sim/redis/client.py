"""What a node remembers of one client connection, and WATCH: who waits for which key, and what breaks the wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from orderlab.sim.redis.database import Database, name_in, place_of
from orderlab.sim.redis.keyspace import Keyspace

_identifiers = count(1)


@dataclass(eq=False)
class Client:
    """One connection. Pass it to ``Shard.execute``; without one a shard uses a connection of its own."""

    id: int = field(default_factory=lambda: next(_identifiers))
    resp: int = 2
    database: int = 0
    """The one that SELECT chose."""
    name: bytes = b""
    library: dict[bytes, bytes] = field(default_factory=lambda: {b"lib-name": b"", b"lib-ver": b""})
    """What CLIENT SETINFO said."""
    is_untouching: bool = False
    """CLIENT NO-TOUCH ON: what it reads counts as not used."""
    is_kept: bool = False
    """CLIENT NO-EVICT ON. Connections take no memory here, so that none is ever evicted."""
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
    may_wait: bool = False
    """Whether its blocking commands wait (``blocking``), or are over at once as at a timeout."""
    waiting: Any = None
    """The wait that it is in (``blocking.Waiting``)."""
    pushed: list[Any] = field(default_factory=list)
    """What was sent to it without being asked for, in order: confirmations and messages of subscriptions."""
    subscriptions: dict[bytes, dict[bytes, None]] = field(default_factory=dict)
    """Kind -> channels or patterns of it, where there is one; see ``subscriptions``."""
    is_master: bool = False
    """The stream of a replica's master: its writes are obeyed, and nothing expires under it."""
    user: Any = None
    """Who it is (``users.User``); None where nobody serves the node."""
    guard: Any = None
    """Whom to ask before each call (``permissions.Permissions``); None: it may do everything."""


class WatchTable:
    """Names of watched keys, among those of all databases, to their connections."""

    def __init__(self, keyspace: Keyspace) -> None:
        self._keyspace = keyspace
        self._clients: dict[bytes, list[Client]] = {}

    def __bool__(self) -> bool:
        return bool(self._clients)

    def add(self, client: Client, key: bytes) -> None:
        """WATCH ``key`` of the selected database; no effect if ``client`` does already."""
        name = name_in(self._keyspace.database, key)
        if name not in client.watched:
            client.watched[name] = self._keyspace.is_expired(key)
            self._clients.setdefault(name, []).append(client)

    def drop(self, client: Client) -> None:
        """UNWATCH: ``client`` watches nothing any more."""
        for name in client.watched:
            clients = self._clients[name]
            clients.remove(client)
            if not clients:
                del self._clients[name]
        client.watched.clear()

    def put_back(self, client: Client, watched: Mapping[bytes, bool], is_dirty: bool) -> None:
        """``client`` watches again what it watched at an earlier moment."""
        self.drop(client)
        client.is_dirty = is_dirty
        for name, was_expired in watched.items():
            client.watched[name] = was_expired
            self._clients.setdefault(name, []).append(client)

    def touch(self, name: bytes) -> None:
        """The key that ``name`` stands for was changed or removed."""
        for client in list(self._clients.get(name, ())):
            database, key = self._keyspace.home_of(name)
            if client.watched[name] and key not in database.data:
                # It was past its deadline when WATCH was called: its removal changes nothing that could be seen.
                client.watched[name] = False
                continue
            client.is_dirty = True
            self.drop(client)

    def touch_swapped(self, index: int, other: int) -> None:
        """The keys of database ``other`` are about to take the places of those of ``index``: a key breaks the wait
        unless it is, or seems to be, in neither before and after (``touchAllWatchedKeysInDb``)."""
        databases, keyspace = self._keyspace.databases(), self._keyspace
        before, after = (databases.get(one) or Database() for one in (index, other))
        for name in list(self._clients):
            at, key = place_of(name)
            if at != index or (key not in before.data and key not in after.data):
                continue
            will_be_expired = keyspace.is_past(name_in(other, key))
            for client in list(self._clients.get(name, ())):
                if client.watched[name] and (key not in after.data or will_be_expired):
                    client.watched[name] = key in after.data
                elif key not in before.data and will_be_expired:
                    client.watched[name] = True
                else:
                    client.is_dirty = True
                    self.drop(client)

    def is_broken(self, client: Client) -> bool:
        """Whether EXEC must run nothing: a watched key changed, or passed its deadline since."""
        if client.is_dirty:
            return True
        for name, was_expired in client.watched.items():  # noqa: SIM110 - any() takes a generator, the slowest there is
            if not was_expired and self._keyspace.is_past(name):
                return True
        return False
