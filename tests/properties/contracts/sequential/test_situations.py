"""One operation after the other: what is many operations away is reached without anybody naming where to begin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orderlab.model.contracts.client_steps import REPLY_LOST, Begin, Fault
from orderlab.model.verdict import Outcome
from orderlab.properties.engine.search import Search
from orderlab.properties.engine.situations import situate
from orderlab.properties.engine.validation import contract_of, run_of, validate_contract, with_accepted
from orderlab.properties.engine.witness import ContractReruns
from orderlab.properties.validation.findings import Findings
from orderlab.properties.validation.order import WorkOrder
from orderlab.sim.stores.binding import load_binding
from orderlab.sim.stores.binding.binding import Binding
from tests.properties.contracts.sequential.test_other_styles import store

LUA = Path(__file__).parents[4] / "lua"


def searched(binding: Binding, effort: float) -> Search:
    laws = [*(one.name for one in contract_of(binding).laws), "specification"]
    search = Search(ContractReruns(lambda: run_of(binding)), Findings(frozenset(laws)))
    situate(run_of(binding), search, effort)
    return search


@pytest.mark.parametrize(
    ("style", "slip", "law", "steps"),
    [
        ("sorted_queue", "the token is the attempt's number", "specification", 6),
        ("sorted_queue", "a completed job's name is free although it is kept", "no-rerun", 3),
        ("token_bucket", "a refusal sets the time as well", "no-less", 5),
    ],
)
def test_what_is_many_operations_away_is_found(tmp_path: Path, style: str, slip: str, law: str, steps: int) -> None:
    found = searched(store(tmp_path, style, slip), 0.6).findings.by_law
    assert len(found[law][0].trace.steps) == steps


def test_a_sound_store_breaks_nothing_and_its_situations_are_few(tmp_path: Path) -> None:
    search = searched(store(tmp_path, "sorted_queue"), 0.3)
    assert not search.findings.by_law
    assert 10 < len(search.situations) < 200
    assert max(len(one.steps) for one in search.situations) > 5


def test_what_is_found_is_the_same_each_time(tmp_path: Path) -> None:
    binding = store(tmp_path, "token_bucket")
    first, again = (searched(binding, 0.2).situations for _ in range(2))
    assert [one.steps for one in first] == [one.steps for one in again]


def test_a_job_that_is_named_once_is_not_added_again(tmp_path: Path) -> None:
    for style, is_repeated in (("laravel_queue", False), ("sorted_queue", True)):
        (tmp_path / style).mkdir()
        run = run_of(store(tmp_path / style, style))
        add = next(one for one in run.judge.asked.calls(0, ()) if one.name == "add")
        run.perform(Begin(0, add, Fault(REPLY_LOST)))
        assert (run.repeated(0) is not None) is is_repeated


def test_what_the_owner_accepts_is_no_finding_and_is_missed_once_it_occurs_no_more(tmp_path: Path) -> None:
    binding = store(tmp_path, "cache_with_tags")
    run = run_of(binding)
    search = Search(ContractReruns(lambda: run_of(binding)), Findings(frozenset(["all-or-nothing", "fresh"])))
    calls = {(one.name, *(value for _, value in one.fields)): one for one in run.judge.asked.calls(0, ())}
    put = calls["put", "a", "v0.0", "t", 1000]
    steps = [
        Begin(0, put, Fault("wrong-type", key=b"{c}:tag:t", found="string")),
        Begin(0, calls["flush", "t"]),
        Begin(0, calls["get", "a"]),
    ]
    reports = [run.perform(step) for step in steps]
    assert reports[-1].violation is not None
    assert reports[-1].violation.laws == ("all-or-nothing",)  # whatever else it breaks
    result = next(one for one in validate_contract(binding, WorkOrder(0.01)).results if one.law == "all-or-nothing")
    held = replace(result, verdict=replace(result.verdict, outcome=Outcome.HOLDS))
    unseen = with_accepted(held, binding, search.findings)
    assert unseen.outcome is Outcome.UNKNOWN
    assert "[[accept]] of put under wrong-type did not occur" in unseen.verdict.not_covered[-1]
    search.note(steps, reports[-1], "by hand")
    assert not search.findings.by_law
    assert with_accepted(held, binding, search.findings).outcome is Outcome.HOLDS
    search.note([replace(steps[0], trouble=None), *steps[1:]], reports[-1], "by hand")
    assert set(search.findings.by_law) == {"all-or-nothing"}  # by another operation, without that trouble
    assert "all-or-nothing is broken by put under wrong-type, which is accepted" in str(binding.accepted[0])


def test_what_is_accepted_stays_so_whatever_befell_the_run_that_found_it(tmp_path: Path) -> None:
    """Found after a restart, the finding is short without it, and then is the one that is accepted."""
    (tmp_path / "store.toml").write_text(
        (LUA / "specimens" / "lock-release-any" / "store.toml").read_text().replace("../../lock", str(LUA / "lock"))
        + '[[accept]]\nlaw = "own-release"\noperation = "release"\nwhy = "nobody is late here"\n'
    )
    found = validate_contract(load_binding(tmp_path, trust_adapter=True), WorkOrder(1.0, laws=["own-release"]))
    assert [(one.law, one.outcome) for one in found.results] == [("own-release", Outcome.HOLDS)]
    assert any(
        "own-release is broken by release, which is accepted: nobody is late here" in one for one in found.assumptions
    )
