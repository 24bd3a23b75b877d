"""Sessions that are read anew while faults overlap: nothing overtakes what is read, or goes out twice because it waits
for room."""

import pytest

from orderlab.sim.mqtt.sessions import StoredSessions
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.servers.redis import run_all
from tests.sim.systems.test_exactly_once import UNAVOIDABLE, Ran

QUICK = {
    "warm_up_s": 0.05,
    "rate": 60.0,
    "command_timeout_s": 0.2,
    "redis_replica_lag_ms": 0.0,
    "pack_retries": 1_000_000,
}
ONE_BY_ONE = {
    "receive_maximum": 1,
    "partitions": 3,
    "redis_nodes": 2,
    "batch_bytes": 500,
    "publishers": 20,
    "duration_s": 0.3,
}
CUT_AND_SLOW = "network-partition@0.236220:0 consumer-rebalance@0.350000:1"


def test_what_a_pack_saved_goes_out_behind_what_is_read_anew_because_of_it():
    ran = Ran(seed=60, faults=CUT_AND_SLOW, **QUICK, **ONE_BY_ONE)
    assert ran.counts["saves_known_before"] > 5
    assert ran.violated <= UNAVOIDABLE


def test_what_is_in_flight_is_not_queued_again_when_its_session_is_read_anew():
    faults = "redis-partition@0.328195:0 network-partition@0.572269:2:0.3"
    settings = {
        **QUICK,
        "publishers": 5,
        "brokers": 3,
        "redis_nodes": 1,
        "partitions": 3,
        "duration_s": 0.6,
        "receive_maximum": 1,
    }
    ran = Ran(
        seed=66, faults=faults, offline_share=1.0, offline_s=0.3, online_s=0.1, publish_qos="0=0.2 1=0.4 2=0.4",
        max_poll_records=5, **settings,
    )  # fmt: skip
    assert ran.counts["sessions_woken"] > 10
    assert ran.violated <= UNAVOIDABLE


def test_a_connect_asks_for_the_newest_token_until_it_is_told():
    settings = {
        **QUICK,
        "publishers": 40,
        "brokers": 3,
        "redis_nodes": 3,
        "partitions": 3,
        "duration_s": 0.3,
        "receive_maximum": 5,
    }
    faults = "script-cache-flush@0.140259:0 network-partition@0.133138:2 slot-migration@0.350000:1:1"
    ran = Ran(seed=38, faults=faults, offline_share=0.4, offline_s=0.1, online_s=0.1, **settings)
    assert ran.counts["fetches_failed"] > 0
    assert ran.violated <= UNAVOIDABLE


@pytest.mark.parametrize(("reply", "told"), [(b"4 17 1", 17), (None, 0), (ErrorReply(b"TIMEOUT no answer"), None)])
def test_an_error_is_not_an_empty_session(reply, told):
    ran = Ran(publishers=1, duration_s=0.05)
    store = ran.system.world.storage.store
    assert isinstance(store, StoredSessions)
    assert store.told_newest(reply) == told


def test_the_newest_token_is_that_of_the_last_save():
    ran = Ran(publishers=1, duration_s=0.2)
    world = ran.system.world
    name = world.traffic.subscribers.name(0)
    node = world.storage.nodes[world.storage.node_of[0]]
    (reply,) = run_all(node.shard, node.epoch_us + int(world.env.now), [world.storage.store.newest(name)])
    assert world.storage.store.told_newest(reply) >= ran.counts["published"]
