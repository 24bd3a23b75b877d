"""Faults before anything is saved: sessions were opened long before the run, so a fault of its first instant meets them
too."""

import numpy as np
import pytest

from orderlab.model.history.events import EventKind
from orderlab.sim.mqtt.broker.session_lifecycle import SessionLifecycle
from tests.sim.systems.test_exactly_once import UNAVOIDABLE, Ran

AT_ONCE = "0.000001"


@pytest.mark.parametrize("fault", ["script-cache-flush", "redis-restart", "redis-failover", "redis-oom"])
def test_sessions_outlive_a_fault_of_the_first_microsecond(fault):
    ran = Ran(faults=f"{fault}@{AT_ONCE}:0", redis_nodes=1, redis_replica_lag_ms=0.0)
    assert ran.violated <= UNAVOIDABLE
    assert "saves_to_damaged_sessions" not in ran.counts
    assert ran.counts["delivered"] >= ran.counts["published"] > 500


def test_without_a_file_a_restart_takes_sessions_along_though_nothing_was_saved_yet():
    ran = Ran(faults=f"redis-restart@{AT_ONCE}:0", redis_nodes=1, inbound="memory", appendfsync="off")
    assert ran.counts["saves_to_damaged_sessions"] > 100
    assert "at-least-once" in ran.violated


def test_a_session_that_expires_was_open_before_or_it_would_be_opened_after_its_end(monkeypatch):
    expire, opened = SessionLifecycle.expire, []

    def watched(self, subscriber):
        expire(self, subscriber)
        opened.append(subscriber in self.storage.opened)

    monkeypatch.setattr(SessionLifecycle, "expire", watched)
    Ran(inbound="memory", offline_share=1.0, online_s=0.01, offline_s=0.2, session_expiry_s=0, rate=1.0, duration_s=0.1)
    assert opened
    assert all(opened)


@pytest.mark.parametrize("fault", ["broker-crash", "session-takeover"])
def test_who_loses_its_connection_before_its_publisher_publishes_was_connected_before_and_is_not_introduced_later(
    fault,
):
    ran = Ran(inbound="memory", faults=f"{fault}@{AT_ONCE}:1", session_expiry_s=0, offline_share=0.2, rate=5.0, qos=1)
    assert not ran.violated
    columns = {
        name: np.concatenate([getattr(batch, name) for batch in ran.batches]) for name in ("kind", "subscriber", "node")
    }
    first = {}
    for kind, subscriber, node in zip(*(column.tolist() for column in columns.values()), strict=True):
        if kind in (EventKind.CONNECT, EventKind.DISCONNECT):
            first.setdefault(subscriber, []).append((kind, node))
    assert all(rows[0] == (EventKind.CONNECT, -1) for rows in first.values())
    assert all(node >= 0 for rows in first.values() for kind, node in rows[1:] if kind == EventKind.CONNECT)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_the_last_broker_does_not_die_at_its_commit(moment):
    fault = f"broker-crash-{moment}-commit@0.4"
    ran = Ran(faults=f"{fault}:0 {fault}:1")
    assert ran.counts["faults_skipped"] == 1
    assert sum(broker.is_dead for broker in ran.system.world.brokers) == 1
    assert not ran.violated & {"at-least-once", "fifo"}


def test_consumers_that_were_all_put_out_come_back_whoever_leads_meanwhile():
    faults = "network-partition@0.000001:0 network-partition@0.000001:1 kafka-leader-change@0.35:1"
    ran = Ran(faults=faults, publishers=20, duration_s=0.3, redis_nodes=1)
    assert ran.violated <= UNAVOIDABLE
    assert ran.counts["delivered"] >= ran.counts["published"] > 100
