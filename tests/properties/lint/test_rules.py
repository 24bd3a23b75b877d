"""Every rule speaks of its own bad example and of no good one; nobody else's script is accused."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderlab.model.errors import InputError
from orderlab.properties.lint.bindings import lint_bindings
from orderlab.properties.lint.linter import ALLOW_RULE, LintFinding, lint_script, new_findings, repaired
from orderlab.properties.lint.rule import DEFAULT, NOTE, RULES, LintSettings
from orderlab.properties.lint.subjects import scripts_at
from orderlab.sim.stores.binding.lua_text import check_syntax
from orderlab.sim.stores.binding.results import Piece, Script

HERE = Path(__file__).parents[3]


def linted(source: str, settings: LintSettings = DEFAULT) -> list[LintFinding]:
    script = Script("a.lua", source.encode(), Path("a.lua"))
    check_syntax(script)
    return lint_script(script, settings)


def rules_in(source: str, settings: LintSettings = DEFAULT) -> set[str]:
    return {one.rule for one in linted(source, settings)}


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.language == "lua"])
def test_a_rule_speaks_of_its_bad_example_and_not_of_the_good_one(name: str) -> None:
    rule = RULES[name]
    assert name in rules_in(rule.bad, rule.settings)
    assert not rules_in(rule.good, rule.settings) - {one.name for one in RULES.values() if one.level == NOTE}
    assert name not in rules_in(rule.good, rule.settings)


@pytest.mark.parametrize("folder", ["session", "feed", "job_queue", "lock", "limiter", "inbound", "job_queue_blocking"])
def test_the_stores_of_this_project_are_not_accused(folder: str) -> None:
    scripts, left = scripts_at([HERE / "lua" / folder], trust_adapter=True)
    assert scripts
    assert not left
    assert [one for script in scripts for one in lint_script(script) if one.level != NOTE] == []


SOUND = {
    "a score that is returned as the text that it is": "return redis.call('ZSCORE', KEYS[1], ARGV[1])",
    "keys that were put into a table": """
        local keys, more = {}, {}
        for i = 1, #ARGV do
          keys[i] = KEYS[1] .. ARGV[i]
          table.insert(more, KEYS[1] .. ':' .. ARGV[i])
        end
        for i = 1, #keys do redis.call('DEL', keys[i], more[i]) end
        return #keys""",
    "a branch that no caller comes to": """
        local function drop(key, parent)
          if parent then
            return redis.call('SREM', parent .. ':children', key)
          end
          return redis.call('DEL', key)
        end
        return drop(KEYS[1]) + drop(KEYS[2], nil)""",
    "a lock that is released by its owner": """
        if redis.call('get', KEYS[1]) == ARGV[1] then
          return redis.call('del', KEYS[1])
        else
          return 0
        end""",
    "a limiter of a sliding window": """
        local now = tonumber(ARGV[1])
        local window = tonumber(ARGV[2])
        redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - window)
        local count = redis.call('ZCARD', KEYS[1])
        if count < tonumber(ARGV[3]) then
          redis.call('ZADD', KEYS[1], now, ARGV[4])
          redis.call('PEXPIRE', KEYS[1], window)
          return {1, count + 1}
        end
        return {0, count}""",
    "a bucket of tokens": """
        local data = redis.call('HMGET', KEYS[1], 'tokens', 'at')
        local tokens, at = tonumber(data[1]), tonumber(data[2])
        if tokens == nil then
          tokens, at = tonumber(ARGV[1]), tonumber(ARGV[3])
        end
        tokens = math.min(tonumber(ARGV[1]), tokens + math.max(0, tonumber(ARGV[3]) - at) * tonumber(ARGV[2]))
        local allowed = tokens >= 1
        if allowed then tokens = tokens - 1 end
        redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', ARGV[3])
        redis.call('EXPIRE', KEYS[1], 60)
        return allowed and 1 or 0""",
    "a counter with a deadline": """
        local current = redis.call('INCR', KEYS[1])
        if current == 1 then redis.call('EXPIRE', KEYS[1], ARGV[1]) end
        return current""",
    "jobs that are due move to their queue": """
        local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, 100)
        if #due > 0 then
          redis.call('ZREM', KEYS[1], unpack(due))
          for _, job in ipairs(due) do redis.call('LPUSH', KEYS[2], job) end
        end
        return #due""",
    "a job is taken with its data": """
        local id = redis.call('RPOPLPUSH', KEYS[1], KEYS[2])
        if not id then return nil end
        redis.call('SET', KEYS[3] .. id .. ':lock', ARGV[1], 'PX', ARGV[2])
        return {id, redis.call('HGETALL', KEYS[3] .. id)}""",
    "a function of its own": """
        local function bump(key, by)
          local held = tonumber(redis.call('GET', key) or '0')
          redis.call('SET', key, held + by)
          return held + by
        end
        return bump(KEYS[1], tonumber(ARGV[1]))""",
    "compare and set": """
        local held = redis.call('GET', KEYS[1])
        if held == false or held == ARGV[1] then
          redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
          return 1
        end
        return 0""",
    "a read and a pcall": """
        local ok = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '$', 'MKSTREAM')
        if type(ok) == 'table' and ok.err and not string.find(ok.err, 'BUSYGROUP') then return ok end
        return 1""",
    "a prefix beside keys, and a deadline by an option": """
        local options = cjson.decode(ARGV[2])
        local key = ARGV[1] .. 'de:' .. options.id
        if redis.call('GET', key) then
          if options.keep then
            redis.call('SET', key, KEYS[1])
          else
            redis.call('SET', key, KEYS[1], 'PX', options.ttl)
          end
        end
        if not options.ttl then return {nil, nil} end
        return {1, 2}""",
    "pages of a set": """
        local cursor, taken = '0', 0
        repeat
          local page = redis.call('SSCAN', KEYS[1], cursor, 'COUNT', 100)
          cursor = page[1]
          taken = taken + #page[2]
        until cursor == '0' or taken >= 1000
        return taken""",
}


FRAGMENTS = """local a, b = redis.call('GET', KEYS[1]), ...
a = b
local function f(k, ...) return redis.call('DEL', k, ...) end
f(unpack(KEYS))
for i, v in ipairs(ARGV) do redis.call('SET', v, i) end
for i = 1, #KEYS do a = KEYS[i] end
if a then b = nil elseif b == nil then a = 1 else redis.call('INCR', a) end
repeat local x = a until x == nil
redis.call('EVAL', ARGV[1], 2, 'a')
redis.call('XREAD', 'STREAMS', a, b)
redis.call(ARGV[1])
redis.call('SORT')
redis.call('SET')
redis.call('MSET', unpack(ARGV))
redis.call('MIGRATE', 'h', 1, '', 0, 9, 'KEYS', a)
redis.call('ZUNIONSTORE', a, #KEYS, unpack(KEYS))
local t = {redis.call('TIME')[1] * 1e6, [a] = 1, b = {}}
return {nil, tonumber(a), a / b}
do return end
local call = redis.pcall; call('GET', a .. 1)
while redis.call('LPOP', KEYS[1]) do end
cjson.decode(ARGV[1])
x.y.z = function(q) return q end
a, b = b, a
local a <const> = 1""".splitlines()
"""Lines that may follow one another."""


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=8))
def test_no_script_that_compiles_brings_a_rule_down(parts: list[str]) -> None:
    with suppress(InputError):  # what does not compile
        linted("\n".join(parts))


@pytest.mark.parametrize("what", SOUND)
def test_sound_scripts_are_not_accused(what: str) -> None:
    assert [one for one in linted(SOUND[what]) if one.level != NOTE] == []


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("local v = redis.call('HGET', KEYS[1], 'a')\nif v ~= nil then return 1 end", "nil-reply"),
        ("if not redis.call('SISMEMBER', KEYS[1], ARGV[1]) then return 0 end", "zero-is-true"),
        ("if ARGV[1] == 'a' and redis.call('HEXISTS', KEYS[1], 'b') then return 0 end", "zero-is-true"),
        ("local n = redis.call('GET', KEYS[1])\nif n > 5 then return 1 end", "text-is-no-number"),
        ("local most = ARGV[1]\nif #KEYS > 0 and most <= 3 then return 1 end", "text-is-no-number"),
        ("local function f() total = 1 end\nf()", "global-variable"),
        ("return os.time()", "unknown-name"),
        ("return redis.call('GTE', KEYS[1])", "command-refused"),
        ("return redis.call('GET', KEYS[1], 'x')", "command-refused"),
        ("local call = redis.call\nreturn call('SUBSCRIBE', 'x')", "command-refused"),
        ("local id = redis.call('LPOP', KEYS[1])\nreturn redis.call('HGETALL', 'job:' .. id)", "undeclared-key"),
        ("for _, id in ipairs(redis.call('LRANGE', KEYS[1], 0, 9)) do redis.call('DEL', id) end", "undeclared-key"),
        ("local function drop(k) redis.call('DEL', k) end\ndrop('a' .. ARGV[1])", "undeclared-key"),
        ("local k = {}\nfor i = 1, 3 do k[i] = 'a' .. i end\nreturn redis.call('DEL', k[1])", "undeclared-key"),
        ("local k = {}\ntable.insert(k, redis.call('LPOP', KEYS[1]))\nredis.call('DEL', k[1])", "undeclared-key"),
        ("local function f(p) return p and redis.call('DEL', p .. 'x') end\nf(nil)\nf('a')", "undeclared-key"),
        ("return tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]))", "truncated-reply"),
        ("return redis.call('DEL', unpack(redis.call('LRANGE', KEYS[1], 0, -1)))", "unbounded-unpack"),
        ("while true do\n if not redis.call('SPOP', KEYS[1]) then break end\nend", "unbounded-loop"),
        ("redis.call('SET', KEYS[1], 'x')\nlocal m = cjson.decode(ARGV[1])\nreturn m.a", "write-before-check"),
        ("local r = redis.pcall('GET', KEYS[1])\nif r then return 1 end", "protected-call-unread"),
        ("redis.call('SETEX', KEYS[1], 9, '1')\nredis.call('SET', KEYS[1], '2')", "deadline-dropped"),
    ],
)  # fmt: skip
def test_mistakes_that_no_example_shows(source: str, rule: str) -> None:
    assert rule in rules_in(source)


def test_a_line_is_allowed_with_a_reason() -> None:
    bad = "return redis.call('INCR', 'requests')"
    assert rules_in(f"-- orderlab: allow undeclared-key: one node only\n{bad}") == set()
    assert rules_in(f"{bad} -- orderlab: allow undeclared-key, one node only") == set()
    assert rules_in(f"-- orderlab: allow undeclared-key\n{bad}") == {"undeclared-key", ALLOW_RULE}
    assert rules_in(f"-- orderlab: allow nil-reply: not here\n{bad}") == {"undeclared-key", ALLOW_RULE}
    assert rules_in(f"-- orderlab: allow undeclared: typo\n{bad}") == {"undeclared-key", ALLOW_RULE}


def test_repairs_leave_nothing_to_repair(tmp_path: Path) -> None:
    source = "count = 1\nif redis.call('GET', KEYS[1]) == nil then return redis.call('HMSET', KEYS[2], 'a', count) end"
    file = tmp_path / "a.lua"
    file.write_text(source)
    script = Script("a.lua", source.encode(), file)
    found = lint_script(script)
    changed = repaired([script], found)[file].decode()
    assert changed.splitlines() == [
        "local count = 1",
        "if redis.call('GET', KEYS[1]) == false then return redis.call('HSET', KEYS[2], 'a', count) end",
    ]
    assert linted(changed) == []


def test_no_file_is_repaired_whose_text_is_not_the_script(tmp_path: Path) -> None:
    """What a store edits or composes has places of its own."""
    file = tmp_path / "a.lua"
    file.write_text("-- first\ncount = 1\n")
    edited = Script("a.lua", b"count = 1\n", file)
    composed = Script("a.lua", b"count = 1\n", file, (Piece("a.lua", file, 2, 1),))
    for script in (edited, composed):
        found = lint_script(script)
        assert [one.rule for one in found] == ["global-variable"]
        assert repaired([script], found) == {}


def test_a_server_that_is_newer_than_the_kernel_may_have_any_command() -> None:
    source = "return redis.call('VCARD', KEYS[1])"
    assert rules_in(source) == {"command-refused"}
    assert rules_in(source, LintSettings(server=(7, 4))) == set()


def test_a_first_line_for_the_server_came_with_functions() -> None:
    source = "#!lua flags=no-writes\nreturn redis.call('GET', KEYS[1])"
    assert rules_in(source) == set()
    assert rules_in(source, LintSettings(server=(6, 2))) == {"newer-server"}


def test_only_what_is_new_is_told_wherever_its_line_has_gone() -> None:
    old = linted("return redis.call('INCR', 'a')")
    new = linted("-- a comment\nredis.call('INCR', 'b')\nreturn redis.call('INCR', 'a')")
    assert [one.source for one in new_findings(new, old) if one.rule == "undeclared-key"] == ["redis.call('INCR', 'b')"]


def test_programs_and_folders_are_looked_through(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text(
        'LUA = """\nreturn redis.call("GET", KEYS[0])\n"""\nF = f"redis.call({x})"\n'
    )
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "b.lua").write_text("return KEYS[0]")
    scripts, left = scripts_at([tmp_path])
    assert [(one.rule, one.path.name, one.line) for script in scripts for one in lint_script(script)] == [
        ("index-from-zero", "a.py", 2)
    ]
    assert len(left) == 1
    assert "a.py:4: the script has a hole, x" in left[0]
    with pytest.raises(InputError, match="no Lua file"):
        scripts_at([_empty(tmp_path)])


def _empty(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


HIT = "local n = redis.call('INCR', KEYS[1])\nredis.call('PEXPIRE', KEYS[1], ARGV[1])\nreturn n\n"
BARE = "local hits = KEYS[1]\nreturn redis.call('INCR', hits)\n"
STEPS = """specification = "limiter"
[keys]
hits = "{limiter}:hits"
other = "{limiter}:other"
REMARK
[operations.hit]
steps = [STEPS]
"""


def bound(folder: Path, steps: str, remark: str = "") -> list[str]:
    """What is said of a store whose one operation takes these steps."""
    (folder / "hit.lua").write_text(HIT)
    (folder / "bare.lua").write_text(BARE)
    (folder / "store.toml").write_text(STEPS.replace("STEPS", steps).replace("REMARK", remark))
    scripts, left = scripts_at([folder])
    assert not left
    return [f"{one.rule}:{one.line}" for one in lint_bindings([folder], scripts)]


EXPIRE = '{ command = ["PEXPIRE", "<key.hits>", "<window_ms>"] }'


@pytest.mark.parametrize(
    "first",
    [
        '{ command = ["INCR", "<key.hits>"], capture = "n" }',
        '{ command = ["SET", "<key.hits>", "1", "NX"], capture = "n" }',
        '{ script = "bare.lua", keys = ["hits"], capture = "n" }',
    ],
)
def test_a_key_that_gets_its_deadline_in_another_call_is_told(first: str, tmp_path: Path) -> None:
    assert bound(tmp_path, f"{first}, {EXPIRE}") == ["deadline-apart:6"]


@pytest.mark.parametrize(
    "steps",
    [
        '{ command = ["SET", "<key.hits>", "1", "NX", "PX", "<window_ms>"] }, ' + EXPIRE,
        '{ script = "hit.lua", keys = ["hits"], args = ["<window_ms>"] }, ' + EXPIRE,
        '{ command = ["INCR", "<key.other>"] }, ' + EXPIRE,
        EXPIRE + ', { command = ["INCR", "<key.hits>"] }',
        '{ transaction = [{ command = ["INCR", "<key.hits>"] }, ' + EXPIRE + "] }",
    ],
)
def test_a_key_that_has_its_deadline_at_once_is_not(steps: str, tmp_path: Path) -> None:
    assert bound(tmp_path, steps) == []


def test_a_binding_allows_a_deadline_apart_with_a_reason(tmp_path: Path) -> None:
    steps = f'{{ command = ["INCR", "<key.hits>"] }}, {EXPIRE}'
    assert bound(tmp_path, steps, "# orderlab: allow deadline-apart: a job sweeps what is left") == []
    assert bound(tmp_path, steps, "# orderlab: allow deadline-apart") == ["deadline-apart:6"]


def test_the_examples_of_bindings_are_what_their_rule_says(tmp_path: Path) -> None:
    rule = RULES["deadline-apart"]
    head = '[keys]\nhits = "h"\n\n'
    (tmp_path / "store.toml").write_text(head + rule.bad)
    assert [one.rule for one in lint_bindings([tmp_path], [])] == ["deadline-apart"]
    (tmp_path / "store.toml").write_text(head + rule.good)
    assert lint_bindings([tmp_path], [Script("hit.lua", HIT.encode(), tmp_path / "hit.lua")]) == []


def test_what_came_after_the_kernels_version_is_told_with_its_version() -> None:
    calls = {
        (7, 2): ["'ZRANK', KEYS[1], 'a', 'WITHSCORE'"],
        (7, 4): ["'HEXPIRE', KEYS[1], 9, 'FIELDS', 1, 'f'", "'HSCAN', KEYS[1], 0, 'NOVALUES'"],
    }
    for since, texts in calls.items():
        for text in texts:
            source = f"return redis.call({text})"
            assert "newer-server" in rules_in(source, LintSettings(server=(7, 0)))
            assert rules_in(source, LintSettings(server=since)) == set()


def test_scripts_may_call_what_waits_from_7_2_on() -> None:
    source = "return redis.call('BLPOP', KEYS[1], 0)"
    assert rules_in(source, LintSettings(server=(7, 0))) == {"command-refused"}
    assert rules_in(source, LintSettings(server=(7, 4))) == set()


def test_valkey_has_names_and_options_of_its_own_and_no_command_of_redis_7_4() -> None:
    valkey, redis_7_0 = LintSettings.named("valkey-8"), LintSettings.named("7.0.15")
    for own in ("server.call('GET', KEYS[1])", "redis.VALKEY_VERSION", "redis.call('HSCAN', KEYS[1], 0, 'NOVALUES')"):
        assert rules_in(f"return {own}", valkey) == set()
        assert rules_in(f"return {own}", redis_7_0) & {"unknown-name", "newer-server"}
    told = linted("return redis.call('HTTL', KEYS[1], 'FIELDS', 1, 'a')", valkey)
    assert [each.message for each in told] == ["HTTL came with Redis 7.4, and Valkey 8 has not taken it"]


def test_redis_6_2_has_a_command_and_lacks_names_that_7_0_has() -> None:
    older = LintSettings.named("6.2")
    assert rules_in("return redis.call('STRALGO', 'LCS', 'STRINGS', ARGV[1], ARGV[2])", older) == set()
    assert rules_in("return redis.REDIS_VERSION", older) == {"unknown-name"}
    assert rules_in("return redis.REDIS_VERSION") == set()
