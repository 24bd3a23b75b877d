"""`orderlab lint` as its users call it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.in_process import orderlab


def test_findings_have_a_place_a_rule_and_an_exit_code(tmp_path: Path) -> None:
    (tmp_path / "a.lua").write_text("return redis.call('GET', KEYS[0])\n")
    ended = orderlab("lint", str(tmp_path / "a.lua"))
    assert ended.returncode == 1
    assert f"{tmp_path / 'a.lua'}:1:26: error index-from-zero:" in ended.stdout
    (tmp_path / "a.lua").write_text("return redis.call('GET', KEYS[1])\n")
    assert orderlab("lint", str(tmp_path)).returncode == 0


def test_reports_and_json_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.lua").write_text("return redis.call('GET', KEYS[0])\n")
    sarif = tmp_path / "found.sarif"
    ended = orderlab("lint", str(tmp_path / "a.lua"), "--json", "--report", f"sarif={sarif}")
    told = json.loads(ended.stdout)
    assert [one["rule"] for one in told["findings"]] == ["index-from-zero"]
    results = json.loads(sarif.read_text())["runs"][0]["results"]
    assert [(one["ruleId"], one["level"]) for one in results] == [("index-from-zero", "error")]


def test_only_what_is_new_against_an_old_file(tmp_path: Path) -> None:
    (tmp_path / "old.lua").write_text("count = 1\nreturn count\n")
    (tmp_path / "new.lua").write_text("-- longer\ncount = 1\nreturn KEYS[0]\n")
    old = tmp_path / "old" / "new.lua"
    old.parent.mkdir()
    old.write_text((tmp_path / "old.lua").read_text())
    told = json.loads(orderlab("lint", str(tmp_path / "new.lua"), "--base", str(old), "--json").stdout)
    assert [one["rule"] for one in told["findings"]] == ["index-from-zero"]


def test_a_draft_of_a_binding_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "hit.lua").write_text("return redis.call('INCRBY', KEYS[0], ARGV[1])\n")
    assert orderlab("init", tmp_path).returncode == 0
    told = json.loads(orderlab("lint", tmp_path, "--json").stdout)
    assert [one["rule"] for one in told["findings"]] == ["index-from-zero"]
    assert "store.toml: " in told["not_read"][0]
    assert orderlab("lint", tmp_path / "store.toml").returncode == 2


def test_fix_repairs_in_place(tmp_path: Path) -> None:
    file = tmp_path / "a.lua"
    file.write_text("count = 1\nreturn count\n")
    ended = orderlab("lint", str(file), "--fix")
    assert ended.returncode == 0
    assert file.read_text() == "local count = 1\nreturn count\n"


def test_unusable_input_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.lua").write_text("return redis.call(\n")
    for given in ([str(tmp_path / "none.lua")], [str(tmp_path / "a.lua")], [str(tmp_path), "--server", "x"]):
        ended = orderlab("lint", *given)
        assert ended.returncode == 2, ended.stdout
        assert len(ended.stderr.strip().splitlines()) == 1


def test_a_server_that_is_unknown_is_told_with_those_that_are_known(tmp_path: Path) -> None:
    (tmp_path / "a.lua").write_text("return redis.call('HTTL', KEYS[1], 'FIELDS', 1, 'a')\n")
    for server in ("9.9", "7.1", "8"):
        ended = orderlab("lint", tmp_path, "--server", server)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.strip().endswith("give one of 3.0, 3.2, 4.0, 5.0, 6.0, 6.2, 7.0, 7.2, 7.4, 8.0, valkey-8")
    assert orderlab("lint", tmp_path, "--server", "7.4.1").returncode == 0


def test_scripts_are_for_the_server_that_their_store_names(tmp_path: Path) -> None:
    for store, server in (("old", "7.0"), ("new", "7.4")):
        (tmp_path / store).mkdir()
        (tmp_path / store / "a.lua").write_text("return redis.call('HTTL', KEYS[1], 'FIELDS', 1, 'a')\n")
        (tmp_path / store / "store.toml").write_text(f'server = "{server}"\n')
    told = json.loads(orderlab("lint", tmp_path, "--json").stdout)
    assert [Path(each["file"]).parent.name for each in told["findings"]] == ["old"]
    assert orderlab("lint", tmp_path, "--server", "8.0").returncode == 0
    (tmp_path / "old" / "store.toml").write_text('server = "9.9"\n')
    ended = orderlab("lint", tmp_path)
    assert ended.returncode == 2
    assert "store.toml: server 9.9: not a server that is known" in ended.stderr


def test_a_folder_that_is_no_store_is_held_against_a_revision(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)

    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("OLD = \"return redis.call('GET', KEYS[0])\"\n")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    with (tmp_path / "src" / "a.py").open("a") as file:
        file.write("NEW = \"count = redis.call('GET', KEYS[1])\"\n")
    ended = orderlab("lint", tmp_path / "src", "--base", "HEAD", "--json")
    assert [(one["rule"], one["line"]) for one in json.loads(ended.stdout)["findings"]] == [("global-variable", 2)]


@pytest.mark.parametrize("value", ["[" * 100_000, "9" * 5000, "{a=" * 2000], ids=["arrays", "digits", "tables"])
def test_a_binding_that_no_parser_takes_is_no_defect_of_ours(tmp_path: Path, value: str) -> None:
    """The scripts beside it are linted all the same."""
    (tmp_path / "a.lua").write_text("return redis.call('GET', KEYS[1])\n")
    (tmp_path / "store.toml").write_text(f"a = {value}\n")
    assert orderlab("lint", tmp_path).returncode == 0
    ended = orderlab("validate", tmp_path)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1)
    assert "store.toml" in ended.stderr
