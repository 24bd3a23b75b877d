"""Each fault with its nearest harmless neighbour: the laws see the one and pass the other."""

import pytest

from model.checkers.judge import Question, in_memory, judge
from model.errors import InputError
from sim.fault_schedule import parse_faults
from sim.faults import FAULTS
from sim.systems.tbmq_p2p import P2PSettings, P2PSystem

SMALL = {
    "publishers": 60, "rate": 20.0, "brokers": 2, "warm_up_s": 0.1, "duration_s": 0.7, "session_timeout_s": 0.2,
    "request_timeout_s": 0.2, "pack_pause_s": 0.1, "drain_s": 3.0,
}  # fmt: skip


def run(faults, seed=1, **more):
    batches = []
    system = P2PSystem(P2PSettings(**{**SMALL, **more}, faults=faults), seed, [batches.append])
    report = system.run()
    verdicts, _ = judge(in_memory("run", batches, system.names()), Question())
    return report["counts"], {verdict.law for verdict in verdicts if verdict.outcome == "violated"}


@pytest.mark.parametrize("scripts", ["published", "session"])
@pytest.mark.parametrize("share", [0.0, 0.4])
def test_without_faults_every_law_holds_also_when_subscribers_come_and_go(scripts, share):
    counts, violated = run("", scripts=scripts, offline_share=share)
    assert not violated
    assert counts["delivered"] >= counts["published"] > 500


@pytest.mark.parametrize("scripts", ["published", "session"])
def test_a_flushed_script_cache_is_loaded_again_and_nothing_is_lost(scripts):
    counts, violated = run("script-cache-flush@0.4", scripts=scripts)
    assert not violated
    assert counts["delivered"] == counts["published"]


def test_a_crash_before_the_commit_repeats_what_was_saved():
    counts, violated = run("broker-crash-before-commit@0.4:0")
    assert "fifo" not in violated
    assert counts["delivered"] > counts["published"]


def test_a_store_that_knows_its_batches_again_does_not_save_them_twice():
    counts, _ = run("consumer-rebalance@0.4:0", scripts="session")
    assert counts.get("saves_known_before", 0) > 0
    assert counts["fenced_commits"] > 0


def test_a_crash_after_the_commit_leaves_messages_in_the_store_until_a_reconnect():
    _, violated = run("broker-crash-after-commit@0.4:0")
    assert violated == {"at-least-once"}


def test_a_redis_restart_without_a_file_loses_what_waits_there_and_with_one_it_does_not():
    waiting = {"offline_share": 0.6, "offline_s": 0.4}
    _, lost = run("redis-restart@0.5:0", **waiting)
    assert "at-least-once" in lost
    _, kept = run("redis-restart@0.5:0", appendfsync="always", **waiting)
    assert not kept


def test_retries_reorder_unless_the_producer_is_idempotent():
    _, plain = run("producer-retry@0.4:0", rate=100.0)
    assert "fifo" in plain
    _, idempotent = run("producer-retry@0.4:0", rate=100.0, idempotent=True)
    assert "fifo" not in idempotent


def test_a_lost_puback_is_published_again_with_dup():
    counts, violated = run("lost-puback@0.4:0")
    assert not violated
    assert counts["published_again"] == counts["pubacks_lost"] == 50


@pytest.mark.parametrize(
    ("faults", "complaint"),
    [
        ("redis-stal@1", 'did you mean "redis-stall"'),
        ("redis-stall", "name@seconds"),
        ("redis-stall@1.2.3", "not a number"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(faults, complaint):
    with pytest.raises(InputError, match=complaint):
        parse_faults(faults)


def test_a_single_broker_must_not_crash():
    with pytest.raises(InputError, match="brokers=2"):
        P2PSystem(P2PSettings(**{**SMALL, "brokers": 1}, faults="broker-crash@0.1"), 1, [])


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_fault_strikes_alike_in_two_runs(fault):
    def digest():
        system = P2PSystem(
            P2PSettings(**{**SMALL, "duration_s": 0.3, "publishers": 30, "drain_s": 0.5},
                        redis_replica_lag_ms=5, faults=f"{fault}@0.2:0"), 3, [])  # fmt: skip
        system.run()
        return system.digest

    assert digest() == digest()
