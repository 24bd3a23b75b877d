"""Witnesses of simulated runs say where: the fault, who had the message last, whether something has it still."""

import shlex
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from orderlab.model.checkers.findings import Finding
from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.history.events import EventBatch, EventKind
from orderlab.model.verdict import Outcome, Verdict
from orderlab.properties.simulation_witness import Cause, Shrunk, _Search, located, needed_faults, shrunk
from orderlab.sim.fault_schedule import parse_faults
from orderlab.sim.systems.blame import STAGES, FeedWatch, Reached, Wanted, Watch, _turned, _Watched
from orderlab.sim.systems.catalogue import SYSTEMS, settings_of

SMALL = {
    "publishers": 30, "rate": 20.0, "brokers": 2, "warm_up_s": 0.1, "duration_s": 0.7, "session_timeout_s": 0.2,
    "request_timeout_s": 0.2, "pack_pause_s": 0.1, "drain_s": 3.0,
}  # fmt: skip
AWAY = {"offline_share": 0.6, "offline_s": 0.4}


def judged(given, seed=1, is_proved=False, **question):
    """The verdicts of a run by law, located."""
    chosen, batches = settings_of("tbmq-p2p", given), []
    system = SYSTEMS["tbmq-p2p"].assemble(chosen, seed, [batches.append])
    system.run()
    asked = Question(**question)
    verdicts, _ = judge(in_memory("run", batches, system.names()), asked)
    needed = needed_faults(verdicts, 1_000, "tbmq-p2p", chosen, seed, asked) if is_proved else None
    return {verdict.law: verdict for verdict in located(verdicts, "tbmq-p2p", chosen, seed, needed)}


@pytest.mark.parametrize(
    ("fault", "settings", "state", "node"),
    [
        ("redis-restart@0.4:0", AWAY, "lost", "redis-0"),  # it comes back with nothing
        ("broker-crash-after-commit@0.4:0", {"publishers": 60}, "withheld", "broker-0"),  # saved, and never sent on
    ],
)
def test_what_is_gone_is_told_from_what_still_waits_in_the_store(fault, settings, state, node):
    witness = judged({**SMALL, "faults": fault, **settings})["at-least-once"].witness
    where = witness.where
    assert (where["state"], where["last_stage"], bool(where["held_by"])) == (state, "store", state == "withheld")
    assert (where["fault"]["name"], where["fault"]["node"], where["fault"]["at_us"]) == (
        fault.partition("@")[0],
        node,
        400_000,
    )
    rows = {event["event_id"]: event for event in witness.events}
    assert rows[where["fault"]["event_id"]]["kind"] == "fault"
    assert f"session {witness.subscriber}, saved by" in where["last_had_by"]


@pytest.mark.parametrize(
    ("rows", "faults", "is_tried"), [(80_000, 2, True), (80_001, 2, False), (20_000, 8, True), (30_000, 8, False)]
)
def test_a_run_is_made_again_without_each_fault_as_long_as_all_of_them_are_short(rows, faults, is_tried, monkeypatch):
    tried = []
    monkeypatch.setattr("orderlab.properties.simulation_witness.entry", lambda system: tried.append(system) or 1 / 0)
    given = settings_of(
        "tbmq-p2p", {"faults": " ".join(f"redis-restart@0.{number}:0" for number in range(1, faults + 1))}
    )
    broken = Verdict("fifo", Outcome.VIOLATED, Finding("2 before 1", 1))
    try:
        assert needed_faults([broken], rows, "tbmq-p2p", given, 0, Question()) == {}
    except ZeroDivisionError:
        assert tried
    assert bool(tried) is is_tried


def test_of_faults_that_strike_at_once_the_row_of_the_one_to_blame_is_named():
    witness = judged({**SMALL, **AWAY, "faults": "slow-consumer@0.4:1 redis-restart@0.4:0"})["at-least-once"].witness
    rows = {event["event_id"]: event for event in witness.events if event["kind"] == "fault"}
    assert sorted(row["operation"] for row in rows.values()) == ["redis-restart", "slow-consumer"]
    assert rows[witness.where["fault"]["event_id"]]["operation"] == witness.where["fault"]["name"] == "redis-restart"


@pytest.mark.parametrize(
    ("seed", "needed", "beside"),
    [
        (1041, "network-partition@0.709:0", "slow-consumer@0.49:0 client-link-slow@0.729:0"),
        (1067, "redis-old-master@0.65:1", "redis-failover@0.849:0"),
    ],
)
def test_of_several_faults_one_without_which_the_law_holds_is_blamed(seed, needed, beside):
    given = {
        **SMALL, "publishers": 8, "duration_s": 0.9, "offline_share": 0.4, "offline_s": 0.3, "command_timeout_s": 0.2,
        "redis_replica_lag_ms": 100.0, "scripts": "published",
    }  # fmt: skip
    law = "fifo" if seed == 1041 else "at-least-once"
    both = {**given, "faults": f"{beside} {needed}"}
    found = judged(both, seed, is_proved=True, laws=(law,))[law].witness.where["fault"]
    assert (found["name"], found.get("is_proved")) == (needed.partition("@")[0], True)
    guessed = judged(both, seed, laws=(law,))[law].witness.where["fault"]
    assert guessed["name"] != found["name"], "what place and time alone say"
    assert "is_proved" not in guessed
    assert judged({**given, "faults": beside}, seed, laws=(law,))[law].outcome is not Outcome.VIOLATED


def test_the_stage_is_told_that_turned_the_order():
    where = judged({**SMALL, "faults": "kafka-leader-change@0.4:0"})["fifo"].witness.where
    assert where["state"] == "delivered"
    assert where["turned_at"].startswith("msg.")
    assert (where["fault"]["name"], where["other_way"] != where["way"]) == ("kafka-leader-change", True)


def test_who_turned_the_order_is_blamed_and_not_what_struck_the_last_holder():
    """The failover strikes the store that has the message last, and alone breaks nothing; order turned before it."""
    replicas = {**SMALL, "redis_replica_lag_ms": 1.0}
    both = judged({**replicas, "faults": "kafka-leader-change@0.4:0 redis-failover@0.5:0"})["fifo"].witness.where
    assert (both["turned_stage"], both["fault"]["name"]) == ("msg.all", "kafka-leader-change")
    assert judged({**replicas, "faults": "redis-failover@0.5:0"})["fifo"].witness is None


def at(stage: str, at_us: int, node: str) -> Reached:
    return Reached(at_us, stage, f"{stage} of {node}", node)


@pytest.mark.parametrize(
    ("stage", "nodes", "struck", "blamed"),
    [
        # the store is reached later than msg.all
        ("msg.all", ("kafka-1", "kafka-1"), [("redis-failover", "redis-0", 50), ("kafka-leader-change", "kafka-0", 40)],
         "kafka-leader-change"),
        ("store", ("redis-0", "redis-1"), [("redis-failover", "redis-0", 50), ("kafka-leader-change", "kafka-0", 40)],
         "redis-failover"),
        # of two at the same kind of node, the one that struck this node while the message was on its way
        ("store", ("redis-0", "redis-0"), [("redis-stall", "redis-0", 30), ("redis-failover", "redis-1", 50)],
         "redis-stall"),
        ("store", ("redis-0", "redis-0"), [("redis-stall", "redis-0", 5), ("redis-failover", "redis-1", 50)],
         "redis-failover"),
        # nothing that struck when order had turned
        ("store", ("redis-0", "redis-0"), [("redis-stall", "redis-0", 101)], None),
    ],
)  # fmt: skip
def test_the_fault_is_told_that_struck_where_and_before_order_turned(stage, nodes, struck, blamed):
    first = [at("publisher", 10, ""), at(stage, 100, nodes[0])]
    second = [at("publisher", 20, ""), at(stage, 90, nodes[1])]
    turned = _turned(first, second, (1, 2), struck, ("publisher", *STAGES))
    assert (turned.stage, turned.fault and turned.fault["name"]) == (stage, blamed)
    assert _turned(first, [at("publisher", 20, ""), at(stage, 110, nodes[1])], (1, 2), struck, STAGES) is None


def test_a_copy_that_its_log_has_lost_is_in_no_order(monkeypatch):
    monkeypatch.setattr(Watch, "_struck", lambda self: [])
    watch = Watch([Wanted("p", 1, "s"), Wanted("p", 2, "s")])
    lost, again, other = at("msg.all", 10, "kafka-0"), at("msg.all", 100, "kafka-1"), at("msg.all", 50, "kafka-1")
    watch._watched = [_Watched(0, range(1), [lost, again], [lost]), _Watched(1, range(1), [other])]
    assert watch.turned(0, 1).told == "msg.all of kafka-1 had 2, then msg.all of kafka-1 1"
    watch._watched[0].lost_by.clear()
    assert watch.turned(0, 1) is None


def test_no_fault_is_blamed_that_struck_after_the_break():
    moving = {
        "offline_share": 0.5,
        "online_s": 0.1,
        "offline_s": 0.05,
        "clean_start_share": 0.4,
        "qos": 1,
        "partitions": 4,
    }
    given = {**SMALL, **moving, "brokers": 3, "duration_s": 0.3}
    broken = judged({**given, "faults": "slot-migration@0.35:0"})["no-phantom"].witness
    assert broken.where["fault"] is None or broken.where["fault"]["at_us"] <= broken.events[-1]["time_us"]
    assert judged(given)["no-phantom"].witness.where["fault"] is None


def gone_with_a_leader(at_s: float) -> list[dict[str, Any]]:
    """Where what was acknowledged and never delivered had got to, of every tenth such message, after a leader left at
    ``at_s``."""
    chosen, batches = (
        settings_of("tbmq-p2p", {"publishers": 1000, "brokers": 2, "faults": f"kafka-leader-change@{at_s}:0"}),
        [],
    )
    system = SYSTEMS["tbmq-p2p"].assemble(chosen, 0, [batches.append])
    counts = system.run()["counts"]
    acknowledged, delivered = (
        {
            (publisher, sequence)
            for batch in batches
            for publisher, sequence in np.stack((batch.publisher, batch.sequence), 1)[batch.kind == kind].tolist()
        }
        for kind in (EventKind.PUBLISH_ACKNOWLEDGED, EventKind.DELIVER)
    )
    missing = sorted(acknowledged - delivered)[::10]
    watch = Watch([Wanted(f"p{publisher:07d}", sequence, f"s{publisher:07d}") for publisher, sequence in missing])
    again = SYSTEMS["tbmq-p2p"].assemble(chosen, 0, [])
    watch.attach(again.world, again.names(), again.groups())
    assert (again.run()["counts"], again.digest) == (counts, system.digest), "to be watched changes nothing"
    return [watch.told(number, arrived=False) for number in range(len(missing))]


def test_what_a_leader_alone_had_is_lost_unless_the_store_has_it_too():
    found = list(gone_with_a_leader(0.3))
    with_leader = [where for where in found if "lost from" in " ".join(where["way"])]
    assert {where["last_stage"] for where in with_leader if where["state"] == "lost"} == {"msg.all"}
    assert {where["held_by"][0][:8] for where in with_leader if where["state"] == "withheld"} <= {"store of"}
    assert all("lost from" in " ".join(where["way"]) for where in found if where["state"] == "lost")
    unread = [where for where in found if where["last_stage"] == "msg.persisted"]
    assert unread
    assert all("its readers have not committed" in where["held_by"][0] for where in unread)


# -- the shortest run ------------------------------------------------------------------------------------------------


def test_a_run_is_shrunk_to_one_that_breaks_the_law_by_the_same_cause():
    faults = "slow-consumer@0.2:1 redis-restart@0.4:0 redis-stall@0.5:1:0.05"
    given = {**SMALL, **AWAY, "publishers": 40, "limit": 500, "faults": faults}
    heard = []
    found = shrunk("tbmq-p2p", settings_of("tbmq-p2p", given), 1, "at-least-once", Question(), 200, heard.append)
    assert found.is_finished
    assert (found.runs, heard[-1].settings, heard[-1].seed) == (heard[-1].runs, found.settings, found.seed)
    assert found.size["clients"] <= 5
    assert (found.size["messages"] <= 10, found.size["faults"]) == (True, 1)
    (fault,) = parse_faults(found.settings.faults)
    assert fault.duration_us <= 5000, "a restart that takes ten times as long loses no more"
    assert found.settings.limit == 10_000, "what has nothing to do with it is at its default"
    assert Cause.of(found.verdict) == Cause(
        "at-least-once",
        " was acknowledged to its publisher and never reached the subscriber",
        "redis-restart",
        "store",
        "lost",
    )
    command = shlex.split(found.command())
    again = dict(part.split("=", 1) for flag, part in pairwise(command) if flag == "--set")
    assert command[:3] == ["orderlab", "simulate", "tbmq-p2p"]
    assert settings_of("tbmq-p2p", again) == found.settings
    assert Cause.of(judged(again, int(command[4]))["at-least-once"]) == Cause.of(found.verdict)
    assert found.needed == (found.settings.faults,)
    assert (found.proved.witness.where["fault"]["is_proved"], "is_proved" in found.verdict.witness.where["fault"]) == (
        True,
        False,
    )


def test_two_faults_that_only_break_it_together_come_close_and_last_no_longer_than_they_must():
    given = {**LOSES, "applications": 2}
    question = Question(laws=("at-least-once",))
    found = shrunk("tbmq-application", settings_of("tbmq-application", given), 1, "at-least-once", question, 60)
    first, second = parse_faults(found.settings.faults)
    gap_us = second.at_us - first.at_us
    assert ((first.name, second.name), gap_us < 200_000) == (("kafka-isr-shrink", "kafka-leader-change"), True)
    assert gap_us <= first.duration_us < 500_000
    batches: list[Any] = []
    system = SYSTEMS["tbmq-application"].assemble(found.settings, found.seed, [batches.append])
    system.run()
    (verdict, *_), _ = judge(in_memory("again", batches, system.names()), question)
    (verdict,) = located([verdict], "tbmq-application", found.settings, found.seed)
    assert Cause.of(verdict) == Cause.of(found.verdict)


class _Blaming(_Search):
    """Runs that break `fifo` as soon as a leader changes (``needs``: with each of these faults), and blame a failover
    if there was one."""

    needs = ("kafka-leader-change",)

    def run(self, settings, seed):
        self.runs += 1
        struck = [word.partition("@")[0] for word in settings.faults.split()]
        if not set(self.needs) <= set(struck):
            return None
        blamed = "redis-failover" if "redis-failover" in struck else "kafka-leader-change"
        where = {"turned_stage": "msg.all", "state": "delivered", "fault": {"name": blamed}}
        return Shrunk(
            self.system,
            settings,
            seed,
            Verdict("fifo", Outcome.VIOLATED, Finding("2 before 1", 1, where=where), {}),
            {},
        )


@pytest.mark.parametrize("needs", [("kafka-leader-change",), ("kafka-leader-change", "redis-failover")])
def test_a_fault_that_is_blamed_and_not_needed_is_left_out(needs):
    """And its nearest neighbour: of two faults that are both needed, none is."""
    search = _Blaming("tbmq-p2p", Question(laws=("fifo",)), 100, None)
    search.needs = needs
    faults = "redis-failover@0.3:0 kafka-leader-change@0.4:0 redis-failover@0.45:0"
    search.begin(search.run(settings_of("tbmq-p2p", {**SMALL, "faults": faults}), 1))
    search._fewer_faults()
    assert sorted(fault.name for fault in parse_faults(search.best.settings.faults)) == sorted(needs)
    assert search._needed(search.best) == tuple(search.best.settings.faults.split())
    more = settings_of("tbmq-p2p", {**SMALL, "faults": f"{faults} kafka-leader-change@0.5:0"})
    assert search._needed(replace(search.best, settings=more)) == (), "either leader change is enough"


def test_an_outage_is_bisected_below_what_the_ladder_has():
    given = {**SMALL, "publishers": 10, "faults": "network-partition@0.3:0:0.9"}
    found = shrunk("tbmq-p2p", settings_of("tbmq-p2p", given), 1, "fifo", Question(), 60)
    (fault,) = parse_faults(found.settings.faults)
    assert 20_000 < fault.duration_us < 50_000, "between two lengths that are tried first"
    assert Cause.of(judged(found.settings.model_dump(), found.seed)["fifo"]) == Cause.of(found.verdict)


def test_faults_that_struck_at_random_are_written_down():
    rates = "redis-restart=3/s slow-consumer=6/s"
    given = {**SMALL, **AWAY, "publishers": 30, "fault_rates": rates}
    found = shrunk("tbmq-p2p", settings_of("tbmq-p2p", given), 1, "at-least-once", Question(), 14)
    assert (found.runs, found.is_finished, found.settings.fault_rates) == (14, False, "")
    assert "redis-restart@" in found.settings.faults


def test_what_holds_is_not_shrunk_and_a_system_without_brokers_is():
    assert shrunk("tbmq-p2p", settings_of("tbmq-p2p", {**SMALL, "publishers": 5}), 1, "fifo", Question()) is None
    race = {"producers": 6, "duration_s": 0.2, "warm_up_s": 0.05, "drain_s": 0.1}
    found = shrunk("zaqar-race", settings_of("zaqar-race", race), 0, "cursor-safe", Question(is_feed=True), 12)
    assert found.size["clients"] <= 3


# -- applications and groups -------------------------------------------------------------------------------------------

LOSES = {
    "publishers": 100,
    "rate": 10,
    "brokers": 2,
    "duration_s": 0.5,
    "faults": "kafka-isr-shrink@0.2:0:0.5 kafka-leader-change@0.4:0",
}


@pytest.mark.parametrize(("applications", "groups"), [(0, 1), (2, 0)])
def test_what_an_application_or_a_group_was_owed_is_located(applications: int, groups: int) -> None:
    given = {**LOSES, "applications": applications, "shared_groups": groups}
    chosen, batches = settings_of("tbmq-application", given), []
    system = SYSTEMS["tbmq-application"].assemble(chosen, 1, [batches.append])
    system.run()
    (verdict, *_), _ = judge(in_memory("tbmq-application", batches, system.names()), Question(laws=("at-least-once",)))
    (verdict,) = located([verdict], "tbmq-application", chosen, 1)
    whose = verdict.witness.subscriber
    assert whose == "$share/g0" if groups else whose.startswith("s")
    where = verdict.witness.where
    assert (where["state"], where["fault"]["name"], where["fault"]["node"]) == (
        "lost",
        "kafka-leader-change",
        "kafka-0",
    )
    assert where["last_stage"] in ("msg.all", "msg.app")
    assert "kafka-0, which alone had it" in where["way"][-1]


def test_a_log_that_keeps_all_loses_nothing_of_a_group() -> None:
    given = {**LOSES, "applications": 0, "acks": "all", "faults": "kafka-leader-change@0.4:0"}
    batches: list[Any] = []
    system = SYSTEMS["tbmq-application"].assemble(settings_of("tbmq-application", given), 1, [batches.append])
    system.run()
    (verdict, *_), _ = judge(in_memory("tbmq-application", batches, system.names()), Question(laws=("at-least-once",)))
    assert verdict.witness is None


# -- feeds
# ---------------------------------------------------------------------------------------------------------------

RACE = {"producers": 20, "queues": 1, "duration_s": 0.3, "warm_up_s": 0.05, "drain_s": 0.1}


def judged_feed(name: str, seed: int, **given: Any) -> dict[str, Any]:
    """Of each law that breaks, where."""
    chosen, batches = settings_of(name, given), []
    system = SYSTEMS[name].assemble(chosen, seed, [batches.append])
    system.run()
    verdicts, _ = judge(in_memory(name, batches, system.names()), Question(is_feed=True))
    return {
        verdict.law: verdict.witness for verdict in located(verdicts, name, chosen, seed) if verdict.witness is not None
    }


def test_what_a_reader_of_a_feed_passed_over_is_located():
    broken = judged_feed("zaqar-race", 0, **RACE, faults="redis-restart@0.25:0:0.01")
    assert {"at-least-once", "cursor-safe"} <= set(broken)
    for witness in broken.values():
        where = witness.where
        assert (where["state"], where["last_stage"]) == ("withheld", "store")
        assert where["held_by"][0].startswith("queue-0 on redis-0, entry ")
        assert where["held_by"][0].endswith(", past it")
        posted, counter, stored = where["way"]
        assert f"{witness.publisher}, posted to the web head" in posted
        assert "counter of queue-0 on redis-0, read: " in counter
        assert stored.endswith(", past it"), "behind the marker from the beginning"
        assert where["fault"] is None, "what strikes later is not to blame"


def test_what_breaks_without_any_fault_is_blamed_on_none():
    given = settings_of("zaqar-race", {**RACE, "faults": "redis-stall@0.1:0:0.01 redis-stall@0.15:0:0.01"})
    batches = list[EventBatch]()
    system = SYSTEMS["zaqar-race"].assemble(given, 0, [batches.append])
    system.run()
    asked = Question(laws=("cursor-safe",))
    verdicts, _ = judge(in_memory("run", batches, system.names()), asked)
    assert needed_faults(verdicts, 1_000, "zaqar-race", given, 0, asked) == {"cursor-safe": []}


def test_an_entry_or_a_hash_that_is_gone_is_told_apart():
    given = settings_of("zaqar-lua", {**RACE, "faults": "redis-stall@0.2:0:0.01"})
    system = SYSTEMS["zaqar-lua"].assemble(given, 0, [])
    watch = FeedWatch(
        [Wanted("producer-1", 1, "reader-0-0", "queue-0"), Wanted("producer-1", 1, "reader-7-7", "queue-0")]
    )
    watch.attach(system)
    system.run()
    unwatched = SYSTEMS["zaqar-lua"].assemble(given, 0, [])
    unwatched.run()
    assert system.digest == unwatched.digest, "to be watched changes nothing"
    shard, feed = system.processes[0].shard, system.feeds[0]
    name = next(
        name for name in shard.execute((b"ZRANGE", feed, b"0", b"-1")) if shard.execute((b"HGET", name, b"b")) == b"1:1"
    )

    def told(since_us: float = 0, arrived: bool = False):
        return watch.told(0, arrived, since_us)

    assert watch.told(1, False, 0) is None, "nobody of that name"
    stages = [reached.partition(" s: ")[2] for reached in told(arrived=True)["way"]]
    assert [words.split(",")[0] for words in stages[:3]] == ["producer-1", "hash on redis-0", "queue-0 on redis-0"]
    assert stages[3] == "reader-0-0 is handed it"
    assert told(arrived=True)["state"] == "delivered"
    assert told()["held_by"][0].startswith("queue-0 on redis-0, entry ")
    assert told()["fault"] == {"name": "redis-stall", "node": "redis-0", "at_us": 200_000}
    assert told(200_001)["fault"] is None
    shard.execute((b"ZREM", feed, name))
    assert told()["held_by"] == ["a hash on redis-0 that no entry of queue-0 leads to"]
    shard.execute((b"DEL", name))
    assert (told()["state"], told()["held_by"], told()["last_stage"]) == ("lost", [], "store")


# -- durable streams
# -----------------------------------------------------------------------------------------------------

STREAMS = {"publishers": 20, "rate": 50, "flush_ms": 20, "duration_s": 0.5, "warm_up_s": 0.05, "drain_s": 0.8}


@pytest.mark.parametrize(
    ("given", "law", "state", "stage", "gone", "fault"),
    [
        # acknowledged before it was stored: gone with the leader, or for want of a follower
        (
            {"acknowledge": "buffered", "faults": "broker-clock-skew@0.19:0 broker-crash@0.2:0"},
            "at-least-once",
            "lost",
            "leader",
            "lost with node-0, which led shard 3 and had not committed it",
            "broker-crash on node-0",
        ),
        (
            {
                "acknowledge": "buffered",
                "nodes": 2,
                "faults": "broker-crash@0.19:0 broker-clock-skew@0.195:0 client-link-cut@0.196:0:0.01",
            },
            "at-least-once",
            "lost",
            "leader",
            "that no node was up to copy",
            "broker-crash on node-0",
        ),
        # committed before it was delivered: the store has it, and nobody asks for it
        (
            {
                "commit": "read",
                "flush_ms": 0.2,
                "rate": 250,
                "readers": 1,
                "topic_filter": "#",
                "faults": " ".join(f"client-link-cut@{0.1 + at / 50:g}:0:0.01" for at in range(20)),
            },
            "cursor-safe",
            "withheld",
            "store",
            "lost with the connection of reader-0",
            "client-link-cut on reader-0",
        ),
        # away for longer than it was kept
        (
            {"retention_s": 0.2, "faults": "client-link-cut@0.1:1:0.6"},
            "at-least-once",
            "lost",
            "store",
            "dropped by retention",
            "client-link-cut on reader-1",
        ),
    ],
)
def test_what_durable_streams_lose_is_told_from_what_they_keep(given, law, state, stage, gone, fault):
    witness = judged_feed("emqx-streams", 1, **{**STREAMS, **given})[law]
    where = witness.where
    assert (where["state"], where["last_stage"], bool(where["held_by"])) == (state, stage, state == "withheld")
    assert gone in where["way"][-1]
    assert f"{witness.publisher}, sent to node-" in where["way"][0]
    assert f"{where['fault']['name']} on {where['fault']['node']}" == fault
    shown = {event["event_id"]: event["operation"] for event in witness.events if event["kind"] == "fault"}
    assert shown.get(where["fault"]["event_id"]) == (
        where["fault"]["name"] if where["fault"]["name"] in shown.values() else None
    )
    if state == "withheld":
        assert where["held_by"][0].endswith("is past it")


def test_what_a_reader_has_yet_to_come_to_is_withheld_by_its_own_fault_and_no_loss():
    given = {**STREAMS, "faults": "client-link-cut@0.19:1:0.2 client-link-cut@0.2:0:5 client-link-cut@0.21:1:0.01"}
    assert not judged_feed("emqx-streams", 1, **given)
    system = SYSTEMS["emqx-streams"].assemble(settings_of("emqx-streams", given), 1, [])
    watch = FeedWatch([Wanted("publisher-0", 8, "reader-0", "site/0/0")])
    watch.attach(system)
    system.run()
    where = watch.told(0, False, 0)
    assert (where["state"], where["last_stage"]) == ("withheld", "store")
    assert where["held_by"][0].endswith("reader-0 comes to it yet")
    assert where["fault"] == {"name": "client-link-cut", "node": "reader-0", "at_us": 200_000}


def test_a_message_passes_every_stage_of_durable_streams_and_to_be_watched_changes_nothing():
    given = settings_of(
        "emqx-streams", {**STREAMS, "faults": "broker-crash@0.2:0 client-link-cut@0.35:0:0.01", "retention_s": 0.3}
    )
    runs = [SYSTEMS["emqx-streams"].assemble(given, 1, []) for _ in range(2)]
    watch = FeedWatch([Wanted("publisher-4", number, "reader-0", "site/4/0") for number in (5, 6)])
    watch.attach(runs[0])
    assert runs[0].run()["counts"] == runs[1].run()["counts"]
    assert runs[0].digest == runs[1].digest
    way = [reached.partition(" s: ")[2] for reached in watch.told(0, True, 0)["way"]]
    starts = [
        "publisher-4, sent to",
        "buffer of shard",
        "batch of shard",
        "shard ",
        "page of shard",
        "socket of node-",
        "reader-0 is handed it",
    ]
    assert [next(start for start in starts if words.startswith(start)) for words in way[:7]] == starts
    assert watch.turned(0, 1) is None
    assert watch.turned(1, 0).stage == "publisher"
