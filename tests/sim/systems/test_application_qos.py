"""QoS 0 and 2, retained messages and slow readers of applications and groups: what the laws say, and what breaks
them."""

from collections import Counter

import numpy as np
import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.history.events import EventKind
from orderlab.sim.engine import recorder as recording
from orderlab.sim.mqtt.application.broker import ApplicationDelivery, ApplicationSubscriptions
from orderlab.sim.mqtt.application.sessions import Application, Queue
from orderlab.sim.systems.catalogue import SYSTEMS, settings_of

SMALL = {
    "publishers": 60, "rate": 20.0, "warm_up_s": 0.1, "duration_s": 0.5, "drain_s": 10.0, "session_timeout_s": 0.2,
    "request_timeout_s": 0.2, "pack_pause_s": 0.1,
}  # fmt: skip
MIXED = {
    "publish_qos": "0=0.3 1=0.3 2=0.4",
    "subscription_qos": "0=0.25 1=0.25 2=0.5",
    "applications": 4,
    "shared_groups": 4,
}
COMING_AND_GOING = {"brokers": 2, "offline_share": 1.0, "online_s": 0.4, "offline_s": 0.05, "application_us": 400.0}
COLUMNS = (
    "time_us",
    "kind",
    "publisher",
    "subscriber",
    "qos",
    "sequence",
    "packet_id",
    "dup",
    "delivered_qos",
    "retained",
)


class Ran:
    """A run, its history and its verdicts."""

    def __init__(self, seed=1, before=lambda system: None, **settings):
        batches = []
        given = settings_of("tbmq-application", {**SMALL, **settings})
        self.system = SYSTEMS["tbmq-application"].assemble(given, seed, [batches.append])
        before(self.system)
        self.counts = self.system.run()["counts"]
        verdicts, _ = judge(in_memory("run", batches, self.system.names()), Question())
        self.violated = {verdict.law for verdict in verdicts if verdict.outcome == "violated"}
        self.met = {verdict.law: verdict.work.get("antecedents") for verdict in verdicts}
        self.columns = {name: np.concatenate([getattr(batch, name) for batch in batches]) for name in COLUMNS}
        self.queues = self.system.applications.queues

    def of(self, kind, *names):
        """Columns of the rows of one kind."""
        mine = self.columns["kind"] == kind
        return [self.columns[name][mine].tolist() for name in names]


# -- QoS -------------------------------------------------------------------------------------------------------


def test_a_delivery_has_the_lower_qos_and_qos_0_is_delivered_too():
    ran = Ran(**MIXED)
    assert not ran.violated
    assert ran.system.is_quiet()
    granted = {
        queue.code: int(ran.system.world.traffic.qos.granted_to(np.array([queue.first]))[0]) for queue in ran.queues
    }
    assert Counter(granted.values()) == {0: 2, 1: 2, 2: 4}
    rows = list(zip(*ran.of(EventKind.DELIVER, "subscriber", "qos", "delivered_qos"), strict=True))
    assert all(lower == min(qos, granted[subscriber]) for subscriber, qos, lower in rows)
    assert len(rows) == ran.counts["published"] * 8
    stored = sum(partition.log.end_offset for queue in ran.queues for partition in queue.group.partitions)
    assert stored == sum(lower > 0 for *_, lower in rows)


def test_an_application_that_is_away_misses_what_is_not_stored():
    here, away = Ran(qos=0), Ran(qos=0, offline_share=1.0, online_s=0.1, offline_s=0.1)
    assert here.counts["delivered"] == 2 * here.counts["published"]
    assert 0 < away.counts["delivered"] < 2 * away.counts["published"]
    assert not here.violated | away.violated


def test_qos_0_reaches_the_broker_that_has_the_connection():
    ran = Ran(qos=0, brokers=3, applications=3, shared_groups=2)
    assert ran.counts["delivered"] == 5 * ran.counts["published"]


def test_a_topic_of_a_group_is_read_by_the_member_that_has_its_partition():
    queue = Ran(applications=0, group_members=4).queues[0]
    readers = [queue.reader_of(topic) for topic in range(60)]
    of_partition = dict(zip(queue.partition_of.tolist(), readers, strict=True))
    assert set(readers) == {0, 1, 2, 3}
    assert readers == [of_partition[partition] for partition in queue.partition_of.tolist()]


def test_qos_2_takes_all_its_steps_once():
    ran = Ran(qos=2, shared_groups=0)
    steps = Counter(ran.columns["kind"].tolist())
    assert not ran.violated
    assert (
        steps[EventKind.DELIVER] == steps[EventKind.RECEIVE] == steps[EventKind.RELEASE] == steps[EventKind.ACKNOWLEDGE]
    )
    assert ran.met["exactly-once"] == ran.counts["published"] == steps[EventKind.DELIVER]


@pytest.mark.parametrize("seed", [1, *(pytest.param(one, marks=pytest.mark.exhaustive) for one in (2, 3))])
@pytest.mark.parametrize("qos", [{"qos": 2}, {**MIXED, "applications": 2, "shared_groups": 2}])
def test_every_law_holds_when_applications_and_members_come_and_go(seed, qos):
    ran = Ran(seed, **COMING_AND_GOING, **qos)
    assert not ran.violated
    assert ran.system.is_quiet()


def test_several_partitions_of_one_application_keep_the_order_of_what_is_sent_again():
    for seed in (2, 4):
        ran = Ran(
            seed, **{**COMING_AND_GOING, "online_s": 0.15, "offline_s": 0.1}, application_partitions=3, applications=2
        )
        assert not ran.violated
        assert ran.met["retransmission"] > 0


def test_who_forgets_a_pubrec_sends_the_message_again(monkeypatch):
    settings = {**COMING_AND_GOING, "qos": 2, "shared_groups": 0}
    seed = next(seed for seed in range(10) if Ran(seed, **settings).counts.get("pubrels_again"))
    monkeypatch.setattr(Application, "received", lambda session, place: None)
    assert "retransmission" in Ran(seed, **settings).violated


CRASH = {"qos": 2, "shared_groups": 0, "brokers": 2, "application_us": 2000.0, "receive_maximum": 50}
"""The broker that has the application dies when nobody publishes any more: the queue holds each message once."""


def crash(**more):
    broker = int(Ran(**{**CRASH, "application_us": 1.0}).system.world.traffic.subscribers.broker[0])
    return Ran(**CRASH, faults=f"broker-crash@0.9:{broker}", **more)


def test_a_broker_that_dies_takes_no_exchange_along():
    ran = crash()
    assert not ran.violated
    assert ran.counts["faults"] == 1
    assert (np.array(ran.of(EventKind.DELIVER, "dup")) == 1).any()


def test_a_broker_that_forgets_what_is_complete_breaks_exactly_once(monkeypatch):
    complete = Queue.complete

    def forget(queue, place):
        complete(queue, place)
        queue.completed.discard(place)

    monkeypatch.setattr(Queue, "complete", forget)
    assert "exactly-once" in crash().violated


# -- groups ----------------------------------------------------------------------------------------------------

GROUP = {"qos": 2, "applications": 0, "brokers": 2, "publishers": 30, "drain_s": 30.0, "max_poll_records": 50}
CRASHED = {**GROUP, "faults": "broker-crash@0.65:0", "application_us": 8000.0}
"""Others read the partitions of the members that were connected to the broker, from where they were committed."""
AWAY = {
    **GROUP,
    "rate": 10.0,
    "duration_s": 3.0,
    "offline_share": 1.0,
    "online_s": 0.6,
    "offline_s": 1.5,
    "slow_share": 1.0,
    "slow_read_ms": 4.0,
}
"""Members go for longer than a rebalance takes, with packets in their socket buffers that they have not read."""


@pytest.mark.parametrize("settings", [CRASHED, AWAY])
def test_a_group_gets_each_message_with_qos_2_once_and_in_order_whoever_goes(settings):
    ran = Ran(**settings)
    assert not ran.violated
    assert ran.system.is_quiet()
    assert len(set(zip(*ran.of(EventKind.DELIVER, "publisher", "sequence"), strict=True))) == ran.counts["published"]


def test_what_a_member_has_begun_comes_again_to_itself_alone():
    members = {}
    given = ApplicationDelivery._send

    def note(delivery, session, found):
        for place, _ in found:
            members.setdefault(place, []).append(session.number)
        return given(delivery, session, found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ApplicationDelivery, "_send", note)
        Ran(**CRASHED)
    assert max(map(len, members.values())) > 1
    assert all(len(set(numbers)) == 1 for numbers in members.values())


def test_a_member_that_gets_what_another_has_begun_breaks_exactly_once(monkeypatch):
    monkeypatch.setattr(ApplicationDelivery, "_due", lambda delivery, session, found: found)
    assert "exactly-once" in Ran(**CRASHED).violated


def test_a_member_that_overtakes_what_another_has_begun_breaks_order(monkeypatch):
    monkeypatch.setattr(Queue, "holder_of", lambda queue, publisher: None)
    assert Ran(**AWAY).violated == {"fifo"}


# -- packet identifiers and Receive Maximum --------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_receive_maximum_is_kept_and_a_larger_window_breaks_it(qos):
    def widen(system):
        system.applications.window = 50

    limited = {"qos": qos, "receive_maximum": 5, "shared_groups": 0, "rate": 100.0, **COMING_AND_GOING}
    kept, broken = Ran(**limited), Ran(**limited, before=widen)
    assert not kept.violated
    assert kept.met["receive-maximum"] > 1000
    assert broken.violated == {"receive-maximum"}


def test_an_identifier_that_is_in_use_breaks_packet_id(monkeypatch):
    honest = Application.identifier

    def repeat(session, place, copy, in_flight_max):
        session.last_packet_id %= 3
        return honest(session, place, copy, in_flight_max)

    monkeypatch.setattr(Application, "identifier", repeat)
    assert "packet-id" in Ran(shared_groups=0, rate=100.0).violated


# -- retained messages -----------------------------------------------------------------------------------------

RETAINED = {
    "retained_share": 0.5,
    "resubscribe": True,
    "offline_share": 1.0,
    "online_s": 0.15,
    "offline_s": 0.1,
    "brokers": 2,
}


RETAINED_MIX = {**MIXED, "retained_share": 0.5, "resubscribe": True, "slow_share": 0.5, "slow_read_ms": 1.0}


@pytest.mark.parametrize("qos", [{"qos": 0}, {"qos": 1}, {"qos": 2}, {**MIXED, "applications": 2, "shared_groups": 2}])
def test_a_subscribe_is_answered_with_retained_messages_but_not_of_a_group(qos):
    ran = Ran(**RETAINED, **qos)
    assert not ran.violated
    flags, subscribers, packet_ids = ran.of(EventKind.DELIVER, "retained", "subscriber", "packet_id")
    retained = [who for flag, who in zip(flags, subscribers, strict=True) if flag]
    assert len(retained) == ran.counts["delivered_retained"] > 0
    assert set(retained) <= {queue.code for queue in ran.queues if not queue.is_shared}
    if qos == {"qos": 2}:
        assert all(packet_id > 0 for flag, packet_id in zip(flags, packet_ids, strict=True) if flag)


def test_a_broker_that_takes_a_shared_filter_for_its_plain_one_answers_groups_too(monkeypatch):
    monkeypatch.setattr(ApplicationSubscriptions, "_wanted", lambda subscribing, subscriber: (0, "p/#"))
    assert Ran(**RETAINED, applications=0).counts["delivered_retained"] > 0


@pytest.mark.parametrize(
    ("settings", "answered"), [({"retain_handling": 1}, False), ({"retain_handling": 2}, False), ({}, True)]
)
def test_retain_handling_says_which_subscribe_is_answered(settings, answered):
    """A session that exists has the subscription: Retain Handling 1 is of new ones."""
    assert (Ran(**RETAINED, **settings).counts["delivered_retained"] > 0) == answered


def test_empty_messages_remove_what_was_retained():
    ran = Ran(**RETAINED, retained_clear_every=2, retain_as_published=False)
    flags, sequences = ran.of(EventKind.DELIVER, "retained", "sequence")
    kept = {sequence for flag, sequence in zip(flags, sequences, strict=True) if flag}
    assert not ran.violated
    assert kept <= set(range(0, 100, 2))


# -- slow readers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_slow_application_takes_its_packets_one_by_one_and_holds_up_nobody_else(qos):
    ran = Ran(qos=qos, applications=2, shared_groups=0, slow_share=0.5, slow_read_ms=2.0)
    times, subscribers = ran.of(EventKind.DELIVER, "time_us", "subscriber")
    between = {
        who: np.diff([at for at, one in zip(times, subscribers, strict=True) if one == who]) for who in set(subscribers)
    }
    assert not ran.violated
    assert sorted(int(steps.min()) >= 2000 for steps in between.values()) == [False, True]


def test_the_fault_of_a_slow_consumer_strikes_applications():
    struck, spared = (
        Ran(brokers=1, shared_groups=0, **more).of(EventKind.DELIVER, "time_us")
        for more in ({"faults": "slow-consumer@0.3:0"}, {})
    )
    assert max(struck[0]) > max(spared[0])


@pytest.mark.parametrize("more", [{}, {"slow_share": 1.0, "slow_read_ms": 1.0}])
def test_what_a_client_works_on_for_long_is_recorded_in_time(monkeypatch, more):
    monkeypatch.setattr(recording, "FLUSH_ROWS", 64)
    ran = Ran(application_us=1000.0, rate=60.0, applications=1, shared_groups=0, **more)
    assert not ran.violated
    assert ran.counts["delivered"] == ran.counts["published"] > 1000


def test_the_seed_decides_everything():
    same = [Ran(seed, **COMING_AND_GOING, **RETAINED_MIX).system.digest for seed in (1, 1, 2)]
    assert same[0] == same[1] != same[2]


def test_what_was_on_its_way_to_a_broker_that_died_is_not_waited_for():
    ran = Ran(
        3,
        **{**MIXED, "applications": 1, "shared_groups": 1},
        brokers=3,
        faults="broker-crash@0.3:0 broker-crash@0.35:1",
    )
    downlinks = [
        group for group in ran.system.world.kafka.groups if group.partitions[0].topic.startswith("msg.downlink")
    ]
    assert any(group.committed[part] < part.log.end_offset for group in downlinks for part in group.partitions)
    assert ran.system.is_quiet()
    assert not (ran.columns["kind"] == EventKind.CUT).any()
    assert "at-least-once" not in ran.violated
