"""Work that few instructions do: long calls of the library, large values, many writes. What stops it is counted, not timed."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from sim.redis.lua_host import LuaHost
from sim.redis.replies import ErrorReply, Reply
from sim.redis.sandbox import Limits, ScriptTimeout
from sim.redis.shard import GROWTH_MAX_BYTES, GrowthLimit, Shard


def new_shard(**limits: float) -> Shard:
    shard = Shard()
    shard.lua_host = LuaHost(shard, Limits(memory_bytes_max=32 << 20, **limits))  # type: ignore[arg-type]
    return shard


def evaluate(shard: Shard, script: str) -> Reply:
    return shard.execute((b"EVAL", script.encode("latin-1"), b"0"))


COPYING = {
    "rep": "while true do string.rep('x', 2e7) end",
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
    shard = new_shard(instructions_max=3_000_000)
    began = time.process_time()
    with pytest.raises(ScriptTimeout):
        evaluate(shard, script)
    assert time.process_time() - began < 2.5
    assert evaluate(shard, "return #string.rep('x', 1e6)") == 1_000_000


def test_short_calls_cost_no_more_than_their_instructions() -> None:
    shard = new_shard(instructions_max=3_000_000)
    script = "local n = 0 for i = 1, 5e4 do n = n + #string.rep('x', 600):upper() end return n"
    assert evaluate(shard, script) == 30_000_000


COMPARING = "local a = string.rep('x', 7e6) local b, n = a .. 'y', 0 while true do if a < b then n = n + 1 end end"


def test_the_clock_is_looked_at_more_often_when_memory_is_held() -> None:
    """Comparing two strings of 7 MB is one instruction: a thousand of them would take seconds."""
    shard = new_shard(seconds_max=0.3)
    for _ in range(2):
        began = time.process_time()
        with pytest.raises(ScriptTimeout, match="limit of seconds"):
            evaluate(shard, COMPARING)
        assert time.process_time() - began < 1.2
        reply = evaluate(shard, "local t = {} while true do t[#t + 1] = string.rep('x', 1e6) .. #t end")
        assert isinstance(reply, ErrorReply), "memory ran out, and the next run is watched all the same"
        assert b"not enough memory" in reply.message


def test_a_replacement_that_fails_again_and_again() -> None:
    shard = new_shard(seconds_max=0.1)
    began = time.process_time()
    with pytest.raises(ScriptTimeout, match="limit of seconds"):
        evaluate(shard, "while true do pcall(string.gsub, string.rep('x', 1e6), 'x', string.rep('y', 1e3)) end")
    assert time.process_time() - began < 1.5


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
    script = "local s, t = string.rep('x', 15e6), {} for i = 1, COUNT do t[i] = s end return redis.pcall('MSET', unpack(t))"
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
