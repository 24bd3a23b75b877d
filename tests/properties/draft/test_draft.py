"""A first store.toml: what scripts tell is written down, and everything else is a gap that validation names."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from orderlab.properties.draft.facts import facts_of
from orderlab.properties.draft.guess import guessed
from orderlab.properties.draft.probing import key_names
from orderlab.sim.stores.binding import load_binding
from orderlab.sim.stores.binding.results import Script
from tests.in_process import orderlab

LUA = Path(__file__).parents[3] / "lua"


def test_a_script_tells_its_keys_arguments_and_replies() -> None:
    source = """
        -- KEYS[2] - the counter
        local queue = KEYS[1]
        local most = tonumber(ARGV[1])
        local job = cjson.decode(ARGV[2])
        redis.call('RPUSH', queue, job.id .. job.name)
        redis.call('INCR', KEYS[2])
        if most > 1 then return false end
        return redis.call('LLEN', queue)
    """
    facts = facts_of(Script("push.lua", source.encode(), Path("push.lua")))
    assert [(slot.name, slot.types) for slot in facts.keys] == [("queue", {"list"}), ("counter", {"string"})]
    assert [(slot.name, slot.types, slot.members) for slot in facts.arguments] == [
        ("most", {"number"}, set()),
        ("job", {"json"}, {"id", "name"}),
    ]
    assert facts.writes
    assert set(facts.replies) == {"nil", "integer"}
    assert facts.commands == ("RPUSH", "INCR", "LLEN")


def test_one_comment_names_both_arrays_in_words() -> None:
    source = """
        -- KEYS: the lock, waiting list   ARGV: owner token, ttl ms; checked by the caller
        redis.call('LPUSH', KEYS[2], ARGV[1])
        return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
    """
    facts = facts_of(Script("take.lua", source.encode(), Path("take.lua")))
    assert [slot.name for slot in facts.keys] == ["lock", "waiting"]
    assert [slot.name for slot in facts.arguments] == ["owner_token", "ttl_ms"]


@pytest.mark.parametrize(("name", "contract"), [("spend", "limiter"), ("rollback", None), ("bulkAck", "job_queue")])
def test_three_letters_end_a_name_as_a_word_alone(name: str, contract: str | None) -> None:
    source = b"redis.call('DEL', KEYS[1]) return redis.call('INCRBY', KEYS[2], ARGV[1])"
    assert guessed([facts_of(Script(f"{name}.lua", source, Path(f"{name}.lua")))]).contract == contract


@pytest.mark.parametrize(("store", "contract"), [("session", "session"), ("feed", "feed"), ("job_queue", "job_queue")])
def test_the_stores_of_this_project_are_recognized_and_their_gaps_named(
    store: str, contract: str, tmp_path: Path
) -> None:
    folder = tmp_path / store
    shutil.copytree(LUA / store, folder, ignore=shutil.ignore_patterns("*.toml"))
    told = json.loads(orderlab("init", str(folder), "--json").stdout)
    assert told["specification"] == contract
    assert len(told["operations"]) >= len(told["scripts"]) - 2
    written = tomllib.loads((folder / "store.toml").read_text())
    assert written["operations"].keys() == set(told["operations"].values())
    ended = orderlab("validate", str(folder), "--effort", "0.01", "--backend", "kernel")
    assert ended.returncode in (1, 3)
    assert f"next: {folder / 'store.toml'}: " in ended.stdout
    assert "a gap that orderlab init left: " in " ".join(ended.stdout.split())


def test_a_filled_draft_is_judged(tmp_path: Path) -> None:
    (tmp_path / "Locks.java").write_text(
        """class Locks {
          static final String ACQUIRE = "local token, ttl = ARGV[1], ARGV[2]\\n"
            + "if redis.call('SET', KEYS[1], token, 'NX', 'PX', ttl) then return 1 end return 0";
          static final String RELEASE = "local token = ARGV[1]\\n"
            + "if redis.call('GET', KEYS[1]) == token then return redis.call('DEL', KEYS[1]) end return 0";
        }"""
    )
    assert orderlab("init", str(tmp_path)).returncode == 0
    file = tmp_path / "store.toml"
    text = file.read_text()
    assert (
        'args = [\n  "<token>",  # token, read as text\n  "<ttl_ms>",  # ttl, read as text, a duration in ms\n]' in text
    )
    assert '[promises]\ntokens = "caller"  # a guess' in text
    ended = orderlab("validate", str(tmp_path), "--effort", "0.05", "--backend", "kernel", "--json")
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_what_cannot_be_drafted_is_one_line(tmp_path: Path) -> None:
    assert "no Lua file" in orderlab("init", str(tmp_path)).stderr
    assert not (tmp_path / "store.toml").exists()
    (tmp_path / "a.lua").write_text("return redis.call('GET', KEYS[1])")
    assert "no contract has operations of these names" in orderlab("init", str(tmp_path)).stdout
    assert "there is one already" in orderlab("init", str(tmp_path)).stderr
    assert 'did you mean "lock"?' in orderlab("init", str(tmp_path), "--specification", "lok").stderr
    ended = orderlab("validate", str(tmp_path), "--backend", "kernel")
    assert ended.returncode == 3
    assert "contract.py:15: the state of an empty store" in ended.stdout


JAVA = '''
class LockService {
  private static final String ACQUIRE_LUA = """
      if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
        return 1
      end
      return 0
      """;
  private static final String RELEASE_LUA =
      "if redis.call('get', KEYS[1]) == ARGV[1] then " +
      "  return redis.call('del', KEYS[1]) end return 0";
  boolean tryLock(String resource, String owner, long ttlMillis) {
    return ONE.equals(jedis.eval(ACQUIRE_LUA, Collections.singletonList("lock:" + resource),
        Arrays.asList(owner, String.valueOf(ttlMillis))));
  }
  void unlock(String resource, String owner) { jedis.eval(RELEASE_LUA, 1, "lock:" + resource, owner); }
}
'''


def test_a_class_goes_from_init_to_a_verdict_and_its_flaw_is_found(tmp_path: Path) -> None:
    file = tmp_path / "LockService.java"
    file.write_text(JAVA)
    assert json.loads(orderlab("init", str(tmp_path), "--json").stdout)["gaps"] == 0
    assert "LockService.java:13 passes lock:{resource}" in (tmp_path / "store.toml").read_text()
    ended = orderlab("validate", str(tmp_path), "--effort", "0.05", "--backend", "kernel")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    file.write_text(JAVA.replace("if redis.call('get', KEYS[1]) == ARGV[1] then \" +", 'do " +'))
    ended = orderlab("validate", str(tmp_path), "--effort", "0.05", "--backend", "kernel")
    assert ended.returncode == 1
    assert "own-release" in ended.stdout


def test_what_only_renews_is_no_acquire_and_an_expression_names_nothing(tmp_path: Path) -> None:
    (tmp_path / "lock.py").write_text(
        """
REACQUIRE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0"
again = c.register_script(REACQUIRE)
again(keys=[name], args=[self.token, int(additional_time * 1000)])
"""
    )
    assert orderlab("init", str(tmp_path), "--specification", "lock").returncode == 0
    text = (tmp_path / "store.toml").read_text()
    assert "[operations.renew]" in text
    assert "operations.acquire" not in text
    assert '"<token>",' in text
    assert "<now_ms>" not in text


READ = """-- KEYS[1] rw:{name}:writer   string
-- KEYS[2] rw:{name}:readers  sorted set
redis.call('GET', KEYS[1]) return redis.call('ZADD', KEYS[2], ARGV[1], ARGV[2])"""


def test_keys_spelled_in_a_comment_are_called_by_their_last_part() -> None:
    facts = facts_of(Script("lock_read.lua", READ.encode(), Path("lock_read.lua")))
    assert key_names([facts]) == [["writer", "readers"]]


def test_two_keys_of_a_script_are_never_one(tmp_path: Path) -> None:
    text = READ.replace("rw:{name}:writer", "queue").replace("rw:{name}:readers", "queue")
    (tmp_path / "acquire.lua").write_text(text.replace("ZADD", "RPUSH"))
    orderlab("init", str(tmp_path))
    written = tomllib.loads((tmp_path / "store.toml").read_text())
    assert written["keys"] == {"queue": "<TODO queue>", "queue_acquire": "<TODO queue_acquire>"}
    assert "two KEYS of a script are called queue: which key is this?" in (tmp_path / "store.toml").read_text()


def test_a_script_that_no_operation_calls_is_told_as_not_judged(tmp_path: Path) -> None:
    shutil.copytree(LUA / "limiter", tmp_path / "limiter")
    folder = tmp_path / "limiter"
    assert not any("no operation" in one for one in load_binding(folder, trust_adapter=True).assumptions)
    (folder / "reset.lua").write_text("return redis.call('DEL', KEYS[1])")
    told = load_binding(folder, trust_adapter=True).assumptions
    assert "no operation calls reset.lua, which is not judged" in told
