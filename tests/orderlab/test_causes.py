"""Findings that are one cause are told once; what needs no trouble is another cause than what does, and comes first."""

from __future__ import annotations

import json
from pathlib import Path

from tests.in_process import orderlab

SCRIPTS = {
    "add": """
        if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return 0 end
        redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
        redis.call('RPUSH', KEYS[1], ARGV[1])  -- of the wrong type, it stops here
        return 1""",
    "take": """
        local id = redis.call('LPOP', KEYS[1])
        if not id then return nil end
        local tries = redis.call('HINCRBY', KEYS[4], id, 1)  -- counted on, whoever added the job anew
        redis.call('ZADD', KEYS[3], ARGV[1], id)
        return {id, tries}""",
    "complete": """
        if redis.call('ZREM', KEYS[3], ARGV[1]) == 0 then return 0 end
        redis.call('HDEL', KEYS[2], ARGV[1])
        return 1""",
}
STORE = """
specification = "job_queue"
[promises]
tokens = "none"
tells = ["job", "attempt"]
[keys]
ready = "q:{store}:ready"
jobs = "q:{store}:jobs"
busy = "q:{store}:busy"
tries = "q:{store}:tries"
[operations.add]
script = "add.lua"
keys = ["ready", "jobs", "busy", "tries"]
args = ["<job>", "<payload>"]
reply = { words = { "0" = "duplicate", "1" = "added" } }
[operations.take]
script = "take.lua"
keys = ["ready", "jobs", "busy", "tries"]
args = ["<now_ms|add:lease_ms>"]
[operations.complete]
script = "complete.lua"
keys = ["ready", "jobs", "busy", "tries"]
args = ["<job>"]
reply = { words = { "0" = "lost", "1" = "ok" } }
"""


def test_what_needs_no_trouble_is_told_first_and_apart(tmp_path: Path) -> None:
    """Both are noticed by the same line of take.lua."""
    for name, source in SCRIPTS.items():
        (tmp_path / f"{name}.lua").write_text(source)
    (tmp_path / "store.toml").write_text(STORE)
    laws = ("--law", "no-rerun", "--law", "all-or-nothing")
    report = tmp_path / "report.json"
    words = ("--backend", "kernel", "--effort", "0.5", "--report", f"json={report}")
    ended = orderlab("validate", tmp_path, *words, *laws)
    assert ended.returncode == 1, ended.stderr
    findings = json.loads(report.read_text())["subjects"][0]["findings"]
    troubles = [[step["fault"] for step in finding["steps"] if step.get("fault")] for finding in findings]
    assert (findings[0]["law"], troubles[0]) == ("no-rerun", [])
    struck = next(at for at, finding in enumerate(findings) if finding["law"] == "all-or-nothing")
    assert troubles[struck]
    assert findings[struck]["cause"] != findings[0]["cause"]
