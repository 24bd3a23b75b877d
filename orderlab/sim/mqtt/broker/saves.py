"""Which calls of the save script one poll of `msg.persisted` becomes, as columns: a poll holds a thousand messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from orderlab.sim.kafka.consumer_group import Polled
from orderlab.sim.mqtt.broker.routed_record import read_copies
from orderlab.sim.mqtt.clients.population import Ints


@dataclass(frozen=True, slots=True)
class Saves:
    """The calls, in the order of their first messages. Call ``i`` saves ``messages[bounds[i]:bounds[i + 1]]``."""

    messages: Ints
    recipients: Ints
    """Per message, its subscriber."""
    sessions: Ints
    """Per message, the session that it was routed for."""
    bounds: Ints
    """One more than there are calls."""
    producer: Ints
    """Per call, the partition of `msg.persisted`: whoever reads it, it numbers its saves."""
    batch: Ints

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def by_publisher(self, number_of: Mapping[int, int], publishers: int, first: int) -> Saves:
        """The same calls, numbered by publisher where messages have a number, whatever record they came in: publisher ``p`` is
        the producer ``first + p``. For calls of one message each."""
        numbers = np.array([number_of.get(message, 0) for message in self.messages.tolist()], np.int64)
        producer = np.where(numbers > 0, first + self.messages % publishers, self.producer)
        return replace(self, producer=producer, batch=np.where(numbers > 0, numbers, self.batch))

    @property
    def subscribers(self) -> Ints:
        """Per call, whose session takes the messages."""
        return self.recipients if len(self) == len(self.recipients) else self.recipients[self.bounds[:-1]]


def saves_of(polled: Polled, population: int, one_each: bool) -> Saves:
    """One save per client; or, for a store that knows a batch again by its number, one per message with its offset as
    the number, as packs are cut differently when they are read again."""
    sizes = [len(records) for _, _, records in polled]
    records = [record for _, _, records in polled for record in records]
    messages, recipients, sessions = read_copies(records, population)
    producer = np.repeat([partition.number for partition, _, _ in polled], sizes)
    batch = np.concatenate([np.arange(offset, offset + size) for (_, offset, _), size in zip(polled, sizes, strict=True)])
    bounds = np.arange(len(messages) + 1)
    if not one_each and len(set(recipients.tolist())) < len(messages):
        _, first, client = np.unique(recipients, return_index=True, return_inverse=True)
        order = np.argsort(first[client], kind="stable")
        begins = np.flatnonzero(np.diff(first[client][order], prepend=-1))
        columns = (messages, recipients, sessions, producer, batch)
        messages, recipients, sessions, producer, batch = (column[order] for column in columns)
        bounds = np.append(begins, len(messages))
    return Saves(messages, recipients, sessions, bounds, producer[bounds[:-1]], batch[bounds[:-1]] + 1)
