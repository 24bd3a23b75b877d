"""Fan-in: applications and groups read their Kafka topics; partitions spread over members; commits follow PUBACKs."""

import numpy as np
import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.errors import InputError
from orderlab.model.history.events import EventKind
from orderlab.sim.mqtt.application import sessions
from orderlab.sim.mqtt.application.broker import one_after_the_other
from orderlab.sim.systems.catalogue import SYSTEMS, settings_of

SMALL = {
    "publishers": 60, "rate": 20.0, "warm_up_s": 0.1, "duration_s": 0.5, "drain_s": 10.0, "session_timeout_s": 0.2,
    "request_timeout_s": 0.2, "pack_pause_s": 0.1,
}  # fmt: skip


def run(seed=1, **more):
    batches = []
    system = SYSTEMS["tbmq-application"].assemble(
        settings_of("tbmq-application", {**SMALL, **more}), seed, [batches.append]
    )
    report = system.run()
    verdicts, _ = judge(in_memory("run", batches, system.names()), Question())
    return system, report, {verdict.law for verdict in verdicts if verdict.outcome == "violated"}, batches


def test_every_application_and_every_group_gets_every_message_once():
    system, report, violated, _ = run(applications=2, shared_groups=3)
    counts = report["counts"]
    assert not violated
    assert counts["delivered"] == 5 * counts["published"]
    assert set(report["lag_at_the_end"].values()) == {0}
    assert system.is_quiet()


def test_the_partitions_of_a_group_spread_over_its_members():
    system, *_ = run(applications=0, group_members=4, shared_partitions=12)
    group = system.applications.queues[0].group
    assert sorted(len(member.positions) for member in group.members) == [3, 3, 3, 3]
    assert {part.number for member in group.members for part in member.positions} == set(range(12))


def test_more_members_than_partitions_are_idle():
    system, *_ = run(applications=0, group_members=5, shared_partitions=2)
    assert sorted(len(member.positions) for member in system.applications.queues[0].group.members) == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("seed", [1, *(pytest.param(one, marks=pytest.mark.exhaustive) for one in (2, 3))])
def test_every_law_holds_when_applications_and_members_come_and_go(seed):
    system, report, violated, _ = run(
        seed, applications=2, shared_groups=2, offline_share=1.0, online_s=0.15, offline_s=0.1, brokers=2
    )
    assert not violated
    assert report["counts"]["delivered"] >= 4 * report["counts"]["published"]
    assert system.is_quiet()


def test_what_had_no_acknowledgement_comes_again_under_its_identifier_with_dup():
    _, report, violated, batches = run(
        applications=1,
        shared_groups=0,
        offline_share=1.0,
        online_s=0.4,
        offline_s=0.05,
        application_us=400.0,
        duration_s=2.0,
    )
    assert not violated
    first: dict[tuple[int, int], int] = {}
    again = 0
    for batch in batches:
        rows = np.flatnonzero(batch.kind == EventKind.DELIVER)
        for publisher, sequence, packet_id, dup in zip(
            *(column[rows].tolist() for column in (batch.publisher, batch.sequence, batch.packet_id, batch.dup)),
            strict=True,
        ):
            before = first.setdefault((publisher, sequence), packet_id)
            again += dup
            assert dup == 0 or before == packet_id
    assert again > 0
    assert report["counts"]["delivered"] == report["counts"]["published"] + again


def test_who_commits_what_is_not_acknowledged_loses_it(monkeypatch):
    def all_of_it(session):
        return {part: offset + len(records) for part, offset, records in session.polled}

    monkeypatch.setattr(sessions, "without_gap", all_of_it)
    monkeypatch.setattr(sessions.Application, "unfinished", lambda session: [])
    *_, violated, _ = run(
        applications=1,
        shared_groups=0,
        offline_share=1.0,
        online_s=0.4,
        offline_s=0.05,
        application_us=400.0,
        duration_s=2.0,
    )
    assert "retransmission" in violated


def test_one_slow_application_lags_and_a_group_shares_the_work():
    slow = {"application_us": 1500.0, "drain_s": 0.01}  # 1200 msg/s need 1.8 s of work a second
    _, alone, _, _ = run(applications=1, shared_groups=0, **slow)
    _, shared, _, _ = run(applications=0, shared_groups=1, group_members=4, **slow)
    assert alone["latency"]["publish_to_delivery"]["mean_ms"] > 3 * shared["latency"]["publish_to_delivery"]["mean_ms"]
    assert alone["lag_at_the_end"]["msg.app.0"] > shared["lag_at_the_end"]["msg.app.shared.g0"]


def test_a_receive_maximum_limits_what_is_in_flight():
    def in_flight_max(**more):
        *_, batches = run(shared_groups=0, rate=50.0, duration_s=0.2, **more)
        events = [(batch.time_us, batch.kind) for batch in batches]
        times, kinds = (np.concatenate(columns) for columns in zip(*events, strict=True))
        steps = (kinds == EventKind.DELIVER).astype(int) - (kinds == EventKind.ACKNOWLEDGE)
        return int(np.cumsum(steps[np.argsort(times, kind="stable")]).max())

    assert in_flight_max(receive_maximum=3) <= 3
    assert in_flight_max(receive_maximum=1000) > 3


@pytest.mark.parametrize("fault", ["broker-crash@0.3:0", "kafka-leader-change@0.3:0", "consumer-rebalance@0.3:0"])
def test_a_fault_strikes_alike_in_two_runs_and_order_stays(fault):
    first, second = (run(brokers=2, faults=fault, idempotent=True, acks="all") for _ in range(2))
    assert first[0].digest == second[0].digest
    assert "fifo" not in first[2]
    assert "no-phantom" not in first[2]


def test_a_client_works_on_one_message_after_the_other():
    arrived = np.array([100, 110, 300])
    assert one_after_the_other(arrived, 50.0, 0.0).tolist() == [150, 200, 350]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"applications": 0, "shared_groups": 0}, "nobody subscribes"),
        ({"receive_maximum": 65_536}, "receive_maximum"),
        ({"group_members": 0}, "group_members"),
        ({"redis_nodes": 3}, "redis_nodes"),
        ({"retained_share": 0.5, "offline_share": 0.5}, "nobody subscribes after a publish"),
        ({"clean_start_share": 0.5, "offline_share": 0.5}, "members of groups keep their sessions"),
        ({"publish_qos": "0=0.5 3=0.5"}, "not the share of a QoS"),
        ({"faults": "redis-stall@0.2:0"}, "no node of kind redis"),
    ],
)
def test_a_configuration_without_sense_is_refused(given, complaint):
    with pytest.raises(InputError) as refused:
        run(**given)
    assert complaint in str(refused.value)


SLOW = {
    "publishers": 40,
    "brokers": 2,
    "drain_s": 2.5,
    "applications": 2,
    "shared_groups": 0,
    "group_members": 2,
    "shared_partitions": 4,
    "acks": "all",
    "idempotent": True,
    "application_us": 1000.0,
}


@pytest.mark.parametrize(
    ("seed", "more"),
    [
        (0, {"faults": "client-half-open@0.3:0"}),
        (
            1,
            {
                "faults": "client-link-slow@0.2:0:0.3 session-takeover@0.35:0",
                "application_us": 10.0,
                "offline_share": 0.5,
                "online_s": 0.1,
                "offline_s": 0.05,
                "takeover_share": 0.5,
                "shared_groups": 1,
            },
        ),
        (1, {"faults": "client-link-cut@0.25:0:0.3", "shared_groups": 1}),
    ],
)
def test_links_that_are_cut_slow_or_dead_lose_no_message_and_no_order(seed, more):
    """What was answered into a link that takes nothing any more never came; and what arrives at one instant arrives in
    order."""
    assert not run(seed, **{**SLOW, **more})[2]


def test_a_broker_that_believes_in_answers_that_never_came_sends_nothing_again(monkeypatch):
    told = sessions.Application.lose_connection
    monkeypatch.setattr(
        sessions.Application, "lose_connection", lambda self, lost_us, is_alive: told(self, 2**62, is_alive)
    )
    assert "retransmission" in run(0, **SLOW, faults="client-half-open@0.3:0")[2]


def acknowledged_and_sent_again() -> int:
    """How many messages that were published once and acknowledged go out once more when a broker dies with packs that
    are not committed."""
    more = {"publishers": 60, "rate": 40.0, "drain_s": 4.0, "faults": "broker-crash@0.4:1"}
    *_, violated, batches = run(3, **{**SLOW, **more})
    assert not violated, "under identifiers of their own they are new messages"
    columns = {
        name: np.concatenate([getattr(batch, name) for batch in batches]).tolist()
        for name in ("kind", "subscriber", "publisher", "sequence")
    }
    rows = list(zip(*columns.values(), strict=True))
    published = [row[2:] for row in rows if row[0] == EventKind.PUBLISH]
    twice, acknowledged, again = {one for one in published if published.count(one) > 1}, set(), 0
    for kind, *message in rows:
        if kind == EventKind.ACKNOWLEDGE:
            acknowledged.add(tuple(message))
        elif kind == EventKind.DELIVER and tuple(message) in acknowledged:
            again += tuple(message[1:]) not in twice
    return again


def test_what_is_acknowledged_and_not_committed_is_not_read_again_as_a_new_message(monkeypatch):
    """The offset does not say so, but the session does, whoever reads on."""
    assert acknowledged_and_sent_again() == 0
    told = sessions.Application.lose_connection

    def forgetting(self, lost_us, is_alive):
        before = set(self.queue.completed)
        told(self, lost_us, is_alive)
        self.queue.completed &= before

    monkeypatch.setattr(sessions.Application, "lose_connection", forgetting)
    assert acknowledged_and_sent_again() > 100
