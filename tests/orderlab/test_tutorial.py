"""The tutorial does what it says, from a program to a repaired lock; the bindings of the how-to pages load."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from orderlab.sim.stores.binding import load_binding
from tests.in_process import ROOT, orderlab

NOTES = ROOT / "notes"
TUTORIAL = (NOTES / "tutorial.md").read_text()
LAW = "mutual-exclusion"
CHEAP = ("--effort", "0.1", "--law", LAW, "--backend", "kernel")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def sessions() -> list[tuple[list[str], list[str]]]:
    """Each command of the page, and the lines that are shown below it."""
    return [(shlex.split(lines[0][2:]), lines[1:]) for lines in map(str.splitlines, blocks(TUTORIAL, "console"))]


def walk(folder: Path, instead: tuple[str, ...]) -> None:
    """The page from its first command to its last; ``instead`` stands for the effort that it names."""
    (program,) = blocks(TUTORIAL, "python")
    (repair,) = blocks(TUTORIAL, "lua")
    file = folder / "shop" / "lock.py"
    file.parent.mkdir()
    file.write_text(program)
    for number, (command, shown) in enumerate(sessions()):
        if number == 4:
            flawed = re.search(r'RENEW = """\n(.*?)"""', program, re.DOTALL)
            assert flawed is not None
            file.write_text(program.replace(flawed[1], repair))
        words = [word for word in command[1:] if word not in ("--effort", "quick")]
        done = orderlab(*words, *(instead if words[0] == "validate" else ()), cwd=folder)
        assert done.returncode == (1 if number in (2, 3) else 0), done.stdout + done.stderr
        if "--law" in instead:
            shown = [line.replace(", 1 of 9 laws", "").replace("all 9 laws hold", f"{LAW} holds") for line in shown]
        assert done.stdout.splitlines()[: len(shown)] == shown, command
    assert "def test_" in (folder / "test_lock.py").read_text()
    assert (folder / "lock.svg").read_text().startswith("<svg")


def test_the_tutorial_ends_in_a_caught_defect_and_its_repair(tmp_path: Path) -> None:
    assert len(sessions()) == 5
    walk(tmp_path, CHEAP)


@pytest.mark.exhaustive
def test_the_tutorial_with_the_effort_that_it_names(tmp_path: Path) -> None:
    walk(tmp_path, ("--effort", "quick"))


@pytest.mark.parametrize("page", ["lock", "limiter", "job-queue", "feed", "session-store"])
def test_the_binding_of_a_how_to_page_loads(page: str, tmp_path: Path) -> None:
    (text,) = blocks((NOTES / f"how-to-{page}.md").read_text(), "toml")
    (tmp_path / "store.toml").write_text(text)
    for operation in tomllib.loads(text)["operations"].values():
        (tmp_path / operation["script"]).write_text("return redis.call('GET', KEYS[1])\n")
    assert load_binding(tmp_path).operations


@pytest.mark.parametrize("page", sorted(NOTES.glob("how-to-*.md")), ids=lambda path: path.stem)
def test_a_how_to_page_is_short(page: Path) -> None:
    text = page.read_text()
    assert len(text.split()) < 500
    assert [line for line in text.splitlines() if len(line) > 100 and not line.startswith("|")] == []
