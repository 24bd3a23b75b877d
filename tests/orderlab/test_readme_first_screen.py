"""The README's first screen shows what the tool prints and draws for the change that it shows."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SCREEN = README.partition("\n## ")[0]


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", SCREEN, re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_change_the_verdict_and_the_picture(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "lua" / "lock", tmp_path / "lua" / "lock")
    patch = subprocess.run(["git", "apply", "-"], input=block("diff"), cwd=tmp_path, text=True, capture_output=True)
    assert patch.returncode == 0, patch.stderr
    lines = block("console").splitlines()
    commands = [at for at, line in enumerate(lines) if line.startswith("$ ")]
    for at, end in zip(commands, [*commands[1:], len(lines)], strict=True):
        program, *arguments = shlex.split(lines[at][2:])
        assert program == "orderlab"
        told = subprocess.run(
            [sys.executable, "-c", "import sys; from orderlab.cli import main; sys.exit(main())", *arguments],
            cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=300,
        )  # fmt: skip
        assert told.returncode == 1, told.stderr
        shown = lines[at + 1 : end]
        assert [line[: len(text)] for line, text in zip(told.stdout.splitlines(), map(cut, shown), strict=False)] == [
            *map(cut, shown)
        ]
    (name,) = re.findall(r"^!\[[^\]]+\]\((\S+)\)$", SCREEN, re.MULTILINE)
    assert (tmp_path / "witness.svg").read_text() == (ROOT / name).read_text(), (
        f"draw {name} again by the commands of the README"
    )


def cut(line: str) -> str:
    """A line that is shown cut off, without the mark of that."""
    return line.removesuffix(" …")


def test_the_page_is_short() -> None:
    assert len(SCREEN.splitlines()) < 50
    assert len(README.splitlines()) <= 150
    assert [line for line in README.splitlines() if len(line) > 100] == []
