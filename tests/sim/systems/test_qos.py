"""QoS 0 and 2 and Receive Maximum in a whole system: what the laws say, what the history shows, what breaks them."""

from collections import Counter

import numpy as np
import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.history.events import EventKind
from orderlab.sim.mqtt.connections import ConnectionTable
from orderlab.sim.systems.tbmq_p2p import P2PSettings, P2PSystem

SMALL = {
    "publishers": 40, "rate": 25.0, "warm_up_s": 0.1, "duration_s": 0.6, "session_timeout_s": 0.2,
    "request_timeout_s": 0.2, "pack_pause_s": 0.1, "drain_s": 3.0,
}  # fmt: skip


class Ran:
    """A run, its history and its verdicts."""

    def __init__(self, seed=1, before=lambda system: None, **settings):
        batches = []
        system = P2PSystem(P2PSettings(**{**SMALL, **settings}), seed, [batches.append])
        before(system)
        self.counts = system.run()["counts"]
        verdicts, _ = judge(in_memory("run", batches, system.names()), Question())
        self.violated = {verdict.law for verdict in verdicts if verdict.outcome == "violated"}
        self.met = {verdict.law: verdict.work.get("antecedents") for verdict in verdicts}
        self.columns = {
            name: np.concatenate([getattr(batch, name) for batch in batches])
            for name in ("kind", "subscriber", "packet_id", "dup", "delivered_qos")
        }

    def rows(self, kind):
        return int((self.columns["kind"] == kind).sum())


def most_unacknowledged(columns):
    """The largest number of PUBLISH packets that a subscriber held on one connection without having acknowledged
    them."""
    held, most = {}, 0
    for kind, subscriber, packet_id in zip(columns["kind"], columns["subscriber"], columns["packet_id"], strict=True):
        if kind == EventKind.DELIVER:
            held.setdefault(subscriber, set()).add(packet_id)
            most = max(most, len(held[subscriber]))
        elif kind == EventKind.ACKNOWLEDGE:
            held.get(subscriber, set()).discard(packet_id)
        elif kind == EventKind.DISCONNECT:
            held.pop(subscriber, None)
    return most


def test_qos_0_is_neither_acknowledged_nor_stored_and_an_absent_subscriber_misses_it():
    ran = Ran(qos=0)
    assert not ran.violated
    assert ran.counts["delivered"] == ran.counts["published"] > 500
    assert ran.rows(EventKind.ACKNOWLEDGE) == ran.rows(EventKind.PUBLISH_ACKNOWLEDGED) == 0
    absent = Ran(qos=0, offline_share=0.5)
    assert not absent.violated
    assert absent.counts["delivered"] < absent.counts["published"]


def test_qos_0_expires_on_its_way_too():
    held_up = {"qos": 0, "brokers": 2, "expiry_s": 1}
    late = Ran(faults="network-partition@0.4:1:1.2", **held_up)
    assert "expiry" not in late.violated
    assert 0 < late.counts["expired"] == late.rows(EventKind.EXPIRE)
    assert late.counts["delivered"] > 0
    assert "expired" not in Ran(faults="network-partition@0.4:1:0.2", **held_up).counts


def test_qos_0_reaches_subscribers_of_another_broker():
    ran = Ran(qos=0, brokers=2)
    assert ran.counts["delivered"] == ran.counts["published"]


@pytest.mark.parametrize("scripts", [pytest.param("published", marks=pytest.mark.exhaustive), "session"])
def test_qos_2_takes_all_its_steps_once(scripts):
    ran = Ran(qos=2, scripts=scripts)
    assert not ran.violated
    assert ran.met["exactly-once"] == ran.counts["published"] > 500
    steps = Counter(ran.columns["kind"].tolist())
    assert (
        steps[EventKind.DELIVER] == steps[EventKind.RECEIVE] == steps[EventKind.RELEASE] == steps[EventKind.ACKNOWLEDGE]
    )
    assert "releases_of_nothing" not in ran.counts
    assert "removes_of_nothing" not in ran.counts


@pytest.mark.parametrize("scripts", ["published", "session"])
def test_qos_2_survives_lost_connections(scripts):
    ran = Ran(qos=2, scripts=scripts, offline_share=0.6, online_s=0.1, offline_s=0.05)
    assert not ran.violated
    assert ran.met["retransmission"] > 0
    assert (ran.columns["dup"][ran.columns["kind"] == EventKind.DELIVER] == 1).any()


def test_a_pubrel_is_sent_again_where_the_pubcomp_was_lost():
    counts = Counter()
    for seed in range(4):
        ran = Ran(
            seed,
            qos=2,
            rate=100.0,
            duration_s=0.3,
            offline_share=1.0,
            online_s=0.02,
            offline_s=0.01,
            scripts="session",
            removals="awaited",
        )
        assert not ran.violated
        counts.update(ran.counts)
    assert counts["pubrels_again"] > 0


def test_a_session_that_is_read_before_its_release_scripts_have_run_sends_a_received_message_again(monkeypatch):
    often = {"qos": 2, "rate": 100.0, "duration_s": 0.3, "offline_share": 1.0, "online_s": 0.02, "offline_s": 0.01}
    assert not Ran(1, **often).violated
    monkeypatch.setattr(ConnectionTable, "when_released", lambda table, subscriber, then: then())
    assert Ran(1, **often).violated == {"retransmission"}


def test_as_published_a_session_may_be_read_before_its_remove_scripts_have_run():
    """By another broker. One alone works off what a client says in its order, the next CONNECT too, though it takes in
    the answers to packets that went out together in one go; that is how these two seeds broke the law."""
    often = {"qos": 2, "rate": 100.0, "duration_s": 0.3, "offline_share": 1.0, "online_s": 0.02, "offline_s": 0.01}
    assert "retransmission" in Ran(1, **often, brokers=2).violated, "a PUBREL comes again after its PUBCOMP"
    assert not any(Ran(seed, **often).violated for seed in (2, 6))


def test_answers_that_came_before_the_end_of_a_connection_are_waited_for():
    table = ConnectionTable.all_connected(3)
    whose, over, answered = np.array([0, 1, 2]), np.zeros(3, np.int64), np.array([100, 140, 400])
    table.note_sent(whose, over, answered)
    assert table.all_read_us(0) == 0, "the connection is there still"
    table.disconnect(0, 101)
    table.disconnect(1, 140)
    assert table.all_read_us(0) == 400, "they are taken in together"
    assert table.all_read_us(1) == 0, "at the instant of its end a connection takes nothing"


def test_nobody_waits_for_the_release_scripts_of_a_broker_that_died():
    table, then = ConnectionTable.all_connected(2), []
    table.note_releasing([0, 0, 1], 0)
    table.note_releasing([0], 1)
    for subscriber in (0, 1):
        table.when_released(subscriber, lambda who=subscriber: then.append(who))
    table.forget_releasing(0)
    assert then == [1]
    table.note_released([0], 1)
    assert then == [1, 0]
    assert not table.releasing
    assert not table.waits_for_releases


def test_a_lost_pubrec_is_asked_for_again_and_the_message_does_not_go_out_twice():
    ran = Ran(qos=2, faults="lost-puback@0.3:0")
    assert not ran.violated
    assert ran.counts["received_before"] == ran.counts["pubacks_lost"] > 0
    assert ran.counts["delivered"] == ran.counts["published"]


def test_a_broker_that_forgets_what_it_received_breaks_exactly_once():
    def forget(system):
        for broker in system.world.brokers:
            broker.ingest.remembers_received = False

    ran = Ran(qos=2, faults="lost-puback@0.3:0", before=forget)
    assert "exactly-once" in ran.violated


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("share", [pytest.param(0.0, marks=pytest.mark.exhaustive), 0.5])
def test_receive_maximum_is_kept_and_order_with_it(qos, share):
    busy = {
        "publishers": 10,
        "rate": 400.0,
        "duration_s": 0.3,
        "offline_share": share,
        "online_s": 0.1,
        "offline_s": 0.05,
    }
    limited = Ran(qos=qos, receive_maximum=2, **busy)
    assert not limited.violated
    assert most_unacknowledged(limited.columns) == 2
    assert limited.counts["delivered"] >= limited.counts["published"]
    unlimited = Ran(qos=qos, **busy)
    assert most_unacknowledged(unlimited.columns) > 2
