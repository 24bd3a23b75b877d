"""What was overtaken is lost: m and n of one logical FIFO were owed to a session, n came, and m never did.

A server sends what one publisher published to a topic in the order in which it took it in, for packets of the same QoS
(MQTT-4.6.0-6), and what is sent again goes first (MQTT-4.6.0-1). So once n has come m cannot come in order any more,
and only what was taken out of the queue lawfully (trimmed, expired) need not come. It does not matter what follows:
that the subscriber is offline at the end, that the recording is cut, that the subscription or the session ends. What
was not overtaken by then may wait (3.1.2.11.2), or be dropped with its subscription (3.10.4) or session (4.1).

What came after an end does not count for the subscription that has ended: a server may deliver what it has buffered, or
not (3.10.4). Of a client that was granted QoS 1 and QoS 2 a message published with QoS 2 may be on its way with either,
so both must have passed it. A subscription that is granted QoS 0 instead loses nothing by that (MQTT-3.8.4-4). Can
miss: what was not overtaken by then, for the server may have had the SUBSCRIBE before the message, and sent that with
QoS 0.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from orderlab.model.arrays import Intervals
from orderlab.model.checkers.delivery.event_pass import HIGH_ROWS
from orderlab.model.checkers.delivery.missing import Lanes, Missing, Pairs, SubscriptionsInForce, highs_at, subtracted
from orderlab.model.checkers.delivery.pass_state import DeliveryPass
from orderlab.model.history.events import CLEAR, IntArray, Names

_NEVER = -1


def overtaken_up_to(
    done: DeliveryPass,
    lanes: Lanes,
    fifo: IntArray,
    subscriber: IntArray,
    subscriptions: SubscriptionsInForce,
    ends: IntArray | None = None,
) -> IntArray:
    """For each logical FIFO and subscriber the number below which what is missing was overtaken; -1: nothing was.

    ends: what came until so many of the subscriber's subscriptions had ended; None: until the end of the history."""
    both = [one for one, levels in subscriptions.levels.items() if levels == 0b110]
    needs_both = np.isin(subscriber, both) & (lanes.qos[fifo] == 2)
    found = []
    for level in (1, 2):
        lane = lanes.at_level(fifo, subscriber, level)
        high = np.where(lane >= 0, np.maximum(done.state.delivered.last[lane, 1], _NEVER), _NEVER)
        found.append(high if ends is None else _high_by(done, lane, ends, high))
    lowest, highest = np.minimum(*found), np.maximum(*found)
    return np.where(needs_both | (lowest >= 0), lowest, highest)


def _high_by(done: DeliveryPass, lane: IntArray, ends: IntArray, now: IntArray) -> IntArray:
    """The highest number that each lane had been delivered when so many subscriptions had ended."""
    notes = done.state.highs[: int(done.state.rows_used[HIGH_ROWS])]
    keys = notes[:, 0] << 32 | notes[:, 1]
    order = np.argsort(keys)
    place = np.searchsorted(keys, lane << 32 | ends, sorter=order)
    if not len(notes):
        return now
    note = notes[order[np.minimum(place, len(notes) - 1)]]
    has_note = (place < len(notes)) & (note[:, 0] == lane) & (lane >= 0)
    return np.where(has_note, np.maximum(note[:, 2], _NEVER), now)


def lost_before_an_end(
    done: DeliveryPass,
    lanes: Lanes,
    subscriptions: SubscriptionsInForce,
    names: Names,
    pairs: Pairs,
    missing: Missing,
    owed: Intervals,
) -> list[tuple[int, int, int, int]]:
    """(logical FIFO, subscriber, how many, first): what was overtaken while a subscription was in force that has ended,
    and is not told of ``pairs``, those of the subscriptions that are in force still."""
    fifo, subscriber, first, ends = _ended(done, lanes, subscriptions, names)
    if not len(fifo):
        return []
    high = overtaken_up_to(done, lanes, fifo, subscriber, subscriptions, ends)
    lane = lanes.of_pairs(fifo, subscriber)
    none = np.full(len(fifo), -1, np.int64)
    counts = missing.count(Pairs(fifo, subscriber, lane, first, np.zeros(len(fifo), np.bool_), none, none, high), owed)
    rows = np.flatnonzero(counts[:, 0])
    if not len(rows):
        return []
    # few are broken, and those one by one: a message that two subscriptions owed is lost once
    told = dict(zip(zip(pairs.fifo.tolist(), pairs.subscriber.tolist(), strict=True), range(len(pairs)), strict=True))
    lost: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for row in rows.tolist():
        about = (int(fifo[row]), int(subscriber[row]))
        spans = missing.spans(about[0], int(lane[row]), int(first[row]), int(high[row]), owed)
        if about in told:
            open_pair = told[about]
            last = 2**62 if pairs.settled[open_pair] else int(pairs.high[open_pair])
            spans = subtracted(spans, [(int(pairs.first[open_pair]), last)])
        lost.setdefault(about, []).extend(spans)
    found = []
    for about, spans in lost.items():
        start, end = np.array(spans, np.int64).reshape(-1, 2).T
        numbers = Intervals.of(np.zeros(len(spans), np.int64), start, end, 1)
        if len(numbers.start):
            found.append((*about, int((numbers.end - numbers.start + 1).sum()), int(numbers.start[0])))
    return found


def _ended(
    done: DeliveryPass, lanes: Lanes, subscriptions: SubscriptionsInForce, names: Names
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """(logical FIFO, subscriber, first number owed, which end) of the subscriptions that have ended, where something
    was delivered."""
    own = np.flatnonzero((lanes.lane_pair == np.arange(len(lanes.lane_pair))) & (lanes.qos[lanes.lane_fifo] > 0))
    if subscriptions.seen:
        spans = subscriptions.ended_spans(set(lanes.topic.tolist()), names)
        keys = lanes.lane_subscriber[own] << 32 | lanes.topic[lanes.lane_fifo[own]]
        wanted = spans[:, 0] << 32 | spans[:, 1]
    else:
        spans = np.array(list(_sessions(subscriptions)), np.int64).reshape(-1, 4)
        keys, wanted = lanes.lane_subscriber[own], spans[:, 0]
    order = np.argsort(keys, kind="stable")
    low, high = (np.searchsorted(keys, wanted, side, sorter=order) for side in ("left", "right"))
    row = np.repeat(np.arange(len(spans)), high - low)
    place = np.arange(len(row)) - np.repeat(np.cumsum(high - low) - high, high - low)
    lane = own[order[place]]
    fifo = lanes.lane_fifo[lane]
    return fifo, lanes.lane_subscriber[lane], highs_at(done, fifo, spans[row, 2]) + 1, spans[row, 3]


def _sessions(subscriptions: SubscriptionsInForce) -> Iterator[tuple[int, int, int, int]]:
    """(subscriber, -1, epoch of its beginning, number of its end) of each session that has ended, where nobody has a
    subscribe row."""
    begun: dict[int, tuple[int, int]] = {}
    for order in subscriptions.orders:
        for epoch, kind, subscriber in zip(
            order.epoch.tolist(), order.kind.tolist(), order.subscriber.tolist(), strict=True
        ):
            since, ends = begun.get(subscriber, (-1, 0))
            if kind == CLEAR:
                yield subscriber, -1, since, ends + 1
                since = epoch
            begun[subscriber] = (since, ends + 1)
