"""Each fault with its nearest harmless neighbour: the laws see the one and pass the other."""

from functools import partial

import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.errors import InputError
from orderlab.model.history.events import EventKind
from orderlab.sim.fault_schedule import draw_faults, parse_rates
from orderlab.sim.kafka.consumer_group import ConsumerSettings
from orderlab.sim.systems.tbmq_p2p import P2PSettings, P2PSystem

SMALL = {
    "publishers": 60, "rate": 20.0, "brokers": 2, "warm_up_s": 0.1, "duration_s": 0.7, "session_timeout_s": 0.2,
    "request_timeout_s": 0.2, "pack_pause_s": 0.1, "drain_s": 3.0,
}  # fmt: skip


def run(faults, seed=1, **more):
    """(counts, laws that are violated) of a small system under faults."""
    system, counts, violated, _ = run_whole(faults, seed, **more)
    clients = ("timeouts", "redirections", "replayed", "reloads")
    told = {name: sum(getattr(broker.driver, name) for broker in system.world.brokers) for name in clients}
    return {**counts, **told}, violated


def run_whole(faults="", seed=1, **more):
    batches = []
    system = P2PSystem(P2PSettings(**{**SMALL, **more}, faults=faults), seed, [batches.append])
    report = system.run()
    verdicts, _ = judge(in_memory("run", batches, system.names()), Question())
    return system, report["counts"], {verdict.law for verdict in verdicts if verdict.outcome == "violated"}, batches


@pytest.mark.parametrize("scripts", ["published", "session"])
@pytest.mark.parametrize("share", [pytest.param(0.0, marks=pytest.mark.exhaustive), 0.4])
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
    _, _, violated, batches = run_whole("broker-crash-before-commit@0.4:0")
    assert "fifo" not in violated
    delivered = [
        row
        for batch in batches
        for row in zip(
            *(column[batch.kind == EventKind.DELIVER].tolist() for column in (batch.publisher, batch.sequence)),
            strict=True,
        )
    ]
    assert len(delivered) > len(set(delivered))


def test_a_store_that_knows_its_batches_again_does_not_save_them_twice():
    counts, _ = run("consumer-rebalance@0.4:0", scripts="session")
    assert counts.get("saves_known_before", 0) > 0
    assert counts["fenced_commits"] == 1, "of the one that stood still"


def test_a_crash_after_the_commit_leaves_messages_in_the_store_until_a_reconnect():
    _, violated = run("broker-crash-after-commit@0.4:0")
    assert violated == {"at-least-once"}


@pytest.mark.parametrize("fault", ["broker-crash", "broker-crash-before-commit", "broker-crash-after-commit"])
def test_a_broker_that_hands_over_before_it_commits_leaves_no_gap(fault):
    for seed in (1, 2):
        counts, violated = run(f"{fault}@0.4:0", seed, scripts="session", handover="before-commit")
        assert violated <= {"retransmission"}, "the broker died with PUBACKs in its hands"
        assert counts["delivered"] >= counts["published"]


def test_a_backlog_in_kafka_that_is_older_than_what_runs_keep_of_the_log_is_read_all_the_same(monkeypatch):
    monkeypatch.setattr("orderlab.sim.systems.devices.ConsumerSettings", partial(ConsumerSettings, fetch_records=50))
    crowded = {"rate": 30.0, "partitions": 1, "redis_nodes": 1, "max_poll_records": 10, "drain_s": 20.0}
    counts, violated = run("redis-stall@0.1:0:2", **crowded)
    assert not violated
    assert counts["delivered"] == counts["published"] > 1000


def test_a_redis_restart_without_a_file_loses_what_waits_there_and_with_one_it_does_not():
    waiting = {"offline_share": 0.6, "offline_s": 0.4}
    _, lost = run("redis-restart@0.5:0", **waiting)
    assert "at-least-once" in lost
    _, kept = run("redis-restart@0.5:0", appendfsync="always", **waiting)
    assert not kept


def test_a_machine_that_crashes_loses_what_was_not_on_disk_and_a_process_does_not():
    """Of what a node had run for two seconds: with ``no`` nothing is on disk yet, with ``everysec`` the first second
    is."""
    waiting = {"offline_share": 0.6, "online_s": 0.2, "offline_s": 0.4, "publishers": 22, "duration_s": 2.2}
    lost = {}
    for appendfsync in ("no", "everysec", "always"):
        process, violated = run("redis-restart@2:0", **waiting, appendfsync=appendfsync)
        assert (process["commands_lost"], violated) == (0, set())
        machine, violated = run("redis-machine-crash@2:0", **waiting, appendfsync=appendfsync)
        lost[appendfsync] = machine["commands_lost"]
        assert bool(violated) == (appendfsync != "always")
    assert lost["always"] == 0
    assert 0.3 < lost["everysec"] / lost["no"] < 0.7


def test_retries_reorder_unless_the_producer_is_idempotent():
    _, plain = run("producer-retry@0.4:0", rate=100.0)
    assert "fifo" in plain
    _, idempotent = run("producer-retry@0.4:0", rate=100.0, idempotent=True, acks="all")
    assert "fifo" not in idempotent


def test_a_lost_puback_is_published_again_with_dup():
    counts, violated = run("lost-puback@0.4:0")
    assert not violated
    assert counts["published_again"] >= counts["pubacks_lost"] >= 50


def test_slots_that_move_are_followed_and_nothing_is_lost_on_the_way():
    for scripts in ("published", "session"):
        counts, violated = run("slot-migration@0.3:0:0.3", scripts=scripts, offline_share=0.4)
        assert counts["redirections"] > 0
        assert not violated


@pytest.mark.parametrize(("at", "struck"), [(0.446, 0), (0.466, 0), (0.466, 1)])
def test_a_node_that_restarts_in_the_middle_of_a_slot_moves_it_when_it_is_back(at, struck):
    system, counts, violated, _ = run_whole(
        f"slot-migration@0.3:0:0.3 redis-restart@{at}:{struck}:0.1", scripts="session", appendfsync="always",
        pack_retries=1_000_000, publishers=20, redis_nodes=2,
    )  # fmt: skip
    assert not violated
    assert "saves_to_damaged_sessions" not in counts
    moving = system.world.storage.slots
    assert not moving.is_migrating
    assert not any(node.shard.slots.migrating or node.shard.slots.importing for node in system.world.storage.nodes)


def test_a_save_in_a_slot_on_the_move_fails_where_keys_are_not_declared_and_comes_again():
    moving = {"offline_share": 0.4, "pack_pause_s": 0.1}
    published, violated = run("slot-migration@0.3:0:0.3", scripts="published", **moving)
    assert published["saves_failed"] > 0  # a payload key that is new is not at the source any more
    assert not violated
    session, _ = run("slot-migration@0.3:0:0.3", scripts="session", **moving)
    assert "saves_failed" not in session


def test_a_replica_is_told_what_a_migration_moved():
    moved = {"redis_replica_lag_ms": 0.0, "offline_share": 0.6, "offline_s": 0.4, "scripts": "session"}
    counts, violated = run("slot-migration@0.3:0:0.2 redis-failover@0.55:0 redis-failover@0.55:1", **moved)
    assert counts["redirections"] > 0
    assert not violated


def test_keys_that_move_to_a_node_that_stalls_are_not_lost_behind_what_waits_there():
    """A request waits for the end of the stall, and its effects with it; keys that came meanwhile have left their node,
    and the replica has them."""
    stalled = "redis-stall@0.2:1:0.4 slot-migration@0.25:0:0.1 redis-failover@0.4:1"
    counts, violated = run(stalled, scripts="session", redis_replica_lag_ms=0.0, redis_nodes=2, pack_retries=1000)
    assert counts["redirections"] > 0
    assert counts["commands_lost"] == 0
    assert not violated


def test_a_partition_that_outlasts_the_session_timeout_makes_a_zombie_that_is_fenced():
    counts, _ = run("network-partition@0.4:0:0.6")
    assert counts["fenced_commits"] > 0
    short, violated = run("network-partition@0.4:0:0.05", request_timeout_s=30.0)
    assert "fenced_commits" not in short
    assert not violated


def test_a_node_that_nobody_reaches_for_long_makes_brokers_give_saves_up():
    patience = {"command_timeout_s": 0.1, "pack_pause_s": 0.05}
    counts, violated = run("redis-partition@0.4:0:1", **patience)
    assert counts["timeouts"] > 0
    assert counts["saves_given_up"] > 0
    assert violated == {"at-least-once"}
    counts, violated = run("redis-partition@0.4:0:0.05", **patience)
    assert "saves_given_up" not in counts
    assert not violated


@pytest.mark.parametrize("fault", ["redis-partition@0.4:0:1", "redis-oom@0.4:0:1"])
def test_a_broker_that_commits_only_what_was_saved_loses_nothing(fault):
    patience = {
        "command_timeout_s": 0.1,
        "pack_pause_s": 0.05,
        "scripts": "session",
        "handover": "before-commit",
        "offline_share": 0.4,
    }
    counts, violated = run(fault, **patience, pack_retries=1_000_000)
    assert counts["saves_failed"] > 0
    assert "saves_given_up" not in counts
    assert not violated
    assert "at-least-once" in run(fault, **patience)[1]


def test_a_session_that_the_store_has_lost_is_given_up_and_holds_nobody_up():
    settings = {"scripts": "session", "offline_share": 0.4, "pack_retries": 1_000_000}
    system, counts, violated, _ = run_whole("redis-eviction@0.4:0", **settings)
    assert counts["saves_to_damaged_sessions"] == counts["saves_given_up"] > 0
    assert "at-least-once" in violated
    assert not system.world.has_work_left()


def test_a_call_that_timed_out_and_ran_all_the_same_is_saved_twice_unless_the_store_knows_it():
    timeout = {"command_timeout_s": 0.1, "pack_pause_s": 0.1}
    for scripts in ("published", "session"):
        system, counts, violated, _ = run_whole("command-timeout@0.4:0", scripts=scripts, **timeout)
        assert counts["saves_failed"] > 0
        assert not violated
        assert (waiting(system) > 0) == (scripts == "published")


def test_memory_that_runs_out_loses_messages_under_either_policy_and_a_short_shortage_does_not():
    evicted, violated = run("redis-eviction@0.4:0", offline_share=0.4)
    assert "at-least-once" in violated
    assert evicted["delivered"] < evicted["published"]
    refused, violated = run("redis-oom@0.4:0:1", offline_share=0.4)
    assert refused["saves_given_up"] > 0
    assert violated == {"at-least-once"}
    retried, violated = run("redis-oom@0.4:0:0.1", offline_share=0.4)
    assert retried["saves_failed"] > 0
    assert not violated


def test_a_slow_consumer_gets_everything_late():
    system, counts, violated, _ = run_whole("slow-consumer@0.2:0:0.6", rate=50.0)
    quick, *_ = run_whole(rate=50.0)
    assert not violated
    assert counts["delivered"] == counts["published"]
    assert system.world.measured.delivery_latency.max_us > 2 * quick.world.measured.delivery_latency.max_us


@pytest.mark.parametrize(("fault", "expiry_s", "broken"), [
    ("redis-clock-skew@0.5:0", 30, {"at-least-once"}),
    ("redis-clock-skew@0.5:0", 120, set()),
    ("broker-clock-skew@0.3:0", 30, {"expiry"}),
    ("broker-clock-skew@0.3:0", 120, set()),
    ("", 30, set()),
])  # fmt: skip
def test_a_clock_that_is_ahead_ends_messages_early(fault, expiry_s, broken):
    waiting = {"offline_share": 0.6, "offline_s": 0.4, "warm_up_s": 0.1}
    for scripts in ("published", "session"):
        _, violated = run(fault, expiry_s=expiry_s, scripts=scripts, **waiting)
        assert violated == broken


def test_faults_strike_at_their_rate_and_leave_rows():
    rates = "redis-stall=20/s lost-puback=10/s"
    system, counts, _, batches = run_whole(fault_rates=rates, duration_s=1.9)
    struck = {}
    for batch in batches:
        for kind, operation, node in zip(batch.kind, batch.operation, batch.node, strict=True):
            if kind == EventKind.FAULT:
                struck.setdefault(system.names().operations.label(operation), []).append(
                    system.names().nodes.label(node)
                )
    assert 25 < len(struck["redis-stall"]) < 60
    assert 8 < len(struck["lost-puback"]) < 35
    assert set(struck["redis-stall"]) == {"redis-0", "redis-1", "redis-2"}
    assert set(struck["lost-puback"]) == {"broker-0", "broker-1"}
    assert counts["faults"] == sum(map(len, struck.values()))


def test_a_kind_more_does_not_move_the_instants_of_the_others():
    def stalls(rates):
        system = P2PSystem(P2PSettings(**SMALL), 1, [])
        return [
            str(fault) for fault in draw_faults(system.world, parse_rates(rates), 2_000_000) if "stall" in fault.name
        ]

    assert stalls("redis-stall=5/s") == stalls("lost-puback=3/s redis-stall=5/s")


def waiting(system):
    """Messages that wait in the sessions of everyone, whether or not they were delivered under another identifier."""
    world, found = system.world, 0
    for subscriber, node in enumerate(world.storage.node_of):
        reply = world.storage.nodes[node].shard.execute(
            world.storage.store.fetch(world.traffic.subscribers.name(subscriber)).argv
        )
        found += len(world.storage.store.fetched(reply) or ())
    return found


def test_the_last_heal_is_written_once_all_have_healed():
    *_, batches = run_whole("redis-stall@0.3:0:0.2 redis-stall@0.4:1:0.3 lost-puback@0.2:0")
    kinds = [(int(time), int(kind)) for batch in batches for time, kind in zip(batch.time_us, batch.kind, strict=True)]
    assert [time for time, kind in kinds if kind == EventKind.HEAL] == [700_000]


@pytest.mark.parametrize(
    ("faults", "complaint"),
    [
        ("redis-stal@1", 'did you mean "redis-stall"'),
        ("redis-stall", "name@seconds"),
        ("redis-stall@1.2.3", "not a number"),
        ("redis-stall@1:0:.", "not a number"),
        ("redis-stall@1:3", "numbered 0 to 2"),
        ("redis-failover@1:0", "redis_replica_lag_ms"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused_before_anything_runs(faults, complaint):
    with pytest.raises(InputError, match=complaint):
        P2PSystem(P2PSettings(**SMALL, faults=faults), 1, [])


@pytest.mark.parametrize(
    ("rates", "complaint"),
    [
        ("redis-stal=1/s", 'did you mean "redis-stall"'),
        ("redis-stall", "name=rate/s"),
        ("redis-stall=1/s redis-stall=2/s", "keep one"),
        ("redis-stall=1e9", "name=rate/s"),
        ("redis-stall=999999999", "lower the rate"),
        ("redis-failover=1/s", "redis_replica_lag_ms"),
    ],
)
def test_a_rate_that_makes_no_sense_is_refused(rates, complaint):
    with pytest.raises(InputError, match=complaint):
        P2PSystem(P2PSettings(**SMALL, fault_rates=rates), 1, [])


def test_a_single_broker_must_not_crash():
    with pytest.raises(InputError, match="brokers=2"):
        P2PSystem(P2PSettings(**{**SMALL, "brokers": 1}, faults="broker-crash@0.1"), 1, [])
