"""`will`, judged a second time: a server of one client that is walked through the rows, with what it still owes."""

import random

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.checkers.wills import CONNECT_LASTS_US
from orderlab.model.history.events import EventBatch, EventKind, Names

END_US = 1_000_000


def rows_of(rng):
    """(time, kind, connection, delay, reason, sequence) of a client that comes and goes, and of Wills that are often
    right."""
    rows, now, number, sequence = [], 0, 0, 0
    while now < 250_000:
        number += 1
        delay_us = rng.choice([0, 50_000, 100_000])
        rows.append((now, EventKind.CONNECT, number, delay_us, -1, -1))
        now += rng.randrange(20_000, 100_000)
        if rng.random() < 0.1:
            rows.append((now - rng.randrange(1, 20_000), EventKind.PUBLISH, number, -1, -1, sequence := sequence + 1))
        goodbye = rng.random() < 0.2
        rows.append((now, EventKind.DISCONNECT, -1, -1, 0 if goodbye else -1, -1))
        away_us = rng.choice([1, 30_000, 70_000, 150_000])
        due_us = delay_us
        if rng.random() < 0.2:
            over_us = rng.randrange(away_us)
            rows.append((now + over_us, EventKind.CLEAR, -1, -1, -1, -1))
            due_us = min(due_us, over_us)
        if (not goodbye and (due_us <= away_us)) ^ (rng.random() < 0.1):
            for _ in range(1 + (rng.random() < 0.1)):
                at = now + due_us + rng.choice([-1, 0, 0, 0, 0, 1, 20_000])
                sequence += 1
                rows.append((at, EventKind.PUBLISH, number, -1, -1, sequence))
                if rng.random() < 0.9:
                    rows.append((at + 1, EventKind.PUBLISH_ACKNOWLEDGED, number, -1, -1, sequence))
        now += away_us
    return sorted(rows, key=lambda row: row[0])


def batch_of(rows):
    time, kind, connection, delay, reason, sequence = zip(*rows, strict=True)
    count, messages = len(rows), [of >= 0 for of in sequence]
    return EventBatch.of(
        event_id=range(count + 1), time_us=[*time, END_US], kind=[*kind, EventKind.END], subscriber=[0] * count + [-1],
        connection=[*connection, -1], will_delay_us=[*delay, -1], reason_code=[*reason, -1], sequence=[*sequence, -1],
        publisher=[1 if of else -1 for of in messages] + [-1], topic=[0 if of else -1 for of in messages] + [-1],
        qos=[1 if of else -1 for of in messages] + [-1],
    )  # fmt: skip


def wrong_by_walking(rows):
    """The connections whose Wills are not as they should be."""
    wrong, waits, owed, done, acknowledged, present, delays = set(), {}, {}, set(), set(), None, {}
    for at, kind, number, delay_us, reason, _ in rows:
        if kind == EventKind.CONNECT:
            present = number
            delays[number] = delay_us
            for before, due_us in list(waits.items()):
                if at < due_us - CONNECT_LASTS_US:
                    del waits[before]  # it is not sent any more
                elif delays[before] and at < due_us + CONNECT_LASTS_US and before not in owed:
                    owed[before] = False  # either is right
        elif kind == EventKind.DISCONNECT:
            if reason != 0:
                waits[present] = at + delays[present]
            present = None
        elif kind == EventKind.CLEAR:
            for before, due_us in waits.items():
                if at < due_us:
                    waits[before] = at
                    owed[before] = True
        elif kind == EventKind.PUBLISH:
            if number in done or number not in waits or at < waits[number]:
                wrong.add(number)
            done.add(number)
        elif kind == EventKind.PUBLISH_ACKNOWLEDGED:
            acknowledged.add(number)
    missed = {
        of
        for of, due_us in waits.items()
        if owed.get(of, True) and due_us + CONNECT_LASTS_US < END_US and of not in acknowledged
    }
    return wrong | missed


def test_both_say_the_same_of_clients_that_come_and_go():
    rng, seen = random.Random(17), {True: 0, False: 0}
    for _ in range(2000):
        rows = rows_of(rng)
        (verdict,) = judge(in_memory("rows", [batch_of(rows)], Names()), Question(laws=("will",)))[0]
        wrong = wrong_by_walking(rows)
        assert (verdict.outcome == "violated") == bool(wrong), (rows, wrong, verdict)
        seen[bool(wrong)] += 1
    assert min(seen.values()) > 300
