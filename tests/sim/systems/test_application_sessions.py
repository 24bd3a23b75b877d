"""Sessions of applications that end: the next one begins at the end of its queue, and nothing of the old one reaches
it."""

import numpy as np
import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.errors import InputError
from orderlab.model.history.events import EventKind
from orderlab.sim.mqtt.application.broker import ApplicationDelivery
from orderlab.sim.mqtt.application.sessions import Queue, places_of
from orderlab.sim.mqtt.broker.routing import RoutedRecords
from orderlab.sim.systems.catalogue import SYSTEMS, settings_of

SMALL = {
    "publishers": 60,
    "rate": 20.0,
    "warm_up_s": 0.1,
    "duration_s": 0.5,
    "drain_s": 10.0,
    "applications": 3,
    "shared_groups": 0,
    "brokers": 2,
    "offline_share": 1.0,
    "online_s": 0.1,
    "offline_s": 0.05,
}


def run(seed=1, **more):
    """(system, counts, violated laws, what tested them, columns of the history)."""
    batches = []
    system = SYSTEMS["tbmq-application"].assemble(
        settings_of("tbmq-application", {**SMALL, **more}), seed, [batches.append]
    )
    counts = system.run()["counts"]
    verdicts, _ = judge(in_memory("run", batches, system.names()), Question())
    columns = {
        name: np.concatenate([getattr(batch, name) for batch in batches])
        for name in ("kind", "subscriber", "packet_id", "session")
    }
    violated = {verdict.law for verdict in verdicts if verdict.outcome == "violated"}
    return system, counts, violated, {verdict.law: verdict.work["antecedents"] for verdict in verdicts}, columns


def unfiltered(delivery, session, polled):
    """What ``_found`` finds where nobody looks at the session that a record was routed for; the history tells it all
    the same."""
    read = list(places_of(polled))
    copied, recipients, routed_for = RoutedRecords.unpack(
        [record for _, record in read], len(delivery.traffic.subscribers)
    )
    delivery.table.note_queued(copied.tolist(), recipients.tolist(), routed_for.tolist())
    return [(place, copy) for (place, _), copy in zip(read, copied.tolist(), strict=True)]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("more", [{"qos": 1}, {"qos": 2}, {"publish_qos": "0=0.3 1=0.3 2=0.4", "takeover_share": 0.5}])
def test_every_law_holds_where_applications_start_clean(seed, more):
    system, counts, violated, met, columns = run(seed, clean_start_share=0.5, **more)
    assert not violated
    assert counts["clean_starts"] == (columns["kind"] == EventKind.CLEAR).sum() > 5
    assert met["no-phantom"] > 100
    assert met["at-least-once"] > 50
    assert system.is_quiet()


def test_a_new_session_forgets_its_position_and_its_identifiers():
    _, counts, violated, _, columns = run(clean_start_share=1.0)
    assert not violated
    assert counts["delivered"] < 3 * counts["published"]
    delivered = columns["kind"] == EventKind.DELIVER
    first = {}
    for subscriber, session, packet_id in zip(
        *(columns[name][delivered].tolist() for name in ("subscriber", "session", "packet_id")), strict=True
    ):
        first.setdefault((subscriber, session), packet_id)
    assert len(first) > 3
    assert set(first.values()) == {1}


@pytest.mark.parametrize("seed", [1, 2])
def test_who_reads_on_at_the_old_position_or_what_comes_late_hands_over_what_was_cleared(seed, monkeypatch):
    monkeypatch.setattr(ApplicationDelivery, "_found", unfiltered)
    assert "no-phantom" in run(seed, clean_start_share=0.5)[2]
    monkeypatch.setattr(Queue, "forget", lambda queue: None)
    assert "no-phantom" in run(seed, clean_start_share=0.5)[2]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_session_without_expiry_interval_ends_with_its_connection(qos):
    _, counts, violated, _, columns = run(session_expiry_s=0, qos=qos)
    assert not violated
    assert counts["sessions_expired"] == (columns["kind"] == EventKind.CLEAR).sum() > 5


def test_a_session_that_is_taken_up_in_time_stays():
    _, counts, violated, _, columns = run(session_expiry_s=30)
    assert not violated
    assert "sessions_expired" not in counts
    assert not (columns["kind"] == EventKind.CLEAR).any()
    assert counts["delivered"] >= 3 * counts["published"]


def test_retained_messages_answer_the_subscribe_of_a_new_session():
    _, counts, violated, _, _ = run(clean_start_share=1.0, retained_share=0.5)
    assert not violated
    assert counts["delivered_retained"] > 10


def test_sessions_of_members_stay():
    for setting in ({"clean_start_share": 0.5}, {"session_expiry_s": 1}):
        with pytest.raises(InputError, match="members of groups keep their sessions; set shared_groups=0"):
            settings_of("tbmq-application", {"offline_share": 0.5, **setting})
        assert settings_of("tbmq-application", {"offline_share": 0.5, "shared_groups": 0, **setting}).sessions_end


def test_records_carry_the_session():
    records = RoutedRecords(np.array([5, 6]), np.array([2, 2]), np.array([1, 3])).packed(7)
    assert [column.tolist() for column in RoutedRecords.unpack(records, 7)] == [[5, 6], [2, 2], [1, 3]]
