"""What a run holds at its end does not grow with its length."""

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
