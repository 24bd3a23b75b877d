"""What a report says of nodes that have too much to do, and of where every message went."""

import pytest

from model.checkers.judge import Question, in_memory, judge
from sim.systems.tbmq_p2p import P2PSettings, P2PSystem

SMALL = {"publishers": 50, "rate": 20.0, "warm_up_s": 0.05, "duration_s": 0.2, "broker_cores": 1, "drain_s": 0.1}


def loads(costs):
    report = P2PSystem(P2PSettings(**SMALL, costs=costs), 1, []).run()
    return report["utilisation"]["broker"], report["offered_load"]["broker"]


def test_a_node_that_falls_behind_is_busy_all_the_time_and_not_more():
    utilisation, offered = loads("cluster broker.ingest_us=3000")
    assert utilisation == [1.0]
    assert 2.5 < offered[0] < 3.5, "1000 messages a second of 3 ms each"


def test_a_node_that_keeps_up_does_what_is_offered():
    utilisation, offered = loads("cluster")
    assert 0.05 < utilisation[0] == offered[0] < 0.5


AWAY = {"offline_share": 0.5, "online_s": 0.1, "offline_s": 0.2}


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({}, "first_deliveries"),
        ({"faults": "redis-stall@0.1:0:5"}, "pending"),
        ({"expiry_s": 1, **AWAY, "offline_s": 2.0, "drain_s": 5.0}, "taken_as_expired"),
        ({"faults": "redis-restart@0.15 kafka-leader-change@0.1", **AWAY, "drain_s": 3.0}, "violations"),
    ],
)
def test_all_that_was_owed_is_delivered_or_trimmed_or_expired_or_waits_or_is_lost(settings, where):
    batches = []
    system = P2PSystem(P2PSettings(**{**SMALL, "rate": 50.0, **settings}), 1, [batches.append])
    report = system.run()
    verdicts, _ = judge(in_memory("run", batches, system.names()), Question())
    (work,) = (verdict.work for verdict in verdicts if verdict.law == "at-least-once")
    went = ("first_deliveries", "pending", "excused", "taken_as_expired", "violations")
    assert sum(work[name] for name in went) == work["antecedents"] == report["counts"]["published"]
    assert work[where] > 0
