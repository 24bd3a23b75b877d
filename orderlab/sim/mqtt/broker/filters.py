"""What deliveries pass between the pack that holds them and the socket: an ordered list of filters.

Each takes deliveries and their origin, and gives back those that go on. ``FILTERS`` is their order; each says what it
stops, and, where the order matters, why it stands where it stands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from orderlab.sim.engine.packs import all_of
from orderlab.sim.mqtt.clients import Ints
from orderlab.sim.mqtt.connections import (
    NO_SESSION,
    PACKET_ID,
    SUBSCRIBER,
    ConnectionTable,
    Deliveries,
    InflightWindows,
    ReplayFilter,
)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where deliveries come from."""

    is_backlog: bool = False
    """They were read from the store for a subscriber that has just connected."""
    is_pushed: bool = True
    """They come from who saved them, and may have been read from the store meanwhile."""
    sessions: Ints | None = None
    """For which they were routed, if that came along; what was read and acknowledged meanwhile, and its session over,
    nobody else knows."""


@dataclass(frozen=True, slots=True)
class FilterContext:
    """What filters look at, of one broker and of what all brokers know."""

    broker: int
    broker_of: Ints
    """Per subscriber, the broker where it connects."""
    table: ConnectionTable
    replayed: ReplayFilter
    windows: InflightWindows
    refuses_closed: bool
    """Whether the store refuses what is for a session that is over."""
    pushes_early: bool
    """Whether brokers send on what was saved before they commit, and the store's tokens tell its order."""
    has_unstored: bool
    """Whether some messages have QoS 0."""
    on_late: Callable[[Deliveries], None]
    """Hears of what was pushed behind newer messages."""
    write_unstored: Callable[[Deliveries], None]


Filter = Callable[[FilterContext, Deliveries, Origin], Deliveries]


def of_routed_session(context: FilterContext, deliveries: Deliveries, origin: Origin) -> Deliveries:
    """Stops what was routed for another session than the present one, where the store would refuse it. A store that
    knows no sessions lets it pass, and the history is told which session it was for. First, for nobody behind this
    filter knows the sessions that came along."""
    if origin.sessions is None:
        return deliveries
    table, sessions = context.table, origin.sessions
    if context.refuses_closed:
        of_present: Deliveries = deliveries[
            (sessions == NO_SESSION) | (sessions == table.session_number[deliveries[:, SUBSCRIBER]])
        ]
        return of_present
    table.note_pushed(deliveries, sessions)
    return deliveries


def connected_here(context: FilterContext, deliveries: Deliveries, origin: Origin) -> Deliveries:
    """Stops what is for those who are not connected to this broker. Before the filters that keep books per connection:
    they must hear of no other's."""
    subscribers = deliveries[:, SUBSCRIBER]
    here = context.table.connected[subscribers] & (context.broker_of[subscribers] == context.broker)
    return deliveries if all_of(here) else deliveries[here]


def of_begun_session(context: FilterContext, deliveries: Deliveries, origin: Origin) -> Deliveries:
    """Stops what comes while the store still has the old session: it was saved for that one."""
    beginning = context.table.beginning
    return deliveries[~np.isin(deliveries[:, SUBSCRIBER], list(beginning))] if beginning else deliveries


def of_present_session(context: FilterContext, deliveries: Deliveries, origin: Origin) -> Deliveries:
    """Stops what waits for a session that is over. A backlog was read from the present one."""
    table = context.table
    if not table.may_end or not context.refuses_closed or origin.is_backlog:
        return deliveries
    present: Deliveries = deliveries[table.sessions_of(deliveries) == table.session_number[deliveries[:, SUBSCRIBER]]]
    return present


def not_replayed(context: FilterContext, deliveries: Deliveries, origin: Origin) -> Deliveries:
    """Stops what was read from the store and went out before: the same, pushed, would go twice, and what is older would
    overtake."""
    return context.replayed.beyond(deliveries) if origin.is_pushed and not origin.is_backlog else deliveries


def behind_backlog(context: FilterContext, deliveries: Deliveries, origin: Origin) -> Deliveries:
    """Holds back what is new until the backlog is out. Behind ``not_replayed``: what is held back passes that again,
    with what the fetch under way has found."""
    return hold_back(context.table, deliveries) if context.table.fetching and not origin.is_backlog else deliveries


def in_sequence(context: FilterContext, deliveries: Deliveries, origin: Origin) -> Deliveries:
    """Stops what was pushed behind newer messages, and has the store asked about it. Behind ``behind_backlog``, so that
    only what is really sent moves the sequence on."""
    if not context.pushes_early or origin.is_backlog:
        return deliveries
    in_order, late = context.replayed.in_sequence(deliveries)
    if not origin.is_pushed:
        return deliveries
    context.on_late(late)
    if len(late) and context.table.fetching:  # what came with them is newer than what is read now
        return hold_back(context.table, in_order)
    return in_order


def with_packet_id(context: FilterContext, deliveries: Deliveries, origin: Origin) -> Deliveries:
    """Writes what has QoS 0, and needs no window and no packet identifier."""
    if not context.has_unstored:
        return deliveries
    unstored = deliveries[:, PACKET_ID] < 0
    context.write_unstored(deliveries[unstored])
    return deliveries[~unstored]


def within_window(context: FilterContext, deliveries: Deliveries, origin: Origin) -> Deliveries:
    """Holds back what exceeds the Receive Maximum. Last: what it admits is counted as sent until its answer comes, so
    nothing behind it may drop a delivery silently."""
    return context.windows.admit(deliveries, origin.is_backlog) if context.windows.is_limited else deliveries


FILTERS: tuple[Filter, ...] = (
    of_routed_session,
    connected_here,
    of_begun_session,
    of_present_session,
    not_replayed,
    behind_backlog,
    in_sequence,
    with_packet_id,
    within_window,
)


def passed(context: FilterContext, deliveries: Deliveries, origin: Origin) -> Deliveries:
    """Those that no filter stops."""
    for filtered in FILTERS:
        deliveries = filtered(context, deliveries, origin)
    return deliveries


def hold_back(table: ConnectionTable, deliveries: Deliveries) -> Deliveries:
    """Those that need not wait for a backlog; the others wait in the table."""
    waits = np.isin(deliveries[:, SUBSCRIBER], list(table.fetching))
    for delivery in deliveries[waits]:
        table.held_back.setdefault(int(delivery[SUBSCRIBER]), []).append(delivery[np.newaxis])
    return deliveries[~waits]
