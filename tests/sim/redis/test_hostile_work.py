"""Work that few instructions do: long calls of the library, large values, many writes. What stops it is counted, not
timed."""

from __future__ import annotations

import random
import shutil
import time
import tracemalloc
from pathlib import Path

import pytest

from orderlab.sim.redis.conditions import ScriptTimeout
from orderlab.sim.redis.lua import sandbox
from orderlab.sim.redis.lua.host import LuaHost
from orderlab.sim.redis.lua.limits import Limits
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import GROWTH_MAX_BYTES, GrowthLimit, Shard


def new_shard(**limits: float) -> Shard:
    shard = Shard()
    shard.lua_host = LuaHost(shard, Limits(memory_bytes_max=32 << 20, **limits))  # type: ignore[arg-type]
    return shard


def evaluate(shard: Shard, script: str) -> Reply:
    return shard.execute((b"EVAL", script.encode("latin-1"), b"0"))


COPYING = {
    "rep": "while true do string.rep('x', 1e7) end",
    "rep of nothing": "while true do string.rep('', 2147483647) end",
    "rep that fails": "while true do pcall(string.rep, 'x', 1e9) end",
    "upper": "local s = string.rep('x', 5e6) while true do s:upper() end",
    "gsub": "local s = string.rep('x', 5e6) while true do s:gsub('y', '') end",
    "sort": "local t = {} for i = 1, 2e5 do t[i] = i end while true do table.sort(t) end",
    "concat": "local t = {} for i = 1, 2e5 do t[i] = 'x' end while true do table.concat(t) end",
    "sha1hex": "local s = string.rep('x', 5e6) while true do redis.sha1hex(s) end",
    "a structure": "local s = string.rep('i4', 1e5) while true do struct.size(s) end",
    "MessagePack": "local s = '\\221\\0\\1\\134\\160' .. string.rep('\\144', 1e5) while true do cmsgpack.unpack(s) end",
}  # fmt: skip


@pytest.mark.parametrize("script", COPYING.values(), ids=COPYING.keys())
def test_what_a_call_copies_counts_as_instructions(script: str) -> None:
    shard = new_shard(instructions_max=3_000_000, seconds_max=3600.0)
    with pytest.raises(ScriptTimeout, match=r"limit of (instructions|work)"):
        evaluate(shard, script)
    assert evaluate(shard, "return #string.rep('x', 1e6)") == 1_000_000


def test_short_calls_cost_no_more_than_their_instructions() -> None:
    shard = new_shard(instructions_max=3_000_000)
    script = "local n = 0 for i = 1, 5e4 do n = n + #string.rep('x', 600):upper() end return n"
    assert evaluate(shard, script) == 30_000_000


COMPARING = "local a = string.rep('x', 7e6) local b, n = a .. 'y', 0 while true do if a < b then n = n + 1 end end"


def test_the_clock_is_looked_at_more_often_when_memory_is_held() -> None:
    """Comparing two strings of 7 MB is one instruction: a thousand of them would take seconds.

    Machine code counts what an instruction compares: a fast machine would end by that count before the clock.
    """
    shard = new_shard(seconds_max=1.0, instructions_max=1 << 50)  # memory is full sooner, on a slow machine too
    for _ in range(2):
        began = time.process_time()
        with pytest.raises(ScriptTimeout, match="the clock ended it"):
            evaluate(shard, COMPARING)
        assert time.process_time() - began < 20, "a look at the clock for each thousand comparisons would take longer"
        reply = evaluate(shard, "local t = {} while true do t[#t + 1] = string.rep('x', 1e6) .. #t end")
        assert isinstance(reply, ErrorReply), "memory ran out, and the next run is watched all the same"
        assert b"not enough memory" in reply.message


def test_a_replacement_that_fails_again_and_again() -> None:
    shard = new_shard(seconds_max=0.1, instructions_max=1 << 50)
    with pytest.raises(ScriptTimeout, match="the clock ended it"):
        evaluate(shard, "while true do pcall(string.gsub, string.rep('x', 1e6), 'x', string.rep('y', 1e3)) end")


REPLIES = {
    "one string many times": "local s, t = string.rep('x', 1e6), {} for i = 1, 3999 do t[i] = s end return t",
    "nested": "local s, t = string.rep('x', 1e6), {} for i = 1, 3999 do t[i] = {s} end return t",
    "errors": "local s, t = string.rep('x', 1e6), {} for i = 1, 3999 do t[i] = {err = s} end return t",
}


@pytest.mark.parametrize("script", REPLIES.values(), ids=REPLIES.keys())
def test_a_reply_is_not_longer_than_what_its_script_held(script: str) -> None:
    shard = new_shard()
    with pytest.raises(ScriptTimeout, match="bytes in a reply"):
        evaluate(shard, script)
    assert evaluate(shard, script.replace("3999", "9")) != 1, "ten megabytes are fine"


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("return string.rep('ab', 3)", b"ababab"),
        ("return string.rep('', 5)", b""),
        ("return string.rep(12, 2)", b"1212"),
        ("return string.rep('x', '2')", b"xx"),
        ("return string.rep('x', -1)", b""),
        ("return string.rep('x', 2^32 + 1)", b"x"),
        ("return string.rep('x', 2.9)", b"xx"),
    ],
)
def test_rep_is_that_of_the_server(script: str, value: bytes) -> None:
    assert evaluate(new_shard(), script) == value


def test_many_small_writes_are_bounded() -> None:
    shard = new_shard(argument_bytes_max=1 << 20)
    with pytest.raises(ScriptTimeout, match="bytes handed to redis"):
        evaluate(shard, "for i = 1, 1e9 do redis.call('SET', i, 'v') end")
    assert 1 << 13 <= shard.execute((b"DBSIZE",)) < 1 << 14


@pytest.mark.parametrize("count", [50, 5000])
def test_one_string_as_many_arguments_is_counted_before_it_is_copied(count: int) -> None:
    shard = new_shard()
    script = (
        "local s, t = string.rep('x', 15e6), {} for i = 1, COUNT do t[i] = s end return redis.pcall('MSET', unpack(t))"
    )
    tracemalloc.start()
    try:
        with pytest.raises(ScriptTimeout, match="bytes handed to redis"):
            evaluate(shard, script.replace("COUNT", str(count)))
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


EDITS = ("redis.call('APPEND', 'k', 'y')", "redis.call('SETRANGE', 'k', 0, 'y')", "redis.call('SETBIT', 'k', 7, i % 2)")


@pytest.mark.parametrize("edit", EDITS)
def test_edits_of_a_long_string_fill_no_journal(edit: str) -> None:
    shard = new_shard()
    shard.execute((b"SET", b"k", b"x" * (1 << 20)))
    script = f"for i = 1, 200 do {edit} end return 1"
    assert evaluate(shard, script) == 1, "without a journal nothing piles up"
    mark = shard.snapshot()
    with pytest.raises(GrowthLimit):
        evaluate(shard, script)
    shard.rollback(mark)
    assert len(shard.execute((b"GET", b"k"))) <= (1 << 20) + 200
    assert GROWTH_MAX_BYTES <= 128 << 20


NUMBERS = "local t = {} for j = 1, 1000 do t[j] = i * 1000 + j end redis.call('RPUSH', 'l', unpack(t))"
ENDLESS_COMMANDS = {
    "LCS": "redis.call('SET', 'a', string.rep('ab', 500)) redis.call('SET', 'b', string.rep('ba', 500)) "
    "while true do redis.call('LCS', 'a', 'b') end",
    "SORT": f"for i = 1, 10 do {NUMBERS} end while true do redis.call('SORT', 'l') end",
    "KEYS": "for i = 1, 1e4 do redis.call('SET', 'k' .. i, 1) end while true do redis.call('KEYS', 'x*') end",
    "LREM": f"for i = 1, 10 do {NUMBERS} end while true do redis.call('LREM', 'l', 0, 'x') end",
    "a long reply": f"for i = 1, 10 do {NUMBERS} end while true do redis.call('LRANGE', 'l', 0, -1) end",
    "a long string": "redis.call('SET', 'k', string.rep('x', 1e6)) while true do redis.call('GET', 'k') end",
    "an edit": "redis.call('SET', 'k', string.rep('x', 1e6)) while true do redis.call('APPEND', 'k', 'y') end",
    "a draw": "redis.call('SADD', 's', 'x') redis.call('SRANDMEMBER', 's', -1000000000)",
}  # fmt: skip


@pytest.mark.parametrize("script", ENDLESS_COMMANDS.values(), ids=ENDLESS_COMMANDS.keys())
def test_work_inside_commands_counts_the_same_on_every_machine(script: str) -> None:
    """No clock: ``seconds_max`` is far away."""
    done = []
    for _ in range(2):
        shard = new_shard(work_max=3_000_000, seconds_max=3600.0)
        with pytest.raises(ScriptTimeout, match="limit of work"):
            evaluate(shard, script)
        done.append(shard.work)
    assert done[0] == done[1]


def test_a_single_long_command_is_within_the_limit() -> None:
    shard = Shard()
    for start in range(0, 200_000, 1000):
        shard.execute((b"RPUSH", b"l", *[b"%d" % (i * 7919 % 200_003) for i in range(start, start + 1000)]))
    assert evaluate(shard, "return redis.call('SORT', 'l')[1]") == b"0"
    shard.execute((b"LRANGE", b"l", b"0", b"-1"))
    assert shard.work_max > 1 << 60, "clients have no limit"


HOSTILE_COUNTS = {
    "unpack": "return {unpack({}, 0, 2^31 - 1)}",
    "unpack of all": "return {unpack({}, -2^31, 2^31 - 1)}",
    "unpack to the end": "return {unpack({1}, -2^31)}",
}  # fmt: skip


@pytest.mark.parametrize("script", HOSTILE_COUNTS.values(), ids=HOSTILE_COUNTS.keys())
def test_too_many_results_are_an_error(script: str) -> None:
    reply = evaluate(new_shard(), script)
    assert isinstance(reply, ErrorReply)
    assert reply.message.startswith(b"ERR user_script:1: too many results to unpack script: ")
    assert evaluate(new_shard(), "return #{unpack({1, 2, 3}, 2^31 - 3, 2^31 - 1)}") == 0


ENDLESS_CALLS = {
    "insert": "table.insert({}, -2^31, 'y')",
    "insert in front": "local t = {} for i = 1, 1e5 do t[i] = i end while true do table.insert(t, 1, 1) end",
    "remove in front": "local t = {} for i = 1, 1e5 do t[i] = i end while true do table.remove(t, 1) "
        "table.insert(t, 1) end",
    "maxn": "local t = {} for i = 1, 1e4 do t[i] = i end while true do table.maxn(t) end",
    "foreach": "local t = {} for i = 1, 1e5 do t[i] = i end while true do table.foreachi(t, rawequal) end",
    "bit": "local t = {} for i = 1, 7000 do t[i] = 1 end while true do bit.band(unpack(t)) end",
    "a pattern that goes back": "return string.find(string.rep('a', 1e5), string.rep('a-', 20) .. 'b')",
    "a pattern of one repetition": "return string.find(string.rep('a', 1e5), '.-b')",
    "a pattern of question marks": "return string.match(string.rep('a', 300), string.rep('a?', 300) .. "
        "string.rep('a', 300))",
    "a pattern replaced": "return string.gsub(string.rep('a', 1e5), 'a-b', 'x')",
    "a pattern that iterates": "for x in string.gmatch(string.rep('a', 1e5), 'a*b') do end",
    "a pattern with a balance": "return string.find(string.rep('(', 1e5), '%b()')",
    "a pattern with a capture again": "return string.find(string.rep('ab', 1e5), '(.*)%1c')",
}  # fmt: skip


@pytest.mark.parametrize("script", ENDLESS_CALLS.values(), ids=ENDLESS_CALLS.keys())
def test_one_call_of_the_library_is_counted_from_within(script: str) -> None:
    shard = new_shard(instructions_max=3_000_000, seconds_max=3600.0)
    with pytest.raises(ScriptTimeout, match="limit of instructions"):
        evaluate(shard, script)
    assert evaluate(shard, "return 1") == 1


def test_a_plain_search_takes_time_in_proportion() -> None:
    script = (
        "local a = string.rep('a', 2e6) return {tostring(a:find(string.rep('a', 1e6) .. 'b', 1, true)), "
        "a:find(a, 1, true)}"
    )
    assert evaluate(new_shard(), script) == [b"nil", 1, 2_000_000]


@pytest.mark.parametrize(
    ("put", "scan"),
    [
        ("redis.call('SET', string.rep('a', 2e5), 1)", "redis.call('KEYS', glob)"),
        ("redis.call('SET', string.rep('a', 2e5), 1)", "redis.call('SCAN', 0, 'MATCH', glob)"),
        ("redis.call('HSET', 'h', string.rep('a', 2e5), 1)", "redis.call('HSCAN', 'h', 0, 'match', glob)"),
        ("redis.call('SADD', 's', string.rep('a', 2e5))", "redis.call('SSCAN', 's', 0, 'MATCH', glob, 'COUNT', 5)"),
        ("redis.call('ZADD', 'z', 1, string.rep('a', 2e5))", "redis.call('ZSCAN', 'z', 0, 'MATCH', glob)"),
    ],
)
def test_globs_on_long_names_are_counted(put: str, scan: str) -> None:
    """A star, and many characters of which the last one fails, are held against every place of the name."""
    shard = new_shard(work_max=4_000_000, seconds_max=3600.0)
    opening = f"{put} local glob = '*' .. string.rep('?', 100) .. 'b*' "
    assert evaluate(shard, f"{opening} {scan} return 1") == 1
    with pytest.raises(ScriptTimeout, match=r"limit of (instructions|work)"):
        evaluate(shard, f"{opening} while true do {scan} end")


def test_the_counted_matcher_matches_as_the_library_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Patterns drawn at random on both: one Lua state is made with no text short enough for the library's own."""
    shutil.copytree(sandbox.LIBRARIES, tmp_path / "lua")
    strings = tmp_path / "lua" / "strings.lua"
    text = strings.read_text()
    always = "local longest = longest_text(pattern) == 2 ^ 53 and 2 ^ 53 or -1"
    assert text.count("local longest = longest_text(pattern)") == 1
    strings.write_text(text.replace("local longest = longest_text(pattern)", always))
    usual, counting = new_shard(), new_shard()
    evaluate(usual, "return 1")
    monkeypatch.setattr(sandbox, "LIBRARIES", tmp_path / "lua")
    monkeypatch.setattr(sandbox, "lua_library", lambda text: None)  # machine code lies elsewhere
    counting = new_shard()
    draw = random.Random(5)
    for _ in range(1500):
        script = _matching(draw)
        assert repr(evaluate(usual, script)) == repr(evaluate(counting, script)), script


ITEMS = [
    "a",
    "b",
    ".",
    "%a",
    "%d",
    "%w",
    "%A",
    "[ab]",
    "[^a]",
    "[a-c]",
    "[%w_]",
    "[]a]",
    "[^]]",
    "%.",
    "%%",
    "-",
    "$",
    "^",
    "[%]]",
    "%z",
    "(",
    ")",
    "%",
    "[",
    "%1",
    "%2",
    "%b()",
    "%f[%w]",
    "%f",
    "%b",
    "()",
    "(a",
    "b)",
    "(.-)",
    "(%a*)",
]
REPLACEMENTS = (
    "'<%0>'", "'%1'", "'%1%2'", "'%'", "{a = 'A', b = false, [1] = 'p'}", "function(...) return (...) end",
    "function() return {} end", "function() return 7.5 end", "5", "true",
)  # fmt: skip


def _matching(draw: random.Random) -> str:
    """A script that calls one function of patterns and returns all that it gives."""
    pattern = draw.choice(("", "", "^")) + "".join(
        draw.choice(ITEMS) + draw.choice(("", "", "*", "+", "-", "?")) for _ in range(draw.randint(1, 6))
    )
    text = "".join(draw.choice("aabbc1 .()%-$^]") for _ in range(draw.randint(0, 14)))
    shown = [f'"{"".join(f"{chr(92)}{ord(char):03d}" for char in part)}"' for part in (text, pattern)]
    arguments = ", ".join(shown)
    call = draw.choice(
        (
            f"string.find({arguments}{draw.choice(('', ', -3', ', 3', ', 100'))})",
            f"string.match({arguments})",
            f"string.gsub({arguments}, {draw.choice(REPLACEMENTS)}{draw.choice(('', ', 1', ', -1'))})",
            f"(function() local all = '' for a, b in string.gmatch({arguments}) do all = all .. tostring(a) .. "
            "tostring(b) .. ';' "
            "if #all > 200 then break end end return all end)()",
        )
    )
    return (
        "local out = {} local function put(...) for i = 1, select('#', ...) do out[i] = tostring((select(i, ...))) "
        "end end "
        f"put(pcall(function() return {call} end)) return out"
    )
