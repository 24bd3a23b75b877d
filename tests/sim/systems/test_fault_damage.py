"""Every fault does the damage that its name promises in some system, and none in that system's nearest neighbour.

Damage is a law that breaks or a figure that moves. Faults that have such a pair elsewhere are named with their test.
"""

import importlib

import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.sim.faults import FAULTS
from orderlab.sim.systems.catalogue import SYSTEMS, settings_of

SMALL = {
    "publishers": 30, "rate": 20.0, "brokers": 2, "warm_up_s": 0.1, "duration_s": 0.7, "session_timeout_s": 0.2,
    "request_timeout_s": 0.2, "pack_pause_s": 0.1, "drain_s": 3.0,
}  # fmt: skip
AWAY = {"offline_share": 0.6, "offline_s": 0.4}
REPAIRED = {
    "scripts": "session",
    "handover": "before-commit",
    "acks": "all",
    "idempotent": True,
    "appendfsync": "always",
}

PAIRS = [
    # fault, damaged system, what is seen of the damage, its neighbour
    ("broker-crash@0.4:0", {"publishers": 60}, "at-least-once", {"publishers": 60, **REPAIRED}),
    ("consumer-rebalance@0.4:0", {}, "doubles", REPAIRED),
    ("network-partition@0.4:0:0.5", {}, "fifo", REPAIRED),
    ("lost-puback@0.4:0", {}, "doubles", {"qos": 2}),
    (
        "redis-failover@0.5:0",
        {"redis_replica_lag_ms": 100.0, **AWAY},
        "at-least-once",
        {"redis_replica_lag_ms": 0.0, **AWAY},
    ),
    ("redis-stall@0.4:0:0.5", {}, "late", {"faults": "redis-stall@0.4:0:0.01"}),
    ("kafka-leader-change@0.4:0", {}, "fifo", REPAIRED),
    ("kafka-leader-change@0.4:0", {}, "at-least-once", REPAIRED),
    (
        "session-takeover@0.395:0",
        {"publishers": 60, "rate": 100.0},
        "doubles",
        {"publishers": 60, "rate": 100.0, "qos": 0},
    ),
    ("redis-connection-loss@0.4:0 redis-stall@0.3:0:0.2", {}, "replayed", {"faults": "redis-stall@0.3:0:0.2"}),
    ("script-cache-flush@0.4:0", {}, "reloads", {"faults": ""}),
]
POSTGRES_PAIRS = [
    ("postgres-stall@0.4:0", {}, "late", {"faults": "postgres-stall@0.4:0:0.01"}),
    (
        "postgres-connection-loss@0.4:0",
        {"rate": 300.0, "duration_s": 0.4},
        "saves_failed",
        {"faults": "", "rate": 20.0},
    ),
]
ELSEWHERE = {
    "broker-crash-before-commit": "test_faults.test_a_crash_before_the_commit_repeats_what_was_saved",
    "broker-crash-after-commit": "test_faults.test_a_crash_after_the_commit_leaves_messages_in_the_store_until_a_reconnect",  # noqa: E501
    "producer-retry": "test_faults.test_retries_reorder_unless_the_producer_is_idempotent",
    "broker-clock-skew": "test_faults.test_a_clock_that_is_ahead_ends_messages_early",
    "redis-clock-skew": "test_faults.test_a_clock_that_is_ahead_ends_messages_early",
    "client-link-cut": "test_wrong_brokers.test_a_cut_delays_what_tcp_sends_again_and_keep_alive_ends_what_it_outlasts",
    "client-half-open": "test_wrong_brokers.test_a_connection_that_died_holds_messages_back_until_somebody_notices",
    "client-link-slow": "test_wrong_brokers.test_a_slow_link_moves_latencies_and_nothing_else",
    "publisher-link-cut": "test_wrong_brokers.test_a_cut_link_of_publishers_delays_and_keep_alive_makes_them_send_again",  # noqa: E501
    "publisher-link-slow": "test_wrong_brokers.test_a_cut_link_of_publishers_delays_and_keep_alive_makes_them_send_again",  # noqa: E501
    "publisher-half-open": "test_wrong_brokers.test_what_publishers_send_into_dead_connections_they_send_again_elsewhere",  # noqa: E501
    "publisher-takeover": "test_wrong_brokers.test_a_message_over_the_old_connection_of_a_publisher_that_has_moved",
    "broker-pause": "test_wrong_servers.test_a_pause_longer_than_the_session_timeout_costs_a_broker_its_partitions",
    "kafka-isr-shrink": "test_wrong_servers.test_an_unclean_election_loses_what_was_acknowledged_even_with_acks_all",
    "kafka-coordinator-loss": "test_wrong_servers.test_a_coordinator_that_has_lost_commits_has_all_read_again",
    "redis-old-master": "test_wrong_servers.test_what_an_old_master_takes_is_lost_at_the_heal",
    "redis-full-resync": "test_wrong_servers.test_a_replica_that_has_not_got_everything_saves_nobody",
    "slow-consumer": "test_faults.test_a_slow_consumer_gets_everything_late",
    "redis-restart": "test_faults.test_a_redis_restart_without_a_file_loses_what_waits_there_and_with_one_it_does_not",
    "redis-machine-crash": "test_faults.test_a_machine_that_crashes_loses_what_was_not_on_disk_and_a_process_does_not",
    "command-timeout": "test_faults.test_a_call_that_timed_out_and_ran_all_the_same_is_saved_twice_unless_the_store_knows_it",  # noqa: E501
    "redis-partition": "test_faults.test_a_node_that_nobody_reaches_for_long_makes_brokers_give_saves_up",
    "slot-migration": "test_faults.test_a_save_in_a_slot_on_the_move_fails_where_keys_are_not_declared_and_comes_again",
    "redis-eviction": "test_faults.test_memory_that_runs_out_loses_messages_under_either_policy_and_a_short_shortage_does_not",  # noqa: E501
    "redis-oom": "test_faults.test_memory_that_runs_out_loses_messages_under_either_policy_and_a_short_shortage_does_not",  # noqa: E501
    "postgres-restart": "test_prototype.test_without_synchronous_commit_a_restart_loses_what_waits",
}


def damage(name, faults, **settings):
    """Laws that are violated, and figures that moved."""
    batches = []
    given = {key: value for key, value in SMALL.items() if name == "tbmq-p2p" or key != "brokers"}
    system = SYSTEMS[name].assemble(settings_of(name, {**given, "faults": faults, **settings}), 1, [batches.append])
    counts = system.run()["counts"]
    verdicts, _ = judge(in_memory("run", batches, system.names()), Question())
    drivers = [broker.driver for broker in system.world.brokers]
    seen = {
        "doubles": counts["delivered"] > counts["published"],
        "late": system.world.measured.delivery_latency.max_us > 300_000,
        "replayed": any(getattr(driver, "replayed", 0) for driver in drivers),
        "reloads": any(getattr(driver, "reloads", 0) for driver in drivers),
        "saves_failed": counts.get("saves_failed", 0) > 0,
    }
    return {verdict.law for verdict in verdicts if verdict.outcome == "violated"} | {
        what for what in seen if seen[what]
    }


@pytest.mark.parametrize(("fault", "damaged", "seen", "neighbour"), PAIRS)
def test_a_fault_does_its_damage_and_none_to_the_neighbour(fault, damaged, seen, neighbour):
    assert seen in damage("tbmq-p2p", fault, **damaged)
    assert seen not in damage("tbmq-p2p", **{"faults": fault, **neighbour})


@pytest.mark.parametrize(("fault", "damaged", "seen", "neighbour"), POSTGRES_PAIRS)
def test_a_fault_of_a_database_does_its_damage_and_none_to_the_neighbour(fault, damaged, seen, neighbour):
    assert seen in damage("tbmq-postgres", fault, **damaged)
    assert seen not in damage("tbmq-postgres", **{"faults": fault, **neighbour})


def test_every_fault_has_a_pair():
    here = {fault.partition("@")[0] for fault, *_ in (*PAIRS, *POSTGRES_PAIRS)}
    assert here | set(ELSEWHERE) == set(FAULTS)
    for place in ELSEWHERE.values():
        module, _, test = place.partition(".")
        assert callable(getattr(importlib.import_module(f"tests.sim.systems.{module}"), test)), place


# -- QoS 2, in the middle of its handshake -----------------------------------------------------------------------

QOS_2 = {"qos": 2, "scripts": "session", "appendfsync": "always", "rate": 100.0, "duration_s": 0.4, "publishers": 30}


def test_a_broker_that_dies_with_pubrecs_in_its_hands_sends_the_publish_again_and_keeps_order():
    found = damage("tbmq-p2p", "broker-crash@0.4:0", **{**QOS_2, **REPAIRED})
    assert found & {"exactly-once", "retransmission"}, "what was under way is routed again, or its PUBREC forgotten"
    assert not found & {"fifo", "at-least-once", "no-phantom"}


def test_a_takeover_in_the_middle_loses_and_doubles_nothing():
    found = damage("tbmq-p2p", "session-takeover@0.4:0", **QOS_2)
    assert found <= {"retransmission", "doubles"}, "a PUBREC at the old broker races the new one's fetch"
    assert not damage("tbmq-p2p", "", **QOS_2)


def test_a_redis_restart_in_the_middle_loses_and_doubles_nothing_with_a_file():
    assert damage("tbmq-p2p", "redis-restart@0.4:0", **QOS_2) <= {"late", "replayed", "reloads"}
    lost = damage("tbmq-p2p", "redis-restart@0.4:0", **{**QOS_2, "appendfsync": "off"}, **AWAY)
    assert "at-least-once" in lost


def test_a_release_that_fails_is_run_again_before_its_pubrel_goes_out():
    settings = {**QOS_2, "faults": "redis-oom@0.4:0:0.05", "scripts": "published", "rate": 200.0}
    assert not damage("tbmq-p2p", **settings) & {"exactly-once", "retransmission"}


def test_a_session_that_is_read_anew_keeps_what_is_new_behind(monkeypatch):
    settings = {**SMALL, **REPAIRED, **AWAY, "online_s": 0.1, "offline_s": 0.05, "publishers": 40, "rate": 25.0}
    settings = {key: value for key, value in settings.items() if key not in SMALL or value != SMALL[key]}
    assert "fifo" not in damage("tbmq-p2p", "network-partition@0.4:0", **settings)
    monkeypatch.setattr("orderlab.sim.mqtt.broker.filters.hold_back", lambda table, deliveries: deliveries)
    assert "fifo" in damage("tbmq-p2p", "network-partition@0.4:0", **settings)
