"""``orderlab explore store`` as a user meets it: exit codes, the story, one-line errors, the same bytes every time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.in_process import orderlab

ROOT = Path(__file__).parents[2]
QUIET = ("crashes=0", "lost_replies=0", "expiries=0", "script_flush=0")


def explore(*settings: str, more: tuple[str, ...] = (), hash_seed: str = "") -> subprocess.CompletedProcess[str]:
    """In this process, unless it is to have a hash seed."""
    given = [part for setting in settings for part in ("--set", setting)]
    if not hash_seed:
        return orderlab("explore", "store", *given, *more)
    command = [sys.executable, "-m", "orderlab.cli", "explore", "store", *given, *more]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)


def test_the_session_store_exits_0_and_says_how_fast() -> None:
    done = explore("path=lua/session", "messages=2")
    assert (done.returncode, done.stderr) == (0, "")
    assert "complete" in done.stdout
    assert "transitions/s" in done.stdout


def test_a_flawed_store_tells_the_shortest_story_and_exits_1() -> None:
    done = explore("path=lua/specimens/fetch-removes", "messages=1", *QUIET, "law=no-loss", more=("--json",))
    found = json.loads(done.stdout)
    (verdict,) = (one for one in found["verdicts"] if one["law"] == "no-loss")
    assert done.returncode == 1
    assert [step["action"] for step in verdict["witness"]["steps"]] == ["save", "fetch"]


@pytest.mark.parametrize(
    ("arguments", "more", "words"),
    [
        (("path=nowhere",), (), "nowhere: no such file"),
        ((), (), "path"),
        (("path=lua/feed",), (), "no session store; orderlab validate lua/feed explores it"),
        (("path=lua/lock",), (), "orderlab validate lua/lock --trust-adapter explores it"),
        (("path=lua/session", "law=order"), (), "law=order"),
        (("path=lua/session",), ("--checkpoint", "at.bin"), "no checkpoint can be resumed"),
    ],
)
def test_unusable_input_is_one_line_and_exits_2(arguments: tuple[str, ...], more: tuple[str, ...], words: str) -> None:
    done = explore(*arguments, more=more)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_budget_that_does_not_suffice_exits_3() -> None:
    assert explore("path=lua/session", more=("--max-states", "100")).returncode == 3


def test_the_same_bytes_whatever_the_hash_seed() -> None:
    settings = ("path=lua/specimens/identifier-reused-while-live", "readers=2", "messages=3", "modulus=2", "failover=1")
    # Drawn, and set.
    found = [json.loads(explore(*settings, more=("--json", "--symmetry"), hash_seed=seed).stdout) for seed in ("", "7")]
    for one in found:
        del one["run"]
    assert json.dumps(found[0]) == json.dumps(found[1])
