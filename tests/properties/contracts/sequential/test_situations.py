"""One operation after the other: what is many operations away is reached without anybody naming where to begin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orderlab.model.contracts.client_steps import REPLY_LOST, Begin, Fault, Wait
from orderlab.model.contracts.sequential import SequentialTerms
from orderlab.model.verdict import Outcome
from orderlab.properties.engine.noted_moments import noted_ms
from orderlab.properties.engine.search import Search, explore, moments
from orderlab.properties.engine.situations import AFTER_TROUBLE, ONE_BY_ONE, situate
from orderlab.properties.engine.validation import contract_of, run_of, validate_contract, with_accepted
from orderlab.properties.engine.witness import ContractReruns
from orderlab.properties.validation.findings import Findings
from orderlab.properties.validation.work_order import WorkOrder
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
        ("fair_lock", "patience is not renewed", "in-turn", 7),
        ("waiting_room", "a new ticket at every try", "in-turn", 5),  # two inside, and two who wait
        ("sidekiq_queue", "the wait is as long each time", "order", 9),
        ("web_sessions", "touched for ever", "alive", 7),  # no state on the way is new but for how far its end is
    ],
)
def test_what_is_many_operations_away_is_found(tmp_path: Path, style: str, slip: str, law: str, steps: int) -> None:
    found = searched(store(tmp_path, style, slip), 0.6).findings.by_law
    assert len(found[law][0].trace.steps) == steps


@pytest.mark.parametrize(
    ("slip", "name", "effort"),
    [("the transaction watches nothing", ONE_BY_ONE, 0.2), ("taken and entered in two calls", AFTER_TROUBLE, 0.6)],
)
def test_what_a_race_or_a_trouble_leaves_is_carried_on(tmp_path: Path, slip: str, name: str, effort: float) -> None:
    """Two adds of one name put it in line twice; a worker that dies with a job that it has not entered loses it."""
    for is_sound in (False, True):
        binding = store(tmp_path, "rq_queue", "" if is_sound else slip)
        laws = [*(one.name for one in contract_of(binding).laws), "specification"]
        search = Search(ContractReruns(lambda: run_of(binding)), Findings(frozenset(laws)))  # noqa: B023
        scope = next(
            scope
            for scope in SequentialTerms(contract_of(binding)).scopes
            if (scope.is_smallest if name == ONE_BY_ONE else scope.is_solitary)
        )
        explore(run_of(binding), scope._replace(operations=2, steps_per_client=2), search, 1.0)
        assert not search.findings.by_law
        situate(run_of(binding), search, effort, name)
        assert bool(search.findings.by_law) is not is_sound


def test_what_is_left_of_a_thing_behind_one_that_was_renewed_is_found(tmp_path: Path) -> None:
    """The older of two sessions is touched, the younger lapses and stays in the list: then the next login ends the
    older."""
    assert not searched(store(tmp_path, "web_sessions"), 1.0).findings.by_law
    assert searched(store(tmp_path, "web_sessions", "sessions that lapsed count"), 1.0).findings.by_law


def test_what_a_store_has_noted_is_waited_for(tmp_path: Path) -> None:
    run = run_of(store(tmp_path, "fair_lock", "patience is not renewed"))
    now_ms = run.judge.now_ms
    for client in (0, 1):
        run.perform(Begin(client, run.judge.asked.calls(client, ())[0]))
    run.perform(Wait(499))
    assert moments(run)[:2] == [1, 2]  # the contract's own moment, 500
    run.perform(Begin(1, run.judge.asked.calls(1, ())[0]))
    assert noted_ms(run) == {now_ms + 500}
    assert set(run.deadlines_ms) == {now_ms + 999, now_ms + 1000}
    assert moments(run)[:2] == [2, 499]


def test_after_a_value_of_a_foreign_type_all_is_a_matter_of_atomicity(tmp_path: Path) -> None:
    run = run_of(store(tmp_path, "cache_with_tags"))
    put, get, flush = (
        next(one for one in run.judge.asked.calls(0, ()) if one.name == name) for name in ("put", "get", "flush")
    )
    steps = [
        Begin(0, put, Fault("wrong-type", key=b"{c}:tag:t", found="string")),
        Begin(0, flush, Fault("killed")),
        Begin(0, flush),
        Begin(0, get),
    ]
    last = [run.perform(step) for step in steps][-1]
    assert last.violation is not None
    assert last.violation.laws == ("all-or-nothing",)


def test_a_sound_store_breaks_nothing_and_its_situations_are_few(tmp_path: Path) -> None:
    search = searched(store(tmp_path, "sorted_queue"), 0.3)
    assert not search.findings.by_law
    assert 10 < len(search.met.situations) < 200
    assert max(len(one.steps) for one in search.met.situations) > 5


def test_what_is_found_is_the_same_each_time(tmp_path: Path) -> None:
    binding = store(tmp_path, "token_bucket")
    first, again = (searched(binding, 0.2).met.situations for _ in range(2))
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
