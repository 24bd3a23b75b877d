"""Brokers that hear late who is connected where, links that die, windows and sockets that fill: what breaks, and what
keeps it."""

import numpy as np
import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.errors import InputError
from orderlab.model.history.events import COLUMNS, EventBatch, EventKind
from orderlab.sim.engine.clock import call_at
from orderlab.sim.mqtt.broker.delivery import Delivery
from orderlab.sim.mqtt.connections import SUBSCRIBER, ConnectionTable
from orderlab.sim.mqtt.links import Links, PublishWindows, SocketBuffers
from orderlab.sim.mqtt.ownership import LateOwnership
from orderlab.sim.systems.catalogue import settings_of
from orderlab.sim.systems.tbmq_p2p import P2PSettings, P2PSystem

SMALL = {
    "publishers": 40,
    "rate": 20.0,
    "brokers": 2,
    "partitions": 4,
    "kafka_brokers": 1,
    "warm_up_s": 0.1,
    "duration_s": 0.6,
    "session_timeout_s": 0.2,
    "request_timeout_s": 0.2,
    "pack_pause_s": 0.1,
    "drain_s": 1.5,
}
COMING_AND_GOING = {"offline_share": 0.5, "offline_s": 0.3, "takeover_share": 0.5}
REPAIRED = {"scripts": "session", "handover": "before-commit", "acks": "all", "idempotent": True}


def run(seed=1, **settings):
    """(violated laws, counts, mean latency to PUBACK, system)."""
    batches = []
    system = P2PSystem(P2PSettings(**{**SMALL, **settings}), seed, [batches.append])
    report = system.run()
    verdicts, _ = judge(in_memory("run", batches, system.names()), Question())
    violated = {verdict.law for verdict in verdicts if verdict.outcome == "violated"}
    sent = {}
    for batch in batches:
        of_publish = (batch.kind == EventKind.PUBLISH) & (batch.dup < 1)
        for publisher, sequence in zip(
            batch.publisher[of_publish].tolist(), batch.sequence[of_publish].tolist(), strict=True
        ):
            assert sequence > sent.get(publisher, -1), "publishers send in order, also what had to wait"
            sent[publisher] = sequence
    return violated, report["counts"], report["latency"]["publish_to_puback"]["mean_ms"], system


# -- who is connected where ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_the_end_of_an_old_connection_that_undoes_a_new_one_withholds_messages(qos):
    violated, counts, *_ = run(ownership="last-event", qos=qos, **COMING_AND_GOING)
    assert "at-least-once" in violated
    assert counts["sent_on_to_nobody"] > 0


def test_what_goes_to_a_former_owner_is_missing_or_late_until_its_session_is_read_anew():
    broken, former = set(), 0
    for seed in (1, 2, 3):
        violated, counts, *_ = run(seed, ownership="by-connection", **COMING_AND_GOING)
        broken |= violated
        former += counts["sent_on_to_former_owners"]
        violated, counts, *_ = run(seed, ownership="woken", **REPAIRED, **COMING_AND_GOING)
        assert not violated
        assert counts["sessions_woken"] > 0
    assert former > 0
    assert broken & {"fifo", "at-least-once"}


def test_brokers_that_know_at_once_lose_nothing():
    violated, counts, *_ = run(**COMING_AND_GOING)
    assert not violated
    assert "session_events" not in counts


def test_a_broker_that_is_cut_off_tells_nobody_of_its_clients_unless_it_tells_again():
    _, counts, *_ = run(ownership="by-connection", faults="network-partition@0.3:0:0.8", **COMING_AND_GOING)
    assert counts["session_events_lost"] > 0
    violated, counts, *_ = run(
        ownership="woken", faults="network-partition@0.3:0", pack_retries=1000, **REPAIRED, **COMING_AND_GOING
    )
    assert not violated
    assert "session_events_lost" not in counts


def test_in_the_end_every_broker_believes_what_is_so():
    *_, system = run(ownership="by-connection", **COMING_AND_GOING)
    table, ownership = system.world.delivery.connections, system.world.brokers.ownership
    truth = np.where(table.connected, system.world.traffic.subscribers.broker, -1)
    for number in range(2):
        assert (ownership.owner[number] == truth).all()
    *_, system = run(ownership="last-event", **COMING_AND_GOING)
    assert any((system.world.brokers.ownership.owner[number] != truth).any() for number in range(2))


def run_twice_moved(**settings):
    """Subscribers over slow links move while their acknowledgements are on the way, with Clean Start 1, and again
    without, before anything of the new session has reached them: (violations by law, counts)."""
    batches = []
    slow = {
        "rate": 100.0,
        "offline_share": 0.01,
        "clean_start_share": 0.001,
        "faults": "client-link-slow@0:0:2 client-link-slow@0:1:2",
    }
    system = P2PSystem(P2PSettings(**{**SMALL, **slow, **settings}), 1, [batches.append])
    world = system.world

    def move(clean_start):
        for subscriber in np.flatnonzero(world.delivery.connections.connected).tolist():
            world.presence.disconnect(subscriber, is_noticed=False)
            world.brokers.next_after(int(world.traffic.subscribers.broker[subscriber])).connect(subscriber, clean_start)

    call_at(system.env, 450_000, lambda: move(True))
    call_at(system.env, 550_000, lambda: move(False))
    counts = system.run()["counts"]
    verdicts, _ = judge(in_memory("run", batches, system.names()), Question())
    return {verdict.law: verdict.work["violations"] for verdict in verdicts if verdict.outcome == "violated"}, counts


@pytest.mark.parametrize("qos", [1, 2])
def test_an_acknowledgement_over_an_old_connection_is_of_the_session_in_which_it_was_sent(monkeypatch, qos):
    hear, read = LateOwnership._hear, Delivery.read_from_old
    monkeypatch.setattr(
        LateOwnership,
        "_hear",
        lambda self, *event: call_at(self.presence.clock, self.presence.clock.now + 60_000, lambda: hear(self, *event)),
    )
    by_identifier, counts = run_twice_moved(qos=qos, ownership="by-connection")
    assert counts["acknowledgements_over_old_connections"] > 50
    assert counts["removals_of_other_messages" if qos == 1 else "releases_of_other_messages"] > 20, (
        "the new session counts from 1 again"
    )
    repaired = {"qos": qos, "ownership": "woken", "removals": "awaited", **REPAIRED}
    violations, counts = run_twice_moved(**repaired)
    assert not violations
    assert counts["acknowledgements_over_old_connections"] > 50
    assert "removals_of_other_messages" not in counts
    assert "releases_of_other_messages" not in counts

    def of_the_present(self, sent, *more):
        for rows, _ in read(self, sent, *more):
            yield rows, self.table.session_number[rows[:, SUBSCRIBER]]

    if qos == 1:  # whoever names the present session has tokens of it removed
        monkeypatch.setattr(Delivery, "read_from_old", of_the_present)
        assert run_twice_moved(**repaired)[0].keys() == {"at-least-once"}
    monkeypatch.setattr(Delivery, "read_from_old", lambda self, *_: iter(()))
    unread, counts = run_twice_moved(qos=qos, ownership="by-connection")
    assert "acknowledgements_over_old_connections" not in counts
    assert by_identifier["at-least-once"] > unread["at-least-once"]


def test_a_release_that_fails_is_not_given_up_with_its_connection():
    full = {
        "qos": 2,
        "faults": "redis-oom@0.3:0",
        "offline_share": 0.6,
        "online_s": 0.1,
        "offline_s": 0.05,
        "redis_nodes": 1,
    }
    violated, counts, *_ = run(**full)
    assert violated == {"retransmission"}
    assert counts["releases_failed"] > 0
    violated, counts, *_ = run(**full, **REPAIRED, pack_retries=1000)
    assert not violated
    assert counts["releases_failed"] > 0


# -- subscriptions and the handshake ---------------------------------------------------------------------------------

MIXED = {"publish_qos": "0=0.3 1=0.4 2=0.3", "subscription_qos": "0=0.2 1=0.4 2=0.4"}


@pytest.mark.parametrize(
    ("outgoing", "broken"), [("lower", set()), ("granted", {"granted-qos"}), ("published", {"granted-qos"})]
)
def test_a_broker_that_upgrades_what_it_sends_or_ignores_the_grant_is_seen(outgoing, broken):
    assert run(outgoing_qos=outgoing, **MIXED, **COMING_AND_GOING)[0] == broken


def test_a_delivery_to_somebody_else_and_a_pubrel_before_its_pubrec_are_seen():
    """As no broker here does either, their rows are put into the history of one that is right."""
    batches = []
    system = P2PSystem(P2PSettings(**SMALL, **COMING_AND_GOING, clean_start_share=0.3, qos=2), 1, [batches.append])
    system.run()
    rows = {name: np.concatenate([getattr(batch, name) for batch in batches]) for name in COLUMNS}

    def violated(**changed):
        laws = Question(laws=("subscribed", "granted-qos", "handshake"))
        verdicts, _ = judge(in_memory("rows", [EventBatch.of(**{**rows, **changed})], system.names()), laws)
        assert all(verdict.work["antecedents"] > 100 for verdict in verdicts)
        return {verdict.law: verdict.witness.event_id for verdict in verdicts if verdict.outcome == "violated"}

    assert violated() == {}
    astray = np.flatnonzero(rows["kind"] == EventKind.DELIVER)[100]
    others = np.flatnonzero((rows["kind"] == EventKind.SUBSCRIBE) & (rows["topic"] != rows["topic"][astray]))
    somebody = np.where(np.arange(len(rows["kind"])) == astray, rows["subscriber"][others[0]], rows["subscriber"])
    packet = np.where(np.arange(len(rows["kind"])) == astray, -1, rows["packet_id"])
    assert violated(subscriber=somebody, packet_id=packet)["subscribed"] == astray
    released = np.flatnonzero(rows["kind"] == EventKind.RELEASE)[100]
    of_it = (rows["subscriber"] == rows["subscriber"][released]) & (rows["packet_id"] == rows["packet_id"][released])
    received = np.flatnonzero(of_it & (rows["kind"] == EventKind.RECEIVE) & (np.arange(len(of_it)) < released))[-1]
    turned = rows["kind"].copy()
    turned[[received, released]] = turned[[released, received]]
    assert violated(kind=turned) == {"handshake": received}


# -- links ---------------------------------------------------------------------------------------------------------


def test_a_connection_that_died_holds_messages_back_until_somebody_notices():
    never = {"faults": "client-half-open@0.3:0:3"}
    violated, counts, *_ = run(**never)
    assert not violated, "what went into the dead links is on its way still"
    assert counts["packets_into_dead_links"] > 0
    assert counts["delivered"] < counts["published"]
    violated, counts, *_ = run(**never, keep_alive_s=0.2)
    assert not violated, "the broker knows: nobody is owed anything before the next connection"
    assert counts["keep_alive_timeouts"] > 0
    assert counts["delivered"] < counts["published"]
    violated, counts, *_ = run(faults="client-half-open@0.3:0:0.3")
    assert not violated
    assert counts["takeovers_of_dead_connections"] > 0


@pytest.mark.parametrize("qos", [1, 2])
def test_a_cut_delays_what_tcp_sends_again_and_keep_alive_ends_what_it_outlasts(qos):
    cut = {"faults": "client-link-cut@0.3:0:0.4", "qos": qos}
    violated, counts, _, system = run(**cut)
    assert not violated
    assert "packets_into_dead_links" not in counts
    assert system.world.measured.delivery_latency.max_us > 200_000
    violated, counts, *_ = run(**cut, keep_alive_s=0.1)
    assert not violated
    assert counts["keep_alive_timeouts"] > 0
    if qos == 1:
        assert run(**cut, keep_alive_s=60, server_keep_alive_s=0.1)[1] == counts, "the server's counts (MQTT-3.1.2-21)"


def test_keep_alive_ends_a_connection_between_a_half_and_one_and_a_half_of_it_after_its_last_packet():
    *_, system = run(faults="client-half-open@0.3:0:3", keep_alive_s=0.2)
    table = system.world.delivery.connections
    ended = table.lost_us[~table.connected]
    assert len(ended) > 10
    assert (ended == 300_000).all(), "nothing came through later, whenever it was noticed"


def test_a_slow_link_moves_latencies_and_nothing_else():
    violated, _, _, system = run(faults="client-link-slow@0.3:0")
    assert not violated
    assert 200_000 < system.world.measured.delivery_latency.max_us < 500_000
    assert run()[3].world.measured.delivery_latency.max_us < 100_000


@pytest.mark.parametrize(
    "fault",
    ["client-link-slow@0.3:0:0.1 client-link-slow@0.3:1:0.1", "client-link-cut@0.3:0:0.1 client-link-cut@0.3:1:0.1"],
)
def test_no_answer_overtakes_those_that_a_link_has_held_up(fault):
    batches = []
    P2PSystem(
        P2PSettings(**{**SMALL, "offline_share": 0.01, "rate": 100.0, "qos": 2, "faults": fault}), 1, [batches.append]
    ).run()
    sent, received, compared = {}, {}, 0
    for batch in batches:
        for kind, of, packet_id in zip(
            batch.kind.tolist(), batch.subscriber.tolist(), batch.packet_id.tolist(), strict=True
        ):
            if kind in (EventKind.CONNECT, EventKind.DISCONNECT):
                sent[of], received[of] = [], 0
            elif kind == EventKind.DELIVER:
                sent.setdefault(of, []).append(packet_id)
            elif kind == EventKind.RECEIVE:  # MQTT-4.6.0-3
                received[of] = received.get(of, 0) + 1
                assert sent[of][received[of] - 1] == packet_id, (of, packet_id)
                compared += 1
    assert compared > 1000


def test_acknowledgements_do_not_wait_for_what_a_slow_link_holds_up_of_others(monkeypatch):
    slow = "client-link-slow@0.2:0:0.1 client-link-slow@0.2:1:0.1 session-takeover@0.45:0 session-takeover@0.5:1"
    moving = {
        "offline_share": 0.5,
        "takeover_share": 0.6,
        "online_s": 0.1,
        "offline_s": 0.1,
        "rate": 40.0,
        "ownership": "woken",
        "removals": "awaited",
        **REPAIRED,
    }
    assert not run(faults=slow, **moving)[0]
    monkeypatch.setattr("orderlab.sim.mqtt.broker.delivery.BEHIND_US", 10**9)
    monkeypatch.setattr(ConnectionTable, "may_be_held_up", lambda table, subscribers: table.links.are_bad(subscribers))
    assert run(faults=slow, **moving)[0], (
        "worked on with the last of those that were written together, it would come after the next CONNECT"
    )


def test_a_will_is_published_of_a_client_that_is_back_where_its_broker_has_not_heard_of_it():
    half_open = {"faults": "client-half-open@0.3:0", "keep_alive_s": 0.4}
    late = run(**half_open, will_delay_s=0, ownership="by-connection")[1]
    assert late["wills_of_connected_clients"] > 0
    patient = run(**half_open, will_delay_s=0.1, ownership="by-connection")[1]
    assert patient.get("wills_of_connected_clients", 0) < late["wills_of_connected_clients"], (
        "where a CONNECT came just before the end of the delay"
    )
    assert patient["wills_not_sent"] > 0
    at_once = run(**half_open, will_delay_s=0)[1]
    assert "wills_of_connected_clients" not in at_once
    assert at_once["wills_sent"] > 0
    assert "wills_sent" not in run(**half_open)[1]


# -- wills ---------------------------------------------------------------------------------------------------------

GOING = {"offline_share": 0.5, "offline_s": 0.3}
NEVER_LOST = {**REPAIRED, "pack_retries": 1000, "command_timeout_s": 0.2}


def wills(seed=1, **settings):
    """(what is said of the Wills first, connections judged, violations, violated laws, counts, history) of clients that
    come and go."""
    batches = []
    system = P2PSystem(P2PSettings(**{**SMALL, **GOING, **settings}), seed, [batches.append])
    counts = system.run()["counts"]
    verdicts = {verdict.law: verdict for verdict in judge(in_memory("run", batches, system.names()), Question())[0]}
    will = verdicts["will"]
    violated = {law for law, verdict in verdicts.items() if verdict.outcome == "violated"}
    return (
        will.witness and will.witness.why,
        will.work["antecedents"],
        will.work["violations"],
        violated,
        counts,
        batches,
    )


@pytest.mark.parametrize(("qos", "delay_s"), [(0, 0.1), (1, 0), (1, 0.1), (2, 0)])
def test_a_will_is_a_message_that_reaches_who_watches_it(qos, delay_s):
    _, met, broken, violated, counts, batches = wills(will_delay_s=delay_s, qos=qos)
    assert met > 10
    assert broken == 0
    assert not violated
    assert counts["wills_sent"] + counts.get("wills_not_sent", 0) == met
    assert ("wills_not_sent" in counts) == (delay_s > 0), "who is back before the delay is over"
    delivered = {
        (publisher, sequence)
        for batch in batches
        for kind, publisher, sequence in zip(
            batch.kind.tolist(), batch.publisher.tolist(), batch.sequence.tolist(), strict=True
        )
        if kind == EventKind.DELIVER and publisher >= SMALL["publishers"]
    }
    assert len(delivered) == counts["wills_sent"]


def test_goodbyes_discard_wills_and_the_end_of_a_session_lets_them_go():
    _, met, broken, _, counts, *_ = wills(will_delay_s=0.1, goodbye_share=0.5)
    assert not broken
    assert counts["wills_discarded"] + counts["wills_sent"] + counts["wills_not_sent"] == met
    _, _, broken, _, counts, *_ = wills(will_delay_s=5, session_expiry_s=0)
    assert not broken
    assert counts["wills_sent"] > 10, "a delay longer than the session is that of the session (3.1.3.2.2)"
    for share in (0.5, 1):
        ends = {"clean_start_share": share, "takeover_share": 0.5, "ownership": "by-connection"}
        _, _, broken, _, counts, *_ = wills(will_delay_s=5, offline_s=0.05, online_s=0.1, **ends)
        assert not broken, "the end of a session lets the Will of its last connection go, and of no other"
        assert counts["wills_sent"] > 10


def test_a_will_is_lost_with_the_broker_that_has_it_unless_others_know_it():
    for delay_s, lost in ((0, 20), (0.1, 1)):
        crash = {"will_delay_s": delay_s, "faults": "broker-crash@0.3:0"}
        why, _, broken, violated, counts, *_ = wills(**crash)
        assert "will" in violated
        assert "never published" in why
        assert broken >= lost
        assert counts["wills_lost"] >= broken
        for rule in ("replicated", "claimed"):
            _, _, broken, violated, counts, *_ = wills(**crash, wills=rule, **NEVER_LOST)
            assert broken == 0
            assert "will" not in violated
            assert counts["wills_taken_over"] > 0


def test_a_will_of_a_client_that_is_back_is_published_by_a_broker_that_was_cut_off():
    cut = {"will_delay_s": 0.1, "faults": "network-partition@0.3:0", "ownership": "by-connection"}
    why, _, broken, *_ = wills(**cut)
    assert "connected anew before it was due" in why
    assert broken > 0
    _, _, broken, *_ = wills(**{**cut, "ownership": "at-once"})
    assert broken == 0, "who knows all connections holds it back"


def test_a_broker_that_is_taken_for_dead_has_its_wills_published_twice_unless_they_are_claimed():
    cut = {"will_delay_s": 0, "faults": "network-partition@0.3:0"}
    why, _, broken, *_ = wills(**cut, wills="replicated")
    assert "while the client had it" in why
    assert broken > 20
    _, _, broken, _, counts, *_ = wills(**cut, wills="claimed", ownership="woken", **NEVER_LOST)
    assert broken == 0
    assert counts["connections_closed_in_doubt"] > 20
    assert counts["wills_claimed_before"] > 10


def test_a_connect_that_waits_for_the_store_counts_when_it_is_answered():
    slow = {
        "will_delay_s": 0.1,
        "wills": "claimed",
        "redis_nodes": 1,
        "faults": "redis-stall@0.25:0:0.4",
        **NEVER_LOST,
        "command_timeout_s": 1,
    }
    _, met, broken, _, counts, *_ = wills(**slow)
    assert met > 10
    assert broken == 0
    assert counts["wills_claimed_before"] > 0


def test_nobody_can_tell_a_broker_that_stands_still_from_one_that_is_dead():
    why, _, broken, *_ = wills(will_delay_s=0, wills="claimed", faults="broker-pause@0.3:0:0.4", **NEVER_LOST)
    assert "while the client had it" in why
    assert broken > 10
    _, _, broken, *_ = wills(will_delay_s=0, wills="claimed", faults="broker-pause@0.3:0:0.15", **NEVER_LOST)
    assert broken == 0, "a pause that is shorter than the session timeout"


def test_what_kafka_does_not_take_of_wills_is_lost_or_sent_again():
    refused = {
        "will_delay_s": 0,
        "faults": "producer-retry@0.3:0",
        "retries": 0,
        "offline_share": 1,
        "online_s": 0.1,
        "offline_s": 0.1,
    }
    why, _, broken, _, counts, *_ = wills(**refused)
    assert "not kept it" in why
    assert counts["wills_lost"] == broken
    _, _, broken, _, counts, *_ = wills(**refused, wills="replicated")
    assert broken == 0
    assert counts["wills_sent_again"] > 0


def test_wills_that_nobody_watches_are_counted_and_change_nothing_else():
    half = wills(will_delay_s=0, will_watched=0.25)
    assert 0 < half[1] < half[4]["wills_sent"]
    counts = run(will_delay_s=0, will_watched=0, **GOING)[1]
    assert counts.pop("wills_sent") > 0
    assert counts == run(**GOING)[1]


# -- back-pressure -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_the_servers_receive_maximum_makes_publishers_wait_and_loses_nothing(qos):
    busy = {"rate": 100.0, "duration_s": 0.3, "qos": qos}
    violated, counts, throttled_ms, system = run(server_receive_maximum=1, **busy)
    assert not violated
    assert counts["publishes_throttled"] > 0
    assert not system.world.traffic.publish_windows.are_full
    violated, counts, free_ms, _ = run(**busy)
    assert throttled_ms > 2 * free_ms
    assert run(server_receive_maximum=60_000, **busy)[2] == free_ms


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize(
    "faults",
    ["", "lost-puback@0.25:0", "publisher-takeover@0.2:0:0.05", "broker-crash@0.2:0", "publisher-half-open@0.2:0"],
)
def test_what_waits_for_room_is_sent_in_order_and_to_the_end_wherever_its_publisher_goes(faults, qos):
    """Publishers that are unequally far away, so that what is sent later would come sooner."""
    busy = {"rate": 400.0, "duration_s": 0.25, "warm_up_s": 0.1, "drain_s": 4.0, "publishers": 20, "offline_share": 0.0}
    violated, counts, _, system = run(server_receive_maximum=3, faults=faults, qos=qos, **busy)
    assert not violated & {"fifo", "no-phantom"}
    assert counts["publishes_throttled"] > 1000
    assert not system.world.traffic.publish_windows.are_full
    assert counts["published"] == run(faults=faults, qos=qos, **busy)[1]["published"]


def test_a_broker_that_reads_nothing_more_while_kafka_owes_answers_moves_waiting_to_its_publishers():
    violated, counts, held_ms, _ = run(producer_records_max=5, rate=100.0, duration_s=0.3)
    assert not violated
    assert counts["ticks_without_reading"] > 0
    violated, free, free_ms, _ = run(rate=100.0, duration_s=0.3)
    assert held_ms > 1.5 * free_ms
    assert counts["published"] >= free["published"], "what waited in sockets is read in the end"


def test_a_full_socket_leaves_messages_in_the_store_until_it_is_read_anew():
    slow = {"faults": "slow-consumer@0.3:0", "socket_packets": 3, "rate": 40.0}
    violated, counts, *_ = run(**slow)
    assert "at-least-once" in violated
    assert counts["withheld_from_full_sockets"] > 0
    for qos in (1, 2):
        violated, counts, *_ = run(
            **slow, **REPAIRED, on_full_socket="read-anew", qos=qos, offline_share=0.5, offline_s=0.2
        )
        assert not violated
        assert counts["withheld_from_full_sockets"] > 0
    assert not run(faults="slow-consumer@0.3:0", rate=40.0)[0]
    dropped = run(**slow, qos=0)[1]
    assert dropped["dropped_at_full_sockets"] == dropped["published"] - dropped["delivered"] > 0


# -- the parts -----------------------------------------------------------------------------------------------------


def test_answers_keep_their_order_when_a_link_is_well_again():
    table, who = ConnectionTable.all_connected(2), np.array([0, 1])
    table.links.slow_down(1, 100)
    assert table.answers_in_order(who, np.array([10, 10])).tolist() == [10, 110]
    table.links.speed_up(1)
    assert table.answers_in_order(who, np.array([20, 20])).tolist() == [20, 110]
    assert table.may_be_held_up(who).tolist() == [False, True]
    assert table.answers_in_order(who, np.array([200, 200])).tolist() == [200, 200]
    table.disconnect(1, 100)
    assert table.answers_in_order(who, np.array([30, 30])).tolist() == [30, 30]
    assert not table.is_any_held_up


def test_links_delay_by_tcps_attempts_and_nothing_arrives_after_a_death():
    links, who = Links(), np.array([0, 1, 2])
    assert not links
    links.cut(0, 1_000_000, 1_500_000)
    links.slow_down(1, 7)
    # After 0.2 s, and 0.4 s more.
    assert links.through(who, np.array([1_000_000] * 3)).tolist() == [1_600_000, 1_000_007, 1_000_000]
    assert links.through(who, np.array([1_500_000] * 3)).tolist() == [1_500_000, 1_500_007, 1_500_000]
    table = ConnectionTable.all_connected(3)
    table.links.kill(2, 500)
    there = np.array([499, 501])
    assert table.got_through(np.array([2, 2]), np.array([0, 0]), there).tolist() == [True, False]
    table.disconnect(2, 900)
    table.disconnect(1, 600)
    there_too = table.got_through(np.array([1, 1]), np.array([0, 0]), np.array([599, 600]))
    assert there_too.tolist() == [True, False], "what comes at the instant of the end would be told after it"
    assert table.got_through(np.array([2, 2]), np.array([0, 0]), there).tolist() == [True, False]
    assert not table.links


def test_windows_of_publishers_keep_order():
    windows = PublishWindows(2)
    assert windows.admit(np.array([0, 1, 10, 20, 30]), 10).tolist() == [0, 1, 10]
    assert windows.admit(np.array([40]), 10).tolist() == []
    windows.answered([0, 1])
    assert windows.going([0, 1]) == [20]
    assert windows.going([0]) == []
    windows.answered([0, 0])
    assert windows.going([1]) == []
    assert windows.are_full
    assert windows.going([0]) == [30, 40]
    assert not windows.are_full


def test_a_socket_takes_so_many_packets_and_tells_when_half_of_them_are_read():
    sockets = SocketBuffers(4, True)
    assert not sockets.is_full(0, 0, 3)
    assert sockets.is_full(0, 0, 4)
    sockets.note(np.array([0] * 4), np.array([10, 20, 30, 40]))
    assert sockets.half_empty_us(0, 0) == 20
    assert sockets.is_full(0, 9, 0)
    assert not sockets.is_full(0, 10, 0)
    sockets.forget(0)
    assert not sockets.is_full(0, 0, 0)


@pytest.mark.parametrize(
    ("system", "given", "cure"),
    [
        ("tbmq-p2p", {"ownership": "by-connection"}, "set brokers=2"),
        ("tbmq-p2p", {"ownership": "woken", "brokers": 2}, "set scripts=session"),
        ("tbmq-postgres", {"ownership": "woken", "brokers": 2}, "set scripts=session"),
        ("tbmq-p2p", {"on_full_socket": "read-anew"}, "set scripts=session"),
        ("tbmq-p2p", {"socket_packets": 4, "receive_maximum": 3}, "set one of them"),
        ("tbmq-application", {"socket_packets": 4, "receive_maximum": 65_535}, "leave it out"),
        ("tbmq-application", {"ownership": "by-connection", "brokers": 2}, "leave it out"),
        ("tbmq-p2p", {"removals": "awaited"}, "set scripts=session"),
        ("tbmq-application", {"removals": "awaited"}, "scripts=session"),
    ],
)
def test_settings_that_mean_nothing_are_refused(system, given, cure):
    with pytest.raises(InputError, match=cure):
        settings_of(system, given)


# -- links of publishers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_a_cut_link_of_publishers_delays_and_keep_alive_makes_them_send_again(qos):
    cut = {"faults": "publisher-link-cut@0.3:0:0.4", "qos": qos}
    violated, counts, _, system = run(**cut)
    assert not violated
    assert "published_again" not in counts
    assert system.world.measured.puback_latency.max_us > 300_000
    violated, counts, *_ = run(**cut, keep_alive_s=0.1)
    assert not violated
    assert counts["keep_alive_timeouts_of_publishers"] == 1
    assert counts["published_again"] >= counts["publishes_into_dead_links"] > 0
    slow, _, _, system = run(faults="publisher-link-slow@0.3:0", qos=qos)
    assert not slow
    assert 400_000 < system.world.measured.puback_latency.max_us < 500_000, "0.2 s each way"


def test_what_publishers_send_into_dead_connections_they_send_again_elsewhere():
    dead = {"faults": "publisher-half-open@0.3:0"}
    violated, counts, *_ = run(**dead)
    assert not violated
    assert counts["publishes_into_dead_links"] > 50
    assert counts["published_again"] > counts["publishes_into_dead_links"], "and some whose PUBACK got nowhere"
    violated, *_ = run(**dead, qos=2)
    assert violated == {"exactly-once"}, "what the old broker knew is in its memory"
    violated, counts, *_ = run(**dead, qos=2, inbound="store", **REPAIRED)
    assert not violated
    assert counts["published_again"] > 50
    lost, counts, *_ = run(**dead, qos=0)
    assert not lost, "with QoS 0 nobody is owed anything"
    assert counts["delivered"] < counts["published"]


def test_a_message_over_the_old_connection_of_a_publisher_that_has_moved():
    moved = {"faults": "publisher-takeover@0.3:0"}
    violated, counts, *_ = run(**moved, ownership="by-connection", qos=0)
    assert violated == {"fifo"}
    assert counts["publishes_over_old_connections"] > 0
    violated, counts, *_ = run(**moved, qos=0)
    assert not violated, "the old broker knows at once, and reads no more"
    assert "publishes_over_old_connections" not in counts
    known_twice = run(**moved, qos=2)[1]
    violated, counts, *_ = run(**moved, ownership="by-connection", qos=2)
    assert violated == {"exactly-once"}
    assert counts["delivered"] > known_twice["delivered"]
    in_store = {**REPAIRED, "inbound": "store", "qos": 2}
    violated, *_ = run(**moved, ownership="by-connection", **in_store)
    assert violated, "two brokers number what one publisher sends"
    violated, counts, *_ = run(**moved, ownership="woken", **in_store)
    assert not violated, "the new broker lets it in when the old one has closed"
    assert counts["publishes_over_old_connections"] > 0
    violated, counts, *_ = run(**moved, ownership="woken", **{**in_store, "qos": 0})
    assert not violated, "and when Kafka has what came over the old connection with QoS 0"
    assert counts["publishes_over_old_connections"] > 0


def test_what_an_older_connection_of_a_publisher_brings_is_refused_where_queues_are_fenced():
    """The old broker is cut off from the store and from Kafka while its publishers move: it hears of that when it is
    back, with their publishes in its hands."""
    cut_off = {
        "faults": "network-partition@0.25:0 publisher-takeover@0.3:0",
        "ownership": "woken",
        "qos": 2,
        "pack_retries": 1000,
        **REPAIRED,
    }
    violated, counts, *_ = run(**cut_off, inbound="store")
    assert "exactly-once" in violated
    assert counts["second_numbers"] > 10
    violated, counts, *_ = run(**cut_off, inbound="fenced")
    assert not violated
    assert "second_numbers" not in counts
    assert counts["receptions_refused"] > 10


@pytest.mark.parametrize("seed", [9, 24])
def test_publishers_that_move_again_before_they_are_let_in_are_known_by_their_last_connection(seed):
    """They ask at a third broker while the second one waits for the first; and whoever lost its connection to the same
    broker is received over a slow link."""
    rates = (
        "publisher-takeover=3/s publisher-half-open=2/s network-partition=0.7/s redis-stall=2/s "
        "command-timeout=1/s redis-failover=1/s broker-pause=0.5/s publisher-link-cut=1/s lost-puback=1/s"
    )
    lasting = {
        "publishers": 60,
        "duration_s": 0.9,
        "drain_s": 3.0,
        "command_timeout_s": 0.2,
        "redis_replica_lag_ms": 0.0,
        "appendfsync": "always",
        "pack_retries": 1000,
    }
    violated, counts, *_ = run(
        seed,
        fault_rates=rates,
        brokers=3,
        ownership="woken",
        qos=2,
        inbound="fenced",
        removals="awaited",
        **REPAIRED,
        **{**lasting, "offline_share": 0.4, "offline_s": 0.3},
    )
    assert not violated
    assert "second_numbers" not in counts


def test_publishers_that_come_and_go_between_brokers_are_known_again():
    both = "publisher-half-open@0.15:0 publisher-half-open@0.35:1 publisher-takeover@0.5:0 publisher-link-cut@0.2:1:0.2"
    for qos in (1, 2):
        violated, counts, *_ = run(faults=both, qos=qos, inbound="store", **REPAIRED)
        assert not violated
        assert counts["published_again"] > 50
    violated, *_ = run(faults=f"{both} lost-puback@0.3:0", server_receive_maximum=2, **REPAIRED)
    assert not violated
