"""Late deliveries of shared subscriptions, against a second algorithm: members that come and go."""

import random

import pytest

from orderlab.model.history.events import EventKind
from tests.model.checkers.test_delivery_second_algorithm import fast, history_of

TOPICS = ("t", "u", "$share/g/t", "$share/g/+", "$share/h/t")


def with_members(rng):
    """Two publishers, each message once, and three clients whose shared subscriptions, sessions and connections come
    and go."""
    rows, published = [], {}
    begin = rng.choice((0, 2, 3))
    for number in range(rng.randrange(6, 30)):
        dice, subscriber = rng.random(), rng.choice((2, 2, 3, 4))
        if number < begin:
            fields = {"kind": EventKind.SUBSCRIBE, "subscriber": 2 + number, "topic": rng.choice((2, 2, 2, 3))}
        elif dice < 0.25 or not published:
            fifo = rng.choice((0, 0, 1)), rng.choice((0, 0, 0, 1))
            published[fifo] = published.get(fifo, 0) + 1
            fields = {"kind": EventKind.PUBLISH, "publisher": fifo[0], "topic": fifo[1], "sequence": published[fifo]}
        elif dice < 0.6:
            publisher, topic = fifo = rng.choice(list(published))
            fields = {"kind": EventKind.DELIVER, "publisher": publisher, "topic": topic, "subscriber": subscriber}
            fields["sequence"] = rng.randint(1, published[fifo])
        elif dice < 0.8:
            fields = {"kind": EventKind.SUBSCRIBE, "subscriber": subscriber, "topic": rng.choice((0, 2, 2, 3, 4))}
        else:
            kinds = (EventKind.CLEAR, EventKind.CONNECT, EventKind.DISCONNECT, EventKind.HEAL, EventKind.UNSUBSCRIBE)
            fields = {"kind": rng.choice(kinds), "subscriber": subscriber}
            fields |= {"topic": rng.choice((2, 3))} if fields["kind"] == EventKind.UNSUBSCRIBE else {}
        fields["qos"] = 1 if "publisher" in fields or fields["kind"] == EventKind.SUBSCRIBE else -1
        rows.append({"event_id": len(rows), "time_us": len(rows), **fields, "kind": int(fields["kind"])})
    return rows


def has_filter(rows, subscriber, topic_filter):
    """Whether these rows leave the client with the subscription."""
    mine = [
        r["kind"]
        for r in rows
        if r.get("subscriber") == subscriber
        and (
            r["kind"] == EventKind.CLEAR
            or (r["kind"] in (EventKind.SUBSCRIBE, EventKind.UNSUBSCRIBE) and r["topic"] == topic_filter)
        )
    ]
    return mine[-1:] == [EventKind.SUBSCRIBE]


def has_gone(rows, at, topic_filter):
    """Whether this row takes a member out of the subscription, or off the line."""
    kind, subscriber = rows[at]["kind"], rows[at].get("subscriber")
    if not has_filter(rows[:at], subscriber, topic_filter):
        return False
    lines = [
        r["kind"]
        for r in rows[:at]
        if r.get("subscriber") == subscriber and r["kind"] in (EventKind.CONNECT, EventKind.DISCONNECT)
    ]
    was_online = lines[-1:] != [EventKind.DISCONNECT]
    return (
        kind in (EventKind.CLEAR, EventKind.DISCONNECT)
        or (kind == EventKind.UNSUBSCRIBE and rows[at]["topic"] == topic_filter)
        or (kind == EventKind.CONNECT and was_online)
    )


def late(rows):
    """(Broken, excused) late first deliveries, by quantifiers over rows."""
    broken, excused = set(), set()
    for at, r in enumerate(rows):
        if r["kind"] != EventKind.DELIVER:
            continue
        about = r["subscriber"], r["publisher"], r["topic"]
        before = [
            e["sequence"]
            for e in rows[:at]
            if e["kind"] == EventKind.DELIVER and (e["subscriber"], e["publisher"], e["topic"]) == about
        ]
        if r["sequence"] in before or max(before, default=0) < r["sequence"]:
            continue
        published = next(
            n
            for n, e in enumerate(rows)
            if e["kind"] == EventKind.PUBLISH and (e["publisher"], e["topic"]) == about[1:]
            and e["sequence"] == r["sequence"]
        )  # fmt: skip
        filters = [
            one
            for one in ((2, 3, 4) if r["topic"] == 0 else (3,))
            if any(has_filter(rows[:n], r["subscriber"], one) for n in range(at + 1))
        ]
        is_passed_on = any(
            rows[n].get("subscriber") != r["subscriber"] and has_gone(rows, n, one)
            for n in range(published, at)
            for one in filters
        )
        (excused if is_passed_on else broken).add(r["event_id"])
    return broken, excused


@pytest.mark.parametrize("number", [1500, pytest.param(50_000, marks=pytest.mark.exhaustive)])
def test_what_a_member_that_went_may_have_had_comes_late_and_nothing_else(number):
    broken_of_all, excused_of_all = 0, 0
    for seed in range(number):
        rows = with_members(random.Random(seed))
        history, (broken, excused) = history_of(rows, TOPICS), late(rows)
        partial = fast(history)
        assert partial.violations.get("fifo", 0) == len(broken), (seed, broken)
        assert partial.counts.get("passed_on", 0) == len(excused), (seed, excused)
        assert not broken or partial.findings["fifo"].event_id == min(broken), (seed, broken)
        assert fast(history.split([1, 2, 3])) == partial, seed
        broken_of_all, excused_of_all = broken_of_all + len(broken), excused_of_all + len(excused)
    assert min(broken_of_all, excused_of_all) > number / 50, (broken_of_all, excused_of_all)
