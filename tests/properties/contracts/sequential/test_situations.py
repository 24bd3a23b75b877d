"""One operation after the other: what is many operations away is reached without anybody naming where to begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from orderlab.model.contracts.steps import REPLY_LOST, Begin, Fault
from orderlab.properties.engine.search import Search
from orderlab.properties.engine.situations import situate
from orderlab.properties.engine.validation import contract_of, run_of
from orderlab.properties.engine.witness import ContractReruns
from orderlab.properties.validation.findings import Findings
from orderlab.sim.stores.binding.binding import Binding
from tests.properties.contracts.sequential.test_other_styles import store


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
