"""From the acknowledgement of a subscriber to the store: it leaves what is in flight, and remove scripts run.

A PUBACK or PUBCOMP comes over the present connection (``completed``), or over one that has ended and the broker still
reads (``completed_over_old``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, NamedTuple, Protocol

import numpy as np

from orderlab.model.history.events import EventKind
from orderlab.sim.engine.clock import call_at
from orderlab.sim.mqtt.broker.node import BrokerNode
from orderlab.sim.mqtt.clients import Clients, Ints
from orderlab.sim.mqtt.connections import PACKET_ID, SUBSCRIBER, Deliveries, in_flight_key
from orderlab.sim.mqtt.parts import DeliveryState, Storage

_NOTHING = (-2, 0)
_SESSION = 4
"""The column of ``Acknowledged``."""


class RowWriter(Protocol):
    """Tells the history what happened to deliveries."""

    def __call__(self, kind: EventKind, deliveries: Deliveries, instants: Ints, dup: Ints | int) -> None: ...


class Acknowledged(NamedTuple):
    """What subscribers have acknowledged, by column."""

    messages: list[int]
    subscribers: list[int]
    packet_ids: list[int]
    tokens: list[int]
    sessions: list[int]


class Removals:
    """Remove scripts of one broker."""

    def __init__(
        self,
        node: BrokerNode,
        subscribers: Clients,
        storage: Storage,
        state: DeliveryState,
        record: RowWriter,
        make_room: Callable[[Ints], None],
    ) -> None:
        """``make_room`` sends what waited in the windows of subscribers for a packet to be acknowledged."""
        self.node = node
        self.measured = node.measured
        self.subscribers = subscribers
        self.storage = storage
        self.table = state.connections
        self.windows = state.windows
        self.trims = state.trims
        self.record = record
        self.make_room = make_room

    def completed_over_old(self, acknowledged: Deliveries, sessions: Ints) -> None:
        """Run remove scripts for PUBACKs or PUBCOMPs that came over connections which have ended. Of the messages this
        broker knows what it sent: identifier, token, session. Nobody waits for these scripts, and they are not run
        again: who has the client now sends again what is there."""
        if not len(acknowledged):
            return
        node, table = self.node, self.table
        store, name, node_of = self.storage.store, self.subscribers.name, self.storage.node_of
        messages, whose, packet_ids, tokens = acknowledged.T.tolist()
        over = [
            table.is_over(subscriber, session) for subscriber, session in zip(whose, sessions.tolist(), strict=True)
        ]
        here = ~np.array(over, np.bool_)  # in the history an acknowledgement is of the present session
        self.record(EventKind.ACKNOWLEDGE, acknowledged[here], np.full(int(here.sum()), int(node.env.now)), -1)
        for message, subscriber, packet_id, token in acknowledged[here].tolist():
            key = in_flight_key(subscriber, packet_id)
            is_sent_anew = table.connected[subscriber] and subscriber not in table.fetching
            if not is_sent_anew and table.in_flight.get(key) == (message, token):
                del table.in_flight[key]
        calls = store.acknowledge_each(list(map(name, whose)), packet_ids, tokens, sessions.tolist())
        nodes = [node_of[subscriber] for subscriber in whose]
        is_others = [
            is_over and subscriber not in table.beginning for is_over, subscriber in zip(over, whose, strict=True)
        ]

        def removed(replies: Sequence[Any]) -> None:
            for message, subscriber, packet_id, is_other, reply in zip(
                messages, whose, packet_ids, is_others, replies, strict=True
            ):
                if reply == 1 and is_other:
                    self.measured.count("removals_of_other_messages")
                elif reply == 1 and self.trims.limit is not None:
                    self.trims.removed(subscriber, (message, packet_id))

        done = node.burst(len(whose), node.costs.acknowledge_us)
        call_at(node.env, done, lambda: node.driver.submit(nodes, calls, removed))

    def completed(self, acknowledged: Deliveries, answered: Ints, connections: Ints) -> None:
        """Run remove scripts: the subscribers' PUBACKs or PUBCOMPs are here, over ``connections``."""
        node, table = self.node, self.table
        if node.is_dead or not len(acknowledged):
            return
        self.record(EventKind.ACKNOWLEDGE, acknowledged, answered, -1)
        done = node.burst(len(acknowledged), node.costs.acknowledge_us)
        subscribers = acknowledged[:, SUBSCRIBER]
        here = self._leave(acknowledged, table.session_number[subscribers].tolist())
        table.complete(acknowledged)
        table.removed_from_us[subscribers], table.removed_by[subscribers] = done, node.number
        if node.settings.awaits_removals:
            table.note_releasing(here.subscribers, node.number)
        if here.messages:
            self._remove(here, done)
        if self.windows.is_limited:
            present = table.connection_number[subscribers] == connections
            self.make_room(acknowledged[present, SUBSCRIBER])

    def _leave(self, acknowledged: Deliveries, sessions: list[int]) -> Acknowledged:
        """Take what is acknowledged out of what is in flight: that of it which is there, and is no later session's."""
        in_flight = self.table.in_flight
        keys = in_flight_key(acknowledged[:, SUBSCRIBER], acknowledged[:, PACKET_ID]).tolist()
        known_before = list(map(in_flight.pop, keys, repeat(_NOTHING)))
        messages, subscribers, packet_ids, _ = acknowledged.T.tolist()
        there, tokens = map(list, zip(*known_before, strict=True)) if known_before else ([], [])
        if there == messages:  # as nearly always
            return Acknowledged(messages, subscribers, packet_ids, tokens, sessions)
        for key, what in zip(reversed(keys), reversed(known_before), strict=True):
            if what is not _NOTHING:
                in_flight[key] = what
        rows = [
            (message, subscriber, packet_id, known[1], session)
            for message, subscriber, packet_id, session, key in zip(
                messages, subscribers, packet_ids, sessions, keys, strict=True
            )
            if (known := in_flight.get(key, _NOTHING))[0] == message and in_flight.pop(key)
        ]
        return Acknowledged(*map(list, zip(*rows, strict=True))) if rows else Acknowledged([], [], [], [], [])

    def _remove(self, acknowledged: Acknowledged, at_us: float) -> None:
        """Run remove scripts, and again those that fail, where sessions are not read before they have run."""
        node, table = self.node, self.table
        store, names_of, node_of = self.storage.store, self.subscribers.names_of, self.storage.node_of
        _, whose, *numbered = acknowledged
        calls, nodes = store.acknowledge_each(names_of(whose), *numbered), list(map(node_of.__getitem__, whose))
        may_need_rows = store.has_tokens or node.settings.awaits_removals or self.trims.limit is not None
        rows = list(zip(*acknowledged, strict=True)) if may_need_rows else ()
        if store.has_tokens:
            table.note_removing(rows)

        def removed(replies: Sequence[Any]) -> None:
            again = (
                [
                    row
                    for row, reply in zip(rows, replies, strict=True)
                    if not isinstance(reply, int)
                    and not store.is_damaged(reply)
                    and not table.is_over(row[SUBSCRIBER], row[_SESSION])
                ]
                if node.settings.awaits_removals and not node.is_dead
                else []
            )
            over = [row for row in rows if row not in again] if again else rows
            if store.has_tokens:
                table.note_removed(over)
            if node.settings.awaits_removals:
                table.note_released([subscriber for _, subscriber, *_ in over], node.number)
            if self.trims.limit is not None:
                for (message, subscriber, packet_id, *_), reply in zip(rows, replies, strict=True):
                    if type(reply) is int:
                        self.trims.removed(subscriber, (message, packet_id))
            absent = len(replies) - replies.count(1)
            if absent:
                self.measured.count("removes_of_nothing", absent)
            if again:
                self.measured.count("removes_again", len(again))
                later_us = node.env.now + node.settings.pack_pause_us
                call_at(
                    node.env,
                    later_us,
                    lambda: self._remove(Acknowledged(*map(list, zip(*again, strict=True))), later_us),
                )

        call_at(node.env, at_us, lambda: node.driver.submit(nodes, calls, removed))
