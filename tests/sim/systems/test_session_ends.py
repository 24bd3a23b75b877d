"""Clean Start, session expiry and takeover in a whole system: what the laws say of both variants of the scripts, and
settings that are refused."""

import numpy as np
import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.errors import InputError
from orderlab.model.history.events import EventKind
from orderlab.sim.systems.catalogue import settings_of
from orderlab.sim.systems.tbmq_p2p import P2PSettings, P2PSystem
from orderlab.sim.systems.tbmq_prototype import PostgresSettings, PostgresSystem

SMALL = {
    "publishers": 40, "rate": 25.0, "brokers": 2, "warm_up_s": 0.1, "duration_s": 0.5, "drain_s": 2.0,
    "offline_share": 0.5, "online_s": 0.1, "offline_s": 0.05,
}  # fmt: skip


def run(seed=0, kind=P2PSettings, system=P2PSystem, before=lambda system: None, **settings):
    """(counts, violated laws, what tested them, batches)."""
    batches = []
    ran = system(kind(**{**SMALL, **settings}), seed, [batches.append])
    before(ran)
    counts = ran.run()["counts"]
    verdicts, _ = judge(in_memory("run", batches, ran.names()), Question())
    violated = {verdict.law for verdict in verdicts if verdict.outcome == "violated"}
    return counts, violated, {verdict.law: verdict.work.get("antecedents") for verdict in verdicts}, batches


def rows(batches, kind):
    return sum(int((batch.kind == kind).sum()) for batch in batches)


def test_published_scripts_save_for_a_session_that_was_cleared():
    counts, violated, _, batches = run(clean_start_share=0.5)
    assert "no-phantom" in violated
    assert violated <= {"no-phantom", "retransmission"}, "what was cleared and went out all the same is not sent again"
    assert rows(batches, EventKind.CLEAR) == counts["clean_starts"] > 10


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_store_that_is_told_the_session_keeps_every_law(seed, qos):
    counts, violated, met, _ = run(
        seed, scripts="session", clean_start_share=0.5, takeover_share=0.5, qos=qos, removals="awaited"
    )
    assert not violated
    assert counts["saves_for_sessions_that_ended"] > 0
    assert met["at-least-once"] > 100
    assert met["no-phantom"] > 100


def test_a_session_that_does_not_travel_with_the_record_breaks_no_phantom():
    def forget(system):
        store = system.world.storage.store
        told, told_each = store.save, store.save_each
        store.save = lambda client, messages, producer, batch, epoch, *qos: told(
            client, messages, producer, batch, 2**40, *qos
        )
        store.save_each = lambda *columns: told_each(*columns[:-1], [2**40] * len(columns[-1]))

    broken = [run(seed, scripts="session", clean_start_share=0.5, before=forget)[1] for seed in range(2)]
    assert all("no-phantom" in laws for laws in broken)


def test_postgresql_clears_its_rows():
    counts, violated, _, _ = run(kind=PostgresSettings, system=PostgresSystem, clean_start_share=0.5)
    assert counts["clean_starts"] > 10
    assert violated <= {"no-phantom"}, "a save can come after the clear there as well"


@pytest.mark.parametrize("scripts", ["published", "session"])
def test_a_session_ends_when_its_client_stays_away_for_longer_than_its_expiry(scripts):
    counts, violated, _, batches = run(scripts=scripts, session_expiry_s=0.05)
    assert not violated - {"no-phantom"}
    assert rows(batches, EventKind.CLEAR) == counts["sessions_expired"] > 5
    assert "clean_starts" not in counts
    assert "saves_failed" not in counts


def test_a_session_does_not_end_when_its_client_is_back_in_time():
    counts, violated, _, batches = run(session_expiry_s=30.0)
    assert not violated
    assert "sessions_expired" not in counts
    assert rows(batches, EventKind.CLEAR) == 0


def test_a_session_without_expiry_interval_ends_with_its_connection():
    counts, violated, _, batches = run(scripts="session", session_expiry_s=0.0)
    assert not violated
    assert 20 < counts["sessions_expired"] == rows(batches, EventKind.CLEAR)


@pytest.mark.parametrize(
    ("given", "broken"),
    [({"scripts": "published"}, {"retransmission"}), ({"scripts": "session", "removals": "awaited"}, set())],
)
def test_a_takeover_keeps_session_and_laws(given, broken):
    counts, violated, met, _ = run(**given, takeover_share=1.0, seed=1)
    assert violated == broken, "a session may be read before what was acknowledged has been removed"
    assert counts["takeovers"] > 20
    assert counts["delivered"] >= counts["published"] == met["at-least-once"]


def test_a_quick_takeover_gets_again_what_is_pushed_late_unless_the_last_token_is_asked_for():
    """The message is read from the store at one broker, acknowledged there, and comes to the next, where the client is
    by then, by way of a downlink (MQTT-4.4.0-1)."""
    awaited = {"scripts": "session", "removals": "awaited", "takeover_share": 1.0}
    assert run(2, **awaited)[1] == {"retransmission"}
    assert not run(2, **awaited, handover="before-commit")[1]


def pushed_late(scripts, way):
    """What is written of a message that was routed for the first session, read and acknowledged there, and pushed in
    the second; and what the history would say of its session."""
    system = P2PSystem(P2PSettings(publishers=2, offline_share=1.0, clean_start_share=1.0, scripts=scripts), 0, [])
    table, broker, written = system.world.delivery.connections, system.world.brokers[0], []
    broker.delivery._write = lambda sent, dup: written.extend(sent.tolist())
    pushed, sessions = np.array([(0, 0, 3, 3), (1, 1, 3, 3)], np.int64), np.array([1, 1])
    table.note_queued([0, 1], [0, 1], [1, 1])
    table.complete(pushed[:1])
    table.session_number[0] = 2
    if way == "downlink":
        records = system.world.delivery.in_transit.add(pushed, sessions)
        system.world.delivery.in_transit.add(pushed)  # of another pack
        sessions = system.world.delivery.in_transit.sessions_of([*records, records[0]])
        pushed = system.world.delivery.in_transit.take([*records, records[0]])
    broker.delivery.deliver(pushed, sessions=sessions)
    return [subscriber for _, subscriber, *_ in written], table.sessions_of(pushed).tolist()


@pytest.mark.parametrize("way", ["here", "downlink"])
def test_what_is_pushed_late_is_of_the_session_that_it_was_routed_for(way):
    """Once it is acknowledged the brokers forget for which; so it travels along. Published scripts know no sessions:
    there it goes out, and the history says what it is."""
    assert pushed_late("session", way)[0] == [1]
    assert pushed_late("published", way) == ([0, 1], [1, 1])


def test_nobody_who_stays_can_start_clean():
    with pytest.raises(InputError, match="set offline_share above 0"):
        settings_of("tbmq-p2p", {"clean_start_share": 0.5})


def test_runs_without_ends_record_no_sessions():
    *_, batches = run()
    assert (np.concatenate([batch.session for batch in batches]) == -1).all()


@pytest.mark.parametrize(
    "setting", ["session_timeout_s=inf", "pack_pause_s=1e300", "online_s=1e-9", "duration_s=1e-9", "drain_s=1e-9"]
)
def test_a_span_that_no_clock_can_show_is_refused(setting):
    key, value = setting.split("=")
    with pytest.raises(InputError, match=key):
        settings_of("tbmq-p2p", {key: value})


def test_two_copies_that_come_together_go_out_once():
    system = P2PSystem(P2PSettings(publishers=2), 0, [])
    delivery, written = system.world.brokers[0].delivery, []
    delivery._write = lambda sent, dup: written.extend(sent.tolist())
    delivery.deliver(np.array([(0, 0, 1, 0), (0, 0, 1, 0), (1, 1, 1, 0)], np.int64))
    assert written == [[0, 0, 1, 0], [1, 1, 1, 0]]


def test_nothing_is_sent_while_a_new_session_is_not_in_the_store_yet():
    system = P2PSystem(P2PSettings(publishers=2, offline_share=1.0, clean_start_share=1.0), 0, [])
    sessions, broker, written = system.world.delivery.connections, system.world.brokers[0], []
    broker.delivery._write = lambda sent, dup: written.extend(sent.tolist())
    pushed = [(0, 0, 1, 0), (1, 1, 1, 0)]
    system.world.presence.disconnect(0)
    broker.connect(0, clean_start=True)
    broker.delivery.deliver(np.array(pushed, np.int64))
    assert written == [[1, 1, 1, 0]]
    system.env.run(100_000)
    assert not sessions.beginning
    assert sessions.exists[0]
    broker.delivery.deliver(np.array([(20, 0, 9, 0)], np.int64))
    assert written[-1] == [20, 0, 9, 0]
    broker.connect(0, clean_start=True)
    system.world.presence.disconnect(0)
    assert not sessions.beginning
