"""What was owed and did not come: subscriptions in force, and at the end of a pass what they leave.

A topic filter matches a topic by MQTT's rule. The missing are found by subtracting intervals of sequence numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orderlab.model.arrays import Intervals, segments
from orderlab.model.checkers.delivery.event_pass import (
    CLEAR_EPOCH,
    CONNECTED,
    CUT_OFF,
    STABLE_EPOCH,
    STABLE_SINCE,
    high_at,
)
from orderlab.model.checkers.delivery.pass_state import DeliveryPass
from orderlab.model.history.events import CLEAR, SUBSCRIBE, EventBatch, EventKind, Names
from orderlab.model.machine_code import njit

IntArray = npt.NDArray[np.int64]
_OF_SUBSCRIPTIONS = (EventKind.SUBSCRIBE, EventKind.UNSUBSCRIBE, EventKind.CLEAR)
EPOCH_KINDS = np.array(
    [kind in range(EventKind.CLEAR, EventKind.CUT + 1) or kind == EventKind.FAULT for kind in EventKind], dtype=np.bool_
)
"""Kinds that open a new epoch in the delivery pass."""


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a topic filter matches a topic (MQTT 5.0, 4.7.1 and 4.7.2: no leading wildcard for `$` topics)."""
    if topic.startswith("$") and topic_filter[:1] in ("+", "#"):
        return False
    wanted, levels = topic_filter.split("/"), topic.split("/")
    for depth, level in enumerate(wanted):
        if level == "#":
            return True
        if depth >= len(levels) or level not in ("+", levels[depth]):
            return False
    return len(wanted) == len(levels)


def unshared(topic_filter: str | int) -> str | int:
    """The filter of a shared subscription (``$share/GROUP/FILTER``), or the filter itself."""
    return (
        topic_filter.split("/", 2)[-1]
        if isinstance(topic_filter, str) and topic_filter.startswith("$share/")
        else topic_filter
    )


class Subscription(NamedTuple):
    """A subscription: in force since an epoch of the delivery pass, with the granted QoS."""

    epoch: int
    qos: int


class Orders(NamedTuple):
    """Columns of subscribe, unsubscribe and clear rows; the epochs are those that they open in the delivery pass."""

    event_id: IntArray
    epoch: IntArray
    kind: IntArray
    subscriber: IntArray
    topic: IntArray
    qos: IntArray


@dataclass
class SubscriptionsInForce:
    """The subscriptions in force after the rows seen so far: subscriber → filter → subscription, by code."""

    in_force: dict[int, dict[int, Subscription]] = field(default_factory=dict)
    seen: int = 0
    ever: set[int] = field(default_factory=set)
    """``_pair`` of subscriber and filter, those that have been given up included."""
    orders: list[Orders] = field(default_factory=list)
    """The rows that changed them, in order."""
    levels: dict[int, int] = field(default_factory=dict)
    """By subscriber, a bit for each QoS that it was granted."""
    ended: list[tuple[int, int, int, int]] = field(default_factory=list)
    """(subscriber, filter, epoch of its beginning, which of the subscriber's ends) of those with QoS 1 and 2 that are
    over: given up, cleared, or replaced by one with QoS 0. A SUBSCRIBE with QoS 0 always counts as an end, in the pass
    as well."""
    _ends: dict[int, int] = field(default_factory=dict)
    _epoch: int = 0

    def observe(self, batch: EventBatch) -> None:
        """Follow subscribe, unsubscribe and clear rows."""
        changes = EPOCH_KINDS[batch.kind]
        if not changes.any():
            return
        rows = np.flatnonzero(changes)
        mine_of, ever = self.in_force, self.ever
        orders = np.flatnonzero(np.isin(batch.kind[rows], _OF_SUBSCRIPTIONS))
        some = rows[orders]
        columns = (
            orders + self._epoch + 1,
            batch.kind[some],
            batch.subscriber[some],
            batch.topic[some],
            batch.qos[some],
        )
        if len(some):
            self.orders.append(Orders(batch.event_id[some], *columns))
        for epoch, kind, subscriber, topic, qos in zip(*(column.tolist() for column in columns), strict=True):
            if kind == SUBSCRIBE:
                self.seen += 1
                mine = mine_of.get(subscriber)
                if mine is None:
                    mine = mine_of[subscriber] = {}
                ever.add(subscriber << 32 | topic)
                if qos > 0:
                    self.levels[subscriber] = self.levels.get(subscriber, 0) | 1 << qos
                before = mine.get(topic)
                # what was granted before goes on, unless at QoS 0: else what was published then would be owed
                since = before.epoch if before is not None and before.qos > 0 else epoch
                mine[topic] = Subscription(since, 2 if qos < 0 else qos)
                if qos == 0:
                    number = self._ends[subscriber] = self._ends.get(subscriber, 0) + 1
                    if before is not None and before.qos > 0:
                        self.ended.append((subscriber, topic, before.epoch, number))
                continue
            number = self._ends[subscriber] = self._ends.get(subscriber, 0) + 1
            if kind == CLEAR:
                over = mine_of.pop(subscriber, {})
            else:
                given_up = mine_of.get(subscriber, {}).pop(topic, None)
                over = {} if given_up is None else {topic: given_up}
            self.ended += [(subscriber, one, since, number) for one, (since, granted) in over.items() if granted]
        self._epoch += len(rows)

    def matching(self, topics: set[int], names: Names) -> IntArray:
        """(subscriber, topic, epoch) for each match at QoS 1 or 2; of overlapping filters the oldest epoch."""
        rows: list[tuple[int, int, int]] = []
        matched = _Matched(topics, names)
        for subscriber, mine in self.in_force.items():
            if len(mine) == 1:  # as nearly all have where there are many
                ((topic_filter, (epoch, qos)),) = mine.items()
                if qos:
                    rows += [(subscriber, topic, epoch) for topic in matched[topic_filter]]
                continue
            found: dict[int, int] = {}
            for topic_filter, (epoch, qos) in mine.items():
                if qos:
                    for topic in matched[topic_filter]:
                        found[topic] = min(found.get(topic, epoch), epoch)
            rows += [(subscriber, topic, epoch) for topic, epoch in found.items()]
        return np.array(rows, np.int64).reshape(-1, 3)

    def ended_spans(self, topics: set[int], names: Names) -> IntArray:
        """(subscriber, topic, epoch of the beginning, which end) for each match of those that are over."""
        matched = _Matched(topics, names)
        rows = [
            (subscriber, topic, *span)
            for subscriber, topic_filter, *span in self.ended
            for topic in matched[topic_filter]
        ]
        return np.array(rows, np.int64).reshape(-1, 4)

    def overlapping(self, topics: set[int], names: Names) -> int:
        """How many topics match several filters of one subscriber: a server may send a copy for each (3.3.4)."""
        matched = _Matched(topics, names)
        several = (mine for mine in self.in_force.values() if len(mine) > 1)
        times = (Counter(topic for topic_filter in mine for topic in matched[topic_filter]) for mine in several)
        return sum(count > 1 for one in times for count in one.values())

    def shared(self, names: Names) -> int:
        """How many shared subscriptions ($share/group/filter) are in force."""
        shared = {code for code, name in enumerate(names.topics.names) if name.startswith("$share/")}
        return sum(code in shared for mine in self.in_force.values() for code in mine) if shared else 0

    def ever_matched(self, topics: set[int], names: Names) -> IntArray:
        """``_pair`` of subscriber and topic where the subscriber has had a matching subscription, a shared one
        included."""
        matched = _Matched(topics, names, of_shared=True)
        return np.array(
            [pair >> 32 << 32 | topic for pair in self.ever for topic in matched[pair & 0xFFFFFFFF]], np.int64
        )


def _pair(first: IntArray, second: IntArray) -> IntArray:
    """Two codes as one number."""
    return first << 32 | second


class _Matched(dict[int, Sequence[int]]):
    """The topics that each filter matches, found when they are asked for. ``of_shared``: of a shared subscription, what
    its filter matches."""

    def __init__(self, topics: set[int], names: Names, of_shared: bool = False) -> None:
        super().__init__()
        self._about = topics, names, of_shared
        self._is_plain = not any(
            "+" in name or "#" in name or name.startswith("$share/") for name in names.topics.names
        )
        self._topics = topics

    def __missing__(self, topic_filter: int) -> Sequence[int]:
        if self._is_plain:
            return (topic_filter,) if topic_filter in self._topics else ()
        found = self[topic_filter] = _matched(topic_filter, *self._about)
        return found


def _matched(topic_filter: int, topics: set[int], names: Names, of_shared: bool = False) -> list[int]:
    pattern = names.topics.label(topic_filter)
    if of_shared and (plain := unshared(pattern)) != pattern:
        return [topic for topic in sorted(topics) if matches(str(plain), str(names.topics.label(topic)))]
    if isinstance(pattern, str) and pattern.startswith("$share/"):
        return []  # nor does it match what is published to a topic of that very name
    if isinstance(pattern, int) or not ("+" in pattern or "#" in pattern):
        return [topic_filter] if topic_filter in topics else []
    return [topic for topic in sorted(topics) if matches(pattern, str(names.topics.label(topic)))]


@dataclass(frozen=True)
class Lanes:
    """What the numbers of lanes and logical FIFOs stand for, by code."""

    publisher: IntArray  # per fifo
    topic: IntArray
    qos: IntArray
    lane_fifo: IntArray  # per lane
    lane_subscriber: IntArray
    lane_level: IntArray  # the QoS of the packets
    lane_pair: IntArray  # the first lane of the same logical FIFO and subscriber

    @classmethod
    def of(cls, done: DeliveryPass) -> Lanes:
        """Read the hash tables of a pass backwards."""
        fifos, lanes = done.count("fifos"), done.count("lanes")
        publisher, topic, qos = (np.zeros(fifos, np.int64) for _ in range(3))
        table = done.state.fifo_table
        used = table[table[:, 2] >= 0]
        publisher[used[:, 2]], topic[used[:, 2]], qos[used[:, 2]] = (
            used[:, 0] >> 32,
            used[:, 0] & 0xFFFFFFFF,
            used[:, 1],
        )
        lane_fifo, lane_subscriber = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
        table = done.state.lane_table
        used = table[table[:, 2] >= 0]
        lane_level = np.zeros(lanes, np.int64)
        lane_fifo[used[:, 2]], lane_subscriber[used[:, 2]], lane_level[used[:, 2]] = (
            used[:, 3],
            used[:, 1] >> 4,
            used[:, 1] >> 2 & 3,
        )
        pair = np.arange(lanes)
        if (lane_level != qos[lane_fifo]).any():
            _, first, same = np.unique(_pair(lane_fifo, lane_subscriber), return_index=True, return_inverse=True)
            pair = first[same]
        return cls(publisher, topic, qos, lane_fifo, lane_subscriber, lane_level, pair)

    def joined(self, intervals: Intervals) -> Intervals:
        """Intervals per lane as intervals per pair of logical FIFO and subscriber, under the first lane of each."""
        lanes = len(self.lane_pair)
        if (self.lane_pair == np.arange(lanes)).all():
            return intervals
        owner = np.repeat(np.arange(len(intervals.offsets) - 1), np.diff(intervals.offsets))
        return Intervals.of(self.lane_pair[owner], intervals.start, intervals.end, len(intervals.offsets) - 1)

    def of_pairs(self, fifo: IntArray, subscriber: IntArray) -> IntArray:
        """The first lane of each pair; -1 where nothing was delivered."""
        return _found(_pair(self.lane_fifo, self.lane_subscriber), _pair(fifo, subscriber), self.lane_pair)

    def at_level(self, fifo: IntArray, subscriber: IntArray, level: int) -> IntArray:
        """The lane of each pair whose packets carry a QoS; -1 where there is none."""
        own = np.flatnonzero(self.lane_level == level)
        return _found(_pair(self.lane_fifo[own], self.lane_subscriber[own]), _pair(fifo, subscriber), own)


def _found(known: IntArray, wanted: IntArray, what: IntArray) -> IntArray:
    """What belongs to each key; -1 to one that is not known."""
    if not len(known):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(known, kind="stable")
    place = order[np.minimum(np.searchsorted(known, wanted, sorter=order), len(known) - 1)]
    return np.where(known[place] == wanted, what[place], -1)


@dataclass(frozen=True)
class Pairs:
    """Logical FIFOs and the subscribers that they are owed to, one row a pair."""

    fifo: IntArray
    subscriber: IntArray
    lane: IntArray  # -1: nothing was delivered
    first: IntArray  # the first number owed
    # Connected to the end of a recording that was not cut, nor cut for it: what is missing is lost.
    settled: npt.NDArray[np.bool_]
    backlog: IntArray  # numbers up to this one had to be gone by the drain bound; -1: none
    backlog_due_us: IntArray  # when that bound passes; -1: the subscriber is away
    high: IntArray  # where not all is settled, what is missing up to this number is lost all the same: it was overtaken

    def __len__(self) -> int:
        return len(self.fifo)


@njit(cache=True)
def _highs_at(state: Any, fifo: Any, epoch: Any, out: Any) -> None:
    for row in range(len(fifo)):
        out[row] = high_at(state, fifo[row], epoch[row])


def highs_at(done: DeliveryPass, fifo: IntArray, epoch: IntArray) -> IntArray:
    """The highest number for each row that its logical FIFO had published when the epoch began; -1 if none."""
    out = np.empty(len(fifo), np.int64)
    _highs_at(done.state, fifo, epoch, out)
    return np.maximum(out, -1)


def owed_pairs(done: DeliveryPass, lanes: Lanes, subscriptions: SubscriptionsInForce, names: Names) -> Pairs:
    """The pairs at QoS 1 and 2. Without subscribe rows, every lane that appeared, from its session's beginning."""
    if subscriptions.seen == 0:
        lane = np.flatnonzero((lanes.qos[lanes.lane_fifo] > 0) & (lanes.lane_pair == np.arange(len(lanes.lane_pair))))
        fifo, subscriber = lanes.lane_fifo[lane], lanes.lane_subscriber[lane]
        epoch = done.state.sessions[subscriber, CLEAR_EPOCH] if len(subscriber) else subscriber
        epoch = np.where(epoch > 0, epoch, -1)
    else:
        fifo, subscriber, epoch = _subscribed(lanes, subscriptions, names)
        lane = lanes.of_pairs(fifo, subscriber)
    sessions, clock = done.state.sessions, done.state.clock
    if len(fifo) == 0:
        return Pairs(fifo, subscriber, lane, fifo, np.zeros(0, np.bool_), fifo, fifo, fifo)
    connected = sessions[subscriber, CONNECTED] != 0
    heal_us, heal_epoch = (int(word) for word in clock[2:4])
    backlog, due_us = np.full((2, len(fifo)), -1, np.int64)
    if done.drain_bound_us >= 0 and heal_epoch >= 0:
        stable = np.where(connected, np.maximum(sessions[subscriber, STABLE_EPOCH], heal_epoch), -1)
        backlog = highs_at(done, fifo, stable)
        due_us = np.where(connected, np.maximum(sessions[subscriber, STABLE_SINCE], heal_us) + done.drain_bound_us, -1)
    return Pairs(
        fifo,
        subscriber,
        lane,
        highs_at(done, fifo, epoch) + 1,
        connected & (done.count("cuts") == 0) & (sessions[subscriber, CUT_OFF] == 0),
        backlog,
        due_us,
        np.full(len(fifo), -1, np.int64),
    )


def _subscribed(lanes: Lanes, subscriptions: SubscriptionsInForce, names: Names) -> tuple[IntArray, IntArray, IntArray]:
    """(fifo, subscriber, epoch of the subscription) of every logical FIFO at QoS 1 and 2 whose topic somebody has
    subscribed to."""
    fifos = np.flatnonzero(lanes.qos > 0)
    fifos = fifos[np.argsort(lanes.topic[fifos], kind="stable")]
    topics = lanes.topic[fifos]
    found = subscriptions.matching(set(topics.tolist()), names)
    low, high = (np.searchsorted(topics, found[:, 1], side) for side in ("left", "right"))
    row = np.repeat(np.arange(len(found)), high - low)
    place = np.arange(len(row)) - np.repeat(np.cumsum(high - low) - high, high - low)
    return fifos[place], found[row, 0], found[row, 2]


MISSING = ("lost", "first_lost", "pending", "taken_as_expired", "undrained", "first_undrained")
_ALL, _FIRST = 0, 1


@njit(cache=True)
def _missing(
    fifo: Any,
    lane: Any,
    first: Any,
    settled: Any,
    backlog: Any,
    high: Any,
    owed: Any,
    delivered: Any,
    excused: Any,
    expired: Any,
    out: Any,
) -> None:
    for pair in range(len(fifo)):
        owner = fifo[pair]
        at_delivered, end_delivered, at_excused, end_excused = 0, 0, 0, 0
        if lane[pair] >= 0:
            at_delivered, end_delivered = delivered[2][lane[pair]], delivered[2][lane[pair] + 1]
            at_excused, end_excused = excused[2][lane[pair]], excused[2][lane[pair] + 1]
        at_expired, end_expired = expired[2][owner], expired[2][owner + 1]
        for run in range(owed[2][owner], owed[2][owner + 1]):
            number, last = max(owed[0][run], first[pair]), owed[1][run]
            while number <= last:
                while at_delivered < end_delivered and delivered[1][at_delivered] < number:
                    at_delivered += 1
                while at_excused < end_excused and excused[1][at_excused] < number:
                    at_excused += 1
                while at_expired < end_expired and expired[1][at_expired] < number:
                    at_expired += 1
                stop = last
                if at_delivered < end_delivered:
                    if delivered[0][at_delivered] <= number:
                        number = delivered[1][at_delivered] + 1
                        continue
                    stop = min(stop, delivered[0][at_delivered] - 1)
                if at_excused < end_excused:
                    if excused[0][at_excused] <= number:
                        number = excused[1][at_excused] + 1
                        continue
                    stop = min(stop, excused[0][at_excused] - 1)
                if at_expired < end_expired:
                    if expired[0][at_expired] <= number:
                        out[pair, 3] += min(stop, expired[1][at_expired]) - number + 1
                        number = min(stop, expired[1][at_expired]) + 1
                        continue
                    stop = min(stop, expired[0][at_expired] - 1)
                # number .. stop never came; where it may still come only what was overtaken is lost
                lost_up_to = stop if settled[pair] else min(stop, high[pair])
                if lost_up_to >= number:
                    if out[pair, 0] == 0:
                        out[pair, 1] = number
                    out[pair, 0] += lost_up_to - number + 1
                out[pair, 2] += stop - max(lost_up_to, number - 1)
                if number <= backlog[pair]:
                    if out[pair, 4] == 0:
                        out[pair, 5] = number
                    out[pair, 4] += min(stop, backlog[pair]) - number + 1
                number = stop + 1


@dataclass(frozen=True)
class Missing:
    """What never came: neither delivered nor excused, nor past its deadline by the end of the recording."""

    delivered: Intervals  # per pair, under its first lane
    excused: Intervals
    expired: Intervals  # per logical FIFO

    @classmethod
    def of(cls, done: DeliveryPass, lanes: Lanes, delivered: Intervals) -> Missing:
        """What the pass has seen. ``delivered``: of each pair."""
        return cls(delivered, lanes.joined(done.excused.intervals()), expired(done))

    def count(self, pairs: Pairs, owed: Intervals) -> IntArray:
        """Per pair the words of MISSING, of what ``owed`` (per logical FIFO) says.

        Where the recording was cut, or the subscriber is offline at the end, a number is lost if a later one overtook
        it; else it is pending.
        """
        out = np.zeros((len(pairs), len(MISSING)), np.int64)
        if len(pairs):
            _missing(
                pairs.fifo,
                pairs.lane,
                pairs.first,
                pairs.settled,
                pairs.backlog,
                pairs.high,
                _arrays(owed),
                _arrays(self.delivered),
                _arrays(self.excused),
                _arrays(self.expired),
                out,
            )
        return out

    def spans(self, fifo: int, lane: int, first: int, last: int, owed: Intervals) -> list[tuple[int, int]]:
        """Of one pair the intervals of numbers from ``first`` to ``last`` that were owed and never came."""
        came = [*self.delivered.owned_by(lane), *self.excused.owned_by(lane), *self.expired.owned_by(fifo)]
        spans = [(max(start, first), min(end, last)) for start, end in owed.owned_by(fifo)]
        return subtracted([span for span in spans if span[0] <= span[1]], came)


def subtracted(spans: list[tuple[int, int]], others: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What of closed intervals no other one covers."""
    for start, end in others:
        cut = ((low, min(high, start - 1)) for low, high in spans)
        rest = ((max(low, end + 1), high) for low, high in spans)
        spans = [span for span in (*cut, *rest) if span[0] <= span[1]]
    return spans


def _arrays(intervals: Intervals) -> tuple[IntArray, IntArray, IntArray]:
    return intervals.start, intervals.end, intervals.offsets


def expired(done: DeliveryPass) -> Intervals:
    """Numbers with an expiry interval whose deadline may have passed by the end of the recording."""
    end_us = int(done.state.clock[1])
    fifos = done.state.mortal.shape[0]
    closed = done.state.mortal_runs[: int(done.state.mortal_used[0])]
    growing = np.column_stack([np.arange(fifos), done.state.mortal])
    runs = np.concatenate([closed, growing[growing[:, 1] <= growing[:, 2]]])
    runs = runs[runs[:, 3] <= end_us]
    return Intervals.of(runs[:, 0], runs[:, 1], runs[:, 2], fifos)


_PUBLISHED = 1 << 40  # the weight of being published, above any number of receipts


def seen_by_subscribers(
    done: DeliveryPass,
    lanes: Lanes,
    delivered: Intervals,
    subscriptions: SubscriptionsInForce,
    names: Names,
    published: bool,
) -> tuple[Intervals, int]:
    """Per logical FIFO what at least one subscriber received, and how many of these receipts another subscriber shares.

    Who never had a matching subscription is no subscriber of it, and what nobody published (where publish rows tell,
    `published`) is no message: either is a matter of other laws, and makes nobody else owed anything.
    """
    owner = np.repeat(np.arange(len(delivered.offsets) - 1), np.diff(delivered.offsets))
    fifo, start, end = lanes.lane_fifo[owner], delivered.start, delivered.end
    if subscriptions.seen:
        kept = _of_subscribers(lanes, subscriptions, names)[owner]
        fifo, start, end = fifo[kept], start[kept], end[kept]
    weight = np.ones(len(fifo), np.int64)
    if published:
        known = done.published.intervals()
        whose = np.repeat(np.arange(len(known.offsets) - 1), np.diff(known.offsets))
        fifo, start, end = (np.concatenate(pair) for pair in ((fifo, whose), (start, known.start), (end, known.end)))
        weight = np.concatenate([weight, np.full(len(whose), _PUBLISHED, np.int64)])
    fifo, start, end, total = segments(fifo, start, end, weight)
    receipts = total % _PUBLISHED
    counted = (receipts > 0) & ((total >= _PUBLISHED) | (not published))
    shared = counted & (receipts > 1)
    return (
        Intervals.of(fifo[counted], start[counted], end[counted], done.count("fifos")),
        int((receipts * (end - start + 1))[shared].sum()),
    )


def _of_subscribers(lanes: Lanes, subscriptions: SubscriptionsInForce, names: Names) -> npt.NDArray[np.bool_]:
    """Per lane whether its subscriber ever had a matching subscription; anybody's, if no row tells of any."""
    if not subscriptions.seen:
        return np.ones(len(lanes.lane_fifo), np.bool_)
    ever = subscriptions.ever_matched(set(lanes.topic.tolist()), names)
    return np.isin(_pair(lanes.lane_subscriber, lanes.topic[lanes.lane_fifo]), ever)


def receiver(
    lanes: Lanes,
    delivered: Intervals,
    subscriptions: SubscriptionsInForce,
    names: Names,
    fifo: npt.NDArray[np.bool_],
    number: int,
) -> int:
    """A subscriber that received a number of a logical FIFO (a mask), as `seen_by_subscribers` counts it."""
    owner = np.repeat(np.arange(len(delivered.offsets) - 1), np.diff(delivered.offsets))
    had = owner[(delivered.start <= number) & (number <= delivered.end)]
    had = had[fifo[lanes.lane_fifo[had]] & _of_subscribers(lanes, subscriptions, names)[had]]
    return int(lanes.lane_subscriber[had[0]])
