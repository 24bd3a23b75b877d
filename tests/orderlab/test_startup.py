"""The command line starts quickly: what help imports. Where nothing can be written: ``test_wheel.py``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from unittest import mock

import pytest

from orderlab import __version__
from orderlab.cli import COMMANDS
from orderlab.commands import check, simulate
from tests.in_process import orderlab

ROOT = Path(__file__).parents[2]
HEAVY = {
    "numpy",
    "numba",
    "pyarrow",
    "pydantic",
    "lupa",
    "scipy",
    "networkx",
    "simpy",
    "redis",
    "fakeredis",
    "hypothesis",
    "pyspark",
}


def imported_by(program: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys; print(*sys.modules)"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(done.stdout.split())


def test_help_of_any_command_imports_nothing_of_weight() -> None:
    program = f"from orderlab.application import command\nfor name in {COMMANDS}: command(name)"
    assert not HEAVY & imported_by(program)


def test_the_list_of_commands_imports_no_command() -> None:
    program = "from orderlab.cli import application\ntry: application()(['--help'])\nexcept SystemExit: pass"
    assert not {name for name in imported_by(program) if name.startswith("orderlab.commands.")}


def test_names_that_help_lists_are_those_that_are_defined() -> None:
    from orderlab.model.checkers.judge import MODEL_NAMES
    from orderlab.sim.systems.catalogue import SYSTEMS

    assert (tuple(MODEL_NAMES), tuple(SYSTEMS)) == (check.OBJECTS, simulate.NAMES)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    with mock.patch.dict(os.environ, environment):
        return orderlab(*arguments)


def test_the_version_is_that_of_the_package() -> None:
    assert run("--version").stdout.startswith(f"orderlab {__version__}\nkernel: ")
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == __version__


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_lists_commands_and_their_options(shell: str) -> None:
    def completed(words: str) -> str:
        said = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1), "_TYPER_COMPLETE_ARGS": words}
        how = {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "_ORDERLAB_COMPLETE": f"complete_{shell}"}
        done = run(**said, **how)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert "validate" in completed("orderlab va")
    assert "simulate" not in completed("orderlab va")
    assert "--max-states" in completed("orderlab explore --max")
    assert (
        shell == "fish"
        or "_ORDERLAB_COMPLETE"
        in run("--show-completion", _ORDERLAB_COMPLETE="").stdout + run(_ORDERLAB_COMPLETE=f"source_{shell}").stdout
    )


@pytest.mark.parametrize(
    "arguments", [("--help",), ("specimens", "--help"), ("simulate", "--list"), ("explore", "--template")], ids=" ".join
)
def test_output_that_nobody_reads_ends_it_without_a_word(arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "orderlab.cli", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_the_benchmark_measures_processes_by_their_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import startup

    assert startup.cpu_seconds(("--version",)) > 0
    monkeypatch.setattr(startup, "cpu_seconds", lambda arguments: len(arguments) / 10)
    assert startup.run()["figures"] == {"help_cpu_s": 0.1, "command_help_cpu_s": 0.2, "validate_quick_cpu_s": 0.6}
    assert set(startup.TO_REACH) == set(startup.RUNS)
