"""The command line as a whole: wrong usage is one line and exit code 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def orderlab(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "orderlab.cli", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("frob",), "frob"),
        (("check",), "file"),
        (("explore", "two-phase-commit", "--nope"), "--nope"),
        (("explore", "two-phase-commit", "--max-states", "many"), "--max-states"),
        (("explore", "two-phase-commit", "--budget", "-1"), "--budget"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_one_line(arguments: tuple[str, ...], said: str) -> None:
    done = orderlab(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr
    assert "--help" in done.stderr


def test_without_arguments_it_helps() -> None:
    done = orderlab()
    assert done.returncode == 2
    assert "validate" in done.stdout
    assert done.stderr == ""
