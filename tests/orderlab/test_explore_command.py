"""``orderlab explore`` as a user meets it: exit codes, one-line errors, the story, JSON, silence in a pipe."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.in_process import orderlab

ROOT = Path(__file__).parents[2]


def explore(*arguments: str) -> subprocess.CompletedProcess[str]:
    return orderlab("explore", *arguments)


def test_pinned_count_in_json() -> None:
    done = explore("two-phase-commit", "--set", "resource_managers=5", "--json", "--seed", "7")
    found = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert (found["distinct_states"], found["outcome"], found["complete"]) == (8832, "holds", True)
    assert (found["parameters"]["resource_managers"], found["seed"]) == (5, 7)
    assert set(found["run"]) == {"engine", "seconds", "states_per_s", "transitions_per_s", "bytes", "resumed"}


def test_a_broken_variant_tells_its_story_and_exits_1() -> None:
    done = explore("increment", "--set", "lock=false")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[:18] == [
        "increment(threads=2, lock=False): no-lost-update is violated, 1 of 5 laws (exit code 1)",
        "  1. no-lost-update: after step 4 it is false: counter = 1, at[0] = written, at[1] = written [4 steps]",
        "  undecided: mutual-exclusion, no-deadlock, everyone-writes: stopped at the violation of no-lost-update: 13 "
        "states were seen, 10 of them "
        "expanded, to depth 4",
        "  undecided: coverage: stopped at the violation of no-lost-update: 13 states were seen, 10 of them "
        "expanded, to depth 4; everyone-writes"
        " was not decided, and so not tested",
        "",
        "no-lost-update is violated",
        "    law: The counter is the number of threads that have written.",
        "    why: after step 4 it is false: counter = 1, at[0] = written, at[1] = written",
        "    witness: 4 steps, 2 switches between processes",
        "    0. initially: counter = 0, locked = false, at = [start, start], seen = [0, 0]",
        "    1. thread 1: read(t=1)",
        "         at[1]: start -> read",
        "    2. thread 0: read(t=0)",
        "         at[0]: start -> read",
        "    3. thread 0: write(t=0)",
        "         counter: 0 -> 1",
        "         at[0]: read -> written",
        "    4. thread 1: write(t=1)",
    ]
    assert lines[-1] == "seed: 0"


def test_an_unfinished_run_exits_3_and_a_checkpoint_finishes_it(tmp_path: Path) -> None:
    file = str(tmp_path / "half")
    first = explore("two-phase-commit", "--max-states", "100", "--checkpoint", file)
    assert first.returncode == 3
    assert "stopped by the budget of 100 states" in first.stdout
    second = explore("two-phase-commit", "--checkpoint", file, "--json")
    assert second.returncode == 0
    assert json.loads(second.stdout)["distinct_states"] == 288


def on_a_terminal(*arguments: str) -> tuple[subprocess.Popen[str], int]:
    """The command with its standard error on a pseudo-terminal, whose other end is returned."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "orderlab.cli", "explore", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    return process, ours


LARGE = ("two-phase-commit", "--set", "resource_managers=8", "--engine", "interpreted", "--json")


def test_a_terminal_sees_progress_and_an_interrupt_leaves_a_whole_result() -> None:
    process, terminal = on_a_terminal(*LARGE)
    told = os.read(terminal, 4096).decode()
    process.send_signal(signal.SIGINT)
    found = json.loads(process.communicate(timeout=900)[0])
    os.close(terminal)
    assert re.search(r"[\d,]+ states, [\d,]+ states/s, queue [\d,]+, depth \d+", told)
    assert (process.returncode, found["outcome"], found["stopped_by"]) == (3, "unknown", "an interrupt")


def test_graph_file(tmp_path: Path) -> None:
    file = tmp_path / "graph.dot"
    assert explore("die-hard", "--graph", str(file)).returncode == 0
    assert file.read_text().startswith('digraph "die-hard" {')


def test_list_names_every_specification_and_parameter() -> None:
    text = explore("--list").stdout
    assert "two-phase-commit: Two-phase commit" in text
    assert "    resource_managers = 3  (integer, at least 1, at most 10)" in text
    listed = json.loads(explore("--list", "--json").stdout)
    assert listed["increment"]["parameters"]["lock"]["default"] is True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["two-phase-comit"], 'unknown specification "two-phase-comit"; did you mean "two-phase-commit"?'),
        (["die-hard", "--set", "gaol=4"], 'die-hard: unknown parameter "gaol"; did you mean "goal"?'),
        (["die-hard", "--set", "goal=x"], "die-hard: --set goal=x: Input should be a valid integer"),
        (["die-hard", "--set", "goal=99"], "die-hard: --set goal=99: Input should be less than or equal to 50"),
        (["die-hard", "--set", "goal"], "--set goal: not a setting"),
        (["die-hard", "--set", "goal=1", "--set", "goal=2"], "--set goal=2: goal is set twice"),
        (["die-hard", "--graph", "x.png"], "x.png: unknown form of graph"),
        (["die-hard", "--graph", "missing/x.dot"], "there is no folder missing; make it or name another"),
        (["die-hard", "--checkpoint", "pyproject.toml"], "pyproject.toml: not a checkpoint"),
        (["die-hard", "--engine", "quick"], "--engine quick: unknown engine"),
        (["dining-philosophers", "--symmetry"], "dining-philosophers has no symmetry"),
        ([], "which specification?"),
    ],
)
def test_bad_input_is_one_line_and_exits_2(arguments: list[str], message: str) -> None:
    done = explore(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert message in done.stderr


def test_the_template_runs_and_its_flaw_is_found(tmp_path: Path) -> None:
    file = tmp_path / "lock.py"
    file.write_text(explore("--template").stdout)
    sound, broken = explore(str(file)), explore(str(file), "--set", "broken=true", "--continue")
    assert (sound.returncode, broken.returncode) == (0, 1)
    assert broken.stdout.count(" is violated\n") == 2
    assert "no-starvation(c=1)" in broken.stdout
    walked = explore(str(file), "--walks", "20", "--depth", "30", "--seed", "4")
    assert walked.returncode == 3
    assert "20 random walks of at most 30 steps, seed 4" in walked.stdout


VACUOUS = """
from orderlab.specification import Specification, action, invariant, require
from orderlab.specification import integer


class Counter(Specification):
    def variables(self):
        return {"x": integer(0, 2)}

    @action(actor="p")
    def go(self, s):
        require(s.x < 2)
        s.x += 1

    def never(self, s):
        return s.x > LIMIT

    @invariant(when="never")
    def small(self, s):
        return s.x < 3

    def terminal(self, s):
        return True
"""


def test_a_law_that_was_not_put_to_the_test_exits_3_and_says_vacuous(tmp_path: Path) -> None:
    file = tmp_path / "counter.py"
    file.write_text(VACUOUS.replace("LIMIT", "2"))
    untested, allowed = explore(str(file)), explore(str(file), "--allow-vacuous")
    assert (untested.returncode, allowed.returncode) == (3, 0)
    assert "vacuous: its antecedent was never met" in untested.stdout
    assert "vacuous, not tested: small, coverage" in untested.stdout
    file.write_text(VACUOUS.replace("LIMIT", "1"))
    assert explore(str(file)).returncode == 0


def test_the_protocols_of_streams_are_explored_together() -> None:
    """One state of each here: unknown, never a false answer; all states are visited by `make exhaustive`."""
    done = explore("streams", "--max-states", "1", "--json")
    told = json.loads(done.stdout)
    names = [
        "acknowledgement",
        "clocks",
        "collector",
        "handover",
        "log-replay",
        "replication",
        "session",
        "shared",
        "start-time",
    ]
    assert sorted(told["specifications"]) == [f"streams-{name}" for name in names]
    assert not any(one["complete"] for one in told["specifications"].values())
    assert (done.returncode, told["outcome"]) == (3, "unknown")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("streams-acknowledgement", "--set", "messages=1"), 0, "all 4 laws hold"),
        (("streams-clocks", "--set", "protocol=no-part"), 1, "no-loss is violated"),
        (("streams-clocks", "--set", "protocol=nope"), 2, "protocol"),
        (("streams-clocks", "--set", "ticks=0"), 2, "ticks"),
        (("streams", "--set", "protocol=repaired"), 2, "streams"),
    ],
)
def test_a_protocol_of_streams_and_what_is_wrong_nearby(arguments: tuple[str, ...], code: int, told: str) -> None:
    done = explore(*arguments)
    assert done.returncode == code
    assert told in done.stdout + done.stderr
    assert code < 2 or (done.stdout, done.stderr.count("\n")) == ("", 1)
