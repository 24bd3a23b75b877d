"""What the package says of itself, and the files by which others call it."""

from __future__ import annotations

import shlex
import subprocess
import tomllib

import yaml

from orderlab.commands import COMMANDS
from tests.in_process import ROOT


def test_hooks_call_commands_that_there_are() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert [hook["id"] for hook in hooks] == ["orderlab-lint", "orderlab-validate"]
    for hook in hooks:
        program, *command = shlex.split(hook["entry"])
        assert program == "orderlab"
        assert not command or command[0] in COMMANDS


def test_the_action_is_well_formed_and_takes_no_input_into_a_script() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    steps = [step for step in action["runs"]["steps"] if "run" in step]
    for step in steps:
        assert "${{" not in step["run"], "an input within the text of a script is a way in for whoever names a branch"
        assert subprocess.run(["bash", "-n"], input=step["run"], text=True, check=False).returncode == 0
    taken = {name for step in steps for name in step.get("env", {}).values()}
    assert taken >= {"${{ inputs.%s }}" % name for name in ("stores", "base", "effort", "arguments")}


def test_the_metadata_names_what_it_runs_on() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"Framework :: Pytest", "Programming Language :: Python :: 3.11"} <= set(project["classifiers"])
    assert (ROOT / "CHANGELOG.md").read_text().count(f"## {project['version']}") == 1
