"""What befalls one operation before the next, from the empty store and every opening; and one law judged alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from orderlab.model.contracts.base import Contract
from orderlab.model.contracts.client_steps import REPLY_LOST, Begin, Fault
from orderlab.model.contracts.sequential import Scope, SequentialTerms
from orderlab.model.verdict import Outcome
from orderlab.properties.engine.search import Interleavings, Search, explore, opened
from orderlab.properties.engine.validation import contract_of, run_of, validate_contract
from orderlab.properties.engine.witness import ContractReruns
from orderlab.properties.validation.findings import Findings
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding
from tests.properties.contracts.sequential.test_other_styles import store

LUA = Path(__file__).parents[4] / "lua"
SPECIMENS = [
    one.parent.name
    for one in sorted((LUA / "specimens").glob("*/store.toml"))
    if isinstance(load_binding(one.parent, trust_adapter=True).contract, Contract)
]
GOOD = [Outcome.VIOLATED, Outcome.UNKNOWN, Outcome.HOLDS]
"""The worst first."""


def bound(name: str) -> Binding:
    return load_binding(LUA / name, trust_adapter=True)


def scope_named(binding: Binding, name: str) -> Scope:
    return next(one for one in SequentialTerms(contract_of(binding)).scopes if one.name == name)


def explored(binding: Binding, name: str) -> Findings:
    """What every run of the scope shows, at the effort at which all is to be explored that is short."""
    scope, terms = scope_named(binding, name), SequentialTerms(contract_of(binding))
    search = Search(ContractReruns(lambda: run_of(binding)), Findings(frozenset(terms.laws)))
    explore(run_of(binding, scope.present), scope, search, 1.0)
    return search.findings


@pytest.mark.parametrize(
    ("name", "law"),
    [("specimens/feed-posts-again", "no-repeat"), ("specimens/job-double-marked-first", "all-or-nothing")],
)
def test_every_trouble_before_two_operations_is_explored_to_its_end(name: str, law: str) -> None:
    for each, is_broken in ((name, True), ("feed" if "feed" in name else "job_queue", False)):
        seen = explored(bound(each), "one client, 3 operations, a trouble")
        assert [one.is_exhausted for one in seen.explored] == [True]
        assert (law in seen.by_law) is is_broken


def test_two_jobs_of_the_last_priority_are_two_jobs() -> None:
    name = "2 clients, 2 operations, with two jobs of the last priority"
    assert "order" in explored(bound("specimens/job-score-too-large"), name).by_law
    binding = bound("job_queue")
    assert not explored(binding, name).by_law
    run = run_of(binding)
    assert opened(run, scope_named(binding, name).opening, lambda *_: None)
    assert [len(state.jobs) for state in run.judge.states()] == [2]


def test_trouble_that_nothing_follows_is_left_out_and_what_follows_is_not() -> None:
    binding = bound("lock")
    search = Search(ContractReruns(lambda: run_of(binding)), Findings(frozenset()))
    reached: list[list[int]] = []
    for operations in (1, 2):
        part = Interleavings(run_of(binding, 1), Scope("some", 1, operations, 0, 1, operations=operations), search, ())
        while part.queue:
            part.carry_on(part.queue.popleft())
        reached.append([node.troubled for node in part.nodes])
    assert reached[0] == [0]
    assert 1 in reached[1]


def test_a_name_is_not_used_again_by_a_client_that_does_not_know_whether_it_was(tmp_path: Path) -> None:
    for style, is_named_anew in (("laravel_queue", True), ("sorted_queue", False)):
        (tmp_path / style).mkdir()
        run = run_of(store(tmp_path / style, style))
        add = next(one for one in run.judge.asked.calls(0, ()) if one.name == "add")
        run.perform(Begin(0, add, Fault(REPLY_LOST)))
        again = next(one for one in run.judge.asked.calls(0, run.clients[0].seen) if one.name == "add")
        assert (again["job"] != add["job"]) is is_named_anew


def judged(name: str, effort: float) -> None:
    """One law alone is told no better than among all."""
    binding = bound(f"specimens/{name}")
    assert binding.specimen is not None
    whole = validate_contract(binding, WorkOrder(effort)).outcomes
    for law in binding.specimen.breaks:
        alone = validate_contract(binding, WorkOrder(effort, laws=[law])).outcomes[law]
        assert GOOD.index(alone) <= GOOD.index(whole[law])


@pytest.mark.parametrize("name", ["lock-two-calls", "limiter-member-is-time"])
def test_a_law_alone_is_told_no_better_than_among_all(name: str) -> None:
    judged(name, 0.2)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SPECIMENS)
def test_a_law_of_any_specimen_alone_is_told_no_better_than_among_all(name: str) -> None:
    judged(name, 1.0)
