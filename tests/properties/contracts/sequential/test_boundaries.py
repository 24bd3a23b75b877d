"""Flaws at numbers that stand in a script alone: solved for and met by calls, beside the same store without them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orderlab.model.contracts.sequential import SequentialTerms
from orderlab.properties.engine import boundaries
from orderlab.properties.engine.boundaries import solve
from orderlab.properties.engine.search import Search
from orderlab.properties.engine.situations import situate
from orderlab.properties.engine.validation import contract_of, run_of
from orderlab.properties.engine.witness import ContractReruns
from orderlab.properties.shadow.solver import NOT_INSTALLED
from orderlab.properties.validation.findings import Findings
from orderlab.sim.stores.binding.loader import load_binding
from tests.properties.contracts.sequential.planted_boundaries import convicts, written
from tests.properties.contracts.sequential.planted_boundaries import planted as planted_flaws
from tests.properties.contracts.sequential.test_other_styles import store as of_another_style

LUA = Path("lua")
FLAWS = {str(flaw): flaw for flaw in planted_flaws()}
QUICK = [name for name in FLAWS if name.startswith(("lock-", "permits-acquire.lua-coarse"))][:5]
DUE = "local due_ms = 0\n"
TOKEN = "local job, token = jobs[name], tonumber(state[1] or 0) + 1\n"


def solved(folder: Path, effort: float = 1.0) -> tuple[Findings, boundaries.Solved]:
    binding = load_binding(folder, trust_adapter=True)
    findings = Findings(frozenset(SequentialTerms(contract_of(binding)).laws))
    search = Search(ContractReruns(lambda clients=0: run_of(binding, clients)), findings)
    situate(run_of(binding), search, 0.3)
    findings.by_law.clear()
    return findings, solve(lambda: run_of(binding), search, effort)


def planted(folder: Path, store: str, script: str, before: str, after: str) -> Path:
    shutil.copytree(LUA / store, folder / store)
    path = folder / store / script
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))
    return folder / store


@pytest.mark.parametrize(
    ("script", "before", "flaw", "neighbour"),
    [
        (
            "add.lua",
            DUE,
            "if delay_ms * 3 == 23757 then delay_ms = delay_ms - 1 end\n",
            "if delay_ms * 3 == 23758 then delay_ms = delay_ms - 1 end\n",
        ),
        (
            "take.lua",
            TOKEN,
            "if token + 17 == 72 then return false end\n",
            "if token + 17 == 72.5 then return false end\n",
        ),
    ],
)
def test_a_flaw_at_a_number_is_met(tmp_path: Path, script: str, before: str, flaw: str, neighbour: str) -> None:
    pytest.importorskip("z3")
    findings, _ = solved(planted(tmp_path / "flaw", "job_queue", script, before, before + flaw))
    assert findings.by_law
    findings, _ = solved(planted(tmp_path / "near", "job_queue", script, before, before + neighbour))
    assert not findings.by_law


def test_what_is_only_moved_and_what_is_not() -> None:
    pytest.importorskip("z3")
    findings, known = solved(LUA / "job_queue", 0.5)
    assert not findings.by_law
    assert known.marks.moved_fields() == ["payload"]
    fields = known.marks.to_json()["fields"]
    assert fields["add.payload"] == ["only moved"]
    assert "calculated with" in fields["take.lease_ms"]
    assert not known.marks.not_followed


def test_a_field_without_a_range_is_not_changed() -> None:
    """The limiter's contract knows one limit: another would make its verdicts wrong."""
    pytest.importorskip("z3")
    findings, known = solved(LUA / "limiter")
    assert not findings.by_law
    assert known.outside == {"hit.limit", "hit.window_ms"}


def test_a_field_that_no_template_passes_is_not_changed(tmp_path: Path) -> None:
    """The queue delays nothing, and is told a priority that is written as no delay would be."""
    pytest.importorskip("z3")
    of_another_style(tmp_path, "priority_streams")
    findings, known = solved(tmp_path)
    assert not findings.by_law
    assert known.outside == set()


def test_without_the_solver_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundaries, "is_installed", lambda: False)
    findings, _ = solved(LUA / "lock")
    assert findings.gaps == [NOT_INSTALLED]


def test_fifty_flaws_stand_at_numbers_of_their_own() -> None:
    assert len(FLAWS) == 50
    assert len({flaw.store for flaw in FLAWS.values()}) == 10


@pytest.mark.parametrize("name", QUICK)
def test_a_drawn_flaw_is_convicted(tmp_path: Path, name: str) -> None:
    pytest.importorskip("z3")
    assert convicts(written(tmp_path, FLAWS[name]), 10.0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [0, 1])
def test_all_but_two_of_fifty_are_convicted(tmp_path: Path, seed: int) -> None:
    flaws = list(planted_flaws(seed))
    caught = [convicts(written(tmp_path / str(number), flaw), 10.0) for number, flaw in enumerate(flaws)]
    assert sum(caught) >= 48
