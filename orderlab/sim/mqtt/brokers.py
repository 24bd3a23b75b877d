"""The brokers of one system, by their numbers, and what they know of each other's clients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from orderlab.sim.mqtt.clients import Ints
from orderlab.sim.mqtt.connections import ConnectionTable
from orderlab.sim.mqtt.ports import Broker, Ownership


class Brokers(list[Broker]):
    """All of them, the dead ones too."""

    def __init__(self, broker_of: Ints, table: ConnectionTable) -> None:
        """``broker_of``: per subscriber, the broker where it is connected, or was last."""
        super().__init__()
        self.broker_of = broker_of
        self.table = table
        self.ownership: Ownership | None = None
        """What they have heard of who is connected where; None: all know it at once."""
        self.on_silence: list[Callable[[int, float], None]] = []
        """Hear of every broker of which the others have not heard for the session timeout, and until when it can do
        nothing, if it is alive."""

    def next_after(self, number: int) -> Broker:
        """The next broker after ``number`` that is alive."""
        order = self[number + 1 :] + self[: number + 1]
        return next(broker for broker in order if not broker.is_dead)

    def owners(self, here: int, subscribers: Ints) -> Ints:
        """The brokers to which broker ``here`` sends on what is for these; -1: to none."""
        return self.broker_of[subscribers] if self.ownership is None else self.ownership.owners(here, subscribers)

    def wake(self, here: int, subscriber: int) -> None:
        """Let the broker that has a client, as broker ``here`` knows, read its session anew."""
        owner = int(self.owners(here, np.array([subscriber]))[0])
        if owner >= 0:
            self[owner].wake(subscriber)

    def knows_newer(self, here: int, subscriber: int, connection: int) -> bool:
        """Whether broker ``here`` knows of a later connection of the client than that, were it over."""
        if self.ownership is not None:
            return self.ownership.knows_newer(here, subscriber, connection)
        table = self.table
        return bool(table.connection_number[subscriber] + table.connected[subscriber] > connection + 1)
