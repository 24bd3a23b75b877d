"""The small pipeline: each specimen B1 to B14 is caught by its law with a pinned witness, and its neighbour passes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orderlab.model.explorer.exploration import Exploration, explore
from orderlab.model.pipeline.exploration import Pipeline, PipelineParameters
from orderlab.model.pipeline.specimens import PUBLISHED, REPAIRED, SPECIMENS
from orderlab.model.pipeline.state import PipelineFault, PipelineScope
from orderlab.model.verdict import Outcome, Verdict

SHORTEST = {
    "B1": 16,
    "B2": 22,
    "B3": 17,
    "B4": 19,
    "B5": 23,
    "B6": 20,
    "B7": 23,
    "B8": 16,
    "B9": 9,
    "B10": 3,
    "B11": 8,
    "B12": 17,
    "B13": 33,
    "B14": 10,
}
"""Steps of the shortest witness."""


def verdict_of(found: Exploration, law: str) -> Verdict:
    (verdict,) = (verdict for verdict in found.verdicts if verdict.law == law)
    return verdict


def not_holding(found: Exploration) -> list[Verdict]:
    return [verdict for verdict in found.verdicts if verdict.outcome is not Outcome.HOLDS]


def test_every_specimen_is_pinned() -> None:
    assert set(SHORTEST) == set(SPECIMENS) == {f"B{number}" for number in range(1, 15)}


@pytest.mark.parametrize("name", SPECIMENS)
def test_a_specimen_breaks_its_law_by_a_shortest_witness(name: str) -> None:
    specimen = SPECIMENS[name]
    verdict = verdict_of(explore(Pipeline(specimen.flawed, specimen.scope, specimen.breaks)), specimen.breaks)
    assert verdict.witness.why.startswith("after step ")
    assert verdict.witness.statement
    assert verdict.outcome is Outcome.VIOLATED
    assert len(verdict.witness.steps) == SHORTEST[name]


@pytest.mark.parametrize("name", SPECIMENS)
def test_its_neighbour_keeps_every_law_in_the_same_scope(name: str) -> None:
    specimen = SPECIMENS[name]
    found = explore(Pipeline(specimen.neighbour, specimen.scope))
    assert found.complete
    assert not_holding(found) == []


def test_the_witness_of_b10_is_the_whole_story() -> None:
    specimen = SPECIMENS["B10"]
    verdict = verdict_of(explore(Pipeline(specimen.flawed, specimen.scope, specimen.breaks)), specimen.breaks)
    assert [step.action for step in verdict.witness.steps] == ["publish", "append", "kafka leader change"]


PAIRS = [
    (PipelineFault.BROKER_CRASH, PipelineFault.REDIS_FAILOVER),
    (PipelineFault.PACK_TIMEOUT, PipelineFault.REDIS_CONNECTION_LOSS),
]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_repaired_protocol_withstands_two_faults(pair: tuple[PipelineFault, PipelineFault]) -> None:
    scope = PipelineScope(messages=1, faults=frozenset(pair), fault_budget=2)
    assert not_holding(explore(Pipeline(REPAIRED, scope))) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("one", PipelineFault)
@pytest.mark.parametrize("other", PipelineFault)
def test_the_repaired_protocol_withstands_any_two_faults(one: PipelineFault, other: PipelineFault) -> None:
    scope = PipelineScope(messages=2, nodes=2, faults=frozenset({one, other}), fault_budget=2)
    assert not_holding(explore(Pipeline(REPAIRED, scope))) == []


BROKEN_AS_PUBLISHED = {
    PipelineFault.PRODUCER_RETRY: "fifo",
    PipelineFault.KAFKA_LEADER_CHANGE: "at-least-once",
    PipelineFault.BROKER_CRASH: "exactly-once",
    PipelineFault.PACK_TIMEOUT: "exactly-once",
    PipelineFault.REDIS_CONNECTION_LOSS: "exactly-once",
    PipelineFault.REDIS_FAILOVER: "no-loss",
}


@pytest.mark.parametrize(("fault", "law"), BROKEN_AS_PUBLISHED.items(), ids=str)
def test_what_the_published_protocol_does_not_withstand(fault: PipelineFault, law: str) -> None:
    found = explore(Pipeline(PUBLISHED, PipelineScope(faults=frozenset({fault})), law))
    assert verdict_of(found, law).outcome is Outcome.VIOLATED


def test_a_specimen_by_name_is_the_specimen() -> None:
    built = PipelineParameters(specimen="B4").build()
    assert (built.protocol, built.scope, built.law) == (SPECIMENS["B4"].flawed, SPECIMENS["B4"].scope, "fifo")
    assert PipelineParameters(specimen="B4", neighbour=True).build().protocol == SPECIMENS["B4"].neighbour


def test_a_system_without_faults_delivers_everything() -> None:
    assert not_holding(explore(Pipeline(REPAIRED, replace(PipelineScope(), messages=3, pack_size=2)))) == []


def test_a_witness_of_drain_says_what_is_stuck_where_and_that_it_stays() -> None:
    specimen = next(one for one in SPECIMENS.values() if one.breaks == "drain")
    verdict = verdict_of(explore(Pipeline(specimen.flawed, specimen.scope, "drain")), "drain")
    assert verdict.witness.why.endswith(
        "m1 is in the Kafka log and nowhere behind it and m1 was never delivered, and it stays so:"
        " the subscriber is connected, and nobody has a step left"
    )
