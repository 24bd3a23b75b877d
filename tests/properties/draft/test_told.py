"""A draft is run once: what `take` replies with is read off, not left as a gap."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.in_process import orderlab

PUSH = "redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])\nredis.call('RPUSH', KEYS[1], ARGV[1])\nreturn 1\n"
PULL = """
-- KEYS: ready, jobs, busy, tries  ARGV: now, visibility
local id = redis.call('LPOP', KEYS[1])
if not id then return nil end
local n = redis.call('HINCRBY', KEYS[4], id, 1)
redis.call('ZADD', KEYS[3], tonumber(ARGV[1]) + tonumber(ARGV[2]), id)
return {REPLY}
"""
DONE = """
-- KEYS: jobs, busy  ARGV: id
if redis.call('ZREM', KEYS[2], ARGV[1]) == 0 then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
return 1
"""


@pytest.mark.parametrize(
    ("reply", "tells"),
    [
        ("id, redis.call('HGET', KEYS[2], id), tostring(n)", ("job", "payload", "attempt")),
        ("n, id", ("attempt", "job")),
        ("id, 'a'", ("TODO",)),  # a part that nothing tells: a gap, without which nothing is judged by the contract
        ("tostring(n), 'pz0'", ("TODO",)),  # 1 may be a name that the store gave the job
    ],
)
def test_what_take_replies_with_is_read_off(tmp_path: Path, reply: str, tells: tuple[str, ...]) -> None:
    (tmp_path / "push.lua").write_text(f"-- KEYS: ready, jobs  ARGV: id, body\n{PUSH}")
    (tmp_path / "pull.lua").write_text(PULL.replace("REPLY", reply))
    (tmp_path / "done.lua").write_text(DONE)
    ended = orderlab("init", tmp_path)
    assert ended.returncode == 0, ended.stderr
    promises = tomllib.loads((tmp_path / "store.toml").read_text())["promises"]
    assert tuple(promises.get("tells", ())) == tells


def test_an_attempt_may_be_told_as_text(tmp_path: Path) -> None:
    (tmp_path / "push.lua").write_text(f"-- KEYS: ready, jobs  ARGV: id, body\n{PUSH}")
    for told, is_right in (("n", True), ("n + 1", False)):
        (tmp_path / "pull.lua").write_text(PULL.replace("REPLY", f"id, tostring({told})"))
        orderlab("init", tmp_path, "--force")
        file = tmp_path / "store.toml"
        lines = [line for line in file.read_text().splitlines() if not line.startswith("tells")]
        at = lines.index("[promises]") + 1
        file.write_text("\n".join([*lines[:at], 'tells = ["job", "attempt"]', *lines[at:]]))
        ended = orderlab("validate", tmp_path, "--law", "no-rerun", "--effort", "0.01", "--backend", "kernel")
        assert ("no-rerun is violated" in ended.stdout) != is_right, ended.stdout + ended.stderr
