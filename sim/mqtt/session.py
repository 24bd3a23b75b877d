"""Sessions as brokers see them while clients are connected: who is here, and what was sent and not acknowledged."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Deliveries = npt.NDArray[np.int64]
"""One row per message to deliver: message, subscriber, packet identifier, token."""
NO_DELIVERIES: Deliveries = np.empty((0, 4), np.int64)


def unstored(messages: npt.NDArray[np.int64], subscribers: npt.NDArray[np.int64]) -> Deliveries:
    """Deliveries with QoS 0: without packet identifier (-1) and token."""
    columns: Deliveries = np.stack((messages, subscribers, np.full(len(messages), -1), np.zeros(len(messages), np.int64)), 1)
    return columns


@dataclass(slots=True)
class SessionTable:
    """The sessions of all subscribers. A message in flight is found under (subscriber, packet identifier)."""

    connected: npt.NDArray[np.bool_]
    """Whether each subscriber has a connection."""
    connections: npt.NDArray[np.int64] = field(init=False)
    """How often each subscriber has lost a connection: bytes of an old connection are not heard."""
    lost_us: npt.NDArray[np.int64] = field(init=False)
    """When each subscriber lost its last connection."""
    fetching: set[int] = field(default_factory=set)
    """Subscribers that have connected and whose backlog is on its way from the store."""
    held_back: dict[int, list[Deliveries]] = field(default_factory=dict)
    """Per fetching subscriber, new deliveries that must not overtake the backlog."""
    in_flight: dict[int, tuple[int, int]] = field(default_factory=dict)
    """``subscriber << 16 | packet identifier`` → (message, token)."""
    losses: int = 0
    """Connections lost so far, of all subscribers."""

    def __post_init__(self) -> None:
        self.connections = np.zeros(len(self.connected), np.int64)
        self.lost_us = np.zeros(len(self.connected), np.int64)

    @classmethod
    def all_connected(cls, subscribers: int) -> SessionTable:
        """Everyone is here."""
        return cls(np.ones(subscribers, np.bool_))

    def disconnect(self, subscriber: int, now_us: int) -> None:
        """The connection is gone. What was in flight will be fetched and sent again."""
        self.connected[subscriber] = False
        self.connections[subscriber] += 1
        self.lost_us[subscriber] = now_us
        self.losses += 1
        self.fetching.discard(subscriber)
        self.held_back.pop(subscriber, None)

    def got_through(
        self, subscribers: npt.NDArray[np.int64], connections: npt.NDArray[np.int64], at_us: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Whether what was sent over ``connections`` (their numbers) and was to arrive at ``at_us`` did arrive."""
        lost = self.connections[subscribers] - connections
        arrived: npt.NDArray[np.bool_] = (lost == 0) | ((lost == 1) & (at_us <= self.lost_us[subscribers]))
        return arrived
