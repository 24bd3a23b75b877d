"""What a run holds at its end does not grow with its length, nor what a process holds with its runs."""

import gc
from pathlib import Path

import pytest

from orderlab.platform import GROWN_BYTES, _resident_bytes, rare_collections
from orderlab.sim.systems.tbmq_p2p import P2PSettings, P2PSystem

SMALL = {"publishers": 20, "rate": 20.0, "brokers": 2, "warm_up_s": 0.1}


def held(duration_s):
    """Records in Kafka, rows that wait to be written, messages that wait for an answer, keys in Redis."""
    system = P2PSystem(P2PSettings(**SMALL, duration_s=duration_s), 1, [])
    system.run()
    world = system.world
    logs = [partition.log for partitions in world.kafka.cluster.topics.values() for partition in partitions]
    return {
        "records": sum(log.end_offset - log.start_offset for log in logs),
        "rows": system.recorder._waiting,
        "unanswered": sum(len(broker.ingest.unacknowledged) for broker in world.brokers)
        + len(world.delivery.connections.in_flight),
        "keys": sum(len(node.shard.freeze()) for node in world.storage.nodes),
    }


def test_a_run_three_times_as_long_holds_no_more_at_its_end():
    short, long = held(1.5), held(4.5)
    assert long["records"] <= short["records"] * 1.2
    assert (long["rows"], long["unanswered"], long["keys"]) == (short["rows"], short["unanswered"], short["keys"])


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="nobody tells here how much memory is in use")
def test_many_small_runs_in_one_process_leave_nothing():
    """Each leaves 5 MiB in cycles, which Python's collector alone would look at after hundreds of them."""
    held = []
    for seed in range(60):
        P2PSystem(P2PSettings(publishers=20, duration_s=0.05), seed, []).run()
        held.append(_resident_bytes())
    assert max(held[30:]) - max(held[:30]) < GROWN_BYTES


def test_what_somebody_has_frozen_for_good_stays_frozen():
    thresholds, had_frozen = gc.get_threshold(), gc.get_freeze_count()
    gc.set_threshold(700)
    try:
        with rare_collections():
            assert gc.get_freeze_count() > 0
        assert gc.get_freeze_count() == had_frozen
        gc.freeze()
        with rare_collections():
            frozen = gc.get_freeze_count()
        assert gc.get_freeze_count() > frozen / 2 > 0  # some of what is frozen may have gone meanwhile
    finally:
        gc.set_threshold(*thresholds)
        if not had_frozen:
            gc.unfreeze()
