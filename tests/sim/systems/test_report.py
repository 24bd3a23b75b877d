"""What a report says of nodes that have too much to do."""

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
