"""A run ends when nothing is under way any more, wherever it is: with numbers alone a repetition would stand for a lost
message."""

import numpy as np
import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.history.events import EventKind, History
from orderlab.sim.mqtt.broker.broker import MqttBroker
from orderlab.sim.systems.tbmq_p2p import P2PSettings, P2PSystem
from orderlab.sim.systems.tbmq_prototype import JedisSettings, JedisSystem

OVERLOADED = {
    "publishers": 25,
    "rate": 60.0,
    "brokers": 2,
    "kafka_brokers": 1,
    "warm_up_s": 0.05,
    "duration_s": 0.3,
    "drain_s": 3.0,
    "partitions": 1,
    "pack_pause_s": 0.05,
    "receive_maximum": 5,
    "max_poll_records": 5,
    "linger_ms": 20.0,
    "offline_share": 0.4,
    "offline_s": 0.1,
    "online_s": 0.1,
    "redis_nodes": 3,
    "threads": 1,
    "appendfsync": "everysec",
    "retries": 5,
    "costs": "prototype threads.downlink_partitions=1 threads.consumer_share=1 redis.syscall_us=12 host.other_us=295",
}
"""One thread that saves: a reconnect reads and repeats what is still being pushed."""


def run(seed):
    batches = []
    system = JedisSystem(JedisSettings(**OVERLOADED), seed, [batches.append])
    counts = system.run()["counts"]
    verdicts, _ = judge(in_memory("run", batches, system.names()), Question())
    return counts, {verdict.law for verdict in verdicts if verdict.outcome == "violated"}


def test_what_waits_in_a_producer_is_under_way(monkeypatch):
    counts, violated = run(162)
    assert violated == {"retransmission"}, "what was acknowledged comes again on a later connection"
    assert counts["delivered"] > counts["published"]
    monkeypatch.setattr(MqttBroker, "is_busy", property(lambda broker: broker.driver.is_busy))
    counts, violated = run(162)
    assert violated == {"at-least-once", "retransmission"}
    assert counts["delivered"] == counts["published"]


@pytest.mark.parametrize("seed", [1, 2])
def test_everything_is_there_at_the_end_of_other_runs(seed):
    assert not run(seed)[1]


@pytest.mark.parametrize("more", [{}, {"qos": 2}, {"receive_maximum": 1}])
def test_what_a_dead_link_withholds_at_the_end_is_under_way_and_hides_no_other_loss(more):
    settings = {
        "publishers": 20,
        "brokers": 2,
        "kafka_brokers": 1,
        "partitions": 4,
        "drain_s": 0.2,
        "faults": "client-half-open@0.2:0:5",
        **more,
    }
    batches = []
    system = P2PSystem(P2PSettings(**settings), 1, [batches.append])
    counts = system.run()["counts"]
    history = History(tuple(batches), system.names())
    assert counts["packets_into_dead_links"] > 0
    (verdict,), _ = judge(in_memory("run", batches, system.names()), Question(laws=("at-least-once",)))
    assert verdict.outcome == "holds"
    assert verdict.work["pending"] == counts["published"] - counts["delivered"] > 0
    batch = history.joined()
    cut = set(batch.subscriber[batch.kind == EventKind.CUT].tolist())
    assert 0 < len(cut) < 20
    assert -1 not in cut
    last = np.flatnonzero((batch.kind == EventKind.DELIVER) & ~np.isin(batch.subscriber, list(cut)))[-1]
    lossy = [batch.select(np.delete(np.arange(len(batch)), last))]
    (verdict,), _ = judge(
        in_memory("the run but for a delivery", lossy, system.names()), Question(laws=("at-least-once",))
    )
    assert verdict.outcome == "violated"
    assert (verdict.witness.sequence, verdict.work["violations"]) == (batch.sequence[last], 1)
