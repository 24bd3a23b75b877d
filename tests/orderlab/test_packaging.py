"""What the package says of itself, and the files by which others call it."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib

from orderlab.commands import COMMANDS
from tests.in_process import ROOT


def test_hooks_call_commands_that_there_are() -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    assert re.findall(r"^- id: (\S+)$", text, re.MULTILINE) == ["orderlab-lint", "orderlab-validate"]
    for entry in re.findall(r"^  entry: (.+)$", text, re.MULTILINE):
        program, *command = shlex.split(entry)
        assert program == "orderlab"
        assert not command or command[0] in COMMANDS


def test_the_action_takes_no_input_into_the_text_of_a_script() -> None:
    """It would be a way in for whoever names a branch."""
    text = (ROOT / "action.yml").read_text()
    scripts = re.findall(r"^      run: \|\n((?:        .*\n)+)", text, re.MULTILINE)
    assert len(scripts) == 2
    for script in scripts:
        assert "${{" not in script
        assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    inputs = set(re.findall(r"^  ([a-z-]+):$", text.partition("outputs:")[0], re.MULTILINE))
    assert set(re.findall(r"inputs\.([a-z-]+)", text)) == inputs


def test_the_metadata_names_what_it_runs_on() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"Framework :: Pytest", "Programming Language :: Python :: 3.11"} <= set(project["classifiers"])
    assert (ROOT / "CHANGELOG.md").read_text().count(f"## {project['version']}") == 1


def test_the_site_has_every_page_once() -> None:
    listed = re.findall(r": ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) == {page.name for page in (ROOT / "notes").glob("*.md")}
