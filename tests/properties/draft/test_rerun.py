"""Witnesses of laws that need no contract are replayed: on the scripts as they were, and once they are repaired."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.in_process import orderlab
from tests.properties.draft.test_contractless import PAIRS


def _witness(tmp_path: Path, source: str) -> Path:
    (tmp_path / "its.lua").write_text(source)
    judged = orderlab("validate", str(tmp_path), "--json", "--effort", "0.2", "--backend", "kernel")
    assert judged.returncode == 1, judged.stderr
    file = tmp_path / "found.json"
    file.write_text(judged.stdout)
    return file


@pytest.mark.parametrize(("law", "bad", "good"), [(law, *pair) for law, pairs in PAIRS.items() for pair in pairs])
def test_the_steps_break_the_law_until_the_script_is_repaired(tmp_path: Path, law: str, bad: str, good: str) -> None:
    found = _witness(tmp_path, bad)
    again = orderlab("replay", str(found), "--law", law, "--json")
    assert again.returncode == 1, again.stderr
    assert law in {name for step in json.loads(again.stdout)["steps"] for name, _ in step["broken"]}
    (tmp_path / "its.lua").write_text(good)
    assert orderlab("replay", str(found), "--law", law).returncode == 0


@pytest.mark.exhaustive  # 20 s: the clock ends each run
def test_a_script_that_does_not_end_is_replayed_and_kept_from_a_server(tmp_path: Path) -> None:
    found = _witness(tmp_path, "local n = 0 while redis.call('GET', KEYS[1]) == false do n = n + 1 end return n")
    assert orderlab("replay", str(found), "--law", "bounded").returncode == 1
    refused = orderlab("replay", str(found), "--law", "bounded", "--backend", "fakeredis")
    assert (refused.returncode, "does not end" in refused.stderr) == (2, True)


def test_what_an_export_or_a_path_lacks_is_told(tmp_path: Path) -> None:
    found = _witness(tmp_path, PAIRS["types"][0][0])
    picture = tmp_path / "its.svg"
    assert orderlab("replay", str(found), "--export", f"svg={picture}").returncode == 1
    assert "LPUSH" in picture.read_text()
    refused = orderlab("replay", str(found), "--export", f"pytest={tmp_path / 'x.py'}")
    assert (refused.returncode, "no contract judges" in refused.stderr) == (2, True)
    (tmp_path / "its.lua").rename(tmp_path / "other.lua")
    refused = orderlab("replay", str(found))
    assert refused.returncode == 2
    assert "no script its.lua there, which step 1 calls" in refused.stderr


@pytest.mark.server
def test_a_server_says_the_same(tmp_path: Path) -> None:
    found = _witness(tmp_path, PAIRS["deadlines"][0][0])
    again = orderlab("replay", str(found), "--law", "deadlines", "--backend", "auto")
    assert again.returncode == 1, again.stderr
    assert re.search(r"on redis [0-9.]+ .*: violated", again.stdout)
