"""Durable streams in a cluster: the laws hold under every fault that can strike, and each specimen breaks the law it should beside its neighbour."""

from typing import Any

import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.sim.systems.catalogue import SYSTEMS, settings_of

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


def test_acknowledged_before_it_is_stored_is_lost_with_the_leader() -> None:
    """D9; its neighbour is the test above, under the same crash."""
    assert simulated(acknowledge="buffered", faults=CRASH)[1]["at-least-once"] is Outcome.VIOLATED


def test_an_iterator_that_is_committed_before_its_page_arrives_passes_messages_over() -> None:
    cut = "client-link-cut@0.2:0:0.02 client-link-cut@0.3:0:0.02 client-link-cut@0.4:0:0.02"
    given = {"readers": 1, "topic_filter": "#", "faults": cut, "flush_ms": 0.2}
    laws = simulated(**given, commit="read")[1]
    assert laws["cursor-safe"] is Outcome.VIOLATED
    assert set(simulated(**given)[1].values()) == {Outcome.HOLDS}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"topic_filter": "a/#/b"}, "must be the whole last level"),
        ({"topic_filter": "$share/g/#"}, "not of a group"),
        ({"faults": "redis-stall@0.1:0"}, "does not strike this system"),
        ({"faults": "broker-crash@0.1:7"}, "target 7 is not there"),
        ({"faults": "broker-crash@9:0"}, "the run is over"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told) as error:
        simulated(**given)
    assert "\n" not in str(error.value)


def test_one_busy_publisher_is_one_shard_by_publisher_and_several_by_topic() -> None:
    """Topics of publishers are many and even here, so both are near 1."""
    even = {by: simulated(shard_by=by, publishers=60, duration_s=0.2)[0]["streams"]["skew"] for by in ("topic", "publisher")}
    assert max(even.values()) < 2.5
    one = {by: simulated(shard_by=by, publishers=1, topics=20, duration_s=0.5)[0]["streams"]["skew"] for by in ("topic", "publisher")}
    assert one["publisher"] == 6.0
    assert one["topic"] < 6.0
