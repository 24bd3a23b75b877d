"""The command line as a whole: wrong usage is one line and exit code 2."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from orderlab.cli import COMMANDS, application
from tests.in_process import orderlab

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("frob",), "frob"),
        (("check",), "FILE"),
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


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_what_it_takes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert not application([command])([command, "--help"], standalone_mode=False)
    told = capsys.readouterr().out
    assert "--help" in told
    docstring = getattr(import_module(f"orderlab.commands.{command}"), command).__doc__
    assert [word for word in re.findall(r"\[\w+\]", docstring) if word not in told] == []  # taken for markup


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("validate", "--json", "--law", "one-slot", "--budget", "0.1", "--backend", "kernel", "lua/pending"),
        ("validate", "--law", "one-slot", "--budget", "0.1", "--backend", "kernel", "lua/pending"),
    ],
    ids=" ".join,
)
def test_an_output_that_is_full_is_one_line(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "orderlab.cli", *arguments]
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "orderlab: standard output: No space left on device; make room or name another place\n"


def test_who_closes_the_output_gets_the_exit_code_alone() -> None:
    command = f"{sys.executable} -m orderlab.cli frob >&- 2>&-; echo $?; {sys.executable} -m orderlab.cli --help >&-"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")


@pytest.mark.parametrize("option", ["inf", "nan", "-1", "soon"])
def test_a_budget_is_a_finite_number_of_seconds(option: str) -> None:
    done = orderlab("validate", "--budget", option, "lua/pending")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="the system has no file without an end")
def test_a_binding_without_an_end_is_one_line() -> None:
    done = orderlab("validate", "/dev/zero")
    assert (done.returncode, done.stdout) == (2, "")
    assert "not a plain file" in done.stderr


def test_without_arguments_it_helps() -> None:
    done = orderlab()
    assert done.returncode == 2
    assert "validate" in done.stdout
    assert done.stderr == ""
