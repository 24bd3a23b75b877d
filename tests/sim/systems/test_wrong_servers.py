"""Servers that are wrong, or stand still: Kafka's replicas and coordinator, Redis Cluster in parts, brokers whose
collector stops the world. Each damage beside its nearest neighbour, in which nothing breaks, and the repair."""

import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.errors import InputError
from orderlab.sim.engine.clock import Clock
from orderlab.sim.kafka.broker import AppendError, BrokerCosts, KafkaCluster, ReplicaSettings
from orderlab.sim.kafka.producer import Producer, ProducerSettings
from orderlab.sim.systems.catalogue import settings_of
from orderlab.sim.systems.tbmq_p2p import P2PSettings, P2PSystem

SMALL = {
    "publishers": 40,
    "rate": 20.0,
    "brokers": 2,
    "partitions": 4,
    "kafka_brokers": 3,
    "warm_up_s": 0.1,
    "duration_s": 0.6,
    "session_timeout_s": 0.2,
    "request_timeout_s": 0.2,
    "command_timeout_s": 0.2,
    "pack_pause_s": 0.1,
    "drain_s": 1.5,
}
COMING_AND_GOING = {"offline_share": 1, "online_s": 0.2, "offline_s": 0.6}
REPAIRED = {
    "scripts": "session",
    "handover": "before-commit",
    "acks": "all",
    "idempotent": True,
    "inbound": "store",
    "pack_retries": 1000,
    "redis_replica_lag_ms": 0,
    "appendfsync": "always",
    "removals": "awaited",
}


def run(seed=1, **settings):
    """(violated laws, the report)."""
    batches = []
    system = P2PSystem(P2PSettings(**{**SMALL, **settings}), seed, [batches.append])
    report = system.run()
    verdicts, _ = judge(in_memory("run", batches, system.names()), Question())
    return {verdict.law for verdict in verdicts if verdict.outcome == "violated"}, report


# -- producers -----------------------------------------------------------------------------------------------------


def test_a_retry_comes_behind_its_successors_unless_one_request_is_in_flight_or_the_producer_is_idempotent():
    faster = {"faults": "producer-retry@0.3:0", "rate": 100, "linger_ms": 1}
    violated, quick = run(max_in_flight=5, **faster)
    assert violated == {"fifo"}
    violated, slow = run(max_in_flight=1, **faster)
    assert not violated
    assert slow["latency"]["publish_to_puback"]["mean_ms"] > 5 * quick["latency"]["publish_to_puback"]["mean_ms"]
    violated, _ = run(acks="all", idempotent=True, **faster)
    assert not violated


@pytest.mark.parametrize(("max_in_flight", "answered_at"), [(1, 2), (2, 2), (5, 1)])
def test_requests_in_flight_are_those_of_a_connection_whatever_their_partitions(max_in_flight, answered_at):
    env = Clock()
    cluster = KafkaCluster(env, 1, BrokerCosts(request_us=0, record_us=0))
    partitions = cluster.create_topic("t", 4)
    producer, answered = (
        Producer(env, cluster, ProducerSettings(linger_us=0, max_in_flight=max_in_flight), lambda: 1000),
        [],
    )
    for number, partition in enumerate(partitions):
        env.process(
            _after(
                env,
                number,
                lambda partition=partition: producer.send(
                    partition, [0], lambda records, error: answered.append(env.now)
                ),
            )
        )
    env.run(100_000)
    assert answered[-1] // 2000 == answered_at


def test_batches_that_leave_at_one_instant_are_one_request():
    env = Clock()
    cluster = KafkaCluster(env, 1, BrokerCosts(request_us=0, record_us=0))
    partitions = cluster.create_topic("t", 4)
    producer, answered = Producer(env, cluster, ProducerSettings(linger_us=10, max_in_flight=1), lambda: 1000), []
    for partition in partitions:
        producer.send(partition, [0], lambda records, error: answered.append(env.now))
    env.run(100_000)
    assert answered == [2010] * 4


def _after(env, delay_us, function):
    yield env.timeout(delay_us)
    function()


# -- replicas ------------------------------------------------------------------------------------------------------

SHRUNK = {"faults": "kafka-isr-shrink@0.2:0:0.5 kafka-leader-change@0.4:0", "replica_lag_max_s": 0.05}


def test_an_unclean_election_loses_what_was_acknowledged_even_with_acks_all():
    violated, report = run(unclean_election=True, **SHRUNK, **REPAIRED)
    assert "at-least-once" in violated
    assert report["counts"]["unclean_elections"] > 0


def test_min_insync_replicas_refuses_what_an_unclean_election_would_lose():
    violated, report = run(unclean_election=True, min_insync_replicas=2, **SHRUNK, **REPAIRED)
    assert not violated
    assert report["counts"]["unclean_elections"] > 0


def test_without_an_unclean_election_the_partition_waits_for_its_leader():
    violated, report = run(**SHRUNK, **REPAIRED)
    assert not violated
    assert "unclean_elections" not in report["counts"]
    assert report["counts"]["records_lost"] == 0


def _cluster(**settings):
    env = Clock()
    cluster = KafkaCluster(
        env,
        3,
        BrokerCosts(replication_lag_us=1500, request_us=0, record_us=0),
        ReplicaSettings(lag_max_us=10_000, **settings),
    )
    (partition,) = cluster.create_topic("t", 1)
    return env, cluster, partition


def test_only_acks_all_is_refused_while_the_leader_is_alone():
    env, cluster, partition = _cluster(min_insync_replicas=2)
    env.run(1000)
    cluster.follow_no_more(partition, 50_000)
    outcome, answered_us = cluster.produce(partition, [1], True, None, 0)
    assert (outcome, answered_us) == (AppendError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 11_000)
    env.run(20_000)
    assert partition.log.high_watermark(20_000) == 1, "the leader alone decides what is committed"
    assert cluster.produce(partition, [2], True, None, 0)[0] is AppendError.NOT_ENOUGH_REPLICAS
    outcome, answered_us = cluster.produce(partition, [3], False, None, 0)
    assert (outcome.base_offset, answered_us) == (1, 20_000)
    env.run(60_000)
    outcome, answered_us = cluster.produce(partition, [4], True, None, 0)
    assert (outcome.base_offset, answered_us) == (2, 61_500)


def test_followers_that_catch_up_in_time_stay_in_sync():
    env, cluster, partition = _cluster(min_insync_replicas=2)
    env.run(1000)
    cluster.follow_no_more(partition, 5_000)
    outcome, answered_us = cluster.produce(partition, [1], True, None, 0)
    assert (outcome.base_offset, answered_us) == (0, 7_500)


def test_an_unclean_leader_gives_offsets_out_again():
    env, cluster, partition = _cluster(is_unclean=True)
    cluster.produce(partition, [1], True, 7, 0)
    env.run(5000)
    cluster.follow_no_more(partition, 50_000)
    env.run(20_000)
    assert cluster.produce(partition, [2], True, 7, 1)[0].base_offset == 1
    assert cluster.fail_leader(partition) == [2]
    env.run(300_000)
    assert cluster.produce(partition, [3], True, 7, 2)[0].base_offset == 1
    assert partition.log.read(0, 10, 310_000) == (0, [1, 3])


# -- the coordinators ----------------------------------------------------------------------------------------------

LOST = "kafka-coordinator-loss@0.4:0 kafka-coordinator-loss@0.4:1 kafka-coordinator-loss@0.4:2"
"""Of every group."""


def test_a_broker_that_coordinates_no_group_takes_no_commits_along():
    quiet = {"kafka_brokers": 30, "offsets_lag_ms": 1000.0}
    coordinates = run(faults="kafka-coordinator-loss@0.4:8", **quiet)[1]["counts"]
    assert coordinates["commits_lost"] > 0, "msg.all is a group of partition 8"
    others = run(faults="kafka-coordinator-loss@0.4:7", **quiet)[1]["counts"]
    assert others["faults_skipped"] == 1
    assert "commits_lost" not in others


def test_a_broker_that_dies_takes_the_groups_along_that_it_coordinates():
    lost = {"kafka_brokers": 30, "offsets_lag_ms": 1000.0, "partitions": 1}
    assert run(faults="kafka-leader-change@0.4:8", **lost)[1]["counts"]["commits_lost"] > 0
    assert "commits_lost" not in run(faults="kafka-leader-change@0.4:7", **lost)[1]["counts"]


def test_an_unclean_election_takes_back_commits_since_the_followers_stood_still():
    shrunk = {
        **SHRUNK,
        "faults": " ".join(f"kafka-isr-shrink@0.2:{one}:0.5 kafka-leader-change@0.4:{one}" for one in range(3)),
    }
    assert run(unclean_election=True, **shrunk)[1]["counts"]["commits_lost"] > 0
    assert run(**shrunk)[1]["counts"]["commits_lost"] == 0


def test_a_coordinator_that_has_lost_commits_has_all_read_again():
    lost = {"faults": LOST, "offsets_lag_ms": 1000.0, "qos": 2}
    violated, report = run(acks="all", idempotent=True, **lost)
    assert "exactly-once" in violated
    assert report["counts"]["commits_lost"] > 0
    violated, report = run(**lost, **REPAIRED)
    assert not violated
    assert report["counts"]["commits_lost"] > 0


def test_older_commits_matter_where_a_partition_changes_hands():
    lost = {"faults": f"{LOST} broker-crash@0.41:0", "qos": 2, "acks": "all", "idempotent": True}
    assert "exactly-once" in run(2, offsets_lag_ms=200, **lost)[0]
    assert "exactly-once" not in run(2, **lost)[0], "Kafka's promise: a commit that was answered is there"
    assert not run(offsets_lag_ms=200, **{**lost, "faults": LOST})[0], "who goes on reading asks nobody where"


# -- Redis Cluster -------------------------------------------------------------------------------------------------

DOWN = {
    "redis_nodes": 10,
    "partitions": 8,
    "appendfsync": "always",
    "command_timeout_s": 2,
    "faults": "redis-restart@0.3:0:0.7",
}


def test_a_cluster_that_wants_all_slots_refuses_the_sessions_of_every_node():
    violated, report = run(cluster_node_timeout_s=0.1, **DOWN)
    assert "at-least-once" in violated
    assert report["counts"]["saves_given_up"] > 0
    assert not run(cluster_node_timeout_s=0.1, full_coverage=False, **DOWN)[0]
    assert not run(**DOWN)[0], "the node is back before the others take it for failed"
    assert not run(cluster_node_timeout_s=0.1, **{**REPAIRED, **DOWN})[0]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_whose_removal_failed_comes_again_though_it_was_acknowledged_unless_its_removal_is_awaited(qos):
    refusing = {
        "cluster_node_timeout_s": 0.1,
        **REPAIRED,
        **DOWN,
        "offline_share": 0.6,
        "online_s": 0.1,
        "offline_s": 0.05,
        "qos": qos,
    }
    assert run(**{**refusing, "removals": "once"})[0] == {"retransmission"}
    violated, report = run(**refusing)
    assert not violated
    assert report["counts"]["removes_again"] > 0


def test_what_an_old_master_takes_is_lost_at_the_heal():
    old = {"cluster_node_timeout_s": 0.2, "redis_replica_lag_ms": 1, "pack_retries": 1000, **COMING_AND_GOING}
    violated, report = run(faults="redis-old-master@0.3:0", **old)
    assert "at-least-once" in violated
    bounded = run(2, faults="redis-old-master@0.3:0", min_replicas_lag_s=0.01, **old)
    assert bounded[0] <= {"retransmission"}, "what was removed there is back, and comes again"
    assert 0 < bounded[1]["counts"]["commands_lost"] < report["counts"]["commands_lost"], (
        "min-replicas-to-write bounds the loss and does not end it"
    )
    violated, report = run(faults="redis-old-master@0.3:0:0.8", **old)
    assert not violated, "it heals before anybody is elected"
    assert "commands_lost" not in report["counts"]
    violated, report = run(faults="redis-old-master@0.3:0", **{**old, **REPAIRED})
    assert not violated, "nobody was told that those were saved"
    assert report["counts"]["commands_lost"] > 0


@pytest.mark.parametrize(
    ("faults", "resync_s", "breaks"),
    [
        ("redis-failover@0.3:0:0.1 redis-failover@0.6:0:0.1", 0.4, True),
        ("redis-failover@0.3:0:0.1 redis-failover@0.6:0:0.1", 0.1, False),
        ("redis-full-resync@0.3:0:0.4 redis-failover@0.5:0:0.1", 0, True),
        ("redis-full-resync@0.3:0:0.1 redis-failover@0.5:0:0.1", 0, False),
    ],
)
def test_a_replica_that_has_not_got_everything_saves_nobody(faults, resync_s, breaks):
    once = {"faults": faults, "resync_s": resync_s, "redis_replica_lag_ms": 1, "pack_retries": 1000, **COMING_AND_GOING}
    violated, report = run(**once)
    assert ("at-least-once" in violated) is breaks
    assert report["counts"].get("failovers_without_replica", 0) == breaks
    if breaks:
        assert not run(**{**once, **REPAIRED})[0]


# -- pauses --------------------------------------------------------------------------------------------------------


def test_a_pause_longer_than_the_session_timeout_costs_a_broker_its_partitions():
    violated, report = run(faults="broker-pause@0.3:0:0.6", qos=2)
    assert "exactly-once" in violated
    assert report["counts"]["fenced_commits"] > 0
    violated, report = run(faults="broker-pause@0.3:0:0.15", qos=2)
    assert not violated
    assert "fenced_commits" not in report["counts"]
    assert not run(faults="broker-pause@0.3:0:0.6", qos=2, **REPAIRED)[0]


def test_pauses_of_the_collector_are_drawn_and_make_messages_late():
    _, without = run()
    violated, report = run(gc_every_s=0.2, gc_median_ms=20, gc_sigma=0.5)
    assert not violated
    assert report["counts"]["pauses"] > 2
    assert report["latency"]["publish_to_puback"]["mean_ms"] > 1.2 * without["latency"]["publish_to_puback"]["mean_ms"]
    assert run(gc_every_s=0.2, gc_median_ms=20, gc_sigma=0.5)[1] == report


@pytest.mark.parametrize(
    ("given", "cure"),
    [
        ({"acks": "all", "idempotent": True, "max_in_flight": 6}, "max_in_flight=5"),
        ({"min_insync_replicas": 4}, "set fewer"),
        ({"max_in_flight": 0}, "max_in_flight"),
    ],
)
def test_what_kafka_would_refuse_is_refused(given, cure):
    with pytest.raises(InputError, match=cure):
        settings_of("tbmq-p2p", given)


def test_pauses_that_leave_a_broker_no_time_are_refused():
    with pytest.raises(ValueError, match="pauses leave a broker no time"):
        P2PSettings(gc_every_s=1e-9)
    assert P2PSettings(gc_every_s=0.001).gc_every_s == 0.001
