"""Every long call of a library and every long command is charged for what it does: by count, with no clock in reach."""

from __future__ import annotations

import pytest

from orderlab.sim.redis.conditions import ScriptTimeout
from orderlab.sim.redis.lua.compilation import compile_steps
from orderlab.sim.redis.lua.host import LuaHost
from orderlab.sim.redis.lua.limits import Limits
from orderlab.sim.redis.node_state import GROWTH_MAX_BYTES, NEW_VALUE_BYTES
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import Shard


def new_shard(**limits: float) -> Shard:
    shard = Shard()
    shard.lua_host = LuaHost(shard, Limits(seconds_max=3600.0, **limits))  # type: ignore[arg-type]
    return shard


def evaluate(shard: Shard, script: str) -> Reply:
    return shard.execute((b"EVAL", script.encode("latin-1"), b"0"))


LONG_CALLS = {
    "a structure of a long text": "local s = string.rep('x', 1e6) for i = 1, N do struct.pack('s', s) end",
    "a long error reply": "local s = string.rep('x', 1e6) for i = 1, N do redis.error_reply(s) end",
    "byte with many results": "local s = string.rep('x', 1e5) for i = 1, N do string.byte(s, 1, 7000) end",
    "unpack without bounds": "local t = {} for i = 1, 7000 do t[i] = 1 end for i = 1, N do rawequal(unpack(t)) end",
    "a long number": "local s = string.rep('1', 1e5) for i = 1, N do tonumber(s) end",
    "a long number of another base": "local s = string.rep('1', 1e5) for i = 1, N do tonumber(s, 2) end",
    "%99.99f": "for i = 1, 20 * N do string.format('%99.99f', 1e308) end",
    "%q": "local s = string.rep('\\1', 1e5) for i = 1, N do string.format('%q', s) end",
    "JSON read": "local s = '[' .. string.rep('1,', 5e4) .. '1]' for i = 1, N do cjson.decode(s) end",
    "JSON with escapes": "local s = '\"' .. string.rep('\\\\u0041', 1e4) .. '\"' for i = 1, N do cjson.decode(s) end",
    "JSON of control characters": "local s = string.rep('\\1', 1e5) for i = 1, N do cjson.encode(s) end",
    "sub": "local s = string.rep('x', 1e6) for i = 1, N do s:sub(2) end",
    "sub from a long number": "local s = string.rep('1', 1e6) for i = 1, N do s:sub(s) end",
    "char of many": "local function f(...) for i = 1, 4 * N do string.char(...) end end "
        "f(string.byte(string.rep('x', 2000), 1, 2000))",
    "the largest of many": "local function f(...) for i = 1, 4 * N do math.max(...) end end "
        "f(string.byte(string.rep('x', 2000), 1, 2000))",
    "%g of a long number": "local s = string.rep('1', 1e5) for i = 1, N do string.format('%g', s) end",
    "floor of a long number": "local s = string.rep(' ', 1e5) .. 1 for i = 1, N do math.floor(s) end",
    "bits of a long number": "local s = string.rep('0', 1e5) .. 1 for i = 1, N do bit.band(s, 1) end",
    "select from a long number": "local s = string.rep('0', 1e5) .. 1 for i = 1, N do select(s, 1) end",
    "the collector's second argument": "local s = string.rep('1', 1e5) for i = 1, N do collectgarbage('count', s) end",
    "find from an offset": "local s = string.rep('x', 6e4) for i = 1, N do s:find('y', 5) end",
    "match": "local s = string.rep('x', 6e4) for i = 1, N do s:match('[y]') end",
    "a match far away": "local s = string.rep('x', 6e4) .. 'y' for i = 1, N do s:match('y') end",
    "gsub": "local s = string.rep('x', 6e4) for i = 1, N do s:gsub('y', '') end",
    "a long replacement": "local s = string.rep('x', 1e6) for i = 1, N do string.gsub('1', '1', s) end",
    "upper": "local s = string.rep('x', 6e4) for i = 1, N do s:upper() end",
    "rep": "for i = 1, N do string.rep('x', 6e4) end",
    "a long item": "local t = {string.rep('x', 6e4), 'y'} for i = 1, N do table.concat(t) end",
    "many items": "local t = {} for i = 1, 3000 do t[i] = i end for i = 1, N do table.concat(t) end",
    "MessagePack of a long text": "local s = string.rep('x', 1e6) for i = 1, N do cmsgpack.pack(s) end",
    "a long error": "local s = string.rep('x', 1e6) for i = 1, N do pcall(error, s) end",
    "compiling": "local s = string.rep('x = 1 ', 2e3) for i = 1, N do loadstring(s) end",
    "a chain of elseif": "local s = 'if x then ' .. string.rep('elseif x then ', 5e3) .. 'end' for i = 1, N do "
        "loadstring(s) end",
}  # fmt: skip
EMPTIED = {
    "an array": "local t = {} for i = 1, 1e4 do t[i] = i end for i = 1, 1e4 do t[i] = nil end for i = 1, N do "
    "next(t) end",
    "a hash": "local t = {} for i = 1, 1e4 do t['k' .. i] = i end for k in pairs(t) do t[k] = nil end for i = 1, N "
    "do pairs({})(t) end",
}
"""What only machine code can see."""


@pytest.mark.parametrize("script", LONG_CALLS.values(), ids=LONG_CALLS.keys())
def test_a_long_call_is_charged(script: str) -> None:
    with pytest.raises(ScriptTimeout, match="limit of instructions"):
        evaluate(new_shard(instructions_max=2_000_000), script.replace("N", "4000"))
    assert evaluate(new_shard(instructions_max=20_000_000), script.replace("N", "4")) is None, "a few are fine"


@pytest.mark.parametrize("script", EMPTIED.values(), ids=EMPTIED.keys())
def test_looking_through_an_emptied_table_is_charged(script: str) -> None:
    shard = new_shard(instructions_max=2_000_000)
    evaluate(shard, "return 1")
    if not hasattr(shard.lua_host, "_engine") or shard.lua_host._engine.sandbox.fast_path is None:
        return
    with pytest.raises(ScriptTimeout, match="limit of instructions"):
        evaluate(shard, script.replace("N", "20000"))
    assert evaluate(new_shard(instructions_max=2_000_000), script.replace("N", "20")) is None
    walk = (
        "local t, n = {}, 0 for i = 1, 1e4 do t['k' .. i] = i end for round = 1, 4 do for k in pairs(t) do n = n "
        "+ 1 end end return n"
    )
    assert evaluate(new_shard(instructions_max=2_000_000), walk) == 40_000, (
        "a walk is charged once, not at each of its steps"
    )


INSTRUCTIONS = {
    "arithmetic on digits": "local s = string.rep('1', 4e3) for i = 1, N do local x = s + 1 end",
    "minus a long number": "local s = string.rep('1', 1e6) for i = 1, N / 100 do local x = -s end",
    "bounds of for": "local s = string.rep('1', 4e3) for i = 1, N do for j = s, 0 do end end",
    "a comparison": "local s = string.rep('a', 4e6) local a, b = s .. 'x', s .. 'y' for i = 1, N / 400 do local "
        "x = a < b end",
    "a comparison from NUL to NUL": "local a = string.rep('\\0', 4e3) local b = a .. 'x' for i = 1, N do local "
        "x = a <= b end",
    "joining": "local s = string.rep('a', 8e3) local kept = s .. 'x' for i = 1, N do local x = s .. 'x' end",
    "joining to a long text": "local s = string.rep('a', 1e6) for i = 1, N / 100 do local x = s .. 'x' end",
    "varargs": "local function f(...) for i = 1, N do local x = rawequal(1, ...) end end f(string.byte(T, 1, 7e3))",
    "a table of varargs": "local function f(...) for i = 1, N do local x = {...} end end f(string.byte(T, 1, 7e3))",
    "results": "local function g(...) return ... end local function f(...) for i = 1, N do local x = g(...) end end "
        "f(string.byte(T, 1, 7e3))",
    "a full table": "local t = {} for i = 1, 2^12 do t['k' .. i] = 1 end for i = 1, N / 4 do local x = i t['k' "
        ".. i] = nil "
        "t['k' .. i + 2^12] = 1 end",
    "within a coroutine": "local s = string.rep('1', 1e6) coroutine.wrap(function() for i = 1, N / 100 do local "
        "x = s + 1 end end)()",
    "after a coroutine that made the text": "local f = coroutine.wrap(function() "
        "coroutine.yield(string.rep('1', 1e6)) end) "
        "local s = f() for i = 1, N / 100 do local x = s + 1 end",
    "a pattern that goes back": "local s = string.rep('a', 1e3) for i = 1, N / 10 do local x = s:find('a-b') end",
    "two that go back": "local s = string.rep('a', 100) for i = 1, N / 10 do local x = s:find('.-.-x') end",
    "a literal of the class before it": "local s = string.rep('a', 100) for i = 1, N / 10 do local x = "
        "s:find('%a-a%a-ax') end",
    "a replacement that goes back": "local s = string.rep('a', 1e3) for i = 1, N / 10 do local x = "
        "s:gsub('a-b', '') end",
    "matches one by one": "local s = string.rep('a', 1e3) for i = 1, N / 10 do local x = 1 for y in "
        "s:gmatch('a-b') do end end",
}  # fmt: skip
"""What one instruction, or one call, does; without machine code the clock alone ends it."""
PLACES = ("return 1", "local s = string.rep('b', 3e6)", "local t = {} for i = 1, 777 do t[i] = i .. 'x' end")


@pytest.fixture(scope="module")
def machine_code() -> None:
    shard = new_shard()
    evaluate(shard, "return 1")
    if not hasattr(shard.lua_host, "_engine") or shard.lua_host._engine.sandbox.fast_path is None:
        pytest.skip("without machine code the clock ends it")


@pytest.mark.usefixtures("machine_code")
@pytest.mark.parametrize("script", INSTRUCTIONS.values(), ids=INSTRUCTIONS.keys())
def test_what_one_instruction_does_is_charged_and_ends_at_the_same_count_whatever_ran_before(script: str) -> None:
    script = script.replace("T", "string.rep('a', 7e3)")
    assert evaluate(new_shard(instructions_max=4_000_000), script.replace("N", "100")) is None, "a few are fine"
    endless = script.replace("N", "40000").replace("local x =", "redis.call('INCR', 'n') local x =")
    shard, ended_at = new_shard(instructions_max=2_000_000), []
    for before in PLACES:
        evaluate(shard, before)
        shard.execute((b"DEL", b"n"))
        with pytest.raises(ScriptTimeout, match="limit of instructions"):
            evaluate(shard, endless)
        ended_at.append(shard.execute((b"GET", b"n")))
    assert len(set(ended_at)) == 1, ended_at


def test_compiling_has_a_limit() -> None:
    chain = b"if x then " + b"elseif x then " * 200_000 + b"end"
    with pytest.raises(ScriptTimeout, match="limit of instructions"):
        Shard().execute((b"EVAL", chain, b"0"))
    assert isinstance(Shard().execute((b"SCRIPT", b"LOAD", b"--[[" + chain + b"]] return 1")), bytes), (
        "a comment is none"
    )
    words = b"return {" + b"'and or not elseif break'," * 20_000 + b"}"
    assert compile_steps(words) < 20_000_000, "nor are texts"
    conditions = b"local a = x and y or z\n" * 20_000
    assert compile_steps(conditions) < 20_000_000, "each statement begins a list of its own"


def test_what_quoting_makes_of_a_text_must_fit() -> None:
    reply = evaluate(new_shard(), "return #cjson.encode(string.rep('\\1', 4e7))")
    assert isinstance(reply, ErrorReply)
    assert b"not enough memory" in reply.message
    assert evaluate(new_shard(), "return #cjson.encode(string.rep('x', 1e7))") == 10_000_002


GROWING = {
    "streams": "redis.call('XADD', i, '1-1', 'a', 'b')",
    "groups": "redis.call('XGROUP', 'CREATE', i, 'g', '$', 'MKSTREAM')",
    "hashes": "redis.call('HSET', i, 'a', 'b')",
    "sets": "redis.call('SADD', i, 'a')",
    "sorted sets": "redis.call('ZADD', i, 'NX', 1, 'a')",
    "lists": "redis.call('RPUSH', i, 'a')",
}


@pytest.mark.parametrize("call", GROWING.values(), ids=GROWING.keys())
def test_new_values_count_as_growth(call: str) -> None:
    shard = new_shard()
    assert evaluate(shard, f"for i = 1, 100 do {call} end") is None
    assert GROWTH_MAX_BYTES - shard.growth_left >= 100 * NEW_VALUE_BYTES
    evaluate(shard, f"for i = 1, 100 do {call.replace('redis.call', 'redis.pcall').replace('1-1', '1-2')} end")
    assert GROWTH_MAX_BYTES - shard.growth_left < 100 * NEW_VALUE_BYTES, "what is there already is not counted again"


def test_many_short_arguments_count_as_what_they_become() -> None:
    shard = new_shard(argument_bytes_max=1 << 20)
    script = "for i = 1, 1e9 do redis.call('HSET', 'h', {}) end".replace(
        "{}", ", ".join(f"{j} .. i, 1" for j in range(25))
    )
    with pytest.raises(ScriptTimeout, match="bytes handed to redis"):
        evaluate(shard, script)
    assert shard.execute((b"HLEN", b"h")) < 10_000


ENTRIES = "for i = 1, 2000 do redis.call('XADD', 's', i .. '-1', 'a', 'b') end "
LONG_COMMANDS = {
    "INFO": "for i = 1, 3000 do redis.call('SET', i, 1, 'EX', 100) end while true do redis.call('INFO') end",
    "MEMORY USAGE": "for i = 1, 3000 do redis.call('HSET', 'h', i, i) end while true do redis.call('MEMORY', "
        "'USAGE', 'h') end",
    "XRANGE": ENTRIES + "for i = 1, 2000 do if i % 50 > 0 then redis.call('XDEL', 's', i .. '-1') end end "
    "while true do redis.call('XRANGE', 's', '-', '+', 'COUNT', 30) end",
    "XPENDING": ENTRIES + "redis.call('XGROUP', 'CREATE', 's', 'g', '0') redis.call('XREADGROUP', 'GROUP', 'g', 'c', "
        "'STREAMS', 's', '>') "
    "while true do redis.call('XPENDING', 's', 'g', 'IDLE', 100000, '-', '+', 10) end",
    "INCRBYFLOAT": "while true do redis.call('SET', 'k', 0) redis.call('INCRBYFLOAT', 'k', '1e4000') end",
}  # fmt: skip


@pytest.mark.parametrize("script", LONG_COMMANDS.values(), ids=LONG_COMMANDS.keys())
def test_a_long_command_is_charged(script: str) -> None:
    shard = new_shard(work_max=2_000_000, instructions_max=10_000_000)
    with pytest.raises(ScriptTimeout, match="limit of work"):
        evaluate(shard, script)
