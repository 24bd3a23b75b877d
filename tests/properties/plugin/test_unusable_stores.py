"""The plugin and stores that cannot be run, scripts that do not end, places that cannot be written: no traceback, no
story lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.properties.plugin.test_plugin import LUA, run_pytest

LIST = """
[keys]
q = "{<client>}"

[operations.save]
script = "save.lua"
keys = ["q"]
args = ["<payload>"]
batch_max = 1
reply = { shape = "ignored" }

[operations.fetch]
command = ["LRANGE", "<key.q>", "0", "-1"]
reply = { shape = "strings", fields = { payload = "value" } }
"""
ENDLESS = "local text = string.rep('x', 1e6) while true do redis.call('ECHO', text) end"
"""Comes to a limit of its work in a twentieth of the time of an empty loop, and is started some hundred times."""
PUSH = "return redis.call('RPUSH', KEYS[1], ARGV[1])"


def store(folder: Path, script: str | None, binding: str = LIST) -> Path:
    """A list that is all there is to a store, with this script for its save."""
    folder.mkdir(parents=True)
    (folder / "store.toml").write_text(binding)
    if script is not None:
        (folder / "save.lua").write_text(script)
    return folder / "store.toml"


@pytest.mark.parametrize(
    ("script", "binding", "said"),
    [
        (None, LIST, 'operations.save.script: "save.lua": no such file'),
        ("if then", LIST, "save.lua"),
        (PUSH, "[keys", "store.toml"),
    ],
)
def test_a_store_that_cannot_be_run_is_one_error(tmp_path: Path, script: str | None, binding: str, said: str) -> None:
    found = run_pytest(tmp_path, "--orderlab-store", str(store(tmp_path / "mine", script, binding)), "-q")
    assert found.returncode == 2, found.stdout + found.stderr
    assert said in found.stdout
    assert "1 error" in found.stdout
    assert "Traceback" not in found.stdout + found.stderr


def test_a_command_that_the_kernel_lacks_is_named_with_a_cure_that_exists(tmp_path: Path) -> None:
    path = store(tmp_path / "mine", "return redis.call('PFDEBUG', 'ENCODING', KEYS[1])")
    found = run_pytest(tmp_path, "--orderlab-store", str(path), "--orderlab-law", "no-loss")
    assert "its scripts call PFDEBUG, which the kernel does not implement" in found.stdout
    assert "--backend" not in found.stdout


def test_a_script_that_does_not_end_breaks_bounded_and_leaves_the_rest_unknown(tmp_path: Path) -> None:
    laws = ("--orderlab-law", "bounded", "--orderlab-law", "no-loss", "-rs")
    found = run_pytest(tmp_path, "--orderlab-store", str(store(tmp_path / "mine", ENDLESS)), *laws)
    assert "Traceback" not in found.stdout
    assert "BudgetExceeded" not in found.stdout
    assert "bounded is violated: save: the script" in found.stdout
    assert "no-loss          unknown" in found.stdout
    assert found.stdout.count("1 failed, 1 skipped") == 1


@pytest.mark.exhaustive  # the kernel stops it by the same count as a loop: tests/sim/redis/test_hostile_work.py
def test_a_script_whose_pattern_goes_back_without_end_is_stopped_and_named(tmp_path: Path) -> None:
    hangs = "string.find(string.rep('a', 5000), string.rep('a*', 50) .. 'b')"
    laws = ("--orderlab-law", "bounded")
    found = run_pytest(tmp_path, "--orderlab-store", str(store(tmp_path / "mine", hangs)), *laws)
    assert found.returncode == 1
    assert "bounded is violated: save: the script did not end" in found.stdout


def test_the_story_is_told_although_its_trace_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / ".orderlab").touch()
    flawed = str(LUA / "specimens" / "fetch-removes")
    found = run_pytest(tmp_path, "--orderlab-store", flawed, "--orderlab-law", "no-loss")
    assert found.returncode == 1
    assert "no-loss is violated" in found.stdout
    assert "  1. producer 1 saves m1" in found.stdout
    assert "no trace to replay: .orderlab/fetch-removes-no-loss.json: File exists" in found.stdout


def test_two_stores_of_one_name_keep_a_trace_each(tmp_path: Path) -> None:
    law = ("--orderlab-law", "no-loss")
    popping = LIST.replace('["LRANGE", "<key.q>", "0", "-1"]', '["LPOP", "<key.q>", "9"]')
    paths = [store(tmp_path / name / "mine", PUSH, popping) for name in ("one", "two")]
    found = run_pytest(tmp_path, *law, *(f"--orderlab-store={path}" for path in [*paths, paths[0]]))
    assert "2 laws to test" in found.stdout
    assert "orderlab replay .orderlab/mine-no-loss.json" in found.stdout
    assert "orderlab replay .orderlab/mine-2-no-loss.json" in found.stdout
    written = [(tmp_path / ".orderlab" / name).read_text() for name in ("mine-no-loss.json", "mine-2-no-loss.json")]
    assert [str(path.parent) in text for path, text in zip(paths, written, strict=True)] == [True, True]


@pytest.mark.parametrize("seconds", ["nan", "0", "-1"])
def test_a_time_that_is_none_is_refused(tmp_path: Path, seconds: str) -> None:
    path = store(tmp_path / "mine", PUSH)
    found = run_pytest(tmp_path, "--orderlab-store", str(path), f"--orderlab-seconds={seconds}")
    assert found.returncode == 4
    assert f"--orderlab-seconds {seconds}: give a number above 0" in found.stderr
