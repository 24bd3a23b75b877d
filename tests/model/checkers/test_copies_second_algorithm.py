"""What is published again, against the second algorithm of deliveries: sessions, subscriptions and grants that come and
go, and rows that say for which session a message was queued."""

import random

import pytest

from orderlab.model.history.events import EventKind
from tests.model.checkers.test_delivery_second_algorithm import Slow, fast, history_of


def published_again(rng):
    """One publisher that sends again what it likes, and one subscriber whose session and subscription come and go."""
    rows, published, subscribes, expires = [], 0, rng.random() < 0.7, rng.random() < 0.3
    grants, tells, session = rng.random() < 0.5, rng.random() < 0.3, 1
    qos = rng.choice((1, 2)) if grants else 1
    for _ in range(rng.randrange(6, 20)):
        dice = rng.random()
        message = {"publisher": 0, "topic": 0, "qos": qos, "sequence": rng.randint(1, max(1, published))}
        if published < 4 and (dice < 0.2 or not published):
            published += 1
            fields = message | {"kind": EventKind.PUBLISH, "sequence": published}
        elif dice < 0.4:
            fields = message | {"kind": EventKind.PUBLISH, "dup": 1}
        elif dice < 0.5:
            fields = message | {"kind": EventKind.PUBLISH_ACKNOWLEDGED}
        elif dice < 0.8:
            fields = message | {"kind": EventKind.DELIVER, "subscriber": 2}
            fields |= {"session": rng.choice((session, session - 1))} if tells and rng.random() < 0.8 else {}
            fields |= {"delivered_qos": rng.randrange(qos)} if grants and rng.random() < 0.2 else {}
        elif dice < 0.9 or not subscribes:
            fields = {"kind": EventKind.CLEAR, "subscriber": 2}
            fields |= {"session": session} if tells and rng.random() < 0.5 else {}
            session += 1
        else:
            kind = EventKind.SUBSCRIBE if rng.random() < 0.75 else EventKind.UNSUBSCRIBE
            fields = {"kind": kind, "subscriber": 2, "topic": rng.choice((0, 0, 0, 0, 2, 2, 1))}
            fields |= {"qos": rng.choice((0, 1, 1, 2)) if grants else 2} if kind == EventKind.SUBSCRIBE else {}
        if expires and fields["kind"] == EventKind.PUBLISH and rng.random() < 0.5:
            fields = fields | {"expiry_interval_us": rng.choice([3, 8, 30])}
        rows.append({"event_id": len(rows), "time_us": len(rows), **fields, "kind": int(fields["kind"])})
    return rows


@pytest.mark.parametrize("number", [2000, pytest.param(100_000, marks=pytest.mark.exhaustive)])
def test_what_is_published_again_to_a_session_that_has_begun_since_comes_in_its_order_of_arrival(number):
    in_order, out_of_order, undecided = 0, 0, 0
    for seed in range(number):
        rows = published_again(random.Random(seed))
        history, slow = history_of(rows, ("t", "u", "#")), Slow(rows, several=True)
        broken = slow.fifo()
        partial = fast(history)
        assert partial.violations.get("fifo", 0) == len(broken), (seed, broken)
        assert partial.violations.get("no-phantom", 0) == len(slow.no_phantom()), seed
        assert partial.counts["no-phantom_undecided"] == len(slow.undecided), seed
        undecided += len(slow.undecided)
        assert not broken or partial.findings["fifo"].event_id == min(broken), (seed, broken)
        assert fast(history.split([1, 2, 3])) == partial, seed
        in_order, out_of_order = in_order + partial.counts["copies_in_order"], out_of_order + len(broken)
    assert min(in_order, out_of_order, undecided) > number / 100, (in_order, out_of_order, undecided)
