"""Late deliveries that a shared subscription explains: another member had the message first, and went.

A server promises order for subscriptions that are not shared (MQTT-4.6.0-7). What it gave to a member of a shared
subscription whose connection, session or subscription ended, it should hand to another member (4.8.2), and that one may
have had later messages by then. So a late m is no break if another member of the same shared subscription went after m
was published and before it came.

Can miss: that the member which went had m is believed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from orderlab.model.checkers.delivery.event_pass import high_at
from orderlab.model.checkers.delivery.missing import EPOCH_KINDS, matches, unshared
from orderlab.model.checkers.delivery.pass_state import DeliveryPass
from orderlab.model.history.events import CLEAR, CONNECT, DISCONNECT, SUBSCRIBE, UNSUBSCRIBE, EventBatch, Names

_OF_MEMBERS = (SUBSCRIBE, UNSUBSCRIBE, CLEAR, CONNECT, DISCONNECT)


class _Departure(NamedTuple):
    """A member of a shared subscription that went."""

    event_id: int
    epoch: int
    subscriber: int


class SharedMembers:
    """Who has which shared subscriptions, and when members went. Memory: per row of a member that goes."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._named, self._epoch = 0, 0
        self._shared: dict[int, str] = {}
        """The filter behind each shared subscription, by code."""
        self._filters: dict[int, set[int]] = {}
        self._offline: set[int] = set()
        self._departures: dict[int, list[_Departure]] = {}
        """By the code of the shared subscription."""
        self._since: dict[int, dict[int, int]] = {}
        """By client and shared subscription the event with which it first had that."""

    def observe(self, batch: EventBatch) -> list[int]:
        """Follow the members' rows. Returns the clients that these have made members."""
        new: list[int] = []
        topics = self._names.topics.names
        for code in range(self._named, len(topics)):
            if topics[code].startswith("$share/"):
                self._shared[code] = str(unshared(topics[code]))
        self._named = len(topics)
        rows = np.flatnonzero(EPOCH_KINDS[batch.kind])
        if self._shared:
            places = np.flatnonzero(np.isin(batch.kind[rows], _OF_MEMBERS))
            some = rows[places]
            columns = (batch.event_id[some], places + self._epoch + 1, batch.kind[some], batch.subscriber[some])
            for event_id, epoch, kind, subscriber, topic in zip(
                *(column.tolist() for column in (*columns, batch.topic[some])), strict=True
            ):
                if kind == SUBSCRIBE and topic in self._shared and subscriber not in self._since:
                    new.append(subscriber)
                self._change(_Departure(event_id, epoch, subscriber), kind, topic)
        self._epoch += len(rows)
        return new

    def _change(self, row: _Departure, kind: int, topic: int) -> None:
        filters = self._filters.get(row.subscriber, set())
        gone: set[int] = set()
        if kind == SUBSCRIBE and topic in self._shared:
            self._filters.setdefault(row.subscriber, set()).add(topic)
            self._since.setdefault(row.subscriber, {}).setdefault(topic, row.event_id)
        elif kind == UNSUBSCRIBE and topic in filters:
            filters.remove(topic)
            gone = {topic}
        elif kind == CLEAR:
            gone = self._filters.pop(row.subscriber, set())
        elif kind == DISCONNECT:
            gone = filters
            self._offline.add(row.subscriber)
        elif kind == CONNECT:
            gone = set() if row.subscriber in self._offline else filters  # taken over
            self._offline.discard(row.subscriber)
        for code in gone:
            self._departures.setdefault(code, []).append(row)

    def may_have_passed_on(
        self, done: DeliveryPass, subscriber: int, topic: int, fifo: int, number: int, event_id: int
    ) -> bool:
        """Whether another member may have had the message before this event."""
        name = str(self._names.topics.label(topic))
        for code, since in self._since.get(subscriber, {}).items():
            if (
                since < event_id
                and matches(self._shared[code], name)
                and any(
                    gone.subscriber != subscriber
                    and gone.event_id < event_id
                    and number <= int(high_at(done.state, fifo, gone.epoch))
                    for gone in self._departures.get(code, ())
                )
            ):
                return True
        return False
