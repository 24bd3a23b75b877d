"""The verdict on a feed or a job queue is the same whatever the seed. Seeds matter to random walks alone, and to the
machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from orderlab.machines import contract_machine, load_binding
from orderlab.model.contracts.sequential import SequentialTerms
from orderlab.model.verdict import Outcome
from orderlab.properties.engine.search import Search, walk
from orderlab.properties.engine.validation import run_of, validate_contract
from orderlab.properties.engine.witness import ContractReruns
from orderlab.properties.validation.findings import Findings
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.stores.binding.binding import Binding

LUA = Path(__file__).parents[4] / "lua"
SOUND = ("feed", "job_queue", "job_queue_blocking")
BROKEN = {
    "job-settled-by-any": {"exclusive-lease"},
    "feed-deleted-by-any": {"exclusive-claim"},
    "job-resumed-in-silence": {"wake-up"},
    "feed-positional-cursor": {"cursor-safe", "progress"},
    "job-taken-is-popped": {"no-loss", "exclusive-lease", "order", "recovery", "agreement-of-counts"},
}
LITTLE, SEEDS, WALKS = 0.02, 50, 10
ENOUGH = {"job-resumed-in-silence": 1.0}
"""Effort with which every seed finds the flaw, where that is more than a little."""


def accused(binding: Binding, seeds: range, walks: int = WALKS) -> set[str]:
    """Laws that random walks with any of these seeds see broken."""
    run = run_of(binding)
    start, found = run.state, Findings(frozenset(SequentialTerms(run.contract).laws))
    reruns = ContractReruns(lambda: run_of(binding))
    for number in seeds:
        run.go_to(start)
        walk(run, Search(reruns, found), number, walks, 40)
    return {
        law
        for law, known in found.by_law.items()
        if any(reruns.law_broken(one.trace, law) is not None for one in known)
    }


@pytest.mark.parametrize("name", SOUND[:2])
def test_walks_of_a_few_seeds_accuse_no_sound_store(name: str) -> None:
    assert accused(load_binding(LUA / name), range(1, 3)) == set()


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SOUND)
def test_walks_and_machines_of_many_seeds_accuse_no_sound_store(name: str) -> None:
    assert accused(load_binding(LUA / name), range(SEEDS)) == set()
    machine = contract_machine(load_binding(LUA / name))
    wide = settings(
        max_examples=50,
        stateful_step_count=40,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    for number in range(SEEDS):
        run_state_machine_as_test(seed(number)(machine), settings=wide)  # type: ignore[no-untyped-call]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [*SOUND[:2], *BROKEN])
def test_verdicts_are_the_same_with_every_seed(name: str) -> None:
    binding = load_binding(LUA / name if name in SOUND else LUA / "specimens" / name)
    for number in range(SEEDS):
        found = validate_contract(binding, WorkOrder(ENOUGH.get(name, LITTLE), number))
        violated = {one.law for one in found.results if one.outcome is Outcome.VIOLATED}
        # Walks of some seeds see a broken store break one law more than its scopes do.
        assert (number, BROKEN.get(name, set()) - violated) == (number, set())
        assert found.outcome is (Outcome.VIOLATED if name in BROKEN else Outcome.HOLDS)


REGISTRY = Path(__file__).parent / "registry-queue"
"""A queue in the style of other projects: another call brings lapsed jobs back, nothing is delayed, counted or told
apart by a key."""


def test_what_a_store_cannot_be_asked_for_is_not_applicable_and_the_rest_is_put_to_the_test() -> None:
    found = validate_contract(load_binding(REGISTRY), WorkOrder(0.01))
    assert found.outcome is Outcome.HOLDS
    assert {one.law for one in found.results if one.not_applicable} == {"agreement-of-counts", "wake-up"}
    assert next(one.tested for one in found.results if one.law == "recovery") > 0


def test_walks_begin_where_the_contract_points_to(tmp_path: Path) -> None:
    for file in REGISTRY.iterdir():
        (tmp_path / file.name).write_text(file.read_text())
    kept = "redis.call('ZREM', KEYS[4], id)"
    settle = (REGISTRY / "settle.lua").read_text()
    assert kept in settle
    # A job that failed stays in the registry, so that it is brought back a second time.
    (tmp_path / "settle.lua").write_text(settle.replace(kept, f"if what == 'complete' then {kept} end"))
    flawed = load_binding(tmp_path)
    assert "no-rerun" in accused(flawed, range(1, 2), 30)
    assert accused(load_binding(REGISTRY), range(1, 2), 30) == set()
