"""QoS 2 across crashes: publishers' queues in the store, sessions that know messages by publisher and number."""

import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.sim.mqtt.broker.qos2 import Qos2Receiver
from orderlab.sim.mqtt.broker.save_stage import Saves
from orderlab.sim.mqtt.sessions import StoredSessions
from orderlab.sim.servers.redis import run_all
from orderlab.sim.systems.catalogue import SYSTEMS, settings_of
from tests.sim.systems.test_fault_damage import AWAY, QOS_2, REPAIRED, SMALL

EXACT = {**SMALL, **QOS_2, **REPAIRED, "inbound": "store"}
RESTLESS = {**AWAY, "online_s": 0.1, "offline_s": 0.05}
UNAVOIDABLE = {"retransmission"}
"""A broker that dies with a PUBREC in its hands: the PUBLISH comes again, though no PUBREL was sent."""


class Ran:
    """A run: laws that are violated, and how many publishers' messages the store still holds."""

    def __init__(self, name="tbmq-p2p", seed=1, **settings):
        self.batches = batches = []
        given = {key: value for key, value in {**EXACT, **settings}.items() if name == "tbmq-p2p" or key != "brokers"}
        self.system = SYSTEMS[name].assemble(settings_of(name, given), seed, [batches.append])
        self.counts = self.system.run()["counts"]
        verdicts, _ = judge(in_memory("run", batches, self.system.names()), Question())
        self.violated = {verdict.law for verdict in verdicts if verdict.outcome == "violated"}

    def unreleased(self):
        world, found = self.system.world, 0
        store = world.storage.inbound.store
        for publisher in world.storage.inbound.opened:
            name = world.traffic.publishers.name(publisher)
            node = world.storage.nodes[store.node_of(name)]
            (reply,) = run_all(node.shard, node.epoch_us + int(world.env.now), [store.fetch(name)])
            found += len(store.fetched(reply))
        return found


@pytest.mark.parametrize(
    ("fault", "clients"),
    [
        ("broker-crash@0.4:0", RESTLESS),
        ("network-partition@0.4:0", {}),
        pytest.param("broker-crash@0.4:0", {}, marks=pytest.mark.exhaustive),
        pytest.param("network-partition@0.4:0", RESTLESS, marks=pytest.mark.exhaustive),
    ],
    ids=["crash-restless", "partition-present", "crash-present", "partition-restless"],
)
def test_nothing_is_handed_over_twice_and_the_queues_of_publishers_empty(fault, clients):
    kept = Ran(faults=fault, **clients)
    assert kept.violated <= UNAVOIDABLE
    assert kept.counts["published"] > 1000
    assert kept.unreleased() == 0
    assert "exactly-once" in Ran(faults=fault, inbound="memory", **clients).violated


def test_a_broker_that_does_not_read_the_queues_of_publishers_that_come_to_it_gives_second_numbers(monkeypatch):
    assert "second_numbers" not in Ran(faults="broker-crash@0.4:0").counts
    monkeypatch.setattr(Qos2Receiver, "resume", lambda self, messages, released, publishers: None)
    assert Ran(faults="broker-crash@0.4:0").counts["second_numbers"] > 0


def test_records_that_are_numbered_by_their_place_in_the_log_are_saved_twice(monkeypatch):
    monkeypatch.setattr(Saves, "by_publisher", lambda self, number_of, publishers, first: self)
    assert "exactly-once" in Ran(faults="network-partition@0.4:0").violated


def test_what_was_completed_on_an_earlier_connection_does_not_come_late(monkeypatch):
    def doubles():
        return [
            seed
            for seed in (1, 2)
            if "exactly-once" in Ran(faults="redis-restart@0.4:0", seed=seed, **RESTLESS).violated
        ]

    assert not doubles()
    monkeypatch.setattr(StoredSessions, "newest", lambda self, client: None)
    assert doubles()


def test_slots_that_move_take_every_kind_of_call_along():
    ran = Ran(faults="slot-migration@0.3:0", **RESTLESS)
    assert not ran.violated
    assert ran.unreleased() == 0


def test_without_a_fault_it_costs_two_calls_a_message_and_changes_nothing_else():
    ran = Ran(faults="")
    assert not ran.violated
    assert ran.counts == {"published": ran.counts["published"], "delivered": ran.counts["published"]}
    assert ran.unreleased() == 0


def test_blocking_connections_that_overtake_one_another_keep_the_numbers_in_order():
    ran = Ran("tbmq-jedis", publishers=10, rate=400.0, duration_s=0.2, faults="")
    assert not ran.violated
    assert ran.counts["published"] > 500
    assert ran.unreleased() == 0
