"""``@race`` makes tests of pytest: what they say, under pytest-xdist as well."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("greenlet")
pytest.importorskip("redis")

from tests.in_process import orderlab

FILE = """
from orderlab.clients import race

@race(clients=2)
def test_flawed(redis):
    redis.set("n", int(redis.get("n") or 0) + 1)

@race(clients=2, trouble=1, faults=("killed",))
def test_right(redis):
    redis.incr("n")

@race(clients=4, effort="quick")
def test_too_large(redis):
    for _ in range(6):
        redis.incr("n")
"""


def test_a_race_is_a_test_that_fails_with_its_schedule(tmp_path: Path) -> None:
    file = tmp_path / "test_counts.py"
    file.write_text(FILE)
    plain = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs"]
    done = subprocess.run([*plain, "-n", "2", str(file)], capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert "1 failed, 1 passed, 1 skipped" in done.stdout, done.stdout
    assert "client 1: SET n 1 -> b'OK'" in done.stdout
    assert "unknown: not exhausted" in done.stdout
    (again,) = [line.split()[3:] for line in done.stdout.splitlines() if "again: orderlab race" in line]
    assert orderlab("race", *again, cwd=tmp_path).returncode == 1
    strict = subprocess.run(
        [*plain, "--orderlab-strict", f"{file}::test_too_large"], capture_output=True, text=True, cwd=tmp_path
    )
    assert "1 failed" in strict.stdout
