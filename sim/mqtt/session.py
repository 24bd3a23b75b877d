"""Sessions as brokers see them while clients are connected: who is here, and what was sent and not acknowledged."""

from __future__ import annotations

from dataclasses import dataclass, field

Delivery = tuple[int, int, int, int]
"""(message, subscriber, packet identifier, token)."""


@dataclass(slots=True)
class SessionTable:
    """The sessions of all subscribers. A message in flight is found under (subscriber, packet identifier)."""

    connected: bytearray
    """1 for each subscriber that has a connection."""
    fetching: set[int] = field(default_factory=set)
    """Subscribers that have connected and whose backlog is on its way from the store."""
    held_back: dict[int, list[Delivery]] = field(default_factory=dict)
    """Per fetching subscriber, new deliveries that must not overtake the backlog."""
    in_flight: dict[int, tuple[int, int]] = field(default_factory=dict)
    """``subscriber << 16 | packet identifier`` → (message, token)."""
    connections: dict[int, int] = field(default_factory=dict)
    """How often each subscriber has lost a connection: bytes of an old connection are not heard."""
    lost_us: dict[int, int] = field(default_factory=dict)
    """When each subscriber lost its last connection."""
    losses: int = 0
    """Connections lost so far, of all subscribers."""

    def disconnect(self, subscriber: int, now_us: int) -> None:
        """The connection is gone. What was in flight will be fetched and sent again."""
        self.connected[subscriber] = 0
        self.connections[subscriber] = self.connections.get(subscriber, 0) + 1
        self.lost_us[subscriber] = now_us
        self.losses += 1
        self.fetching.discard(subscriber)
        self.held_back.pop(subscriber, None)

    def got_through(self, subscriber: int, connection: int, at_us: int) -> bool:
        """Whether what was sent over ``connection`` (its number) and was to arrive at ``at_us`` did arrive."""
        lost = self.connections.get(subscriber, 0) - connection
        return lost == 0 or (lost == 1 and at_us <= self.lost_us[subscriber])
