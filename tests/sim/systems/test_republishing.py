"""Publishers that get no answer connect anew and send all again that has none, in order (MQTT-4.4.0-1,
MQTT-4.6.0-1)."""

import numpy as np
import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.history.events import EventKind
from orderlab.sim.systems.tbmq_p2p import P2PSettings, P2PSystem

SMALL = {"publishers": 20, "rate": 40.0, "brokers": 1, "warm_up_s": 0.1, "duration_s": 0.4, "drain_s": 2.0}
CUT = {
    "faults": "network-partition@0.2:0:1.2",
    "retries": 0,
    "linger_ms": 100.0,
    "request_timeout_s": 0.2,
    "session_timeout_s": 0.2,
}
"""Kafka is out of reach until all of it is given up: what order there is comes from what is sent again. The end lies
between two requests of the producer: were it to fall into one, a batch would pass its given-up predecessor, as more
than one in flight may."""


def run(seed=1, change=lambda republishing: None, **settings):
    """(counts, laws that are violated, PUBLISHes as publisher, sequence, instant, DUP, PUBACKs as publisher, sequence,
    instant)."""
    batches = []
    system = P2PSystem(P2PSettings(**{**SMALL, **settings}), seed, [batches.append])
    for broker in system.world.brokers:
        change(broker.ingest.republishing)
    counts = system.run()["counts"]
    verdicts, _ = judge(in_memory("run", batches, system.names()), Question())
    columns = {
        name: np.concatenate([getattr(batch, name) for batch in batches])
        for name in ("kind", "publisher", "sequence", "time_us", "dup")
    }
    sent, answered = (
        list(
            zip(
                *(
                    columns[name][columns["kind"] == kind].tolist()
                    for name in ("publisher", "sequence", "time_us", "dup")
                ),
                strict=True,
            )
        )
        for kind in (EventKind.PUBLISH, EventKind.PUBLISH_ACKNOWLEDGED)
    )
    return counts, {verdict.law for verdict in verdicts if verdict.outcome == "violated"}, sent, answered


def in_reverse(republishing):
    send = republishing._send
    republishing._send = lambda messages, on_answered: send(messages[::-1], on_answered)


def one_only(republishing):
    send = republishing._send

    def send_first(messages, on_answered):
        _, first = np.unique(messages % republishing.traffic.schedule.count, return_index=True)
        send(messages[np.sort(first)], on_answered)

    republishing._send = send_first


def unasked(republishing):
    republishing.owed = lambda answered, connection: list(answered)


@pytest.mark.parametrize("qos", [1, 2])
def test_all_that_has_no_answer_is_sent_again_in_order(qos):
    counts, violated, sent, answered = run(qos=qos, rate=200.0, faults="lost-puback@0.2:0")
    assert not violated
    assert counts["published_again"] >= counts["pubacks_lost"] >= 50
    answered_us = {(publisher, sequence): at for publisher, sequence, at, _ in answered}
    again = {}
    for publisher, sequence, at, dup in sent:
        if dup:
            again.setdefault((publisher, at), []).append(sequence)
    assert max(map(len, again.values())) > 10
    for (publisher, at), sequences in again.items():
        before = [
            sequence for who, sequence, sent_us, dup in sent if who == publisher and not dup and sent_us < at - 1000
        ]
        missing = [sequence for sequence in before if answered_us[publisher, sequence] >= at]
        assert sequences[: len(missing)] == missing
        assert sequences == list(range(sequences[0], sequences[-1] + 1))


@pytest.mark.parametrize("seed", [1, 2])
def test_order_is_that_in_which_all_is_sent_again(seed):
    assert not run(seed, **CUT)[1]
    assert run(seed, in_reverse, **CUT)[1] == {"fifo"}


def test_who_sends_one_message_at_a_time_again_reorders_what_a_full_session_lost():
    full = {"faults": "lost-puback@0.1:0", "limit": 3, "offline_share": 1.0}
    assert not run(**full)[1]
    assert run(change=one_only, **full)[1] == {"fifo"}


def test_an_answer_that_belongs_to_a_lost_connection_costs_no_other_one():
    longer = {**CUT, "faults": "network-partition@0.2:0:2", "drain_s": 4.0}
    counts, *_ = run(**longer)
    careless, *_ = run(change=unasked, **longer)
    assert counts["published_again"] < careless["published_again"]
