"""`orderlab binding check`: every operation of the bundled stores is shown with what it sends and how it is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.in_process import orderlab

OPERATIONS = {
    "session": 6, "lock": 3, "limiter": 1, "feed": 5, "job_queue": 6, "feed_watched": 5, "job_queue_blocking": 6
}  # fmt: skip
"""At least so many are shown."""
LUA = Path(__file__).parents[2] / "lua"


@pytest.mark.parametrize(
    "store", ["session", "lock", "limiter", "feed", "job_queue", "feed_watched", "job_queue_blocking"]
)
def test_every_operation_that_a_client_would_try_is_shown(store: str) -> None:
    ended = orderlab("binding", "check", str(LUA / store), "--trust-adapter", "--json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    shown = json.loads(ended.stdout)["operations"]
    assert len(shown) >= OPERATIONS[store]
    assert all(one["calls"] and not one["error"] for one in shown)


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


def test_calls_of_a_transaction_are_sent_as_such() -> None:
    told = json.loads(orderlab("binding", "check", LUA / "feed_watched", "--trust-adapter", "--json").stdout)
    post = next(one for one in told["operations"] if one["operation"] == "post")
    assert [call["what"] for call in post["calls"]] == ["WATCH", "HGET", "MULTI", "post.lua", "EXEC"]
    assert post["result"] == "1"


def test_a_script_that_does_not_end_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.lua").write_text("for _ = 1, 99 do redis.call('TIME') end while true do end")
    (tmp_path / "store.toml").write_text(
        'specification = "limiter"\n[keys]\nk = "k"\n[operations.hit]\nscript = "a.lua"\nkeys = ["k"]\n'
        'args = ["<limit>", "<window_ms>"]\n'
    )
    ended = orderlab("binding", "check", tmp_path)
    assert ended.returncode == 2
    assert "the script did not end" in ended.stdout
    assert "ran 59 more" in ended.stdout
