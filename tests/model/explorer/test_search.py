"""Budgets, checkpoints, coverage, deadlock, graphs, progress, determinism."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import networkx as nx
import pytest

from orderlab.model.classics.dining_philosophers import dining_philosophers
from orderlab.model.classics.increment import Increment
from orderlab.model.classics.two_phase_commit import TwoPhaseCommit
from orderlab.model.errors import InputError
from orderlab.model.explorer.exploration import Exploration, explore
from orderlab.model.explorer.search import Budget, Engine, Options, Progress
from orderlab.model.explorer.state_graph import state_graph, write_graph
from orderlab.model.spec.declarations import action, invariant, leads_to, require, sometimes
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.transition_system import TransitionSystem
from orderlab.model.spec.variables import Array, Domain, State, integer
from orderlab.model.verdict import Outcome, Verdict
from tests.model.explorer.engines import loaded_as_it_is


@pytest.fixture(autouse=True)
def uncompiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels run as plain Python, for numba takes seconds for each, but where a run is kept: its numbers are
    numpy's."""
    if "resumed" not in request.node.name:
        monkeypatch.setattr("orderlab.model.explorer.compiled.space.load_kernel", loaded_as_it_is)


def verdict(found: Exploration, law: str) -> Verdict:
    return next(v for v in found.verdicts if v.law == law)


def named(value: object) -> str:
    """A test id that is the same in every process: no addresses of functions."""
    return value.name if isinstance(value, TransitionSystem) else str(value)


def stable(found: Exploration) -> Mapping[str, Any]:
    return {key: value for key, value in found.to_json().items() if key != "run"}


# -- deadlock, coverage ------------------------------------------------------------------------------------------------


def test_deadlock_is_found_and_its_neighbour_is_free_of_it() -> None:
    bad = verdict(explore(dining_philosophers(3, one_left_handed=False)), "no-deadlock")
    assert [step.action for step in bad.witness.steps] == ["get_hungry", "take_first"] * 3
    assert verdict(explore(dining_philosophers(3)), "no-deadlock").outcome is Outcome.HOLDS


class Idle(Specification):
    """`high` lets the counter run as far as the action and the laws speak of."""

    name: ClassVar[str] = "idle"
    high: int = 1

    def variables(self) -> Mapping[str, Domain | Array]:
        return {"count": integer(0, 3)}

    @action(actor="clock", fair=True)
    def tick(self, s: State) -> None:
        require(s.count < self.high)
        s.count += 1

    @action(actor="clock")
    def ring(self, s: State) -> None:
        require(s.count == 2)
        s.count = 3

    def late(self, s: State) -> bool:
        return bool(s.count == 3)

    @invariant(when="late")
    def late_is_not_early(self, s: State) -> bool:
        return s.count > 1

    @sometimes()
    def reaches_two(self, s: State) -> bool:
        return bool(s.count == 2)

    stays_late: ClassVar[Any] = leads_to("late", "late")

    def terminal(self, s: State) -> bool:
        return True


@pytest.mark.parametrize("engine", ["interpreted", "compiled"])
def test_what_was_not_put_to_the_test_is_not_held(engine: Engine) -> None:
    found = explore(Idle(), Options(engine=engine))
    assert verdict(found, "late-is-not-early").outcome is Outcome.UNKNOWN
    assert verdict(found, "late-is-not-early").vacuous
    assert verdict(found, "reaches-two").outcome is Outcome.VIOLATED
    assert verdict(found, "coverage").outcome is Outcome.UNKNOWN
    assert verdict(found, "coverage").not_covered == (
        "vacuous: action ring never fired",
        "vacuous: late-is-not-early was never tested",
        "vacuous: stays-late was never tested",
    )
    allowed = explore(Idle(), Options(engine=engine, allow_vacuous=True))
    assert [v.law for v in allowed.verdicts if v.outcome is Outcome.VIOLATED] == ["reaches-two"]
    calm = explore(Idle(), Options(engine=engine, laws=("late-is-not-early", "coverage"), allow_vacuous=True))
    assert calm.outcome is Outcome.HOLDS
    assert explore(Idle(high=2), Options(engine=engine)).outcome is Outcome.HOLDS


# -- budgets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "words"),
    [(Budget(max_states=100), "100 states"), (Budget(max_seconds=0), "0 seconds"), (Budget(max_bytes=0), "0 bytes")],
)
def test_a_budget_ends_in_unknown_and_says_what_was_covered(budget: Budget, words: str) -> None:
    found = explore(TwoPhaseCommit(), Options(budget=budget))
    assert found.outcome is Outcome.UNKNOWN
    assert not found.complete
    gap = verdict(found, "consistent").not_covered[0]
    assert f"stopped by the budget of {words}: " in gap
    assert f"{found.distinct_states:,} states were seen" in gap


@pytest.mark.parametrize("engine", ["interpreted", "compiled"])
def test_a_budget_in_states_is_kept_within_one_state_s_successors(engine: Engine) -> None:
    found = explore(TwoPhaseCommit(resource_managers=5), Options(budget=Budget(max_states=500), engine=engine))
    assert 500 <= found.distinct_states <= 500 + 27


def test_coverage_of_an_unfinished_run_is_unknown_not_violated() -> None:
    found = explore(TwoPhaseCommit(), Options(budget=Budget(max_states=5)))
    assert verdict(found, "coverage").outcome is Outcome.UNKNOWN


def test_an_interrupt_leaves_a_whole_result() -> None:
    found = explore(TwoPhaseCommit(), should_stop=lambda: True)
    assert (found.outcome, found.stopped_by) == (Outcome.UNKNOWN, "an interrupt")


def test_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orderlab.model.explorer.search.PROGRESS_EVERY_S", 0.0)
    told: list[Progress] = []
    explore(TwoPhaseCommit(), Options(engine="interpreted"), told.append)
    assert told[0].depth < told[-1].depth <= 10
    assert told[-1].states == 288


# -- checkpoints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "options"),
    [
        (TwoPhaseCommit(resource_managers=3), Options(engine="interpreted")),
        (TwoPhaseCommit(resource_managers=3), Options(engine="compiled")),
        (TwoPhaseCommit(resource_managers=4), Options(engine="interpreted", symmetry=True)),
        (TwoPhaseCommit(resource_managers=4, flaw="abort-after-vote"), Options()),
        (dining_philosophers(5), Options(reduction=True)),
        (dining_philosophers(4, one_left_handed=False), Options()),
    ],
    ids=named,
)
def test_resumed_runs_end_as_one_run_does(system: TransitionSystem[Any], options: Options, tmp_path: Path) -> None:
    whole = explore(system, options)
    file = tmp_path / "checkpoint"
    for states in (20, 200):
        explore(system, with_checkpoint(options, file, states))
    resumed = explore(system, with_checkpoint(options, file, None))
    assert resumed.run["resumed"]
    assert stable(resumed) == stable(whole)


def with_checkpoint(options: Options, file: Path, states: int | None) -> Options:
    return Options(Budget(max_states=states), options.symmetry, options.reduction, options.engine, file)


def unfinished(tmp_path: Path) -> Path:
    file = tmp_path / "checkpoint"
    explore(TwoPhaseCommit(), Options(budget=Budget(max_states=50), checkpoint=file))
    return file


@pytest.mark.parametrize(
    ("system", "symmetry"),
    [(TwoPhaseCommit(resource_managers=4), False), (TwoPhaseCommit(), True), (Increment(), False)],
    ids=named,
)
def test_a_checkpoint_of_something_else_is_refused(system: Specification, symmetry: bool, tmp_path: Path) -> None:
    file = unfinished(tmp_path)
    before = file.read_bytes()
    with pytest.raises(InputError, match="a checkpoint of two-phase-commit under another scope"):
        explore(system, Options(symmetry=symmetry, checkpoint=file))
    assert file.read_bytes() == before


def test_a_checkpoint_of_another_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = unfinished(tmp_path)
    monkeypatch.setattr(TwoPhaseCommit, "source_text", lambda _: "the guard of an action is another one now")
    with pytest.raises(InputError, match="under another scope, text or reduction"):
        explore(TwoPhaseCommit(), Options(checkpoint=file))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "not a checkpoint"),
        (lambda data: b"hello\n" + data, "not a checkpoint"),
        (lambda data: data[:-1], "damaged"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "damaged"),
        (lambda data: data.replace(b'"version": 1', b'"version": 0', 1), "checkpoint version 0"),
    ],
)
def test_a_damaged_checkpoint_is_refused(damage: Any, message: str, tmp_path: Path) -> None:
    file = unfinished(tmp_path)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(InputError, match=message):
        explore(TwoPhaseCommit(), Options(checkpoint=file))


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    import hashlib

    file = unfinished(tmp_path)
    head = json.loads(file.read_bytes().partition(b"\n")[0])

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, ("true",)

    body = pickle.dumps(Evil())
    head["sha256"] = hashlib.sha256(body).hexdigest()
    file.write_bytes(json.dumps(head).encode() + b"\n" + body)
    with pytest.raises(InputError, match="holds something else than states"):
        explore(TwoPhaseCommit(), Options(checkpoint=file))


def test_a_checkpoint_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        explore(TwoPhaseCommit(), Options(budget=Budget(max_states=50), checkpoint=tmp_path / "none" / "file"))
    assert list(tmp_path.iterdir()) == []


# -- graphs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["interpreted", "compiled"])
def test_the_state_graph_has_every_state_and_step(engine: Engine, tmp_path: Path) -> None:
    found = explore(Increment(), Options(engine=engine))
    graph = state_graph(found.search.space, found.search.expanded)
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (17, 16)
    assert [n for n, initial in graph.nodes(data="initial") if initial] == [0]
    assert graph.nodes[1]["state"]["at"] == ["locked", "start"]
    for form in ("dot", "graphml", "json"):
        write_graph(graph, tmp_path / f"graph.{form}")
    again = nx.node_link_graph(json.loads((tmp_path / "graph.json").read_text()), edges="edges")
    assert nx.utils.graphs_equal(again, graph)
    assert nx.read_graphml(tmp_path / "graph.graphml", force_multigraph=True).number_of_edges() == 16
    text = (tmp_path / "graph.dot").read_text()
    assert text.count(" -> ") == 16
    assert '  0 -> 1 [label="acquire(t=0)"];' in text


# -- determinism -------------------------------------------------------------------------------------------------------

SCRIPT = """
import json
from orderlab.model.explorer.exploration import explore
from orderlab.model.explorer.search import Options
from orderlab.model.classics.dining_philosophers import dining_philosophers
from orderlab.model.classics.increment import Increment
for system in (dining_philosophers(4, one_left_handed=False), Increment(lock=False), dining_philosophers(3)):
    for options in (Options(), Options(reduction=True)):
        print(json.dumps({k: v for k, v in explore(system, options).to_json().items() if k != "run"}))
"""


def test_the_same_in_every_process() -> None:
    root = Path(__file__).parents[3]
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(outputs) == 1
    assert outputs.pop().count(b"\n") == 6
