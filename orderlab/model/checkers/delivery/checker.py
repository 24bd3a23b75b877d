"""Deliveries judged in one pass: `fifo`, `at-least-once`, `exactly-once`, `no-phantom`, `agreement`, `drain`.

For each logical FIFO and each subscriber, in the order of the recorded events:

1. `fifo`: a first delivery whose sequence number lies below one that was delivered before. Repeats never count, nor
   does a copy that was published again to a session that was not owed the one before (`doubtful_deliveries.py`), nor
   what another member of a shared subscription may have had before it went (`passed_on.py`).
2. `at-least-once`: a QoS 1 or 2 message that its publisher has an acknowledgement for, published while the session's
   subscription was in force, that was neither delivered nor trimmed, expired or cleared. What was overtaken is lost,
   whatever comes after (`lost_when_overtaken.py`).
3. `exactly-once`: a QoS 2 message that a receiver by MQTT 4.3.3 hands to its application a second time: delivered
   again under a packet identifier that it does not hold for this very message.
4. `no-phantom`: a delivery of what no earlier row published, or of what was published before the session was cleared:
   by its `session`, or, where rows have none, if the publisher had its acknowledgement before the clear.
5. `agreement`: a published message that one subscriber of a logical FIFO received and another, subscribed and connected
   to the end, never did. Only a subscriber's receipt counts: what was handed to a client that never had a matching
   subscription, or was never published, makes no other client owed it (the law speaks of what "one replaying subscriber
   has seen"; MQTT-3.3.4 sends to those with a matching subscription). The phantom itself is broken by `no-phantom`.
6. `drain`: a message that waited when the last fault had healed and the subscriber was connected, and that came, or
   is still missing, after the stated bound.

Complexity: O(rows) time, plus O(log gaps) for a number that arrives below the highest; the end costs O(lanes + runs).
Memory: logical FIFOs, lanes, and runs of numbers; a history without gaps keeps none per row.

Assumes: one clock and one recorder, rows in the order in which things happened, sequence numbers that count up in
publish order. Without subscribe rows, a session that received nothing is not known and every lane that appeared is
taken as subscribed from the beginning.

Where it can be wrong. `fifo` and `exactly-once`: exact for what was recorded, but see below. `at-least-once` can miss,
never cry wolf: of what a session lost before it was cleared only what was overtaken counts (`lost_when_overtaken.py`),
and an undelivered message whose expiry interval has run out counts as expired. `no-phantom` after a clear is undecided
where rows carry no `session` and the publish may have been under way (QoS 0, or not acknowledged by then), and where
deliver rows carry one and the clear row does not. It can cry wolf where rows carry none and the broker acknowledges a
message before it looks for subscribers.
`exactly-once` can miss where filters of one subscriber overlap, since a server may send a copy for each (3.3.4); the
verdict counts them. Retained messages are held to `no-phantom`, and count as arrived. Nobody in particular is owed what
a shared subscription receives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from orderlab.model.arrays import Intervals
from orderlab.model.checkers.delivery.doubtful_deliveries import late_deliveries, not_copies
from orderlab.model.checkers.delivery.event_pass import BROKEN, COUNTERS, END_US, HEAL_EPOCH, UNTOLD
from orderlab.model.checkers.delivery.lost_when_overtaken import lost_before_an_end, overtaken_up_to
from orderlab.model.checkers.delivery.missing import (
    Lanes,
    Missing,
    Pairs,
    SubscriptionsInForce,
    owed_pairs,
    receiver,
    seen_by_subscribers,
)
from orderlab.model.checkers.delivery.pass_state import DeliveryPass
from orderlab.model.checkers.delivery.passed_on import SharedMembers
from orderlab.model.checkers.findings import Finding, LawTally, Partial, Shows, verdict_of
from orderlab.model.history.events import EventBatch, IntArray, Names
from orderlab.model.verdict import Verdict

_FIRST_BY_QOS = tuple(f"first_deliveries_qos{qos}" for qos in range(3))
LAWS = ("fifo", "at-least-once", "exactly-once", "no-phantom", "agreement", "drain")


class DeliveryChecker:
    """Folds batches in time order; `partial` closes the part. Parts are merged by logical FIFO; where QoS 2 deliveries
    carry packet identifiers, which a session's logical FIFOs share, `exactly-once` needs parts by subscriber.

    drain_bound_us: within how long a connected subscriber's backlog must be gone once faults have healed; without it
    `drain` is not judged.
    """

    laws = LAWS

    def __init__(self, names: Names, drain_bound_us: int | None = None) -> None:
        self._names = names
        self._pass = DeliveryPass(-1 if drain_bound_us is None else drain_bound_us)
        self._subscriptions = SubscriptionsInForce()
        self._members = SharedMembers(names)

    def observe(self, batch: EventBatch) -> None:
        """Take in the next rows."""
        self._subscriptions.observe(batch)
        self._pass.observe(batch, self._members.observe(batch))

    def partial(self, end_us: int | None = None, published_elsewhere: bool = False) -> Partial:
        """The result of the rows seen, as if the history ended here, or at `end_us`: a part of a larger history ends
        when the whole does. `published_elsewhere`: other parts have publish rows, so that it says something if this
        one has none.
        """
        done, tally = self._pass, LawTally()
        if end_us is not None:
            done.state.clock[END_US] = max(end_us, int(done.state.clock[END_US]))
        lanes = Lanes.of(done)
        topics = set(lanes.topic.tolist())
        tally.counts["overlaps"] = self._subscriptions.overlapping(topics, self._names)
        tally.counts["shared_subscriptions"] = self._subscriptions.shared(self._names)
        self._close_pass(lanes, tally, published_elsewhere or done.count("published") > 0)
        pairs = owed_pairs(done, lanes, self._subscriptions, self._names)
        if not pairs.settled.all():
            pairs = replace(pairs, high=overtaken_up_to(done, lanes, pairs.fifo, pairs.subscriber, self._subscriptions))
        by_lane = done.delivered.intervals()
        tally.counts.update(_by_qos(lanes, by_lane))
        begun = int(np.count_nonzero(np.diff(by_lane.offsets)))
        tally.meets("fifo", done.count("first_deliveries") - begun)  # the first of a lane comes after nothing
        delivered = lanes.joined(by_lane)
        missing = Missing.of(done, lanes, delivered)
        acknowledged = done.acknowledged.intervals()
        found = missing.count(pairs, acknowledged)
        undecided = int(found[:, 2].sum() + found[:, 3].sum())  # pending, or taken as expired: not tested
        tally.meets("at-least-once", _owed_count(pairs, acknowledged) - undecided)
        tally.counts["pending"] = int(found[:, 2].sum())
        tally.counts["taken_as_expired"] = int(found[:, 3].sum())
        self._break_by_absence(tally, "at-least-once", lanes, pairs, found[:, 0], found[:, 1])
        self._break_before_an_end(tally, "at-least-once", lanes, pairs, missing, acknowledged)
        if done.drain_bound_us >= 0:
            tally.meets("drain", done.count("backlog_deliveries") + int(found[:, 4].sum()))
            end_us = int(done.state.clock[END_US])
            is_due = (pairs.backlog_due_us >= 0) & (pairs.backlog_due_us <= end_us)
            due, later = found[:, 4] * is_due, found[:, 4] * ~is_due
            tally.counts["drain_undecided"] = int(later.sum())
            tally.counts["latest_end_us"] = end_us
            tally.counts["latest_due_us"] = int(pairs.backlog_due_us[later > 0].max(initial=-1))
            tally.counts["unhealed"] = int(done.state.clock[HEAL_EPOCH] < 0)
            self._break_by_absence(tally, "drain", lanes, pairs, due, found[:, 5])
        self._agreement(tally, lanes, pairs, missing, published_elsewhere or done.count("published") > 0)
        return tally.partial()

    def _close_pass(self, lanes: Lanes, tally: LawTally, publishes_known: bool) -> None:
        done = self._pass
        tally.counts.update({name: done.count(name) for name in COUNTERS})
        tally.meets("exactly-once", done.count("qos2_deliveries"))
        if publishes_known:
            tally.meets("no-phantom", done.count("deliveries"))
        for index, name in enumerate(BROKEN):
            times = int(done.state.broken_counts[index])
            if times == 0 or (name == "no-phantom" and not publishes_known):
                continue
            event_id, lane, sequence, other_event, other = (int(word) for word in done.state.broken[index])
            finding = self._finding(
                lanes,
                int(lanes.lane_fifo[lane]),
                int(lanes.lane_subscriber[lane]),
                sequence,
                _WHY[name].format(sequence=sequence, other=other),
                event_id,
                other_event if other_event >= 0 else None,
                other if other_event >= 0 else None,
            )
            tally.breaks(_law_of(name), finding, times)
        late, excused = late_deliveries(done, lanes, self._subscriptions, self._names, self._members)
        tally.counts.update(excused)
        if late:
            first = late[0]
            finding = self._finding(
                lanes,
                int(lanes.lane_fifo[first.lane]),
                int(lanes.lane_subscriber[first.lane]),
                first.number,
                _WHY["fifo"].format(sequence=first.number, other=first.high),
                first.event_id,
                first.high_event,
                first.high,
            )
            tally.breaks("fifo", finding, len(late))
        broken, copies = not_copies(done, lanes, self._subscriptions, self._names)
        tally.counts.update({f"copies:{_law_of(name)}": times for name, times in copies.items()})
        tally.counts["no-phantom_undecided"] = len(broken.pop(BROKEN[UNTOLD], ()))
        for name, rows in broken.items():
            if name == "exactly-once" or publishes_known:
                event_id, lane, sequence = rows[0]
                fifo, subscriber = int(lanes.lane_fifo[lane]), int(lanes.lane_subscriber[lane])
                finding = self._finding(
                    lanes, fifo, subscriber, sequence, _WHY[name].format(sequence=sequence), event_id
                )
                tally.breaks(_law_of(name), finding, len(rows))

    def _finding(
        self,
        lanes: Lanes,
        fifo: int,
        subscriber: int,
        sequence: int,
        why: str,
        event_id: int | None = None,
        other_event_id: int | None = None,
        other_sequence: int | None = None,
    ) -> Finding:
        clients, topics = self._names.clients, self._names.topics
        return Finding(
            why,
            event_id,
            clients.label(int(lanes.publisher[fifo])),
            topics.label(int(lanes.topic[fifo])),
            int(lanes.qos[fifo]),
            sequence,
            clients.label(subscriber),
            other_event_id,
            other_sequence,
        )

    def _break_by_absence(
        self, tally: LawTally, law: str, lanes: Lanes, pairs: Pairs, times: IntArray, first: IntArray
    ) -> None:
        rows = times.nonzero()[0]
        if len(rows) == 0:
            return
        findings = (
            self._finding(
                lanes,
                int(pairs.fifo[row]),
                int(pairs.subscriber[row]),
                int(first[row]),
                _WHY[law + "-absent"].format(sequence=int(first[row])),
            )
            for row in rows.tolist()
        )
        tally.breaks(law, replace(min(findings, key=Finding.order), shows=Shows.OWED), int(times.sum()))

    def _break_before_an_end(
        self, tally: LawTally, law: str, lanes: Lanes, pairs: Pairs, missing: Missing, owed: Intervals
    ) -> None:
        for fifo, subscriber, times, first in lost_before_an_end(
            self._pass, lanes, self._subscriptions, self._names, pairs, missing, owed
        ):
            tally.meets(law, times)
            finding = self._finding(lanes, fifo, subscriber, first, _WHY[law + "-absent"].format(sequence=first))
            tally.breaks(law, replace(finding, shows=Shows.OWED), times)

    def _agreement(self, tally: LawTally, lanes: Lanes, pairs: Pairs, missing: Missing, publishes_known: bool) -> None:
        seen, shared = seen_by_subscribers(
            self._pass, lanes, missing.delivered, self._subscriptions, self._names, publishes_known
        )
        found = missing.count(pairs, seen)
        tally.meets("agreement", shared + int(found[:, 0].sum()))
        self._break_by_absence(tally, "agreement", lanes, pairs, found[:, 0], found[:, 1])
        self._break_before_an_end(tally, "agreement", lanes, pairs, missing, seen)
        finding = tally.findings.get("agreement")
        if finding is not None:
            publisher, topic = (
                table.code_of.get(label, label) if isinstance(label, str) else label
                for table, label in ((self._names.clients, finding.publisher), (self._names.topics, finding.topic))
            )
            fifo = (lanes.publisher == publisher) & (lanes.topic == topic) & (lanes.qos == finding.qos)
            who = receiver(lanes, missing.delivered, self._subscriptions, self._names, fifo, int(finding.sequence or 0))
            tally.findings["agreement"] = replace(finding, other_subscriber=self._names.clients.label(who))


def _law_of(broken: str) -> str:
    """The law of a name of BROKEN."""
    return "no-phantom" if broken.startswith("no-phantom") else broken


_WHY = {
    "fifo": "first delivery of {sequence} after {other} had been delivered",
    "no-phantom": "{sequence} was delivered and no earlier row publishes it",
    "no-phantom-cleared": "{sequence} was published to the session before it was cleared, and delivered after",
    "exactly-once": "QoS 2 message {sequence} was handed over a second time",
    "drain": "{sequence} waited in the backlog and was delivered after the bound",
    "drain-absent": "{sequence} waited in the backlog and had not been delivered when the bound passed",
    "at-least-once-absent": "{sequence} was acknowledged to its publisher and never reached the subscriber",
    "agreement-absent": "{sequence} reached another subscriber and never this one",
}


def _by_qos(lanes: Lanes, delivered: Intervals) -> dict[str, int]:
    """How many first deliveries each QoS of publishes had."""
    owner = np.repeat(np.arange(len(delivered.offsets) - 1), np.diff(delivered.offsets))
    sizes = np.bincount(lanes.qos[lanes.lane_fifo[owner]], delivered.end - delivered.start + 1, minlength=3)
    return dict(zip(_FIRST_BY_QOS, sizes.astype(int).tolist(), strict=True))


def _owed_count(pairs: Pairs, owed: Intervals) -> int:
    """Messages owed over all pairs, O(pairs) for those that are owed everything."""
    sizes = (owed.end - owed.start + 1).cumsum()
    before = [0, *sizes.tolist()]
    total = 0
    for fifo, first in zip(pairs.fifo.tolist(), pairs.first.tolist(), strict=True):
        low, high = int(owed.offsets[fifo]), int(owed.offsets[fifo + 1])
        if low == high:
            continue
        if first <= owed.start[low]:
            total += before[high] - before[low]
        else:
            total += sum(max(0, end - max(start, first) + 1) for start, end in owed.owned_by(fifo))
    return total


def delivery_verdicts(partial: Partial, laws: Sequence[str], work: dict[str, float]) -> list[Verdict]:
    """The verdicts on the laws asked for, from a part that covers the history."""
    counts = partial.counts
    repeats = {name: counts.get(name, 0) for name in ("repeats_qos0", "repeats_qos1", "repeats_qos2")}
    verdicts = []
    for law in laws:
        undecided = counts.get(f"{law}_undecided", 0)
        first = {name: counts.get(name, 0) for name in ("first_deliveries", *_FIRST_BY_QOS)}
        extra = (
            repeats
            if law == "exactly-once"
            else first
            if law == "fifo"
            else {"first_deliveries": first["first_deliveries"]}
        )
        if law == "at-least-once":  # with the violations, where all that was owed has gone
            extra |= {name: counts.get(name, 0) for name in ("pending", "excused", "taken_as_expired")}
        verdicts.append(verdict_of(partial, law, undecided, {**extra, **work}, _notes(law, counts)))
    return verdicts


def _notes(law: str, counts: Mapping[str, int]) -> Iterable[str]:
    if law in ("at-least-once", "agreement", "drain") and counts["subscribes"] == 0:
        yield "no subscribe rows: a session that received nothing at all is not judged"
    if law in ("at-least-once", "agreement", "drain") and counts["shared_subscriptions"]:
        yield "shared subscriptions: what no member of a group received is not judged"
    if counts.get(f"copies:{law}"):
        yield (
            f"{counts[f'copies:{law}']} deliveries are explained by copies: one for each filter that matches, or "
            "published again to a session that was cleared"
        )
    if law == "at-least-once":
        if counts["pending"]:
            yield (
                f"{counts['pending']} undelivered messages are pending: their subscriber is offline at the end,"
                " or the recording was cut"
            )
        if counts["taken_as_expired"]:
            yield f"{counts['taken_as_expired']} undelivered messages are taken as expired without an expire row"
        if counts["excused"]:
            yield "whether a trim or expiry was legal is a law of the session store"
        if counts["clears"]:
            yield "what a session lost before it was cleared, and was not overtaken, counts as cleared"
    if law == "fifo" and counts.get("copies_in_order"):
        yield (
            f"{counts['copies_in_order']} late deliveries are of messages published again to a session that had "
            "begun since: the order of arrival"
        )
    if law == "fifo" and counts.get("passed_on"):
        yield (
            f"{counts['passed_on']} late deliveries may be of messages that another member of a shared subscription "
            "had before it went: their order is not promised"
        )
    if law == "fifo" and counts["retained"]:
        yield f"{counts['retained']} retained messages stand outside the order"
    if law == "no-phantom" and counts["published"] == 0:
        yield "no publish rows: what was published is not known"
    if law == "no-phantom" and counts.get("no-phantom_undecided"):
        yield (
            f"{counts['no-phantom_undecided']} deliveries after a clear are undecided: published before it, and no row "
            "says for which session; a `session` in deliver and clear rows decides them"
        )
    if law == "drain" and counts["drain_undecided"]:
        end_us, due_us = counts["latest_end_us"], counts["latest_due_us"]
        yield (
            f"the recording ends before the bound with {counts['drain_undecided']} messages of a backlog "
            f"undelivered, at {end_us / 1e6:g} s;"
            f" one that goes on to {due_us / 1e6:g} s decides it (simulate: drain_s higher by "
            f"{(due_us - end_us) / 1e6:g})"
        )
    if law == "drain" and counts.get("unhealed"):
        yield (
            "the last fault had not healed when the recording ended; one that goes on for the bound after that "
            "decides it"
        )
