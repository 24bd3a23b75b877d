"""Scripts with marked values do what the kernel's own runs do, and know what is done with their arguments."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from orderlab.properties.shadow.marked import (
    BRANCH,
    CALCULATED,
    EQUALITY,
    KEY,
    MEASURED,
    ORDERED,
)
from orderlab.properties.shadow.running import Shadowed, compare, run_in_shadow
from orderlab.properties.shadow.solver import Solver
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.stores.binding.results import Script, ScriptCall


def call_of(source: str, args: tuple[str, ...] = (), keys: tuple[str, ...] = ("k",)) -> ScriptCall:
    script = Script("s.lua", source.encode(), Path("s.lua"))
    return ScriptCall("op", script, tuple(map(str.encode, keys)), tuple(map(str.encode, args)))


def seen(source: str, args: tuple[str, ...] = (), setup: tuple[tuple[str, ...], ...] = ()) -> Shadowed:
    """A shadow run that was compared with the kernel's own."""
    backend, kernel = KernelBackend(), KernelBackend()
    for argv in setup:
        for each in (backend, kernel):
            each.execute(*map(str.encode, argv))
    call = call_of(source, args)
    shadow = run_in_shadow(call, backend)
    reply = kernel.eval(call.script.source, call.keys, call.args)
    compare(shadow, backend.keyspace(), kernel.keyspace(), reply)
    return shadow


SCRIPTS = (
    "local n = 0 for i = 10, 1, -3 do n = n + i end return n",
    "local t = {} for i = 1, 5 do t[#t + 1] = i * 2 end table.remove(t, 2) table.insert(t, 1, 9) return t",
    "local function f(a, ...) local b = {...} return a + #b, select('#', ...) end return {f(1, 2, 3)}",
    "local s = 'a,b,,c' local t = {} for w in string.gmatch(s, '%a') do t[#t + 1] = w end return s:upper() .. #t",
    "local ok, e = pcall(function() return 1 + {} end) return ok and 1 or type(e)",
    "local n = 0 repeat local z = n + 1 n = z until z == 3 return tostring(1e15) .. tostring(0.1) .. 2^53",
    "redis.call('HSET', KEYS[1], 'a', 1, 'b', 2) local t = redis.call('HGETALL', KEYS[1]) return {#t, unpack(t)}",
    "redis.call('ZADD', KEYS[1], 1.5, 'm') return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')",
    "local p = cmsgpack.pack({1, 'x', {300, -1, 1.5, 70000}, true}) redis.call('SET', KEYS[1], p) "
    "return cmsgpack.unpack(p)[3]",
    'local j = cjson.decode(\'{"a": [1, 2, null], "b": "x"}\') return {j.a[2], j.b, cjson.encode({1, \'/\', 2.5})}',
    "local t = {3, 1, 2} table.sort(t, function(a, b) return a > b end) return t",
    "return {7 % 3, -7 % 3, 7 % -3, math.floor(-1.5), math.max(1, 5, 2), math.min(4, 2), tonumber('0x10'), "
    "tonumber(' 5 '), tonumber('x')}",
    "while true do if redis.call('INCR', KEYS[1]) >= 3 then break end end return redis.call('GET', KEYS[1])",
    "return redis.pcall('INCR', KEYS[1], 'x').err and redis.error_reply('E a') or redis.status_reply('OK')",
    "local a, b = 1 if not b then a, b = b, a end return {tostring(a), b, type(nil), type({}), type(pairs)}",
    "return string.format('%05d|%s|%.2f', 42, 'x', 1.005) .. ([[\nlong]]) .. '\\065\\n'",
)


@pytest.mark.parametrize("source", SCRIPTS)
def test_a_shadow_does_what_the_kernel_does(source: str) -> None:
    shadow = seen(source)
    assert not shadow.why_not


def test_a_shadow_that_does_otherwise_is_seen() -> None:
    backend, kernel = KernelBackend(), KernelBackend()
    shadow = run_in_shadow(call_of("redis.call('SET', KEYS[1], ARGV[1]) return 1", ("a",)), backend)
    kernel.execute(b"SET", b"k", b"b")
    compare(shadow, backend.keyspace(), kernel.keyspace(), 1)
    assert shadow.why_not == "the shadow did otherwise than the kernel"


@pytest.mark.parametrize(
    ("source", "uses"),
    [
        ("redis.call('SET', KEYS[1], ARGV[1]) return 1", set()),
        ("redis.call('HSET', KEYS[1], 'f', cmsgpack.pack({ARGV[1]})) return 1", set()),
        ("redis.call('HSET', KEYS[1], ARGV[1], 1) return 1", {EQUALITY}),
        ("redis.call('ZADD', KEYS[1], 1, ARGV[1]) return 1", {EQUALITY, ORDERED}),
        ("if ARGV[1] == 'x' then return 1 end", {EQUALITY, BRANCH}),
        ("if tonumber(ARGV[1]) < 5 then return 1 end", {ORDERED, BRANCH}),
        ("return tonumber(ARGV[1]) + 1", {CALCULATED}),
        ("return redis.call('GET', 'a' .. ARGV[1])", {KEY}),
        ("return #ARGV[1]", {MEASURED}),
    ],
)
def test_what_is_done_with_an_argument(source: str, uses: set[str]) -> None:
    shadow = seen(source, ("7",))
    assert not shadow.why_not
    assert shadow.path.uses.get(1, set()) == uses


MOVES = ("SET k {}", "RPUSH k {}", "HSET k f {}", "SETEX k 9 {}")
TRIES = ("HSET k {} 1", "SADD k {}", "ZADD k 1 {}")


def test_renaming_what_is_only_moved_changes_nothing_but_itself() -> None:
    """The second way to see it: scripts drawn by a seed, run with two payloads."""
    draw = random.Random("moved")
    for _ in range(40):
        lines = []
        for number in range(draw.randint(1, 4)):
            command = draw.choice(MOVES + TRIES if draw.random() < 0.3 else MOVES)
            words = ", ".join("ARGV[1]" if word == "{}" else f"'{word}'" for word in command.split())
            lines.append(f"redis.call({words.replace(chr(39) + 'k' + chr(39), f'KEYS[1] .. {number}')})")
        if draw.random() < 0.3:
            lines.append("if ARGV[1] > 'm' then redis.call('SET', KEYS[1], 1) end")
        source = "\n".join([*lines, "return 1"])
        keyspaces = []
        for payload in ("aaa", "zzz"):
            backend = KernelBackend()
            backend.eval(source.encode(), (b"k",), (payload.encode(),))
            keyspaces.append(repr(sorted(backend.keyspace().items())).replace(payload, "PAYLOAD"))
        if not seen(source, ("aaa",)).path.uses.get(1):
            assert keyspaces[0] == keyspaces[1], source


@pytest.mark.parametrize(
    ("source", "args", "setup", "values"),
    [
        ("if ARGV[1] * 3 + 2 == 413 then return 1 end", ("5",), (), {137}),
        ("if tonumber(ARGV[1]) > 5003 then return 1 end", ("5",), (), {5003, 5004, 5005}),
        ("redis.call('SET', KEYS[1], 1, 'EX', math.floor(ARGV[1] / 1000)) return 1", ("5000",), (), {999, 5001}),
        ("redis.call('ZADD', KEYS[1], ARGV[1] * 4096, 'm') return 1", ("5",), (), {2**41}),
        ("if redis.call('LLEN', KEYS[1]) % 211 == 210 then return 1 end", (), (("RPUSH", "k", "a"),), {209, 210, 211}),
        ("return redis.call('LRANGE', KEYS[1], 0, 136)", (), (("RPUSH", "k", "a"),), {137, 138, 139}),
        ("local t = redis.call('LRANGE', KEYS[1], 0, -1) return {unpack(t)}", (), (("RPUSH", "k", "a"),), {7999, 8000}),
        ("if #ARGV[1] > 311 then return 1 end", ("abc",), (), {311, 312, 313}),
        ("for i = 1, redis.call('LLEN', KEYS[1]), 137 do end", (), (("RPUSH", "k", "a", "b"),), {137, 138}),
    ],
)
def test_both_sides_of_a_condition_are_solved_for(
    source: str, args: tuple[str, ...], setup: tuple[tuple[str, ...], ...], values: set[int]
) -> None:
    pytest.importorskip("z3")
    shadow = seen(source, args, setup)
    assert not shadow.why_not
    assert values <= {target.value for target in Solver().targets(shadow.path)}


def test_what_is_not_followed_is_said() -> None:
    assert seen("return redis.sha1hex('a')").why_not == "it uses redis.sha1hex or redis.setresp"
