"""What `notes/ci.md` offers to copy, tried: its files are read, and their commands run in a scratch repository."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
NOTE = (ROOT / "notes" / "ci.md").read_text()
EFFORT = "0.02"
"""The commands are those of the note, on less work: a program called orderlab adds it."""
LAW = "own-release"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", NOTE, re.MULTILINE | re.DOTALL)


# -- YAML, as much of it as these files use: anything else is refused
# ---------------------------------------------------------


def read_yaml(text: str) -> Any:
    lines = [line for line in text.split("\n") if line.strip()]
    value, rest = _block(lines, _indent(lines[0]))
    assert not rest, rest
    return value


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _block(lines: list[str], indent: int) -> tuple[Any, list[str]]:
    return _list(lines, indent) if lines[0].lstrip().startswith("- ") else _map(lines, indent)


def _list(lines: list[str], indent: int) -> tuple[list[Any], list[str]]:
    found: list[Any] = []
    while lines and _indent(lines[0]) == indent and lines[0].lstrip().startswith("- "):
        first = lines[0][indent + 2 :]
        if first == "|":
            value, lines = _literal(lines[1:], indent)
        elif re.match(r"[\w-]+:( |$)", first):
            value, lines = _map([" " * (indent + 2) + first, *lines[1:]], indent + 2)
        else:
            value, lines = _scalar(first), lines[1:]
        found.append(value)
    return found, lines


def _map(lines: list[str], indent: int) -> tuple[dict[str, Any], list[str]]:
    found: dict[str, Any] = {}
    while lines and _indent(lines[0]) == indent and not lines[0].lstrip().startswith("- "):
        match = re.fullmatch(r"([\w-]+):(?: (.*))?", lines[0][indent:])
        assert match, lines[0]
        name, text, lines = match[1], match[2], lines[1:]
        assert name not in found, name
        if text == "|":
            found[name], lines = _literal(lines, indent)
        elif text:
            found[name] = _scalar(text)
        else:
            found[name], lines = _block(lines, _indent(lines[0]))
    assert not lines or _indent(lines[0]) <= indent, lines[0]
    return found, lines


def _literal(lines: list[str], indent: int) -> tuple[str, list[str]]:
    inner = _indent(lines[0])
    assert inner > indent
    body = []
    while lines and _indent(lines[0]) >= inner:
        body.append(lines[0][inner:])
        lines = lines[1:]
    return "\n".join(body) + "\n", lines


def _scalar(text: str) -> Any:
    if text.startswith(("[", '"')) and text.endswith(("]", '"')):
        return json.loads(text)
    assert not re.match(r"[&*!>%@`{]", text), text
    assert not re.search(r": | #", text), text
    return {"true": True, "false": False}.get(text, int(text) if text.isdecimal() else text)


def test_the_reader_of_yaml_refuses_what_it_does_not_know() -> None:
    assert read_yaml('a:\n  - b: 1\n    c: ["x", "y"]\n  - d\ne: |\n  f\n  g\n') == {
        "a": [{"b": 1, "c": ["x", "y"]}, "d"],
        "e": "f\ng\n",
    }
    for bad in ("a: &b c\n", "a: b: c\n", "a: 1\na: 2\n", "a:\n  b: 1\n c: 2\n"):
        with pytest.raises((AssertionError, IndexError)):
            read_yaml(bad)


# -- a repository with a change
# ------------------------------------------------------------------------------------------------


class Repository(NamedTuple):
    """A clone with a change of scripts, and the programs that its jobs call."""

    place: Path
    environment: dict[str, str]
    said: Path
    """What the programs that stand in for others were called with."""

    def run(self, script: str, **more: str) -> subprocess.CompletedProcess[str]:
        """As a runner does: `bash -e` on the text."""
        return subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=self.place,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            timeout=300,
        )

    def git(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", *words], cwd=self.place, env=self.environment, capture_output=True, text=True, timeout=300
        )


CHANGES = {
    "breaks": (
        "release.lua",
        "if redis.call('GET', KEYS[1]) ~= ARGV[1] then",
        "if redis.call('EXISTS', KEYS[1]) == 0 then",
    ),
    "refactors": ("release.lua", "return redis.call('DEL'", "-- the lease alone\nreturn redis.call('DEL'"),
}
CODES = {"breaks": 1, "refactors": 0}


@pytest.fixture
def change(request: pytest.FixtureRequest) -> str:
    """The one that breaks a law, unless a test asks for another."""
    return str(getattr(request, "param", "breaks"))


@pytest.fixture
def repository(change: str, tmp_path: Path) -> Repository:
    """`main` is on the origin; the clone has a branch with the change in its work tree, committed."""
    programs, said = tmp_path / "bin", tmp_path / "said"
    programs.mkdir()
    for name in ("pip", "apt-get", "curl", "gh"):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {said}\n')
    (programs / "sudo").write_text('#!/bin/sh\nexec "$@"\n')
    (programs / "orderlab").write_text(
        f"#!{sys.executable}\nimport sys\nsys.argv += ['--effort', '{EFFORT}', '--law', '{LAW}', '--backend', "
        "'kernel', '--trust-adapter']\n"
        f"sys.path.insert(0, {str(ROOT)!r})\nfrom orderlab.cli import main\nsys.exit(main())\n"
    )
    for file in programs.iterdir():
        file.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"PATH": f"{programs}:{environment['PATH']}", "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    environment |= {
        f"GIT_{role}_{what}": "someone@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    origin = Repository(tmp_path / "origin", environment, said)
    shutil.copytree(
        ROOT / "lua" / "lock", origin.place / "scripts" / "store", ignore=shutil.ignore_patterns("__pycache__")
    )
    origin.git("init", "-q", "-b", "main")
    origin.git("add", "-A")
    assert origin.git("commit", "-qm", "the store").returncode == 0
    clone = origin._replace(place=tmp_path / "clone")
    assert subprocess.run(["git", "clone", "-q", str(origin.place), str(clone.place)], env=environment).returncode == 0
    clone.git("checkout", "-qb", "change")
    file, old, new = CHANGES[change]
    script = clone.place / "scripts" / "store" / file
    assert old in script.read_text()
    script.write_text(script.read_text().replace(old, new, 1))
    return clone


def test_the_workflow_of_github(repository: Repository, change: str) -> None:
    repository.git("commit", "-qam", "a change")
    workflow = read_yaml(blocks("yaml")[0])
    assert workflow["permissions"] == {"contents": "read", "pull-requests": "write", "security-events": "write"}
    steps = {step.get("name", step.get("uses")): step for step in workflow["jobs"]["orderlab"]["steps"]}
    assert steps["actions/checkout@v4"]["with"]["fetch-depth"] == 0, "the base must be there"
    judged = None
    for name, step in steps.items():
        if "run" not in step or (judged not in (None, 0) and step.get("if") != "always()"):
            continue
        more = dict.fromkeys(step.get("env", {}), "7")
        ran = repository.run(step["run"], GITHUB_BASE_REF="main", **more)
        if name == "Judge the change":
            judged = ran.returncode
            assert judged == CODES[change], ran.stdout + ran.stderr
        else:
            assert ran.returncode == 0, ran.stderr
    said = repository.said.read_text().splitlines()
    assert said[:2] == ["apt-get install --yes redis-server", "pip install orderlab"]
    assert said[2] == "gh pr comment 7 --body-file findings.md --edit-last --create-if-none"
    log = json.loads((repository.place / steps["Show findings on their lines"]["with"]["sarif_file"]).read_text())
    failed = [one for one in log["runs"][0]["results"] if one.get("kind", "fail") == "fail"]
    assert bool(failed) == (change == "breaks")
    for one in failed:
        assert one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].startswith("scripts/store/")
    markdown = (repository.place / "findings.md").read_text()
    assert ("newly broken" in markdown) == (change == "breaks")
    assert sorted(one.name for one in repository.place.glob(steps["Keep the reports"]["with"]["path"])) == [
        "findings.json", "findings.md", "findings.sarif", "findings.xml",
    ]  # fmt: skip


def test_the_job_of_gitlab(repository: Repository, change: str) -> None:
    repository.git("commit", "-qam", "a change")
    job = read_yaml(blocks("yaml")[1])["orderlab"]
    assert repository.run("\n".join(job["before_script"])).returncode == 0
    ran = repository.run("\n".join(job["script"]), CI_MERGE_REQUEST_TARGET_BRANCH_NAME="main")
    assert ran.returncode == CODES[change], ran.stdout + ran.stderr
    places = {
        "CI_API_V4_URL": "https://gitlab.example.org/api/v4",
        "CI_PROJECT_ID": "5",
        "CI_MERGE_REQUEST_IID": "9",
        "ORDERLAB_TOKEN": "t",
    }
    assert repository.run("\n".join(job["after_script"]), **places).returncode == 0
    assert (
        repository.said.read_text()
        .splitlines()[-1]
        .endswith("body@findings.md https://gitlab.example.org/api/v4/projects/5/merge_requests/9/notes")
    )
    suites = ElementTree.parse(repository.place / job["artifacts"]["reports"]["junit"]).getroot()
    assert bool(list(suites.iter("failure"))) == (change == "breaks")
    assert job["artifacts"]["when"] == "always"


@pytest.mark.parametrize("change", ["breaks", pytest.param("refactors", marks=pytest.mark.exhaustive)], indirect=True)
def test_the_hooks_before_a_commit(repository: Repository, change: str) -> None:
    (hook,) = read_yaml(blocks("yaml")[2])["repos"][0]["hooks"]
    assert hook["language"] == "system"
    assert hook["pass_filenames"] is False
    assert re.search(hook["files"], "scripts/store/save.lua")
    assert not re.search(hook["files"], "src/scripts.py")
    (script,) = blocks("sh")
    assert hook["entry"] in script, "both do the same"
    file = repository.place / ".git" / "hooks" / "pre-commit"
    file.write_text(script)
    file.chmod(0o755)
    (repository.place / "README").write_text("no script\n")
    repository.git("add", "README")
    assert repository.git("commit", "-qm", "words").returncode == 0, "a commit without scripts is not judged"
    repository.git("add", "-A")
    ran = repository.git("commit", "-qm", "a change")
    assert (ran.returncode == 0) == (change == "refactors"), ran.stdout + ran.stderr
    assert ("newly broken" in ran.stdout + ran.stderr) == (change == "breaks")


def test_unusable_input_and_what_is_undecided_have_codes_of_their_own(repository: Repository, change: str) -> None:
    assert (
        repository.run("orderlab validate scripts/store --base origin/nowhere --report sarif=it.sarif").returncode == 2
    )
    assert not (repository.place / "it.sarif").exists()
    assert repository.run("(exit 3) || [ $? -eq 3 ]").returncode == 0
    assert repository.run("(exit 1) || [ $? -eq 3 ]").returncode == 1
