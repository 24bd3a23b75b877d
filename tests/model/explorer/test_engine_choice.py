"""Which engine a run takes: never a matter of verdict, witness, or where a budget ends."""

from __future__ import annotations

from typing import Any

import pytest

from orderlab.model.classics.two_phase_commit import TwoPhaseCommit
from orderlab.model.errors import EngineError
from orderlab.model.explorer.exploration import explore
from orderlab.model.explorer.search import Budget, Options, Progress
from tests.model.explorer.engines import as_it_is, loaded


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs change engines early, to a kernel that is not compiled."""
    monkeypatch.setattr("orderlab.model.explorer.search.CHANGE_AFTER_STEPS", 50)
    monkeypatch.setattr("orderlab.model.explorer.search.COMPILE_AFTER_STEPS", 300)
    monkeypatch.setattr("orderlab.model.explorer.compiled.kernel_text.is_cached", lambda *_: False)
    monkeypatch.setattr("orderlab.model.explorer.compiled.space.load_kernel", lambda text: loaded(text, as_it_is))


def report(system: Any, **options: Any) -> tuple[str, dict[str, Any]]:
    found = explore(system, Options(**options)).to_json()
    return found.pop("run")["engine"], found


@pytest.mark.parametrize("max_states", [None, 3, 100, 150, 287])
@pytest.mark.parametrize("flaw", ["none", "abort-after-vote"])
def test_same_report_on_each_engine(early: None, max_states: int | None, flaw: Any) -> None:
    system, budget = TwoPhaseCommit(flaw=flaw), Budget(max_states)
    one = report(system, budget=budget, engine="interpreted")
    other = report(system, budget=budget, engine="compiled")
    changed = report(system, budget=budget)
    assert (one[0], other[0]) == ("interpreted", "compiled")
    assert one[1] == other[1] == changed[1]


def test_a_run_changes_over_when_it_proves_large(early: None, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Progress] = []
    assert explore(TwoPhaseCommit(), Options(), told.append).run["engine"] == "compiled"
    assert [line.doing.partition(" (")[0] for line in told if line.doing] == ["compiling the specification"]
    assert explore(TwoPhaseCommit(resource_managers=2), Options()).run["engine"] == "interpreted"
    monkeypatch.setattr("orderlab.model.explorer.compiled.kernel_text.is_cached", lambda *_: True)
    assert explore(TwoPhaseCommit(resource_managers=2), Options()).run["engine"] == "compiled"


def test_only_the_named_laws_are_judged(early: None) -> None:
    one = report(TwoPhaseCommit(flaw="abort-after-vote"), laws=("all-commit",), engine="interpreted")
    other = report(TwoPhaseCommit(flaw="abort-after-vote"), laws=("all-commit",), engine="compiled")
    assert one[1] == other[1]
    assert len(one[1]["verdicts"]) == 1


def test_engines_that_differ_end_the_run(early: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(text: str) -> Any:
        assert "fired[0] += 1" in text
        return loaded(text.replace("fired[0] += 1", "fired[0] += 2"), as_it_is)

    monkeypatch.setattr("orderlab.model.explorer.compiled.space.load_kernel", wrong)
    with pytest.raises(EngineError, match="the engines disagree on fired of the first"):
        explore(TwoPhaseCommit(), Options())
