"""What a report says of nodes that have too much to do, and of where every message went."""

import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.sim.systems.tbmq_p2p import P2PSettings, P2PSystem

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
    published = report["counts"]["published"]
    assert sum(work[name] for name in went) == published
    assert work["antecedents"] == published - work["pending"] - work["taken_as_expired"], "these test nothing"
    assert work[where] > 0


def test_what_nobody_was_told_has_no_latency():
    report = P2PSystem(P2PSettings(**{**SMALL, "qos": 0}), 1, []).run()
    puback, delivery = (report["latency"][f"publish_to_{what}"] for what in ("puback", "delivery"))
    assert puback == {"count": 0, **dict.fromkeys(list(delivery)[1:])}
    assert 0 < delivery["mean_ms"] <= delivery["max_ms"]


@pytest.mark.parametrize("duration_s", [0.2, 0.4])
def test_the_queue_before_an_overloaded_node_is_what_waits_while_it_is_measured(duration_s):
    """1000 messages/s come and 50 are served: at most 950 * T / 2 wait on average over T seconds, as a thread takes
    several."""
    settings = {**SMALL, "warm_up_s": 0.0, "duration_s": duration_s, "drain_s": 0.001, "tick_us": 1000}
    report = P2PSystem(P2PSettings(**settings, costs="cluster broker.ingest_us=20000"), 1, []).run()
    (waiting,) = report["mean_queue_length"]["broker"]
    assert 0.5 < waiting / (950 * duration_s / 2) <= 1


def test_a_stalled_redis_node_has_a_queue_for_as_long_as_it_stalls():
    settings = {**SMALL, "broker_cores": 16, "redis_nodes": 1, "faults": "redis-stall@0.15:0:30"}
    (waiting,) = P2PSystem(P2PSettings(**settings), 1, []).run()["mean_queue_length"]["redis"]
    (idle,) = P2PSystem(P2PSettings(**{**settings, "faults": ""}), 1, []).run()["mean_queue_length"]["redis"]
    assert idle < 1 < waiting < 200, "1000 saves and as many removals a second, for the tenth of a second that is left"
