"""Receive Maximum: how many PUBLISH packets with QoS above 0 a subscriber takes before it has acknowledged one.

What exceeds it waits at the broker, in order, until a PUBACK or PUBCOMP comes (MQTT-3.3.4-9). A lost connection empties
the window and the queue: the store has it all, and the next connection fetches it.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from orderlab.sim.mqtt.connections import NO_DELIVERIES, Deliveries

UNLIMITED = 65_535
"""The default of the protocol, and what packet identifiers allow at all."""


class InflightWindows:
    """The windows of all subscribers, and what waits for room: deliveries, and whether they come from a backlog."""

    def __init__(self, receive_maximum: int) -> None:
        self.receive_maximum = receive_maximum
        self._sent: dict[int, int] = {}
        self._queues: dict[int, deque[tuple[list[int], bool]]] = {}

    @property
    def is_limited(self) -> bool:
        """Whether any of this matters."""
        return self.receive_maximum < UNLIMITED

    @property
    def columns(self) -> dict[str, int]:
        """What a connect row of the history says of it."""
        return {"receive_maximum": self.receive_maximum} if self.is_limited else {}

    def admit(self, deliveries: Deliveries, is_backlog: bool) -> Deliveries:
        """What may go out now; the rest queues up."""
        rows = [row for row in deliveries.tolist() if self._admits(row, is_backlog)]
        return np.array(rows, np.int64) if rows else NO_DELIVERIES

    def _admits(self, row: list[int], is_backlog: bool) -> bool:
        subscriber = row[1]
        sent = self._sent.get(subscriber, 0)
        if sent >= self.receive_maximum or self._queues.get(subscriber):
            self._queues.setdefault(subscriber, deque()).append((row, is_backlog))
            return False
        self._sent[subscriber] = sent + 1
        return True

    def occupy(self, subscriber: int) -> None:
        """A PUBREL that goes out again after a reconnect counts, as its PUBCOMP is missing."""
        self._sent[subscriber] = self._sent.get(subscriber, 0) + 1

    def acknowledged(self, subscriber: int) -> tuple[list[int], bool] | None:
        """One is acknowledged; the next that may go out, if any."""
        sent = max(self._sent.get(subscriber, 0) - 1, 0)
        queue = self._queues.get(subscriber)
        if not queue or sent >= self.receive_maximum:
            self._sent[subscriber] = sent
            return None
        self._sent[subscriber] = sent + 1
        return queue.popleft()

    def waiting(self, subscriber: int) -> set[tuple[int, int]]:
        """(message, packet identifier) of what waits for room."""
        return {(row[0], row[2]) for row, _ in self._queues.get(subscriber, ())}

    def forget(self, subscriber: int) -> None:
        """The connection is gone."""
        self._sent.pop(subscriber, None)
        self._queues.pop(subscriber, None)
