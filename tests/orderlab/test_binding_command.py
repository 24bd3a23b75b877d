"""`orderlab binding check`: every operation of the bundled stores is shown with what it sends and how it is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.in_process import orderlab

LUA = Path(__file__).parents[2] / "lua"


@pytest.mark.parametrize("store", ["session", "lock", "limiter", "feed", "job_queue"])
def test_every_operation_that_a_client_would_try_is_shown(store: str) -> None:
    ended = orderlab("binding", "check", str(LUA / store), "--trust-adapter", "--json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    shown = json.loads(ended.stdout)["operations"]
    assert len(shown) >= {"session": 6, "lock": 3, "limiter": 1, "feed": 5, "job_queue": 6}[store]
    assert all(call["keys"] and call["ran"] for one in shown for call in one["calls"])


def test_fields_templates_commands_and_the_reading_are_printed() -> None:
    told = orderlab("binding", "check", str(LUA / "lock"), "--trust-adapter").stdout
    assert "acquire now_ms=1700000000000, ttl_ms=1000" in told
    assert "KEYS[1] = {lock}:lease" in told
    assert "ARGV[1] = 1000   from <ttl_ms>" in told
    assert "ran SET {lock}:lease 1 PX 1000" in told
    assert "read as 1" in told


def test_a_reply_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.lua").write_text("return redis.call('HGETALL', KEYS[1])")
    (tmp_path / "store.toml").write_text(
        'specification = "session"\n[keys]\nq = "{<client>}"\n[operations.save]\nscript = "a.lua"\nkeys = ["q"]\n'
        'args = ["<messages>"]\nreply = { shape = "integer", is = "last" }\n'
        '[operations.fetch]\nscript = "a.lua"\nkeys = ["q"]\n'
        'reply = { shape = "strings", fields = { payload = "value" } }\n'
    )
    ended = orderlab("binding", "check", str(tmp_path))
    assert ended.returncode == 2
    assert "the binding cannot read the reply" in ended.stdout
