"""Sessions as brokers see them while clients are connected: who is here, and what was sent and not acknowledged."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class SessionTable:
    """The sessions of all subscribers. A message in flight is found under (subscriber, packet identifier)."""

    connected: bytearray
    """1 for each subscriber that has a connection."""
    fetching: set[int] = field(default_factory=set)
    """Subscribers that have connected and whose backlog is on its way from the store."""
    held_back: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    """Per fetching subscriber, new (message, packet identifier, token) that must not overtake the backlog."""
    in_flight: dict[int, tuple[int, int]] = field(default_factory=dict)
    """``subscriber << 16 | packet identifier`` → (message, token)."""
    connections: dict[int, int] = field(default_factory=dict)
    """How often each subscriber has connected anew: bytes of an old connection are not heard."""

    def connection(self, subscriber: int) -> int:
        """The number of the subscriber's present connection."""
        return self.connections.get(subscriber, 0)

    def disconnect(self, subscriber: int) -> None:
        """The connection is gone. What was in flight will be fetched and sent again."""
        self.connected[subscriber] = 0
        self.connections[subscriber] = self.connection(subscriber) + 1
        self.fetching.discard(subscriber)
        self.held_back.pop(subscriber, None)
