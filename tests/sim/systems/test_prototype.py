"""The one-node prototype: every store keeps the laws, runs alike twice, and shares one machine."""

import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.errors import InputError
from orderlab.sim.mqtt.broker.save_stage import SerialQueue
from orderlab.sim.mqtt.connections import ConnectionTable
from orderlab.sim.systems.catalogue import SYSTEMS, settings_of

PROTOTYPES = ["tbmq-postgres", "tbmq-jedis", "tbmq-lettuce"]
SMALL = {"publishers": 60, "rate": 20.0, "warm_up_s": 0.1, "duration_s": 0.5, "drain_s": 3.0, "pack_pause_s": 0.1}


def run(name, seed=1, **more):
    batches = []
    system = SYSTEMS[name].assemble(settings_of(name, {**SMALL, **more}), seed, [batches.append])
    report = system.run()
    verdicts, _ = judge(in_memory("run", batches, system.names()), Question())
    return system, report, {verdict.law for verdict in verdicts if verdict.outcome == "violated"}


@pytest.mark.parametrize("name", PROTOTYPES)
@pytest.mark.parametrize("share", [pytest.param(0.0, marks=pytest.mark.exhaustive), 0.4])
def test_every_law_holds_also_when_subscribers_come_and_go(name, share):
    system, report, violated = run(name, offline_share=share)
    assert not violated
    assert report["counts"]["delivered"] >= report["counts"]["published"] > 500
    assert system.is_quiet()


@pytest.mark.parametrize("name", PROTOTYPES)
def test_the_same_seed_gives_the_same_history_and_another_one_another(name):
    digests = [run(name, seed, duration_s=0.2)[0].digest for seed in (5, 5, 6)]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("name", PROTOTYPES)
def test_the_processes_of_one_machine_share_its_cores(name):
    _, shared, _ = run(name, duration_s=0.2)
    machine = shared["utilisation"]["machine"][0]
    processes = sum(
        sum(used) for kind, used in shared["utilisation"].items() if kind in ("broker", "kafka", "postgres")
    )
    redis = sum(shared["utilisation"].get("redis", [])) / 12
    assert machine == pytest.approx(processes + redis, rel=0.01)
    _, apart, _ = run(name, duration_s=0.2, shared_host=False)
    assert "machine" not in apart["utilisation"]
    assert apart["utilisation"]["broker"][0] < shared["utilisation"]["broker"][0]


def test_fewer_threads_wait_longer():
    _, many, _ = run("tbmq-jedis", threads=64)
    _, one, _ = run("tbmq-jedis", threads=1, shared_host=False, costs="prototype network.floor_us=300")
    assert one["latency"]["publish_to_delivery"]["mean_ms"] > many["latency"]["publish_to_delivery"]["mean_ms"]


def test_one_row_is_inserted_for_each_message_that_comes_in():
    _, report, _ = run("tbmq-postgres", rate=40)
    assert report["postgres"]["rows_inserted_per_s"] == pytest.approx(report["throughput_per_s"]["in"], rel=0.03)


def test_a_slower_disk_makes_commits_wait_together():
    _, quick, _ = run("tbmq-postgres")
    _, slow, _ = run("tbmq-postgres", costs="prototype postgres.fsync_us=5000")
    assert slow["postgres"]["transactions_per_flush"] > 2 * quick["postgres"]["transactions_per_flush"]
    assert slow["latency"]["publish_to_delivery"]["mean_ms"] > 4 + quick["latency"]["publish_to_delivery"]["mean_ms"]


def test_what_clean_up_trims_is_in_the_history_and_not_lost():
    trimming = {"limit": 2, "offline_share": 1.0, "online_s": 0.05, "offline_s": 0.5, "clean_up_s": 0.02}
    _, report, violated = run("tbmq-postgres", **trimming)
    assert report["counts"]["trimmed"] > 50
    assert "at-least-once" not in violated


@pytest.mark.parametrize(
    ("name", "given", "complaint"),
    [
        ("tbmq-jedis", {"threads": 0}, "threads"),
        ("tbmq-jedis", {"lettuce_batch": 3}, "lettuce_batch"),
        ("tbmq-jedis", {"row": "200k"}, "no rows were published"),
        ("tbmq-postgres", {"redis_nodes": 3}, "redis_nodes"),
        ("tbmq-postgres", {"maximum_pool_size": 0}, "maximum_pool_size"),
        ("tbmq-postgres", {"costs": "cluster"}, "[host]"),
        ("tbmq-postgres", {"costs": "prototype postgres.fsync=3"}, "no such number"),
        ("tbmq-lettuce", {"costs": "prototype redis.speed=-1"}, "speed"),
    ],
)
def test_a_configuration_without_sense_is_refused(name, given, complaint):
    with pytest.raises(InputError) as refused:
        SYSTEMS[name].assemble(settings_of(name, {**SMALL, **given}), 1, [])
    assert complaint in str(refused.value)


def test_a_slot_that_moves_is_followed_by_blocking_connections():
    _, report, violated = run("tbmq-jedis", faults="slot-migration@0.2:0", offline_share=0.4)
    assert not violated
    assert report["counts"]["faults"] == 1
    assert report["counts"]["delivered"] >= report["counts"]["published"]


@pytest.mark.parametrize("fault", ["redis-connection-loss", "script-cache-flush", "redis-stall"])
def test_blocking_connections_survive_trouble_with_a_node(fault):
    system, report, violated = run("tbmq-jedis", faults=f"{fault}@0.3:0", rate=50.0)
    assert "at-least-once" not in violated
    assert report["counts"]["faults"] == 1
    assert system.is_quiet()


def test_a_pipeline_gives_up_what_a_node_does_not_answer_in_time():
    patient, _, violated = run("tbmq-lettuce", faults="redis-stall@0.3:0:0.3")
    assert not violated
    assert sum(broker.driver.timeouts for broker in patient.world.brokers) == 0
    system, report, violated = run(
        "tbmq-lettuce", faults="command-timeout@0.3:0", command_timeout_s=0.1, scripts="session"
    )
    assert sum(broker.driver.timeouts for broker in system.world.brokers) > 0
    assert report["counts"]["saves_failed"] > 0
    assert "at-least-once" not in violated
    assert not system.world.has_work_left()


@pytest.mark.parametrize("fault", ["postgres-restart", "postgres-stall", "postgres-connection-loss"])
def test_a_database_in_trouble_loses_nothing_that_was_committed(fault):
    first, report, violated = run("tbmq-postgres", faults=f"{fault}@0.3:0", rate=50.0, offline_share=0.4)
    assert "at-least-once" not in violated
    assert report["counts"]["faults"] == 1
    assert first.digest == run("tbmq-postgres", faults=f"{fault}@0.3:0", rate=50.0, offline_share=0.4)[0].digest


def test_without_synchronous_commit_a_restart_loses_what_waits():
    waiting = {
        "rate": 60.0,
        "offline_share": 1.0,
        "online_s": 0.1,
        "offline_s": 0.4,
        "faults": "postgres-restart@0.4:0",
    }
    _, report, violated = run("tbmq-postgres", synchronous_commit=False, **waiting)
    assert report["counts"]["transactions_lost"] > 50
    assert "at-least-once" in violated


@pytest.mark.parametrize(("name", "fault"), [("tbmq-jedis", "postgres-stall"), ("tbmq-postgres", "redis-stall")])
def test_a_fault_of_another_store_is_refused(name, fault):
    with pytest.raises(InputError, match="no node of kind"):
        run(name, faults=f"{fault}@0.2:0")


@pytest.mark.parametrize("qos", [1, 2])
def test_calls_that_overtake_each_other_lose_nothing_where_saves_take_turns(qos):
    restart = {
        "scripts": "session",
        "qos": qos,
        "appendfsync": "always",
        "faults": "redis-restart@0.4:0",
        "pack_pause_s": 0.1,
    }
    _, report, violated = run("tbmq-jedis", **restart, publishers=40, rate=25.0, duration_s=0.6)
    counts = report["counts"]
    assert not violated
    assert counts["delivered"] >= counts["published"]


def test_without_turns_a_store_that_numbers_its_batches_refuses_what_was_overtaken(monkeypatch):
    monkeypatch.setattr(SerialQueue, "enter", lambda self, places: list(places))
    monkeypatch.setattr(SerialQueue, "over", lambda self, place, has_failed: ([], []))
    restart = {"scripts": "session", "appendfsync": "always", "faults": "redis-restart@0.4:0", "pack_pause_s": 0.1}
    *_, violated = run("tbmq-jedis", **restart, publishers=40, rate=25.0, duration_s=0.6)
    assert "at-least-once" in violated


def test_a_small_batch_of_packets_does_not_overtake_a_large_one_on_its_connection(monkeypatch):
    stall = {
        "faults": "redis-restart@0.4:0",
        "appendfsync": "always",
        "publishers": 40,
        "rate": 25.0,
        "duration_s": 0.6,
        "costs": "prototype threads.consumer_share=1 redis.syscall_us=12 host.other_us=295",
    }
    assert not run("tbmq-jedis", **stall)[2]
    monkeypatch.setattr(ConnectionTable, "in_order", lambda self, subscribers, arrived_us: arrived_us)
    assert "fifo" in run("tbmq-jedis", **stall)[2]
