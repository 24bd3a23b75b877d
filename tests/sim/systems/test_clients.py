"""How clients behave, in whole systems: mixed QoS, retained messages, bursts, reconnects, slow readers; what breaks the
laws and what does not."""

from dataclasses import replace

import numpy as np
import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.errors import InputError
from orderlab.model.history.events import EventKind
from orderlab.sim.mqtt.topics import RETAINED_FROM
from orderlab.sim.systems.catalogue import entry, settings_of

SMALL = {
    "publishers": 40,
    "rate": 25.0,
    "warm_up_s": 0.1,
    "duration_s": 0.5,
    "session_timeout_s": 0.2,
    "request_timeout_s": 0.2,
    "pack_pause_s": 0.1,
    "drain_s": 3.0,
}
MIXED = {"publish_qos": "0=0.3 1=0.3 2=0.4", "subscription_qos": "0=0.2 1=0.4 2=0.4"}
MOVING = {"offline_share": 0.6, "online_s": 0.1, "offline_s": 0.05}


class Ran:
    """A run, its history and its verdicts."""

    def __init__(self, name="tbmq-p2p", seed=1, before=lambda system: None, **settings):
        batches = []
        self.system = entry(name).assemble(settings_of(name, {**SMALL, **settings}), seed, [batches.append])
        before(self.system)
        self.counts = self.system.run()["counts"]
        verdicts, _ = judge(in_memory("run", batches, self.system.names()), Question())
        self.violated = {verdict.law for verdict in verdicts if verdict.outcome == "violated"}
        self.work = {verdict.law: verdict.work for verdict in verdicts}
        names = (
            "time_us",
            "kind",
            "publisher",
            "subscriber",
            "qos",
            "delivered_qos",
            "packet_id",
            "dup",
            "retained",
            "sequence",
        )
        columns = {name: np.concatenate([getattr(batch, name) for batch in batches]) for name in names}
        self.of_kind = {
            kind: {name: column[columns["kind"] == kind] for name, column in columns.items()} for kind in EventKind
        }

    def rows(self, kind):
        return len(self.of_kind[kind]["kind"])


# -- mixed QoS -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tbmq-p2p", "tbmq-jedis", "tbmq-postgres"])
def test_every_delivery_has_the_lower_qos_and_only_the_steps_of_that(name):
    ran = Ran(name, **MIXED)
    assert not ran.violated
    levels = ran.system.world.traffic.qos
    delivered = ran.of_kind[EventKind.DELIVER]
    own = delivered["publisher"]
    assert (delivered["delivered_qos"] == np.minimum(levels.published[own], levels.granted[own])).all()
    assert set(zip(delivered["qos"].tolist(), delivered["delivered_qos"].tolist(), strict=True)) >= {
        (0, 0),
        (1, 1),
        (2, 0),
        (2, 1),
        (2, 2),
    }
    assert ((delivered["packet_id"] > 0) == (delivered["delivered_qos"] > 0)).all()
    number = np.bincount(delivered["delivered_qos"])
    assert ran.rows(EventKind.RECEIVE) == ran.rows(EventKind.RELEASE) == number[2]
    assert ran.rows(EventKind.ACKNOWLEDGE) == number[1] + number[2]
    published = ran.of_kind[EventKind.PUBLISH]["qos"]
    assert ran.rows(EventKind.PUBLISH_ACKNOWLEDGED) == int((published > 0).sum())
    assert ran.work["exactly-once"]["antecedents"] == number[2]


@pytest.mark.parametrize(
    "settings", [{}, {"brokers": 2, "scripts": "session", "clean_start_share": 0.3}, {"receive_maximum": 2}]
)
def test_only_qos_0_is_missed_by_who_is_away(settings):
    ran = Ran(**MIXED, **MOVING, **settings)
    assert not ran.violated
    assert ran.counts["delivered"] < ran.counts["published"]
    assert ran.work["at-least-once"]["antecedents"] > 100


def test_a_broker_that_sends_everything_with_qos_0_is_accused():
    def downgrade(system):
        for broker in system.world.brokers:
            broker.routing.traffic = replace(system.world.traffic, qos=_Downgraded(system.world.traffic.qos))

    assert "at-least-once" in Ran(**MIXED, **MOVING, before=downgrade).violated


class _Downgraded:
    """Levels of QoS, for a routing that takes every delivery for QoS 0."""

    def __init__(self, levels):
        self._levels = levels

    def of_deliveries(self, publishers, subscribers):
        return np.zeros(len(publishers), np.int64)

    def __getattr__(self, name):
        return getattr(self._levels, name)


def test_a_crash_doubles_qos_2_and_costs_the_other_levels_nothing():
    crash = {
        "brokers": 2,
        "scripts": "session",
        "handover": "before-commit",
        "faults": "broker-crash-before-commit@0.36:0",
        "rate": 100.0,
    }
    assert Ran(qos=2, **MOVING, **crash).violated == {"exactly-once"}  # who read `msg.all` again routed it again
    assert Ran(publish_qos="0=0.4 1=0.6", **MOVING, **crash).violated <= {"retransmission"}, (
        "it died with PUBACKs in its hands"
    )


def test_laws_say_how_much_of_each_qos_they_saw():
    work = Ran(**MIXED).work["fifo"]
    assert sum(work[f"first_deliveries_qos{qos}"] for qos in range(3)) == work["first_deliveries"]
    assert all(work[f"first_deliveries_qos{qos}"] > 0 for qos in range(3))


# -- packets in flight -----------------------------------------------------------------------------------------

BUSY = {"publishers": 10, "rate": 400.0, "duration_s": 0.2, "receive_maximum": 2}


def test_a_broker_that_ignores_receive_maximum_is_accused():
    def ignore(system):
        system.world.delivery.windows.admit = lambda deliveries, is_backlog: deliveries

    assert Ran(**BUSY, before=ignore).violated == {"receive-maximum"}
    kept = Ran(**BUSY)
    assert not kept.violated
    assert kept.work["receive-maximum"]["antecedents"] == kept.counts["delivered"] > 500


def test_a_store_that_gives_an_identifier_out_again_too_early_is_accused():
    def few(system):
        inner = system.world.storage.store.assigned
        system.world.storage.store.assigned = lambda reply, count: [
            (number % 2 + 1, token) for number, token in inner(reply, count)
        ]

    unlimited = {**BUSY, "receive_maximum": 65_535}
    assert "packet-id" in Ran(**unlimited, before=few).violated
    kept = Ran(**unlimited)
    assert not kept.violated
    assert kept.work["packet-id"]["antecedents"] > 100


# -- retained messages -----------------------------------------------------------------------------------------

RETAINED = {"retained_share": 0.5, **MOVING, "resubscribe": True}


@pytest.mark.parametrize(
    ("name", "scripts"),
    [
        pytest.param("tbmq-p2p", "published", marks=pytest.mark.exhaustive),
        ("tbmq-p2p", "session"),
        ("tbmq-postgres", None),
    ],
)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_who_subscribes_again_gets_the_last_retained_message_with_its_flag(name, scripts, qos):
    ran = Ran(name, qos=qos, **RETAINED, **({} if scripts is None else {"scripts": scripts}))
    assert not ran.violated
    delivered, published = ran.of_kind[EventKind.DELIVER], ran.of_kind[EventKind.PUBLISH]
    retained = delivered["retained"] == 1
    assert int(retained.sum()) == ran.counts["delivered_retained"] > 20
    sets_retain = set(published["publisher"][published["retained"] == 1].tolist())
    assert set(delivered["publisher"][retained].tolist()) <= sets_retain
    assert len(sets_retain) == 20
    for publisher, sequence, at in zip(
        *(delivered[name][retained].tolist() for name in ("publisher", "sequence", "time_us")), strict=True
    ):
        earlier = (published["publisher"] == publisher) & (published["time_us"] < at - 60_000)
        assert sequence >= published["sequence"][earlier].max(initial=-1), "the last one, but for what is on its way"


def test_a_retained_message_that_loses_its_flag_is_a_double():
    def forget(system):
        inner = system.world.traffic.retaining.seen
        system.world.traffic.retaining.seen = lambda copies: (
            inner(copies)[0],
            {"retained": np.zeros(len(copies), np.int64)},
        )

    assert "exactly-once" in Ran(qos=2, before=forget, **RETAINED).violated


@pytest.mark.parametrize(("handling", "gets_some"), [(0, True), (1, False), (2, False)])
def test_retain_handling_of_subscriptions_that_exist(handling, gets_some):
    assert bool(Ran(**RETAINED, retain_handling=handling).counts["delivered_retained"]) == gets_some


@pytest.mark.parametrize(("handling", "gets_some"), [(0, True), (1, True), (2, False)])
def test_retain_handling_of_new_subscriptions(handling, gets_some):
    settings = {**RETAINED, "resubscribe": False, "clean_start_share": 1.0, "scripts": "session"}
    ran = Ran(**settings, retain_handling=handling)
    assert not ran.violated
    assert bool(ran.counts["delivered_retained"]) == gets_some


def test_retain_as_published_keeps_the_flag_of_what_is_sent_on():
    ran = Ran(**RETAINED, retain_as_published=True)
    assert not ran.violated
    delivered, sets_retain = ran.of_kind[EventKind.DELIVER], ran.system.world.traffic.retaining.by_publisher
    assert (delivered["retained"] == sets_retain[delivered["publisher"]]).all()


def test_an_empty_message_removes_what_was_retained():
    ran = Ran(**RETAINED, retained_clear_every=1)
    assert ran.counts["delivered_retained"] == 0
    some = Ran(**RETAINED, retained_clear_every=2)
    delivered = some.of_kind[EventKind.DELIVER]
    assert (delivered["sequence"][delivered["retained"] == 1] % 2 == 0).all()
    assert some.counts["delivered_retained"] > 0


def test_a_retained_message_expires():
    slow = {"rate": 2.0, "duration_s": 2.0, "offline_share": 1.0}
    kept, ended = (Ran(**{**RETAINED, **slow}, expiry_s=expiry_s).counts["delivered_retained"] for expiry_s in (60, 1))
    assert 0 < ended <= kept
    system = Ran(**{**RETAINED, **slow}, expiry_s=60).system
    topic = system.world.traffic.topics[_retaining(system)].decode()
    assert len(system.world.traffic.retaining.on_subscribe(topic, 10**9, True)) == 0


def _retaining(system):
    return int(np.flatnonzero(system.world.traffic.retaining.by_publisher)[0])


def test_a_lost_connection_finds_retained_messages_in_the_store():
    ran = Ran(qos=1, **{**RETAINED, "offline_share": 1.0, "online_s": 0.02, "offline_s": 0.01}, rate=100.0)
    assert ran.violated <= {"retransmission"}, "as published, what was acknowledged may be read once more"
    delivered = ran.of_kind[EventKind.DELIVER]
    assert ((delivered["retained"] == 1) & (delivered["dup"] == 1)).any()
    assert (delivered["sequence"] < RETAINED_FROM // 40).all()


# -- on and off, reconnects, slow readers ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tbmq-p2p", "tbmq-application"])
@pytest.mark.parametrize("pattern", [pytest.param("regular", marks=pytest.mark.exhaustive), "exponential", "together"])
def test_bursts_keep_every_law(name, pattern):
    ran = Ran(name, publish_on_s=0.08, publish_off_s=0.12, publish_pattern=pattern, rate=100.0)
    assert not ran.violated
    assert ran.counts["delivered"] >= ran.counts["published"] > 300


def test_a_crowd_that_publishes_at_once_waits_longer():
    few_cores = {"broker_cores": 1, "rate": 1000.0, "publishers": 100, "publish_on_s": 0.02, "publish_off_s": 0.18}
    spread, together = (
        Ran(**few_cores, publish_pattern=pattern).system.world.measured.delivery_latency.mean_us()
        for pattern in ("regular", "together")
    )
    assert together > 1.2 * spread


@pytest.mark.parametrize("pattern", ["exponential", "regular", "together"])
def test_reconnects_of_every_pattern_keep_every_law(pattern):
    ran = Ran(**MOVING, reconnect_pattern=pattern, brokers=2)
    assert not ran.violated
    lost = ran.of_kind[EventKind.DISCONNECT]
    at_once = np.unique(lost["time_us"], return_counts=True)[1].max()
    assert len(lost["kind"]) > 20
    assert (at_once == 24) == (pattern == "together")
    if pattern == "regular":
        one = np.sort(lost["time_us"][lost["subscriber"] == lost["subscriber"][0]])
        assert np.diff(one).tolist() == pytest.approx([150_000] * (len(one) - 1), abs=1)


def test_slow_readers_get_everything_late_and_the_others_do_not():
    ran = Ran(slow_share=0.25, slow_read_ms=60.0)
    assert not ran.violated
    delivered = ran.of_kind[EventKind.DELIVER]
    schedule = ran.system.world.traffic.schedule
    waited = delivered["time_us"] - schedule.published_us(
        delivered["sequence"] * schedule.count + delivered["publisher"]
    )
    slow = [np.median(waited[delivered["publisher"] == one]) > 60_000 for one in range(40)]
    assert sum(slow) == 10


def test_what_waits_in_the_sockets_of_slow_readers_at_the_end_is_not_lost():
    ran = Ran(slow_share=0.5, slow_read_ms=200.0, drain_s=0.2)
    assert not ran.violated
    assert ran.rows(EventKind.CUT) == 1
    assert ran.counts["delivered"] < 0.9 * ran.counts["published"]


def test_what_waited_in_the_socket_of_a_lost_connection_holds_nobody_up_on_the_next():
    ran = Ran(slow_share=1.0, slow_read_ms=100.0, offline_share=1.0, online_s=0.05, offline_s=0.02, duration_s=0.3)
    assert not ran.violated
    assert ran.rows(EventKind.CUT) == 0, "10 messages each take 1 s of 3 to read"


@pytest.mark.parametrize(
    "settings", [MIXED, RETAINED, {"publish_on_s": 0.08, "publish_off_s": 0.1, "publish_pattern": "exponential"}]
)
def test_the_seed_decides_everything(settings):
    same = [Ran(seed=seed, **settings).system.digest for seed in (1, 1, 2)]
    assert same[0] == same[1] != same[2]


@pytest.mark.parametrize(("qos", "seed"), [(1, 1), (1, 2), (1, 4), (2, 0), (2, 12)])
def test_a_message_that_a_retained_one_has_overtaken_holds_back_what_came_with_it(qos, seed):
    """The retained message is saved later and pushed earlier. What is late then is read from the store; its successors
    of the same pack may not go first."""
    ran = Ran(
        seed=seed,
        qos=qos,
        scripts="session",
        handover="before-commit",
        publishers=20,
        rate=100,
        duration_s=0.5,
        warm_up_s=0.15,
        retained_share=0.5,
        resubscribe=True,
        offline_share=1,
        online_s=0.02,
        offline_s=0.01,
    )
    assert not ran.violated
    assert ran.counts["delivered_retained"] > 50
    assert ran.counts["pushes_behind_newer_ones"] > 0


@pytest.mark.parametrize(("name", "settings", "complaint"), [
    ("tbmq-p2p", {"publish_qos": "1=0.5"}, "add up to 1"),
    ("tbmq-p2p", {"publish_on_s": 1}, "go together"),
    ("tbmq-p2p", {"publish_on_s": 0.01, "publish_off_s": 1, "rate": 10}, "shorter than"),
    ("tbmq-p2p", {"publish_pattern": "together"}, "publish_on_s"),
    ("tbmq-p2p", {"retained_share": 0.5}, "nobody subscribes"),
    ("tbmq-p2p", {"retained_share": 0.5, "offline_share": 0.5}, "resubscribe"),
    ("tbmq-p2p", {"retain_handling": "3"}, "retain_handling"),
    ("tbmq-p2p", {"slow_share": 1.5}, "slow_share"),
    ("tbmq-p2p", {"inbound": "store"}, "idempotent=true"),
    ("tbmq-p2p", {"inbound": "fenced"}, "inbound=fenced numbers"),
    ("tbmq-p2p", {"inbound": "store", "scripts": "session"}, "idempotent=true"),
    ("tbmq-jedis", {"inbound": "store", "idempotent": True, "acks": "all"}, "scripts=session"),
    ("tbmq-application", {"clean_start_share": 0.5, "offline_share": 0.5}, "keep their sessions"),
])  # fmt: skip
def test_settings_that_make_no_sense_are_refused(name, settings, complaint):
    with pytest.raises(InputError, match=complaint):
        settings_of(name, settings)
