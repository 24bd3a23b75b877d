"""Laws that need no contract: for each a script that breaks it, and beside it the nearest that does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orderlab.model.verdict import Outcome
from orderlab.properties.draft.contractless import LAWS, first_verdict
from orderlab.properties.draft.facts import all_facts, facts_of
from orderlab.properties.draft.probing import Bench, ProbeRun, probed, shape_of
from orderlab.sim.stores.binding.results import Script
from tests.in_process import orderlab

PAIRS: dict[str, list[tuple[str, str]]] = {
    "all-or-nothing": [
        (
            "redis.call('INCR', KEYS[1]) return redis.call('RPUSH', KEYS[2], ARGV[1])",
            "redis.call('LLEN', KEYS[2]) redis.call('INCR', KEYS[1]) return redis.call('RPUSH', KEYS[2], ARGV[1])",
        ),
        (  # what a second try puts right
            "redis.call('INCR', KEYS[1]) return redis.call('SADD', KEYS[2], ARGV[1])",
            "redis.call('SADD', KEYS[1], ARGV[1]) return redis.call('SADD', KEYS[2], ARGV[1])",
        ),
    ],
    "one-slot": [
        (
            "redis.call('INCR', 'requests') return redis.call('GET', KEYS[1])",
            "redis.call('INCR', KEYS[1] .. ':requests') return redis.call('GET', KEYS[1])",
        ),
    ],
    "bounded": [
        (
            "redis.call('RPUSH', KEYS[1], ARGV[1]) local n = 0 "
            "for _, each in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do redis.call('ZADD', KEYS[2], 1, each) end",
            "redis.call('RPUSH', KEYS[1], ARGV[1]) local n = 0 "
            "for _, each in ipairs(redis.call('LRANGE', KEYS[1], 0, 4)) do redis.call('ZADD', KEYS[2], 1, each) end",
        ),
        (  # work of Lua alone, and a page that is larger than the store was when it seemed to grow
            "redis.call('RPUSH', KEYS[1], ARGV[1]) local n = 0 "
            "for _, each in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do n = n + #each end return n",
            "redis.call('RPUSH', KEYS[1], ARGV[1]) local n = 0 "
            "for _, each in ipairs(redis.call('LRANGE', KEYS[1], 0, 99)) do n = n + #each end return n",
        ),
        (  # a page that is too large to be filled
            "redis.call('RPUSH', KEYS[1], ARGV[1]) local n, most = 0, 5000 "
            "for _, each in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do n = n + #each end return n",
            "redis.call('RPUSH', KEYS[1], ARGV[1]) local n = 0 "
            "for _, each in ipairs(redis.call('LRANGE', KEYS[1], 0, 4999)) do n = n + #each end return n",
        ),
        (
            "redis.call('RPUSH', KEYS[1], ARGV[1]) local all = redis.call('LRANGE', KEYS[1], 0, -1) "
            "return redis.call('SADD', KEYS[2], unpack(all))",
            "redis.call('RPUSH', KEYS[1], ARGV[1]) local all = redis.call('LRANGE', KEYS[1], -60, -1) "
            "return redis.call('SADD', KEYS[2], unpack(all))",
        ),
    ],
    "types": [
        (
            "redis.call('SET', KEYS[1], 1) return redis.call('LPUSH', KEYS[1], ARGV[1])",
            "redis.call('DEL', KEYS[1]) return redis.call('LPUSH', KEYS[1], ARGV[1])",
        ),
    ],
    "deadlines": [
        (
            "if redis.call('EXISTS', KEYS[1]) == 1 then return redis.call('SET', KEYS[1], ARGV[1]) end "
            "return redis.call('SET', KEYS[1], ARGV[1], 'PX', 1000)",
            "if redis.call('EXISTS', KEYS[1]) == 1 then return redis.call('SET', KEYS[1], ARGV[1], 'KEEPTTL') end "
            "return redis.call('SET', KEYS[1], ARGV[1], 'PX', 1000)",
        ),
        (
            "if redis.call('TTL', KEYS[1]) > 0 then return redis.call('SET', KEYS[1], ARGV[1]) end "
            "return redis.call('SET', KEYS[1], ARGV[1], 'PX', 1000)",
            "if redis.call('TTL', KEYS[1]) > 0 then return redis.call('PERSIST', KEYS[1]) end "
            "return redis.call('SET', KEYS[1], ARGV[1], 'PX', 1000)",
        ),
    ],
    "read-only": [
        (
            "#!lua flags=no-writes\nreturn redis.call('INCR', KEYS[1])",
            "#!lua flags=no-writes\nreturn redis.call('GET', KEYS[1])",
        ),
    ],
}


def verdict_of(*sources: str) -> dict[str, Outcome]:
    facts = all_facts(Script(f"s{n}.lua", text.encode(), Path(f"s{n}.lua")) for n, text in enumerate(sources))
    found = first_verdict(facts, 0.2)
    return {law: found.outcome_of(law) for law in LAWS}


LIBRARY = """#!lua name=queue
local function size_of(key) return redis.call('LLEN', key) end
local function put(keys, args)
  local jobs, payload = keys[1], args[1]
  COUNT
  return redis.call('RPUSH', jobs, payload)
end
redis.register_function('put', put)
redis.register_function{function_name='size', callback=function(keys) return size_of(keys[1]) end, flags={'no-writes'}}
local function take(keys) return redis.call(TAKE) end
redis.register_function{function_name='take', callback=take, flags={FLAG}}
"""


def library(
    count: str = "redis.call('LLEN', jobs) redis.call('INCR', keys[2])", take: str = "'LPOP', keys[1]", flag: str = ""
) -> str:
    return LIBRARY.replace("COUNT", count).replace("TAKE", take).replace("FLAG", flag)


PAIRS["all-or-nothing"] += [  # functions of a library, and what Valkey alone calls so
    (library("redis.call('INCR', keys[2])"), library()),
    *[
        (bad.replace("redis.", "server."), good.replace("redis.", "server."))
        for bad, good in PAIRS["all-or-nothing"][:1]
    ],
]
PAIRS["read-only"] += [(library(flag="'no-writes'"), library(take="'LINDEX', keys[1], 0", flag="'no-writes'"))]


def test_each_function_of_a_library_has_facts_of_its_own() -> None:
    source = library().encode()
    put, size, take = all_facts([Script("queue.lua", source, Path("queue.lua"))])
    assert [slot.name for slot in put.keys] == ["jobs", "key2"]
    assert [slot.name for slot in put.arguments] == ["payload"]
    assert (put.writes, size.writes, take.writes) == (True, False, True)
    assert (size.promises_no_writes, take.promises_no_writes) == (True, False)
    assert size.commands == ("LLEN",)
    assert not size.arguments


@pytest.mark.parametrize(("law", "bad", "good"), [(law, *pair) for law, pairs in PAIRS.items() for pair in pairs])
def test_each_law_falls_by_its_script_and_not_by_the_next(law: str, bad: str, good: str) -> None:
    broken, sound = verdict_of(bad), verdict_of(good)
    assert broken[law] is Outcome.VIOLATED, broken
    assert sound[law] is not Outcome.VIOLATED, sound


def test_every_law_has_a_pair() -> None:
    assert PAIRS.keys() == LAWS.keys()


def test_a_script_whose_own_call_fails_after_a_write_is_told() -> None:
    text = """
        if redis.call('EXISTS', KEYS[2]) == 0 then redis.call('SET', KEYS[2], ARGV[1]) return 1 end
        redis.call('INCR', KEYS[1])
        return redis.call('INCR', KEYS[2])
    """
    assert verdict_of(text)["all-or-nothing"] is Outcome.VIOLATED


def test_arguments_are_found_that_a_script_takes() -> None:
    text = """
        local jobs = cjson.decode(ARGV[1])
        if ARGV[2] ~= 'FRONT' and ARGV[2] ~= 'BACK' then return redis.error_reply('where?') end
        for _, job in ipairs(jobs) do redis.call('RPUSH', KEYS[1], job.id) end
        redis.call('PEXPIRE', KEYS[1], ARGV[3])
        return redis.call('LLEN', KEYS[1])
    """
    (found,) = probed([facts_of(Script("add.lua", text.encode(), Path("add.lua")))], Bench())
    assert found.best is not None
    assert not found.best.error
    jobs, where, ms = found.best.call.arguments
    assert json.loads(jobs) == [{"id": "id1"}]
    assert where in (b"FRONT", b"BACK")
    assert ms.isdigit()
    assert shape_of(found.best.reply) == "integer"


def test_a_reply_that_nests_brackets_without_end_is_text() -> None:
    assert shape_of(b"[" * 100_000) == "text"
    assert shape_of(b'["a"]') == "JSON"


def test_a_reply_of_arrays_within_each_other_without_end_has_a_shape(tmp_path: Path) -> None:
    (tmp_path / "a.lua").write_text("local t = {} for i = 1, 2000 do t = {t} end return t")
    script = Script("a.lua", (tmp_path / "a.lua").read_bytes(), tmp_path / "a.lua")
    (found,) = probed([facts_of(script)], Bench())
    assert found.best is not None
    assert shape_of(found.best.reply).endswith("array of more")


def test_two_arguments_that_are_needed_at_once_are_found() -> None:
    text = """
        if ARGV[1] ~= 'add' or ARGV[2] ~= 'last' then return redis.error_reply('ERR how?') end
        return redis.call('RPUSH', KEYS[1], ARGV[3])
    """
    (found,) = probed([facts_of(Script("put.lua", text.encode(), Path("put.lua")))], Bench())
    assert found.is_run
    assert found.best is not None
    assert found.best.call.arguments[:2] == (b"add", b"last")


def test_a_batch_that_is_too_large_is_found() -> None:
    text = "return redis.call('RPUSH', KEYS[1], unpack(cjson.decode(ARGV[1])))"
    (found,) = probed([facts_of(Script("add.lua", text.encode(), Path("add.lua")))], Bench())
    assert found.batch_max == (0, 1000)


def test_scripts_without_a_binding_get_a_verdict_and_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "push.lua").write_text(PAIRS["all-or-nothing"][0][0])
    ended = orderlab("validate", str(tmp_path), "--backend", "kernel", "--json")
    assert ended.returncode == 1
    told = json.loads(ended.stdout)
    assert "not judged for want of a contract" in told["verdict"]
    assert f"orderlab init {tmp_path} drafts one" in told["notes"][-1]
    (finding,) = [one for one in told["findings"] if one["law"] == "all-or-nothing"]
    assert finding["line"]["line"] == 1
    assert orderlab("validate", str(tmp_path), "--backend", "kernel", "--law", "types").returncode == 3
    assert "needs a contract" in orderlab("validate", str(tmp_path), "--law", "no-loss").stderr


def test_a_change_is_judged_by_what_is_new(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, text in ((old, PAIRS["all-or-nothing"][0][0]), (new, PAIRS["all-or-nothing"][0][0] + " ")):
        folder.mkdir()
        (folder / "push.lua").write_text(text)
    ended = orderlab("validate", str(new), "--base", str(old), "--backend", "kernel")
    assert ended.returncode == 3, ended.stdout
    assert orderlab("validate", str(new), "--base", str(old), "--backend", "kernel", "--strict").returncode == 1
    (new / "push.lua").write_text(PAIRS["all-or-nothing"][1][0])
    assert orderlab("validate", str(new), "--base", str(old), "--backend", "kernel").returncode == 1


def test_validate_lints_and_its_exit_code_stays(tmp_path: Path) -> None:
    (tmp_path / "get.lua").write_text("value = redis.call('GET', KEYS[1])\nreturn value")
    ended = orderlab("validate", str(tmp_path), "--backend", "kernel", "--json")
    assert ended.returncode == 3
    assert [one["rule"] for one in json.loads(ended.stdout)["lint"]]
    assert "lint: 1 finding" in orderlab("validate", str(tmp_path), "--backend", "kernel").stdout


def test_an_argument_that_was_only_tried_is_not_held_against_a_script() -> None:
    text = "redis.call('RPUSH', KEYS[1], 'x') return redis.call('ZADD', KEYS[1] .. ':z', ARGV[1], 'x')"
    assert (
        verdict_of(f"if redis.call('EXISTS', KEYS[2]) == 1 then {text} end")["all-or-nothing"] is not Outcome.VIOLATED
    )
    pop = "local job = redis.call('LPOP', KEYS[1]) if job then redis.call('ZADD', KEYS[2], ARGV[1], job) end return job"
    push = "return redis.call('RPUSH', KEYS[1], 'job')"
    facts = [facts_of(Script(name, one.encode(), Path(name))) for name, one in (("pop.lua", pop), ("push.lua", push))]
    assert not [one for one in first_verdict(facts, 0.2).violations if "valid float" in one.headline]


@pytest.mark.exhaustive
def test_a_script_that_does_not_end_is_told() -> None:
    assert verdict_of("while redis.call('EXISTS', KEYS[1]) == 0 do end")["bounded"] is Outcome.VIOLATED


def test_one_script_and_one_program_have_a_first_verdict(tmp_path: Path) -> None:
    lua = tmp_path / "allow.lua"
    lua.write_text("return redis.call('INCR', KEYS[1])")
    program = tmp_path / "lock.py"
    program.write_text('R = """\nif redis.call(\'GET\', KEYS[1]) == ARGV[1] then return 1 end\nreturn 0\n"""\n')
    for path in (lua, program):
        ended = orderlab("validate", str(path), "--effort", "0.05", "--backend", "kernel")
        assert "no law that needs no contract is violated (1 script)" in ended.stdout, ended.stderr
    lua.write_text("return (")
    ended = orderlab("validate", str(lua))
    assert ended.returncode == 2
    assert "a script, and no store" not in ended.stderr


def test_a_script_that_does_not_end_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"put": "redis.call('SET', KEYS[1], 1)", "add": "return redis.call('SADD', KEYS[1], ARGV[1])"}
    texts["loop"] = "while tonumber(ARGV[1]) ~= 0.5 do end"
    run, endless = Bench.run, list[bool]()

    def counted(bench: Bench, *given: Any) -> ProbeRun:
        result = run(bench, *given)
        endless.append(result.is_endless)
        return result

    monkeypatch.setattr(Bench, "run", counted)
    facts = all_facts([Script(f"{name}.lua", text.encode(), Path(name)) for name, text in texts.items()])
    assert [each.is_run for each in probed(facts, Bench())] == [True, True, False]
    assert endless.count(True) == 1
