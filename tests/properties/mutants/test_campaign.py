"""Judging mutants: killed with a witness, survived, equivalent, timed out; and going on after an interruption."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orderlab.model.contracts.session.traces import Publication, Save, Trace
from orderlab.model.errors import InputError
from orderlab.properties.contracts.kind import trace_from_json
from orderlab.properties.contracts.session.mutation.equivalence import Table
from orderlab.properties.contracts.session.mutation.judging import judge_quickly
from orderlab.properties.contracts.session.subject import Reruns, Subject
from orderlab.properties.mutants.campaign import Campaign, Judged, Score
from orderlab.properties.mutants.mutant import Mutant, Result, sample
from orderlab.properties.mutants.operators import mutants_of
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.bound import BudgetExceeded

ROOT = Path(__file__).parents[3]
SESSION = ROOT / "lua" / "session"


@pytest.fixture(scope="module")
def binding() -> Binding:
    return load_binding(SESSION)


def mutant_at(binding: Binding, place: str, said: str) -> Mutant:
    return next(one for one in mutants_of(binding) if one.script == place and said in one.said)


def test_a_killed_mutant_has_a_witness_that_breaks_its_law_and_not_the_original(binding: Binding) -> None:
    mutant = mutant_at(binding, "acknowledge.lua", "dropped: call('HDEL'")
    mutated = mutant.of(binding)
    result = judge_quickly(mutated)
    assert result.outcome == "killed"
    assert isinstance(result.trace, Trace)
    assert result.trace.modulus == 65535
    assert Reruns(Subject(mutated)).law_broken(result.trace, result.law) is not None
    assert Reruns(Subject(binding)).law_broken(result.trace, result.law) is None


def test_a_witness_ends_with_the_steps_that_its_mutant_may_take(binding: Binding) -> None:
    reruns, subject = Reruns(Subject(binding)), Subject(binding)
    trace = subject.trace([Save((Publication(label, b"%d" % label),)) for label in range(1, 9)])
    reruns.allow(20)
    assert reruns.law_broken(trace, "no-loss") is None
    with pytest.raises(BudgetExceeded):
        reruns.law_broken(trace, "no-loss")
    assert 20 < reruns.spent <= 24


def test_results_of_another_effort_are_not_resumed_from(binding: Binding) -> None:
    contexts = {Campaign(binding, [], 0, 4.0, 1, None, effort).context for effort in (1.0, 10.0)}
    assert len(contexts) == 2


def test_a_mutant_that_loops_is_timed_out(binding: Binding) -> None:
    result = judge_quickly(binding.with_sources({"save.lua": b"while true do end"}))
    assert (result.outcome, result.law) == ("timed out", "bounded")


def test_results_are_kept_one_by_one_and_resumed_from(
    binding: Binding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutants = [mutant_at(binding, "clear.lua", said) for said in ("UNLINK becomes EXISTS", "HGET becomes HSTRLEN")]
    campaign = Campaign(binding, mutants, 0, 40.0, 1, tmp_path)
    first = campaign.run()
    assert {one.result.outcome for one in first} == {"killed"}
    files = sorted(tmp_path.iterdir())
    assert len(files) == len(mutants)
    files[0].write_text("{half a file")
    times = files[1].stat().st_mtime_ns
    monkeypatch.setattr(Campaign, "_check_original", lambda _: None)  # seen above to pass
    again = Campaign(binding, mutants, 0, 40.0, 1, tmp_path)
    again._resume()
    assert len(again.results) == len(mutants) - 1
    assert [one.result.law for one in again.run()] == [one.result.law for one in first]
    assert files[1].stat().st_mtime_ns == times
    other_seed = Campaign(binding, mutants, 1, 40.0, 1, tmp_path)
    other_seed._resume()
    assert other_seed.results == {}


def test_what_made_the_judge_stumble_is_judged_again(
    binding: Binding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine may have been at fault: no memory, no room. Meanwhile nobody may say that the mutant was noticed."""
    mutant = mutant_at(binding, "clear.lua", "UNLINK becomes EXISTS")

    def stumble(*_: object, **__: object) -> Result:
        raise OSError("no room")

    campaign = Campaign(binding, [mutant], 0, 40.0, 1, tmp_path)
    monkeypatch.setattr("orderlab.properties.contracts.session.mutation.judging.judge_quickly", stumble)
    monkeypatch.setattr("orderlab.properties.contracts.session.mutation.judging.judge_thoroughly", stumble)
    monkeypatch.setattr("orderlab.properties.contracts.session.kind.tabulate", lambda of: Table(of, of, {}, [], ()))
    monkeypatch.setattr(campaign, "_check_original", lambda: None)
    (judged,) = campaign.run()
    assert (judged.result.outcome, judged.result.text) == ("survived", "the judge failed: OSError: no room")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    monkeypatch.setattr(Campaign, "_check_original", lambda _: None)
    (again,) = Campaign(binding, [mutant], 0, 40.0, 1, tmp_path).run()
    assert again.result.outcome == "killed"


def children_of(process: int) -> list[int]:
    try:
        return [
            int(child)
            for file in Path(f"/proc/{process}/task").glob("*/children")
            for child in file.read_text().split()
        ]
    except FileNotFoundError:
        return []


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="watches the end of a process that is not its child")
@pytest.mark.parametrize(
    "signalled",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.exhaustive), signal.SIGKILL],
    ids=lambda one: one.name,
)
def test_a_campaign_that_is_ended_leaves_whole_results_and_no_process(
    tmp_path: Path, signalled: signal.Signals
) -> None:
    command = [sys.executable, "-m", "orderlab.cli", "mutate", str(SESSION), "--jobs", "1", "--only", "command"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = subprocess.Popen([*command, "--out", str(tmp_path)], env=environment, cwd=ROOT, stdout=subprocess.DEVNULL)
    while not list(tmp_path.glob("*.json")):
        assert running.poll() is None
        time.sleep(0.01)
    while not (children := children_of(running.pid)):
        assert running.poll() is None
        time.sleep(0.001)
    try:
        ends = [os.pidfd_open(child) for child in children]
    except ProcessLookupError:  # it was done with its mutant just then
        ends = []
    running.send_signal(signalled)
    status = running.wait(600)
    assert status == (3 if signalled is signal.SIGINT else -signalled)
    for end in ends:
        assert select.select([end], [], [], 60)[0], "the process of a mutant outlives the campaign"
        os.close(end)
    kept = list(tmp_path.glob("*.json"))
    assert kept
    for file in kept:
        content = json.loads(file.read_bytes())
        assert Result.from_json(content["result"], str(file), trace_from_json).outcome in ("killed", "timed out")


def test_a_store_that_breaks_a_law_itself_is_refused() -> None:
    specimen = load_binding(ROOT / "lua" / "specimens" / "fetch-removes")
    with pytest.raises(InputError, match=r"itself breaks .* fix it first"):
        Campaign(specimen, mutants_of(specimen, ["default"])[:1], 0, 40.0, 1).run()


def judged(outcome: str, law: str = "", cpu_s: float = 1.0) -> Judged:
    mutant = Mutant("s.lua", "constant", "1 becomes 2", 0, 1, 1, b"1", b"2", b"2")
    return Judged(mutant, Result(outcome, law, "", None, "", cpu_s))


def test_the_score_leaves_equivalents_out_and_counts_what_does_not_end() -> None:
    score = Score(
        [judged("killed", "fifo", 3.0), judged("timed out", "bounded"), judged("survived"), judged("equivalent")]
    )
    assert score.score == pytest.approx(2 / 3)
    assert score.median_s_to_kill == 3.0
    assert score.by_law() == {"fifo": 1, "bounded": 1}
    assert Score([]).score == 1.0


def test_a_sample_is_drawn_by_the_seed_and_keeps_the_order() -> None:
    mutants = list(range(100))
    assert sample(mutants, 10, 1) == sample(mutants, 10, 1) == sorted(sample(mutants, 10, 1))
    assert sample(mutants, 10, 1) != sample(mutants, 10, 2)
    assert sample(mutants, 100, 1) == sample(mutants, None, 1) == mutants


def test_ctrl_c_while_the_original_is_looked_at_leaves_what_is_known(
    binding: Binding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The long look at the original comes between the two rounds, where no mutant is being judged."""
    known, left = sample(mutants_of(binding), 2, 0)
    first = Campaign(binding, [known], 0, 1.0, 1, tmp_path)
    first._resume()
    first._keep(known, Result("killed", "no-loss"))

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    second = Campaign(binding, [known, left], 0, 1.0, 1, tmp_path)
    monkeypatch.setattr(second, "_watched", interrupted)
    assert [one.mutant for one in second.run()] == [known]
    assert second.interrupted
