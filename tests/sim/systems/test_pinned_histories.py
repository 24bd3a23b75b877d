"""The histories of small runs of every system, pinned by their digests: moving code must change no byte of them.

A change that is meant to change what a run does changes digests too: look at the histories
(`orderlab simulate --history`), then write the new digests down: `python tests/sim/systems/test_pinned_histories.py`
prints the table.
"""

import pytest

from orderlab.sim.systems.catalogue import entry, settings_of

SMALL = {
    "publishers": 30,
    "rate": 20,
    "warm_up_s": 0.1,
    "duration_s": 0.3,
    "drain_s": 2,
    "partitions": 4,
    "session_timeout_s": 0.3,
    "request_timeout_s": 0.2,
    "pack_pause_s": 0.05,
    "brokers": 3,
}
MOVING = {"offline_share": 0.5, "online_s": 0.1, "offline_s": 0.05}
MIXED = {"publish_qos": "0=0.3 1=0.4 2=0.3", "subscription_qos": "0=0.2 1=0.4 2=0.4"}
RETAINED = {"retained_share": 0.5, "retained_clear_every": 3, "resubscribe": "true", "retain_as_published": "true"}
REPAIRED = {
    "scripts": "session",
    "handover": "before-commit",
    "idempotent": "true",
    "acks": "all",
    "retries": 100,
    "pack_retries": 1000,
    "redis_replica_lag_ms": 1,
}
ENDING = {"clean_start_share": 0.4, "session_expiry_s": 0.03}
OF_BROKERS = (
    "broker-crash=1/s kafka-leader-change=1/s lost-puback=3/s consumer-rebalance=2/s producer-retry=1/s "
    "session-takeover=1/s"
)
OF_REDIS = "redis-stall=2/s redis-connection-loss=2/s redis-oom=1/s redis-restart=1/s slow-consumer=1/s"
APPLICATIONS = {
    "applications": 2,
    "shared_groups": 2,
    "group_members": 3,
    "shared_partitions": 4,
    "receive_maximum": 20,
}
RUNS = {
    "published": ("tbmq-p2p", MOVING, {"fault_rates": f"{OF_BROKERS} {OF_REDIS}"}),
    "repaired": ("tbmq-p2p", MOVING, REPAIRED, {"fault_rates": f"{OF_BROKERS} {OF_REDIS}", "expiry_s": 1}),
    "exactly once": (
        "tbmq-p2p",
        MOVING,
        REPAIRED,
        ENDING,
        {"qos": 2, "inbound": "store", "fault_rates": OF_BROKERS, "takeover_share": 0.2},
    ),
    "mixed": (
        "tbmq-p2p",
        MOVING,
        MIXED,
        RETAINED,
        ENDING,
        {"receive_maximum": 2, "limit": 6, "faults": "slot-migration@0.2:0"},
    ),
    "mixed and repaired": (
        "tbmq-p2p",
        MOVING,
        MIXED,
        RETAINED,
        REPAIRED,
        {"receive_maximum": 2, "faults": "broker-crash-after-commit@0.2:0"},
    ),
    "jedis": ("tbmq-jedis", MOVING, MIXED, {"faults": "redis-stall@0.2:0"}),
    "lettuce": ("tbmq-lettuce", MOVING, {"scripts": "session", "shared_host": "false", "qos": 2}),
    "postgres": ("tbmq-postgres", MOVING, {"limit": 6, "clean_up_s": 0.05, "faults": "postgres-restart@0.3:0"}),
    "applications": ("tbmq-application", MOVING, MIXED, APPLICATIONS, {"fault_rates": OF_BROKERS}),
    "applications retained": ("tbmq-application", MOVING, MIXED, RETAINED, APPLICATIONS),
    "applications ending": (
        "tbmq-application",
        MOVING,
        ENDING,
        APPLICATIONS,
        {"shared_groups": 0, "qos": 2, "application_us": 200},
    ),
}
DIGESTS = {
    "published": "89988e244d5e7cb28a15fcfe0464e95c",
    "repaired": "4c1123071937a2bb1b384242ee9bbad7",
    "exactly once": "499a9da90c19cfe7bcf179951b92be39",
    "mixed": "05214e1f0470efc957d17f167c66217f",
    "mixed and repaired": "0c35c01ca0c034ad03805b5b0edec9ac",
    "jedis": "f6af11035a5708642d49d493b9eb1cd9",
    "lettuce": "838ea61be82af28bf24234fabd193758",
    "postgres": "c1f6d06bfdb2767bcefce08f6a0edd8e",
    "applications": "f93bcdc53bc53c6f8ed72637c6441d4b",
    "applications retained": "e1a76cbd84c2dad4000423aaa344672a",
    "applications ending": "58514cd35901d72623e1888b3aba88c1",
}


def digest(name):
    system, *parts = RUNS[name]
    given = {key: value for part in (SMALL, *parts) for key, value in part.items()}
    built = entry(system).assemble(settings_of(system, given), 1, [])
    built.run()
    return built.digest


@pytest.mark.parametrize("name", RUNS)
def test_history_is_as_it_was(name):
    assert digest(name) == DIGESTS[name]


if __name__ == "__main__":
    for name in RUNS:
        print(f'    "{name}": "{digest(name)}",')
