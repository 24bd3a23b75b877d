"""The compiled pass agrees with a slow one from first principles, however the history is cut into pieces."""

import random
from dataclasses import replace

import pytest

from orderlab.model.checkers.delivery.checker import DeliveryChecker, delivery_verdicts
from orderlab.model.checkers.expiry import ExpiryChecker, expiry_verdict
from orderlab.model.checkers.retransmission import RetransmissionChecker, retransmission_verdict
from orderlab.model.history.events import COLUMNS, EventBatch, EventKind, History, Names
from orderlab.model.verdict import Outcome

LAWS = ("fifo", "at-least-once", "exactly-once", "no-phantom", "agreement", "drain")
BOUND_US = 20_000


CHANGES = (EventKind.SUBSCRIBE, EventKind.UNSUBSCRIBE)


def generated(rng, subscribe_rows):
    """Rows of two publishers, two topics, three subscribers; mostly right, with every anomaly now and then."""
    rows, clock, sequence, waiting = [], 0, {}, []

    def row(kind, **fields):
        nonlocal clock
        clock += rng.choice([0, 500, 1000, 4000])
        rows.append({"event_id": len(rows), "time_us": clock, "kind": int(kind), **fields})

    if subscribe_rows:
        for subscriber in (2, 3, 4):
            row(EventKind.SUBSCRIBE, subscriber=subscriber, topic=rng.randrange(2), qos=2)
    for _ in range(rng.randrange(4, 40)):
        dice = rng.random()
        if dice < 0.35:
            fifo = (rng.randrange(2), rng.randrange(2), rng.choice([0, 1, 1, 2]))
            sequence[fifo] = sequence.get(fifo, 0) + 1
            message = dict(zip(("publisher", "topic", "qos", "sequence"), (*fifo, sequence[fifo]), strict=True))
            interval = {"expiry_interval_us": rng.choice([2000, 10_000])} if rng.random() < 0.2 else {}
            row(EventKind.PUBLISH, **message, **interval)
            if fifo[2] and rng.random() < 0.9:
                row(EventKind.PUBLISH_ACKNOWLEDGED, **message)
            waiting += [(message, subscriber) for subscriber in (2, 3, 4) if rng.random() < 0.9]
        elif dice < 0.85 and waiting:
            message, subscriber = waiting[0 if rng.random() < 0.7 else rng.randrange(len(waiting))]
            if rng.random() < 0.9:
                waiting.remove((message, subscriber))
            kind = rng.choice([EventKind.DELIVER] * 8 + [EventKind.TRIM, EventKind.EXPIRE])
            fields = {"packet_id": rng.choice([1, 2, 3]), "dup": rng.randrange(2)} if rng.random() < 0.5 else {}
            if message["qos"] and rng.random() < 0.2:
                fields["delivered_qos"] = rng.randrange(message["qos"])
            row(kind, **message, subscriber=subscriber, **(fields if kind == EventKind.DELIVER else {}))
        else:
            subscriber = rng.choice([2, 3, 4])
            kind = rng.choice(
                [EventKind.CLEAR, EventKind.CONNECT, EventKind.DISCONNECT, EventKind.HEAL, EventKind.FAULT]
                + [EventKind.ACKNOWLEDGE, EventKind.RELEASE, EventKind.RECEIVE] * 2
                + ([EventKind.SUBSCRIBE, EventKind.UNSUBSCRIBE] if subscribe_rows else [])
                + ([EventKind.CUT] if rng.random() < 0.2 else [])
            )
            if kind in (EventKind.SUBSCRIBE, EventKind.UNSUBSCRIBE):
                row(
                    kind,
                    subscriber=subscriber,
                    topic=rng.randrange(2),
                    **({"qos": rng.choice([0, 1, 2, 2])} if kind == EventKind.SUBSCRIBE else {}),
                )
            elif kind in (EventKind.ACKNOWLEDGE, EventKind.RELEASE, EventKind.RECEIVE):
                row(kind, subscriber=subscriber, packet_id=rng.choice([1, 2, 3]))
            else:
                row(
                    kind,
                    **(
                        {}
                        if kind in (EventKind.HEAL, EventKind.FAULT) or (kind == EventKind.CUT and rng.random() < 0.5)
                        else {"subscriber": subscriber}
                    ),
                )
    return rows


def history_of(rows, topics=()):
    names = Names()
    names.clients.numeric, names.topics.numeric = True, not topics
    for name in topics:
        names.topics.code(name)
    return History((EventBatch.of(**{c: [r.get(c, -1) for r in rows] for c in COLUMNS}),), names)


def fifo_of(row):
    return row["publisher"], row["topic"], row["qos"]


def level_of(row):
    """The QoS that the packet carries."""
    return row.get("delivered_qos", row["qos"])


class Slow:
    """Each law as its sentence says it: quantifiers over rows, no state."""

    def __init__(self, rows, several=False):
        self.rows, self.by_kinds = rows, {}
        self.filters = {0: {0, 2}, 1: {1, 2}} if several else {0: {0}, 1: {1}}
        self.end_us = rows[-1]["time_us"]
        self.subscribe_rows = any(r["kind"] == EventKind.SUBSCRIBE for r in rows)
        self.deliveries = self.of(EventKind.DELIVER)
        self.firsts = [r for r in self.deliveries if self.first(r) is r]
        self.cut = any(r.get("subscriber", -1) < 0 for r in self.of(EventKind.CUT))

    def is_cut_off(self, subscriber):
        """Whether a cut, of everything or of this one, was its last row of that kind; who connects anew is not cut off
        any more."""
        mine = [r["kind"] for r in self.of(EventKind.CUT, EventKind.CONNECT) if r.get("subscriber", -1) == subscriber]
        return self.cut or mine[-1:] == [EventKind.CUT]

    def of(self, *kinds):
        if kinds not in self.by_kinds:
            self.by_kinds[kinds] = [r for r in self.rows if r["kind"] in kinds]
        return self.by_kinds[kinds]

    def first(self, row):
        wanted = (row["subscriber"], fifo_of(row), row["sequence"], level_of(row))
        return next(r for r in self.deliveries if (r["subscriber"], fifo_of(r), r["sequence"], level_of(r)) == wanted)

    def published(self, fifo, sequence, before=10**9):
        return any(
            (fifo_of(r), r["sequence"]) == (fifo, sequence) and r["event_id"] < before
            for r in self.of(EventKind.PUBLISH)
        )

    def fifo(self):
        broken = set()
        for r in self.firsts:
            mine = (
                (e["subscriber"], fifo_of(e), level_of(e)) == (r["subscriber"], fifo_of(r), level_of(r))
                for e in self.firsts
            )
            earlier = [
                e for e, is_mine in zip(self.firsts, mine, strict=True) if is_mine and e["event_id"] < r["event_id"]
            ]
            highest = max(earlier, key=lambda e: e["sequence"], default=r)
            if highest["sequence"] > r["sequence"] and not self.in_order_of_arrival(highest, r):
                broken.add(r["event_id"])
        return broken

    def in_order_of_arrival(self, first, second):
        """Whether the publishes that the session was sent, from one of them on, have the first before the second.

        It was sent all that was published after its subscription began, and what had been under way then.
        """
        begun = self.begun(first, second)
        excused = [(r["subscriber"], fifo_of(r), r["sequence"]) for r in self.of(EventKind.TRIM, EventKind.EXPIRE)]
        published = [
            (r["sequence"], r["event_id"]) for r in self.of(EventKind.PUBLISH) if fifo_of(r) == fifo_of(second)
        ]
        again = [event_id for number, event_id in published if number == second["sequence"]][1:]
        is_all_again = (
            bool(again) and max(event_id for number, event_id in published if number == first["sequence"]) > again[0]
        )
        is_left_out = is_all_again and (
            (second["subscriber"], fifo_of(second), second["sequence"]) in excused or self.has_lapsed(second)
        )
        levels = {
            level_of(r)
            for r in self.of(EventKind.DELIVER, EventKind.TRIM, EventKind.EXPIRE)
            if (r["subscriber"], fifo_of(r)) == (second["subscriber"], fifo_of(second))
        }
        granted = [
            r
            for r in self.of(EventKind.SUBSCRIBE)
            if r["subscriber"] == second["subscriber"] and r["topic"] in self.filters[second["topic"]]
        ]
        is_untold = not granted and len(levels) > 1
        if is_left_out or (again and (level_of(second) == 0 or is_untold)):
            begun = second["event_id"]  # the first copy need not come
        if begun is None:
            return False
        numbers = [(number, event_id) for number, event_id in published if event_id < second["event_id"]]
        for start in range(1 + sum(event_id < begun for _, event_id in numbers)):
            sent = [number for number, _ in numbers[start:]]
            if {first["sequence"], second["sequence"]} <= set(sent) and sent.index(first["sequence"]) < sent.index(
                second["sequence"]
            ):
                return True
        return False

    def has_lapsed(self, delivery):
        """Whether the deadline of the first copy has passed by the end."""
        key = fifo_of(delivery), delivery["sequence"]
        copies = (r for r in self.of(EventKind.PUBLISH) if (fifo_of(r), r["sequence"]) == key)
        first = next(copies, {"time_us": 0})
        return 0 <= first.get("expiry_interval_us", -1) <= self.end_us - first["time_us"]

    def begun(self, first, second):
        """The row with which the subscription began that the first delivery was sent by; None: before all rows."""
        orders = [
            r
            for r in self.of(EventKind.SUBSCRIBE, EventKind.UNSUBSCRIBE, EventKind.CLEAR)
            if r["subscriber"] == first["subscriber"]
            and (r["kind"] == EventKind.CLEAR or r["topic"] in self.filters[first["topic"]])
        ]
        at = sum(r["event_id"] < first["event_id"] for r in orders)
        session = next((n for n in reversed(range(at)) if orders[n]["kind"] == EventKind.CLEAR), -1)
        until = next((n for n in range(at, len(orders)) if orders[n]["kind"] == EventKind.CLEAR), len(orders))
        owing = [self.owing(orders[session + 1 : n + 1], second) for n in range(until)]

        def oldest(n, filters):
            starts = [next(k for k in reversed(range(-1, n)) if k < 0 or one not in owing[k]) + 1 for one in filters]
            return orders[min(starts)]["event_id"]

        if at and owing[at - 1]:
            return oldest(at - 1, owing[at - 1])
        for n in range(at, until):
            if owing[n] and orders[n]["event_id"] < second["event_id"]:
                return orders[n]["event_id"]
        for n in reversed(range(session + 1, at)):
            if n > 0 and owing[n - 1] - owing[n]:
                return oldest(n - 1, owing[n - 1] - owing[n])
        return orders[session]["event_id"] if session >= 0 else None

    @staticmethod
    def owing(orders, delivery):
        """Filters by which a session with these rows is owed a message like this at the level of this delivery."""
        last = {r["topic"]: r for r in orders}
        levels = {one: min(r["qos"], delivery["qos"]) for one, r in last.items() if r["kind"] == EventKind.SUBSCRIBE}
        highest = max(levels.values(), default=None)
        return {one for one, level in levels.items() if level == highest == level_of(delivery)}

    def no_phantom(self):
        """The deliveries that break it; `undecided`: those that may, for the last clear does not say which session it
        ended, or the message may have been under way."""
        self.undecided = set()
        if not self.of(EventKind.PUBLISH):
            return set()
        broken = set()
        for r in self.deliveries:
            if not self.published(fifo_of(r), r["sequence"], r["event_id"]):
                broken.add(r["event_id"])
            clears = [c for c in self.of(EventKind.CLEAR) if c["subscriber"] == r["subscriber"]]
            clears = [c for c in clears if c["event_id"] < r["event_id"]]
            session, ended = r.get("session", -1), [c.get("session", -1) for c in clears]
            if 0 <= session <= max(ended, default=-1):
                broken.add(r["event_id"])
            elif clears and (session < 0 or ended[-1] < 0) and self.is_stale(r, clears[-1]["event_id"]):
                is_known = session < 0 and self.has_acknowledgement(r, clears[-1]["event_id"])
                (broken if is_known else self.undecided).add(r["event_id"])
        return broken

    def is_stale(self, delivery, clear):
        """Whether the message was published before the clear, and not again since."""
        fifo, number = fifo_of(delivery), delivery["sequence"]
        again = [p for p in self.of(EventKind.PUBLISH) if (fifo_of(p), p["sequence"]) == (fifo, number)]
        since = any(clear < p["event_id"] < delivery["event_id"] for p in again)
        return not since and self.published_up_to(fifo, clear) >= number

    def has_acknowledgement(self, delivery, clear):
        """Whether it or a later one was acknowledged before the clear, and it by now: they come in order."""
        rows = [r for r in self.of(EventKind.PUBLISH_ACKNOWLEDGED) if fifo_of(r) == fifo_of(delivery)]
        mine = any(r["sequence"] == delivery["sequence"] and r["event_id"] < delivery["event_id"] for r in rows)
        return mine and any(r["sequence"] >= delivery["sequence"] and r["event_id"] < clear for r in rows)

    def published_up_to(self, fifo, event_id):
        numbers = [r["sequence"] for r in self.of(EventKind.PUBLISH) if fifo_of(r) == fifo and r["event_id"] < event_id]
        return max(numbers, default=-1)

    def exactly_once(self):
        broken, handed, holds = set(), set(), {}
        for r in self.rows:
            subscriber, identifier = r.get("subscriber"), r.get("packet_id", -1)
            if r["kind"] in (EventKind.RELEASE, EventKind.ACKNOWLEDGE):
                holds.pop((subscriber, identifier), None)
            elif r["kind"] == EventKind.CLEAR:
                holds = {key: value for key, value in holds.items() if key[0] != subscriber}
            elif r["kind"] == EventKind.DELIVER and r["qos"] == level_of(r) == 2:
                message = (subscriber, fifo_of(r), r["sequence"])
                if identifier >= 0:
                    recognised = holds.get((subscriber, identifier)) == message
                    holds[subscriber, identifier] = message
                else:
                    recognised = message in handed and r.get("dup", 0) == 1
                if not recognised and message in handed:
                    broken.add(r["event_id"])
                handed.add(message)
        return broken

    def pairs(self):
        """(fifo, subscriber, first event from which publishes are owed) at the end of the history."""
        fifos = sorted({fifo_of(r) for r in self.of(*range(3), EventKind.TRIM, EventKind.EXPIRE) if r["qos"] > 0})
        found = []
        for subscriber in (2, 3, 4):
            cleared = max(
                (r["event_id"] for r in self.of(EventKind.CLEAR) if r["subscriber"] == subscriber), default=-1
            )
            for fifo in fifos:
                if self.subscribe_rows:
                    since = None
                    for r in self.rows:
                        if r.get("subscriber") != subscriber:
                            continue
                        if r["kind"] == EventKind.CLEAR:
                            since = None
                        elif r.get("topic") == fifo[1] and r["kind"] == EventKind.SUBSCRIBE:
                            since = None if r["qos"] == 0 else r["event_id"] if since is None else since
                        elif r.get("topic") == fifo[1] and r["kind"] == EventKind.UNSUBSCRIBE:
                            since = None
                else:
                    kinds = (EventKind.DELIVER, EventKind.TRIM, EventKind.EXPIRE)
                    seen = any(r.get("subscriber") == subscriber and fifo_of(r) == fifo for r in self.of(*kinds))
                    since = cleared if seen else None
                if since is not None:
                    found.append((fifo, subscriber, since))
        return found

    def came(self, fifo, subscriber, sequence):
        kinds = (EventKind.DELIVER, EventKind.TRIM, EventKind.EXPIRE)
        excused = any(
            (fifo_of(r), r["subscriber"], r["sequence"]) == (fifo, subscriber, sequence) for r in self.of(*kinds)
        )
        expired = any(
            (fifo_of(r), r["sequence"]) == (fifo, sequence)
            and 0 <= r.get("expiry_interval_us", -1) <= self.end_us - r["time_us"]
            for r in self.of(EventKind.PUBLISH)
        )
        return excused or expired

    def online(self, subscriber, default=True):
        state = default
        for r in self.of(EventKind.CONNECT, EventKind.DISCONNECT):
            if r["subscriber"] == subscriber:
                state = r["kind"] == EventKind.CONNECT
        return state

    def missing(self, numbers_of):
        broken = set()
        for fifo, subscriber, since in self.pairs():
            is_settled = self.online(subscriber) and not self.is_cut_off(subscriber)
            for sequence in numbers_of(fifo):
                is_lost = is_settled or self.is_overtaken(fifo, subscriber, sequence, 10**9)
                if is_lost and self.is_missing(fifo, subscriber, sequence, since):
                    broken.add((fifo, subscriber, sequence))
        for fifo, subscriber, since, end in self.ended_pairs():
            for sequence in numbers_of(fifo):
                if self.is_overtaken(fifo, subscriber, sequence, end) and self.is_missing(
                    fifo, subscriber, sequence, since
                ):
                    broken.add((fifo, subscriber, sequence))
        return broken

    def is_missing(self, fifo, subscriber, sequence, since):
        """Whether it was published since, so owed, and never came."""
        old = self.published_up_to(fifo, since) if since >= 0 else -1
        return sequence > old and not self.came(fifo, subscriber, sequence)

    def is_overtaken(self, fifo, subscriber, sequence, end):
        """Whether a later one of the logical FIFO came before the end, with every QoS above 0 with which the message
        may have been on its way."""
        mine = [
            r
            for r in self.deliveries
            if (fifo_of(r), r["subscriber"]) == (fifo, subscriber) and r["event_id"] < end and level_of(r)
        ]
        granted = {
            r["qos"] for r in self.of(EventKind.SUBSCRIBE) if r["subscriber"] == subscriber and r.get("qos", -1) > 0
        }
        levels = {1, 2} if fifo[2] == 2 and granted == {1, 2} else {level_of(r) for r in mine}
        return bool(levels) and all(
            any(level_of(r) == level and r["sequence"] > sequence for r in mine) for level in levels
        )

    def ended_pairs(self):
        """(fifo, subscriber, first event, last event) of the subscriptions that have ended, without subscribe rows of
        the sessions."""
        found = []
        for subscriber in (2, 3, 4):
            mine = [r for r in self.rows if r.get("subscriber") == subscriber]
            for fifo in sorted({fifo_of(r) for r in self.deliveries if r["qos"] > 0}):
                since = None if self.subscribe_rows else -1
                for r in mine:
                    is_end = r["kind"] == EventKind.UNSUBSCRIBE or r.get("qos") == 0
                    if r["kind"] == EventKind.CLEAR or (r.get("topic") == fifo[1] and is_end and r["kind"] in CHANGES):
                        if since is not None:
                            found.append((fifo, subscriber, since, r["event_id"]))
                        since = None if self.subscribe_rows else r["event_id"]
                    elif r["kind"] == EventKind.SUBSCRIBE and r["topic"] == fifo[1] and since is None:
                        since = r["event_id"]
        return found

    def acknowledged(self, fifo):
        return {r["sequence"] for r in self.of(EventKind.PUBLISH_ACKNOWLEDGED) if fifo_of(r) == fifo}

    def receivers(self, fifo):
        """sequence → who received it while it had, or had had, a subscription; of what was published at all."""
        subscribed = {(r["subscriber"], r["topic"]) for r in self.of(EventKind.SUBSCRIBE)}
        found = {}
        for r in self.deliveries:
            known = self.published(fifo, r["sequence"]) or not self.of(EventKind.PUBLISH)
            if fifo_of(r) == fifo and known and (not subscribed or (r["subscriber"], fifo[1]) in subscribed):
                found.setdefault(r["sequence"], set()).add(r["subscriber"])
        return found

    def seen(self, fifo):
        return set(self.receivers(fifo))

    def tested(self):
        """How often `at-least-once` and `agreement` are tested."""
        owed, kinds = 0, (EventKind.DELIVER, EventKind.TRIM, EventKind.EXPIRE)
        for fifo, subscriber, since in self.pairs():
            old = self.published_up_to(fifo, since) if since >= 0 else -1
            for sequence in (number for number in self.acknowledged(fifo) if number > old):
                mine = ((fifo_of(r), r["subscriber"], r["sequence"]) for r in self.of(*kinds))
                owed += (fifo, subscriber, sequence) in mine
        fifos = {fifo_of(r) for r in self.deliveries}
        shared = (len(who) for fifo in fifos for who in self.receivers(fifo).values() if len(who) > 1)
        return {
            "at-least-once": owed + len(self.missing(self.acknowledged)),
            "agreement": sum(shared) + len(self.missing(self.seen)),
        }

    def stable(self, subscriber, at):
        """(since when in us, since which event) everything had healed and the subscriber was connected; None if not."""
        healed, connected = (0, -1), (0, -1)
        for r in self.rows[:at]:
            if r["kind"] == EventKind.HEAL:
                healed = (r["time_us"], r["event_id"])
            elif r["kind"] == EventKind.FAULT:
                healed = None
            elif r.get("subscriber") == subscriber and r["kind"] == EventKind.CONNECT:
                connected = (r["time_us"], r["event_id"])
            elif r.get("subscriber") == subscriber and r["kind"] == EventKind.DISCONNECT:
                connected = None
        if healed is None or connected is None:
            return None
        return max(healed[0], connected[0]), max(healed[1], connected[1])

    def drain(self):
        broken = set()
        for r in self.firsts:
            since = self.stable(r["subscriber"], r["event_id"])
            if r["qos"] and since and since[1] >= 0:
                backlog = self.published_up_to(fifo_of(r), since[1])
                if r["sequence"] <= backlog and r["time_us"] > since[0] + BOUND_US:
                    broken.add(r["event_id"])
        for fifo, subscriber, since in self.pairs():
            stable = self.stable(subscriber, len(self.rows))
            if stable is None or stable[1] < 0 or stable[0] + BOUND_US > self.end_us:
                continue
            old = self.published_up_to(fifo, since) if since >= 0 else -1
            for sequence in self.acknowledged(fifo):
                if old < sequence <= self.published_up_to(fifo, stable[1]) and not self.came(
                    fifo, subscriber, sequence
                ):
                    broken.add((fifo, subscriber, sequence))
        return broken

    def verdicts(self):
        return {
            "fifo": self.fifo(),
            "no-phantom": self.no_phantom(),
            "exactly-once": self.exactly_once(),
            "at-least-once": self.missing(self.acknowledged),
            "agreement": self.missing(self.seen),
            "drain": self.drain(),
        }


def fast(history, end_us=None):
    checker = DeliveryChecker(history.names, BOUND_US)
    for batch in history:
        checker.observe(batch)
    return checker.partial(end_us)


def mismatch(finding, broken):
    """Whether the finding is the first of the violations that the slow algorithm lists."""
    by_event = sorted(item for item in broken if isinstance(item, int))
    if by_event:
        return finding.event_id != by_event[0]
    return (
        (finding.publisher, finding.topic, finding.qos),
        finding.subscriber,
        finding.sequence,
    ) != min(broken, key=lambda item: (*map(str, item[0]), str(item[1]), item[2]))


@pytest.mark.parametrize("number", [400, pytest.param(4000, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("subscribe_rows", [False, True])
def test_verdicts_and_witnesses_agree_with_first_principles(subscribe_rows, number):
    seen = {law: {True: 0, False: 0} for law in LAWS}
    for seed in range(number):
        rng = random.Random(f"{subscribe_rows}{seed}")
        rows = generated(rng, subscribe_rows)
        slow = Slow(rows)
        expected, tested = slow.verdicts(), slow.tested()
        verdicts = delivery_verdicts(fast(history_of(rows)), LAWS, {})
        for verdict in verdicts:
            assert verdict.work["antecedents"] == tested.get(verdict.law, verdict.work["antecedents"]), (
                seed,
                verdict.law,
            )
            broken = expected[verdict.law]
            assert (verdict.outcome is Outcome.VIOLATED) == bool(broken), (seed, verdict.law, broken)
            assert verdict.work["violations"] == len(broken), (seed, verdict.law, broken)
            if broken:
                assert not mismatch(verdict.witness, broken), (seed, verdict, broken)
            seen[verdict.law][bool(broken)] += 1
    for law, counts in seen.items():
        assert min(counts.values()) > number / 50, (law, counts)


def test_any_cut_in_time_gives_the_same_result():
    for seed in range(200):
        rng = random.Random(seed)
        history = history_of(generated(rng, seed % 2 == 0))
        whole = fast(history)
        sizes = [rng.randrange(1, 6) for _ in range(rng.randrange(1, 8))]
        assert fast(history.split(sizes)) == whole
        for make, verdict in CHECKERS:
            results = []
            for form in (history, history.split(sizes)):
                checker = make(form.names)
                for batch in form:
                    checker.observe(batch)
                results.append(verdict(checker.partial(), {}))
            assert results[0] == results[1]


CHECKERS = ((ExpiryChecker, expiry_verdict), (RetransmissionChecker, retransmission_verdict))


def test_parts_by_logical_fifo_merge_to_the_whole_in_any_grouping():
    for seed in range(200):
        rng = random.Random(seed)
        rows = generated(rng, seed % 2 == 0)
        for row in rows:
            row.pop("packet_id", None)  # identifiers belong to sessions: with them a part is a subscriber
        history = history_of(rows)
        batch = history.joined()
        fifo = batch.publisher * 2 + batch.topic
        control, end_us = batch.sequence < 0, rows[-1]["time_us"]
        parts = [
            fast(History((batch.select(control | (fifo == number)),), history.names), end_us) for number in range(4)
        ]
        rng.shuffle(parts)
        left = parts[0].merge(parts[1]).merge(parts[2]).merge(parts[3])
        right = parts[0].merge(parts[1].merge(parts[2].merge(parts[3])))
        assert left == right
        whole = fast(history)
        assert left.violations == whole.violations
        assert left.findings == whole.findings
        assert left.antecedents == whole.antecedents


def test_room_is_made_in_time(monkeypatch):
    """Chunks of three rows go through every growth of the tables; results do not change."""
    import orderlab.model.checkers.delivery.event_pass as delivery_pass

    rng = random.Random(7)
    rows = []
    for number in range(6000):
        fifo = {"publisher": number % 997, "topic": number % 31, "qos": 1, "sequence": number // 3}
        kind = rng.choice([EventKind.PUBLISH, EventKind.DELIVER, EventKind.PUBLISH_ACKNOWLEDGED])
        rows.append({"event_id": number, "time_us": number, "kind": int(kind), **fifo, "subscriber": 1000 + number % 7})
    history = history_of(rows)
    whole = fast(history)
    monkeypatch.setattr(delivery_pass, "ROWS_PER_CHUNK", 3)
    assert fast(history) == whole
    assert replace(whole, counts={}) != whole
