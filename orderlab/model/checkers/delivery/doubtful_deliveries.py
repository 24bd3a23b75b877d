"""Deliveries that only copies explain (`not_copies`), and late first ones that a publisher has brought about: it
published the messages again, and a session had begun in between.

MQTT orders what a server sends by the order in which it arrived, copies included (4.6: what is sent again may come as
1, 2, 3, 2, 3). A session is owed what is published from its beginning on. So where m and n are published, m and n
again, and a session begins after the first m, it may be sent n, m, n: its first m is that of the second copy. Late m
after n is in order if

- a copy of n lies between two copies of m, with no other m in between,
- and the first of these two was published before the session's subscription began: at that instant or before, n may
  have been under way; or a copy of m was trimmed or expired in the session's queue (a deadline that has passed by the
  end of the recording is believed to have done so without a row), and n is published, or once more, after
  a copy of m: a publisher sends all again that has no answer (4.4), so one that leaves n out brings m behind it;
  or the first copy need not have come at all: m is sent at QoS 0, or a shared subscription gave it to another client.

Whatever else comes late is a break: of what was published once, and of what a session was owed the first copy of. A
subscription is taken as begun by its subscribe row, without subscribe rows by the clear; of several that match, the
oldest in force when n came counts. Packets of another QoS go their own way, so only a subscription counts that owes m
at the QoS that it came with: one whose grant was raised, or that alone is left of several, has begun then. The SUBACK
may follow the first messages (3.8.4), so where none was in force, the next one counts.

Can miss: n that had been published before the subscription began is believed to have been under way for as long as that
takes; and the first copy of m to have expired where its deadline lies after the late delivery.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from orderlab.model.checkers.delivery.event_pass import (
    AGAIN_ROWS,
    BROKEN,
    CLEARED,
    DOUBT_ROWS,
    EPOCH,
    LATE_ROWS,
    UNTOLD,
    high_at,
)
from orderlab.model.checkers.delivery.missing import Lanes, SubscriptionsInForce, expired, matches, unshared
from orderlab.model.checkers.delivery.pass_state import DeliveryPass
from orderlab.model.checkers.delivery.passed_on import SharedMembers
from orderlab.model.history.events import CLEAR, SUBSCRIBE, IntArray, Names


class LateDelivery(NamedTuple):
    """A first delivery of `number` at `event_id`, after `high` at `high_event`."""

    event_id: int
    lane: int
    number: int
    high_event: int
    high: int


class Copy(NamedTuple):
    """A message that was published again: when, and what the highest number published by then was."""

    event_id: int
    high: int
    epoch: int


def late_deliveries(
    done: DeliveryPass, lanes: Lanes, subscriptions: SubscriptionsInForce, names: Names, members: SharedMembers
) -> tuple[list[LateDelivery], dict[str, int]]:
    """Those of the pass's late deliveries that break the order, and how many are in the order of arrival, or may have
    come from another member of a shared subscription."""
    rows = [LateDelivery(*row) for row in done.state.late[: done.state.rows_used[LATE_ROWS]].tolist()]
    if not rows:
        return [], {"copies_in_order": 0, "passed_on": 0}
    copies = _published_again(done)
    begins = _Beginnings(subscriptions, names)
    excused = lanes.joined(done.excused.intervals()) if copies else None
    lapsed = expired(done) if copies else None
    broken, passed_on = [], 0
    for row in rows:
        fifo = int(lanes.lane_fifo[row.lane])
        subscriber, topic = int(lanes.lane_subscriber[row.lane]), int(lanes.topic[fifo])
        if members.may_have_passed_on(done, subscriber, topic, fifo, row.number, row.event_id):
            passed_on += 1
            continue
        again = [copy for copy in copies.get((fifo, row.number), ()) if copy.event_id < row.event_id]
        others = copies.get((fifo, row.high), [])
        left = [] if excused is None else excused.owned_by(int(lanes.lane_pair[row.lane]))
        left = left if lapsed is None else [*left, *lapsed.owned_by(fifo)]
        is_all_again = bool(again) and (
            again[0].high < row.high or any(other.event_id > again[0].event_id for other in others)
        )
        is_left_out = is_all_again and any(start <= row.number <= end for start, end in left)
        qos, level = int(lanes.qos[fifo]), int(lanes.lane_level[row.lane])
        is_of_several = int((lanes.lane_pair == lanes.lane_pair[row.lane]).sum()) > 1
        if again and (
            is_left_out
            or not level
            or begins.is_shared(subscriber, topic, row)
            or (is_of_several and not begins.knows_grants(subscriber, topic))
        ):
            epoch = int(done.state.clock[EPOCH]) + 1  # whenever the first copy was published, it need not come
            high = row.number
        else:
            epoch = begins.epoch(subscriber, topic, row, qos, level) if again else -1
            high = int(high_at(done.state, fifo, epoch))
        if epoch < 0 or not _in_order_of_arrival(row, again, others, epoch, high):
            broken.append(row)
    return broken, {"copies_in_order": len(rows) - len(broken) - passed_on, "passed_on": passed_on}


def _in_order_of_arrival(row: LateDelivery, again: list[Copy], others: list[Copy], epoch: int, high: int) -> bool:
    """Whether a copy of the higher number lies between one of the late number from before the epoch and the next
    one."""
    if row.number > high:
        return False  # not published at all before the subscription began
    if again[0].high >= row.high:  # the first copies lie in the order of their numbers
        return True
    since = again[0]
    for copy in again[1:]:
        if since.epoch >= epoch:
            return False
        if since.high < row.high <= copy.high or any(
            since.event_id < other.event_id < copy.event_id for other in others
        ):
            return True
        since = copy
    return False


def not_copies(
    done: DeliveryPass, lanes: Lanes, subscriptions: SubscriptionsInForce, names: Names
) -> tuple[dict[str, list[tuple[int, int, int]]], Counter[str]]:
    """(event, lane, number) of the pass's doubts that no copy explains, by the name of BROKEN, and how many it does
    explain, by that.

    `exactly-once`: a server may send a copy for each subscription that matches (3.3.4), shared ones included, so a
    message may come as often as the client has been granted QoS 2 for different filters since its session began.
    `no-phantom-cleared`, `no-phantom-untold`: it was published again after the clear."""
    rows = done.state.doubts[: int(done.state.rows_used[DOUBT_ROWS])].tolist()
    broken: dict[str, list[tuple[int, int, int]]] = {}
    copies: Counter[str] = Counter()
    if not rows:
        return broken, copies
    begins = _Beginnings(subscriptions, names)
    again = _published_again(done)
    times: dict[tuple[int, int], int] = {}
    for law, event_id, lane, number, cleared in rows:
        fifo = int(lanes.lane_fifo[lane])
        if law in (CLEARED, UNTOLD):
            is_copy = any(copy.epoch >= cleared and copy.event_id < event_id for copy in again.get((fifo, number), ()))
        else:
            times[lane, number] = times.get((lane, number), 1) + 1
            is_copy = times[lane, number] <= begins.filters(
                int(lanes.lane_subscriber[lane]), int(lanes.topic[fifo]), event_id
            )
        if is_copy:
            copies[BROKEN[law]] += 1
        else:
            broken.setdefault(BROKEN[law], []).append((event_id, lane, number))
    return broken, copies


def _published_again(done: DeliveryPass) -> dict[tuple[int, int], list[Copy]]:
    """By logical FIFO and number, what was published again."""
    copies: dict[tuple[int, int], list[Copy]] = {}
    for fifo, number, *copy in done.state.again[: done.state.rows_used[AGAIN_ROWS]].tolist():
        copies.setdefault((fifo, number), []).append(Copy(*copy))
    return copies


class _Beginnings:
    """When the subscriptions that brought deliveries began."""

    def __init__(self, subscriptions: SubscriptionsInForce, names: Names) -> None:
        self._names = names
        self._columns = [np.concatenate(column) for column in zip(*subscriptions.orders, strict=True)]
        self._of: dict[int, list[tuple[int, int, int, int, int]]] = {}

    def _orders(self, subscriber: int) -> list[tuple[int, int, int, int, int]]:
        """(event, epoch, kind, filter, granted QoS) of a subscriber's subscribe, unsubscribe and clear rows."""
        if not self._columns:
            return []
        if subscriber not in self._of:
            event_id, epoch, kind, owner, topic, qos = self._columns
            mine: IntArray = np.flatnonzero(owner == subscriber)
            self._of[subscriber] = list(
                zip(*(column[mine].tolist() for column in (event_id, epoch, kind, topic, qos)), strict=True)
            )
        return self._of[subscriber]

    def _matches(self, topic_filter: int, topic: int) -> bool:
        wanted, name = unshared(self._names.topics.label(topic_filter)), self._names.topics.label(topic)
        return wanted == name or (isinstance(wanted, str) and isinstance(name, str) and matches(wanted, name))

    def _relevant(self, subscriber: int, topic: int) -> Iterator[tuple[int, int, int, int, int]]:
        return (order for order in self._orders(subscriber) if order[2] == CLEAR or self._matches(order[3], topic))

    def filters(self, subscriber: int, topic: int, until: int) -> int:
        """How many different filters that match a topic the session had been granted QoS 2 for by an event."""
        found: set[int] = set()
        for event_id, _, kind, topic_filter, qos in self._relevant(subscriber, topic):
            if event_id < until and kind == CLEAR:
                found.clear()
            elif event_id < until and kind == SUBSCRIBE and qos not in (0, 1):
                found.add(topic_filter)
        return len(found)

    def is_shared(self, subscriber: int, topic: int, late: LateDelivery) -> bool:
        """Whether a shared subscription of the session may have brought the late delivery."""
        is_shared = False
        for event_id, _, kind, topic_filter, _ in self._relevant(subscriber, topic):
            if event_id < late.event_id and kind == CLEAR:
                is_shared = False
            elif event_id < late.event_id and kind == SUBSCRIBE:
                label = self._names.topics.label(topic_filter)
                is_shared = is_shared or unshared(label) != label
        return is_shared

    def knows_grants(self, subscriber: int, topic: int) -> bool:
        """Whether subscribe rows say with which QoS the topic was granted, each of them."""
        grants = [qos for _, _, kind, _, qos in self._relevant(subscriber, topic) if kind == SUBSCRIBE]
        return bool(grants) and min(grants) >= 0

    def epoch(self, subscriber: int, topic: int, late: LateDelivery, qos: int, level: int) -> int:
        """The epoch since which the session was owed at this level what is published to the topic with this QoS, when
        the higher number came; -1: for ever.

        Owed is a message at the highest QoS of the filters that match; at a lower one it may come (3.3.4)."""
        granted: dict[int, int] = {}
        owed_since: dict[int, int] = {}
        ended = -1
        for event_id, epoch, kind, topic_filter, grant in self._relevant(subscriber, topic):
            if event_id > late.high_event and (owed_since or kind == CLEAR or event_id > late.event_id):
                break
            if kind == CLEAR:
                granted.clear()
                owed_since.clear()
                ended = epoch
                continue
            if kind == SUBSCRIBE:
                granted[topic_filter] = min(qos, grant) if grant >= 0 else qos
            else:
                granted.pop(topic_filter, None)
            is_owed = max(granted.values(), default=-1) == level
            owing = {code for code, granted_level in granted.items() if is_owed and granted_level == level}
            over = [owed_since.pop(code) for code in owed_since.keys() - owing]
            ended = min(over, default=ended)
            for code in owing:
                owed_since.setdefault(code, epoch)
        return min(owed_since.values()) if owed_since else ended
