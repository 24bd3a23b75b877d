"""``[tool.orderlab]``: `orderlab` alone and pytest judge a repository's stores; a mistake in it is one line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.in_process import ROOT, orderlab

SETTINGS = """[tool.orderlab]
stores = ["scripts/lock"]
effort = 0.05
trust_adapter = true
silenced = ["undeclared-key"]
"""


def repository(folder: Path, settings: str = SETTINGS) -> Path:
    shutil.copytree(ROOT / "orderlab" / "lua" / "lock", folder / "scripts" / "lock")
    (folder / "pyproject.toml").write_text(settings)
    return folder


def test_orderlab_alone_judges_the_stores_from_any_folder_of_the_repository(tmp_path: Path) -> None:
    (repository(tmp_path) / "src").mkdir()
    ended = orderlab(cwd=tmp_path / "src")
    assert ended.returncode in (0, 3), ended.stderr
    assert "lock" in ended.stdout
    assert "mutual-exclusion" in ended.stdout
    (tmp_path / "scripts" / "lock" / "release.lua").write_text("return redis.call('DEL', KEYS[1])\n")
    assert orderlab(cwd=tmp_path).returncode == 1


def test_without_settings_there_is_help(tmp_path: Path) -> None:
    assert "Usage" in orderlab(cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ('[tool.orderlab]\nstore = ["a"]\n', 'unknown key "store"; did you mean "stores"?'),
        ('[tool.orderlab]\nstores = "a"\n', 'tool.orderlab.stores: write it as stores = ["lua/queue"]'),
        ('[tool.orderlab]\neffort = "fast"\n', "tool.orderlab.effort fast: no such effort"),
        ('[tool.orderlab]\nsilenced = ["accidental-globl"]\n', 'silenced: unknown rule "accidental-globl"'),
        ("[tool.orderlab]\n", "tool.orderlab.stores: missing"),
    ],
)
def test_a_mistake_is_one_line_with_its_cure(tmp_path: Path, settings: str, said: str) -> None:
    (tmp_path / "pyproject.toml").write_text(settings)
    ended = orderlab(cwd=tmp_path)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def test_a_silenced_rule_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.lua").write_text("return redis.call('GET', KEYS[0])\n")
    assert orderlab("lint", "a.lua", cwd=tmp_path).returncode == 1
    (tmp_path / "pyproject.toml").write_text('[tool.orderlab]\nsilenced = ["index-from-zero"]\n')
    assert orderlab("lint", "a.lua", cwd=tmp_path).returncode == 0


def test_pytest_judges_the_stores_as_well(tmp_path: Path) -> None:
    repository(tmp_path, SETTINGS)
    (tmp_path / "test_own.py").write_text("def test_own():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False).stdout
    assert "test_own" in told
    assert "mutual-exclusion" in told
