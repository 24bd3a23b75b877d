"""WATCH: which connection waits for which key, and what breaks the wait (``touchWatchedKey``)."""

from __future__ import annotations

from orderlab.sim.redis.client import Client
from orderlab.sim.redis.keyspace import Keyspace


class WatchTable:
    """Watched keys to their connections."""

    def __init__(self, keyspace: Keyspace) -> None:
        self._keyspace = keyspace
        self._clients: dict[bytes, list[Client]] = {}

    def __bool__(self) -> bool:
        return bool(self._clients)

    def add(self, client: Client, key: bytes) -> None:
        """WATCH ``key``; no effect if ``client`` does already."""
        if key not in client.watched:
            client.watched[key] = self._keyspace.is_expired(key)
            self._clients.setdefault(key, []).append(client)

    def drop(self, client: Client) -> None:
        """UNWATCH: ``client`` watches nothing any more."""
        for key in client.watched:
            clients = self._clients[key]
            clients.remove(client)
            if not clients:
                del self._clients[key]
        client.watched.clear()

    def touch(self, key: bytes) -> None:
        """``key`` was changed or removed."""
        for client in list(self._clients.get(key, ())):
            if client.watched[key] and key not in self._keyspace.data:
                # It was past its deadline when WATCH was called: its removal changes nothing that could be seen.
                client.watched[key] = False
                continue
            client.is_dirty = True
            self.drop(client)

    def touch_all(self, emptied: dict[bytes, object]) -> None:
        """The whole keyspace, ``emptied``, was flushed."""
        for key in [key for key in self._clients if key in emptied]:
            self.touch(key)

    def is_broken(self, client: Client) -> bool:
        """Whether EXEC must run nothing: a watched key changed, or passed its deadline since."""
        return client.is_dirty or any(
            not was_expired and self._keyspace.is_expired(key) for key, was_expired in client.watched.items()
        )
