"""Durable streams in a cluster: the laws hold under every fault that can strike, and each specimen breaks the law it
should beside its neighbour."""

from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.sim.engine.clock import Station, call_at
from orderlab.sim.streams.reader import Reader
from orderlab.sim.streams.settings import StreamsSettings
from orderlab.sim.streams.shard import Shard
from orderlab.sim.streams.system import StreamsSystem
from orderlab.sim.systems.catalogue import SYSTEMS, settings_of
from orderlab.sim.systems.timeline import Tracer

SHORT = {"publishers": 20, "rate": 50, "flush_ms": 20, "duration_s": 0.5, "warm_up_s": 0.05, "drain_s": 0.8}
CRASH = "broker-crash@0.2:0 broker-clock-skew@0.3:1 client-link-cut@0.35:0"


def simulated(**given: Any) -> tuple[dict[str, Any], dict[str, Outcome], str]:
    batches: list[Any] = []
    system = SYSTEMS["emqx-streams"].assemble(settings_of("emqx-streams", {**SHORT, **given}), 1, [batches.append])
    report = system.run()
    verdicts, _ = judge(in_memory("emqx-streams", batches, system.names()), Question(is_feed=True))
    return report, {one.law: one.outcome for one in verdicts if not one.vacuous}, system.digest


@pytest.mark.parametrize("shard_by", ["topic", "publisher"])
def test_every_law_holds_under_faults(shard_by: str) -> None:
    report, laws, digest = simulated(shard_by=shard_by, faults=CRASH)
    assert set(laws.values()) == {Outcome.HOLDS}
    assert {"cursor-safe", "fifo", "at-least-once", "no-phantom", "agreement"} <= laws.keys()
    assert report["counts"]["faults"] == 3
    assert report["counts"]["sent_again"] > 0
    assert simulated(shard_by=shard_by, faults=CRASH)[2] == digest


@pytest.mark.parametrize("given", [{"read_us": 50_000}, {"faults": "client-link-cut@0.2:0:5"}])
def test_what_is_still_to_be_read_when_the_run_is_over_is_not_lost(given: dict[str, Any]) -> None:
    assert Outcome.VIOLATED not in simulated(drain_s=0.1, **given)[1].values()


def test_a_node_that_is_the_limit_is_busy_all_the_time() -> None:
    """Node 0 leads two shards of six, and copies what the other four take: 2 ms for every message, so that 500 a second
    fill it."""
    report, *_ = simulated(node_cores=1, store_us=2000, readers=0, publishers=100, rate=10, flush_ms=1, warm_up_s=0.3)
    assert report["utilisation"]["node"][0] > 0.98


def test_jobs_come_to_a_node_in_the_order_of_their_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `Station` asks for: a job that is handed over before it arrives would keep others from a server that is
    free."""
    arrivals: dict[Station, list[float]] = defaultdict(list)

    def serve_bursts(station: Station, arrival_us: float, *more: Any) -> float:
        arrivals[station].append(arrival_us)
        return served(station, arrival_us, *more)

    served = Station.serve_bursts
    monkeypatch.setattr(Station, "serve_bursts", serve_bursts)
    simulated(faults=CRASH)
    assert len(arrivals) == 3
    assert all(each == sorted(each) for each in arrivals.values())


def test_acknowledged_before_it_is_stored_is_lost_with_the_leader() -> None:
    """D9; its neighbour is the test above, under the same crash."""
    assert simulated(acknowledge="buffered", faults=CRASH)[1]["at-least-once"] is Outcome.VIOLATED


def test_an_iterator_that_is_committed_before_its_page_arrives_passes_messages_over() -> None:
    cut = " ".join(f"client-link-cut@{0.2 + at / 50:g}:0:0.01" for at in range(14))
    given = {"readers": 1, "topic_filter": "#", "faults": cut, "flush_ms": 0.2, "rate": 250}
    laws = simulated(**given, commit="read")[1]
    assert laws["cursor-safe"] is Outcome.VIOLATED
    assert set(simulated(**given)[1].values()) == {Outcome.HOLDS}
    # And not back before the run is over: what was overtaken is lost all the same.
    given["faults"] += " client-link-cut@0.5:0:5"
    assert simulated(**given, commit="read")[1]["at-least-once"] is Outcome.VIOLATED
    assert Outcome.VIOLATED not in simulated(**given)[1].values()


ALL = {
    "readers": 2,
    "topic_filter": "#",
    "rate": 250,
    "flush_ms": 0.2,
    "faults": " ".join(f"client-link-cut@{0.1 + at / 50:g}:0:0.002" for at in range(22)),
}


def test_a_page_whose_answer_is_lost_comes_again_to_that_reader_alone() -> None:
    report, laws, _ = simulated(**ALL)
    assert report["counts"]["repeated"] > 0
    assert set(laws.values()) == {Outcome.HOLDS}


def test_a_repeat_of_another_reader_is_not_excused_by_the_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    def hand(reader: Any, number: int, page: list[Any]) -> None:
        handed(reader, number, page)
        if reader.who(number) == who and 0.3 <= reader.cluster.env.now / 1e6 < 0.31:
            handed(reader, number, page)

    handed, who = Reader.hand, "reader-1"
    monkeypatch.setattr(Reader, "hand", hand)
    assert [law for law, outcome in simulated(**ALL)[1].items() if outcome is Outcome.VIOLATED] == ["no-repeat"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"topic_filter": "a/#/b"}, "must be the whole last level"),
        ({"topic_filter": "$share/g"}, "write .share/GROUP/FILTER"),
        ({"topic_filter": "$share/g/#", "readers": 0}, "a group of no readers"),
        ({"zipf": -1}, "zipf"),
        ({"retention_s": "nan"}, "retention_s"),
        ({"retention_s": 1e-9}, "give 0.01 or more"),
        ({"faults": "redis-stall@0.1:0"}, "does not strike this system"),
        ({"faults": "broker-crash@0.1:7"}, "target 7 is not there"),
        ({"faults": "broker-crash@9:0"}, "the run is over"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told) as error:
        simulated(**given)
    assert "\n" not in str(error.value)


CUTS = "client-link-cut@0.2:0:0.1 client-link-cut@0.35:1:0.02"


def test_a_group_loses_nothing_when_members_are_cut_off() -> None:
    """Its shards go to others after the lease, and one that comes back takes some by asking; the group is judged as one
    reader."""
    report, laws, _ = simulated(topic_filter="$share/g/site/+/0", readers=3, faults=CUTS)
    group = report["streams"]["group"]
    assert set(laws.values()) == {Outcome.HOLDS}
    assert {"cursor-safe", "agreement", "fifo"} <= laws.keys()
    assert group["redispatched"] >= 2
    assert group["stolen"] >= 1
    assert min(group["by_member"]) > 0
    alone = simulated(topic_filter="$share/g/#", readers=1, faults="client-link-cut@0.2:0:0.1")
    assert set(alone[1].values()) == {Outcome.HOLDS}
    assert alone[0]["streams"]["group"]["redispatched"] == 6


def test_a_group_that_commits_before_delivery_loses_what_was_under_way() -> None:
    cuts = " ".join(f"client-link-cut@{0.2 + at / 50:g}:{at % 2}:0.01" for at in range(15))
    given = {"topic_filter": "$share/g/#", "readers": 2, "lease_ms": 1, "flush_ms": 0.2, "rate": 250, "faults": cuts}
    assert simulated(**given, commit="read")[1]["cursor-safe"] is Outcome.VIOLATED
    assert set(simulated(**given)[1].values()) == {Outcome.HOLDS}


def test_retention_by_time_is_told_to_who_was_away_for_longer() -> None:
    report, laws, _ = simulated(retention_s=0.2)
    assert set(laws.values()) == {Outcome.HOLDS}
    assert report["counts"]["told_dropped"] == 0
    assert report["streams"]["generations_kept"] <= 4
    away, laws, _ = simulated(retention_s=0.2, faults="client-link-cut@0.1:0:0.6")
    assert away["counts"]["told_dropped"] >= 6
    assert laws["cursor-safe"] is Outcome.VIOLATED


def test_uneven_load_is_uneven_shards() -> None:
    skew = {
        zipf: simulated(shard_by="publisher", zipf=zipf, publishers=60, rate=10, duration_s=0.3)[0]["streams"]["skew"]
        for zipf in (0, 2)
    }
    assert skew[2] > 1.5 * skew[0]


def test_latency_counts_from_when_a_message_was_due() -> None:
    """A closed loop that waits for its answers would not see its own delay: here a batch takes twice the interval."""
    report, _, _ = simulated(publishers=2, rate=100, flush_ms=20, duration_s=0.4, server_receive_maximum=1)
    assert report["latency"]["request"]["mean_ms"] > 100
    assert report["counts"]["published"] == 80


def test_traced_batches_do_not_change_the_history() -> None:
    settings = settings_of("emqx-streams", {**SHORT, "duration_s": 0.1})
    sinks: list[Any] = []
    system = SYSTEMS["emqx-streams"].assemble(settings, 1, sinks)
    tracer = Tracer(60_000, 120_000)
    tracer.attach(system.world)
    sinks.append(tracer.sink)
    system.run()
    events = tracer.to_json()["traceEvents"]
    assert {"store", "copy", "replay"} <= {event["name"] for event in events if event["ph"] == "X"}
    assert any(event["name"].startswith("site/0/") for event in events if event["ph"] == "b")
    assert simulated(duration_s=0.1)[2] == system.digest


def test_publishers_begin_each_at_an_instant_of_its_own_and_several_messages_are_under_way() -> None:
    system = StreamsSystem(settings_of("emqx-streams", {**SHORT, "publishers": 200}), 1, [])
    phases = sorted(one.due_us / one.interval_us for one in system.publishers)
    assert all(abs(phase - (at + 0.5) / 200) < 0.12 for at, phase in enumerate(phases)), "even, as drawn"
    assert len({round(after - before, 9) for before, after in pairwise(phases)}) == 199, "and no lattice"
    assert phases != sorted(
        one.due_us / one.interval_us
        for one in StreamsSystem(settings_of("emqx-streams", {**SHORT, "publishers": 200}), 2, []).publishers
    )


@pytest.mark.parametrize(
    ("given", "sees"), [({"rate": 200}, True), ({"rate": 200, "server_receive_maximum": 1}, False)]
)
def test_a_batch_that_is_stored_the_wrong_way_round_is_seen(
    given: dict[str, Any], sees: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one message under way for each publisher a batch has no two of a logical FIFO."""
    stored = Shard.append
    assert simulated(**given)[1]["fifo"] is Outcome.HOLDS
    monkeypatch.setattr(Shard, "append", lambda shard, batch: stored(shard, batch[::-1]))
    assert (simulated(**given)[1]["fifo"] is Outcome.VIOLATED) == sees


DEAD = "broker-crash@0.2:0:0.3 broker-crash@0.25:1:0.25"


@pytest.mark.parametrize(("nodes", "shard_by"), [(2, "topic"), (3, "topic"), (3, "publisher"), (5, "topic")])
@pytest.mark.parametrize(
    "faults", [DEAD, f"{DEAD} broker-crash@0.3:2:0.1", "broker-crash@0.2:1:0.02 broker-crash@0.21:2:0.2"]
)
def test_laws_hold_with_several_dead_nodes(nodes: int, shard_by: str, faults: str) -> None:
    if nodes == 2:
        faults = DEAD
    report, laws, _ = simulated(nodes=nodes, shard_by=shard_by, faults=faults)
    assert set(laws.values()) == {Outcome.HOLDS}
    assert report["counts"]["sent_again"] > 0


@pytest.mark.parametrize(("dead", "stores"), [(DEAD, False), ("broker-crash@0.2:0:0.3", True)])
def test_one_node_of_three_stores_nothing_and_takes_nothing_over(dead: str, stores: bool) -> None:
    system = StreamsSystem(settings_of("emqx-streams", {**SHORT, "faults": dead}), 1, [])
    kept: list[tuple[list[int], list[int]]] = []

    def look() -> None:
        kept.append(([one.shard.sequence for one in system.shards], [one.leader for one in system.shards]))

    for at_us in (300_000, 499_000, 800_000):
        call_at(system.env, at_us, look)
    system.run()
    (early, leaders), (late, _), (after, _) = kept
    assert (late > early, 2 in leaders[:2]) == (stores, False)
    assert sum(after) > sum(late), "two of them go on"


def test_one_busy_publisher_is_one_shard_by_publisher_and_several_by_topic() -> None:
    """Topics of publishers are many and even here, so both are near 1."""
    even = {
        by: simulated(shard_by=by, publishers=60, duration_s=0.2)[0]["streams"]["skew"] for by in ("topic", "publisher")
    }
    assert max(even.values()) < 2.5
    one = {
        by: simulated(shard_by=by, publishers=1, topics=20, duration_s=0.5)[0]["streams"]["skew"]
        for by in ("topic", "publisher")
    }
    assert one["publisher"] == 6.0
    assert one["topic"] < 6.0


def test_slices_add_up_to_the_run_and_a_crash_is_marked_where_it_struck() -> None:
    def made(faults: str) -> tuple[StreamsSystem, dict[str, Any]]:
        system = StreamsSystem(StreamsSettings(warm_up_s=0, duration_s=1.5, drain_s=1, readers=2, faults=faults), 3, [])
        return system, system.run()

    quiet, report = made("")
    struck, crashed = made("broker-crash@0.7:0:0.2 client-link-cut@1.2:1:0.05")
    assert report["recovery"] == []
    for system, told in ((quiet, report), (struck, crashed)):
        rows = system.series.table()
        assert sum(row["in_per_s"] for row in rows) / 20 == told["counts"]["published"]
        assert sum(row["out_per_s"] for row in rows) / 20 >= told["counts"]["published"], (
            "two readers, of half the topics each"
        )
    assert [(one["fault"], one["node"], one["at_s"]) for one in crashed["recovery"]] == [
        ("broker-crash", "node-0", 0.7), ("client-link-cut", "reader-1", 1.2),
    ]  # fmt: skip
    before, after = (
        [row["latency_ms"] or 0 for row in struck.series.table() if low < row["at_s"] <= low + 0.4]
        for low in (0.2, 0.7)
    )
    assert max(after) > 2 * max(before), "what the dead leader had is sent again after a while"
