"""Channels of one node: who is subscribed to what, and to whom a message goes (``pubsub.c``).

What a server sends of its own accord, confirmations and messages, is appended to ``Client.pushed``; SUBSCRIBE and its
kin have no other reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from orderlab.sim.redis.client import Client
from orderlab.sim.redis.scanning import glob

CHANNEL, PATTERN, SHARD_CHANNEL = b"", b"p", b"s"
"""Kinds of subscriptions: what stands before ``subscribe`` and ``message``."""


class Subscribers:
    """The subscriptions of one node, each in the order in which they were made."""

    def __init__(self) -> None:
        self._clients: dict[bytes, dict[bytes, dict[Client, None]]] = {CHANNEL: {}, PATTERN: {}, SHARD_CHANNEL: {}}
        self.on_push: Callable[[Client], None] | None = None
        """Told each client that was sent something."""

    def names(self, kind: bytes) -> list[bytes]:
        """The channels or patterns of this kind that somebody is subscribed to."""
        return list(self._clients[kind])

    def count(self, kind: bytes, name: bytes) -> int:
        """How many are subscribed to one."""
        return len(self._clients[kind].get(name, ()))

    def subscribe(self, client: Client, kind: bytes, names: Iterable[bytes]) -> None:
        """Subscribe a client, and confirm it."""
        for name in names:
            client.subscriptions.setdefault(kind, {})[name] = None
            self._clients[kind].setdefault(name, {})[client] = None
            self._push(client, [kind + b"subscribe", name, _counted(client, kind)])

    def unsubscribe(self, client: Client, kind: bytes, names: Iterable[bytes]) -> None:
        """End subscriptions of a client, all of this kind if none is named, and confirm it."""
        chosen = list(names)
        mine = list(client.subscriptions.get(kind, ()))
        if not chosen and not mine:
            self._push(client, [kind + b"unsubscribe", None, _counted(client, kind)])
        for name in chosen or mine:
            self._end(client, kind, name)
            self._push(client, [kind + b"unsubscribe", name, _counted(client, kind)])

    def drop(self, client: Client) -> None:
        """The client has gone."""
        for kind, names in list(client.subscriptions.items()):
            for name in list(names):
                self._end(client, kind, name)

    def publish(self, channel: bytes, message: bytes, is_sharded: bool = False) -> int:
        """Send a message to whoever is subscribed to its channel, and then to a pattern that fits; how many times it
        was sent."""
        kind = SHARD_CHANNEL if is_sharded else CHANNEL
        sent = 0
        for client in self._clients[kind].get(channel, ()):
            self._push(client, [kind + b"message", channel, message])
            sent += 1
        if is_sharded:
            return sent
        for pattern, clients in self._clients[PATTERN].items():
            if glob(pattern)(channel):
                for client in clients:
                    self._push(client, [b"pmessage", pattern, channel, message])
                    sent += 1
        return sent

    def _push(self, client: Client, items: list[Any]) -> None:
        client.pushed.append(items)
        if self.on_push is not None:
            self.on_push(client)

    def _end(self, client: Client, kind: bytes, name: bytes) -> None:
        mine = client.subscriptions.get(kind, {})
        if name not in mine:
            return
        del mine[name]
        if not mine:
            del client.subscriptions[kind]
        clients = self._clients[kind][name]
        del clients[client]
        if not clients:
            del self._clients[kind][name]


def _counted(client: Client, kind: bytes) -> int:
    """How many subscriptions a confirmation tells of: shard channels are counted for themselves."""
    kinds = (SHARD_CHANNEL,) if kind == SHARD_CHANNEL else (CHANNEL, PATTERN)
    return sum(len(client.subscriptions.get(one, ())) for one in kinds)
