"""Which calls of the save script one poll of `msg.persisted` becomes."""

from __future__ import annotations

from typing import NamedTuple

from sim.kafka.consumer_group import Polled


class Save(NamedTuple):
    """One call of the save script."""

    subscriber: int
    messages: list[int]
    producer: int
    """The partition of `msg.persisted`: whoever reads it, it numbers its saves."""
    batch: int


def saves_of(polled: Polled, subscribers: int, one_each: bool) -> list[Save]:
    """One save per client; or, for a store that knows a batch again by its number, one per message with its offset as
    the number, as packs are cut differently when they are read again."""
    saves: dict[int, Save] = {}
    for partition, offset, records in polled:
        for place, record in enumerate(records, offset):
            message, subscriber = divmod(record, subscribers)
            key = len(saves) if one_each else subscriber
            known = saves.get(key)
            if known is None:
                saves[key] = Save(subscriber, [message], partition.number, place + 1)
            else:
                known.messages.append(message)
    return list(saves.values())
