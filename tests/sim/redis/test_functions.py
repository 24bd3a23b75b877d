"""FUNCTION and FCALL: how libraries are declared, registered, listed, called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orderlab.sim.redis.lua.host import LuaHost
from orderlab.sim.redis.lua.limits import Limits
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.shard import Shard

if TYPE_CHECKING:
    from conftest import Judge

Command = tuple[bytes, ...]
ECHO = b"#!lua name=lib\nredis.register_function('f', function(keys, args) return {keys, args} end)"


def load(code: bytes, *options: bytes) -> Command:
    return (b"FUNCTION", b"LOAD", *options, code)


METADATA_CASES: list[Command] = [
    load(code)
    for code in (
        b"return 1", b"#!lua\nreturn 1", b"#!lua name=a\nreturn 1", b"#!lua name=a", b"#!js name=a\nx", b"#!js\nx",
        b"#!js name=a-b\nx", b"#!lua name=a b=c\nx", b"#!lua name=a name=b\nx", b"#!lua name=\nx", b"#!lua name=a-b\nx",
        b'#!lua name="a b"\nx', b'#!lua "name=a\nx', b"#!\nx", b"#!lua name=a\nx x", b"#!lua name=a\0\nx",
        b"#!LUA NAME=up\nredis.register_function('u', function() return 1 end)",
    )
]  # fmt: skip

BODIES = [
    b"redis.register_function()",
    b"redis.register_function('g')",
    b"redis.register_function('g', 1)",
    b"redis.register_function('g', 'x')",
    b"redis.register_function(1)",
    b"redis.register_function(nil)",
    b"redis.register_function(1, function() end)",
    b"redis.register_function({}, function() end)",
    b"redis.register_function(function() end, function() end)",
    b"redis.register_function('', function() end)",
    b"redis.register_function('a b', function() end)",
    b"redis.register_function('a\\0b', function() end)",
    b"redis.register_function('g', function() end, 1)",
    b"redis.register_function({'g', function() end})",
    b"redis.register_function('g', function() end) redis.register_function('g', function() end)",
    b"redis.register_function{}",
    b"redis.register_function{function_name='g'}",
    b"redis.register_function{callback=function() end}",
    b"redis.register_function{function_name='g', callback=1}",
    b"redis.register_function{function_name=1, callback=function() end}",
    b"redis.register_function{function_name={}, callback=function() end}",
    b"redis.register_function{function_name='g', callback=function() end, flags=1}",
    b"redis.register_function{function_name='g', callback=function() end, flags={}}",
    b"redis.register_function{function_name='g', callback=function() end, flags={1}}",
    b"redis.register_function{function_name='g', callback=function() end, flags={'x'}}",
    b"redis.register_function{function_name='g', callback=function() end, flags={'no-writes'}, description=1}",
    b"redis.register_function{function_name='g', callback=function() end, description={}}",
    b"redis.register_function{function_name='g', callback=function() end, x=1}",
    b"redis.register_function{function_name='g', callback=function() end, [1]=1}",
    b"redis.register_function{[function() end]=1}",
    b"redis.register_function{Function_Name='vv', CALLBACK=function() end, Flags={'NO-WRITES'}, Description='d d'}",
    b"local r = redis.register_function r('zz', function() end)",
    b"local r = redis.register_function return r()",
    b"return redis.register_function('zz', function() return type end)",
    b"return redis.register_function()",
    b"redis.register_function('a', function() end) error('after')",
    b"redis.register_function(('x'):rep(3), function() end)",
    b"redis.register_function(redis.REDIS_VERSION, function() end)",
    b"('x'):rep()",
    b"x=1",
    b"redis.x=1",
    b"return foo",
    b"local x=_G",
    b"local x=_VERSION",
    b"local x=type",
    b"local x=KEYS",
    b"error('x')",
    b"local x=redis.LOG_DEBUG",
    b"local x=redis.REPL_ALL",
    b"redis.call('get', 'x')",
    b"redis.pcall('get', 'x')",
    b"redis.log(1, 'x')",
    b"redis.log()",
    b"redis.setresp(3)",
    b"local a=nil+1",
    b"\n\nlocal function f() local x=nil+1 end f()",
    b"for i = 1, 1e10 do end",
]
REGISTRATION_CASES: list[Command] = [
    command
    for body in BODIES
    for command in (
        load(b"#!lua name=t\n" + body, b"REPLACE"),
        (b"FUNCTION", b"LIST", b"LIBRARYNAME", b"t"),
        (b"FUNCTION", b"DELETE", b"t"),
    )
]

ONE = b"#!lua name=v\nredis.register_function{function_name='%b', callback=function() return 1 end}"
LIBRARY_CASES: list[Command] = [
    load(ECHO),
    load(ECHO),
    load(ECHO, b"REPLACE"),
    load(ECHO, b"replace", b"REPLACE"),
    load(ECHO, b"X"),
    load(b"#!lua name=lib2\nredis.register_function('f', function() return 1 end)"),
    load(b"#!lua name=lib2\nredis.register_function('F', function() return 1 end)"),
    load(ONE % b"vv"),
    (b"FCALL", b"vv", b"0"),
    load(b"#!lua name=v\nfoo bar", b"REPLACE"),
    (b"FCALL", b"vv", b"0"),
    load(ONE % b"v2", b"REPLACE"),
    (b"FCALL", b"vv", b"0"),
    (b"FCALL", b"V2", b"0"),
    (b"FUNCTION", b"DELETE", b"V"),
    (b"FUNCTION", b"DELETE", b"v"),
    (b"FCALL", b"v2", b"0"),
    *(
        tuple(command.split())
        for command in (
            b"FCALL", b"FCALL f", b"FCALL f 0", b"FCALL f x", b"FCALL f -1", b"FCALL f 2 a", b"FCALL f 1 a b",
            b"FCALL nosuch 0", b"FCALL nosuch x", b"FCALL_RO f 0", b"FCALL F 0", b"FUNCTION LIST",
            b"FUNCTION LIST WITHCODE", b"FUNCTION LIST LIBRARYNAME li*", b"FUNCTION LIST LIBRARYNAME",
            b"FUNCTION LIST X", b"FUNCTION LIST WITHCODE WITHCODE", b"FUNCTION LIST LIBRARYNAME a LIBRARYNAME b",
            b"FUNCTION LIST withcode libraryname LIB", b"FUNCTION STATS", b"FUNCTION KILL", b"FUNCTION DELETE nosuch",
            b"FUNCTION DELETE", b"FUNCTION FLUSH X", b"FUNCTION FLUSH SYNC ASYNC", b"FUNCTION NOSUCH", b"FUNCTION",
            b"FUNCTION LOAD", b"FUNCTION LOAD REPLACE x y", b"FUNCTION FLUSH", b"FUNCTION LIST",
            b"FUNCTION FLUSH SYNC", b"FCALL f 0", b"function flush async",
        )
    ),
    load(b"#!lua name=deep\nlocal n = 0 redis.register_function('cnt', function() n = n + 1 return n end)"),
    (b"FCALL", b"cnt", b"0"),
    (b"FCALL", b"cnt", b"0"),
    (b"FUNCTION", b"STATS"),
    load(ECHO),
    (b"FCALL", b"f", b"150", *(b"k%d" % number for number in range(5000))),
]  # fmt: skip


def callback(body: bytes, flags: bytes = b"") -> list[Command]:
    code = b"redis.register_function{function_name='g', flags={%b}, callback=function(keys, args) %b end}" % (
        flags,
        body,
    )
    arguments = (b"g", b"1", b"kk", b"aa")
    return [load(b"#!lua name=g\n" + code, b"REPLACE"), (b"FCALL", *arguments), (b"FCALL_RO", *arguments)]


CALLBACKS = (
    b"return redis.call('nosuch')",
    b"return foo",
    b"x=1",
    b"return KEYS",
    b"error('x')",
    b"error('x', 2)",
    b"error('x', 3)",
    b"local a=nil+1",
    b"error({err='x'})",
    b"return redis.call('set', 'a', 'b')",
    b"return redis.call('get', 'a')",
    b"return {keys[1], args[1], #keys, #args}",
    b"redis.register_function('h', function() end)",
    b"return redis.register_function",
    b"return redis.setresp(3)",
    b"return redis.REDIS_VERSION",
    b"local t={} for k in pairs(redis) do t[#t+1]=k end table.sort(t) return t",
    b"local t={} for k in pairs(_G) do t[#t+1]=k end table.sort(t) return t",
    b"redis.x=1",
    b"_G.x=1",
    b"math.randomseed(3) return math.random(1000)",
    b"keys[1]='y' return keys",
    b"return redis.call('fcall', 'g', 0)",
    b"return redis.call('eval', 'return 1', 0)",
    b"return pcall(error, 'q')",
    b"return {err='e'}",
    b"return ...",
    b"return loadstring('return foo')()",
    b"return 1, 2",
    b"return nil",
    b"return {1, {2, 3}}",
    b"return true",
    b"redis.setresp(3) return true",
    b"return cjson.encode({a=1})",
    b"return redis.breakpoint",
    b"pairs()",
    b"return pairs()",
)
FLAG_LISTS = (b"'no-writes'", b"'allow-oom'", b"'no-cluster'", b"'allow-stale', 'allow-cross-slot-keys'")
CALL_CASES: list[Command] = [command for body in CALLBACKS for command in callback(body)]
CALL_CASES += [command for flags in FLAG_LISTS for command in callback(b"return redis.pcall('set', 'a', 'b')", flags)]
CALL_CASES.append((b"FUNCTION", b"LIST", b"LIBRARYNAME", b"g"))


@pytest.mark.server
@pytest.mark.parametrize("resp", [2, 3])
@pytest.mark.parametrize(
    "commands",
    [METADATA_CASES, REGISTRATION_CASES, LIBRARY_CASES, CALL_CASES],
    ids=["metadata", "registration", "library", "call"],
)
def test_a_server_replies_the_same(judge: Judge, commands: list[Command], resp: int) -> None:
    found = judge.differences(commands, resp)
    assert not found, "\n".join(found)


def test_a_library_that_does_not_end_is_refused() -> None:
    shard = Shard()
    shard.lua_host = LuaHost(shard, Limits(instructions_max=100_000))
    reply = shard.execute(load(b"#!lua name=t\nwhile true do end"))
    assert reply == ErrorReply(b"ERR Error registering functions: ERR FUNCTION LOAD timeout")
    assert shard.execute(load(ECHO)) == b"lib"
    assert shard.execute((b"FCALL", b"f", b"1", b"k", b"a")) == [[b"k"], [b"a"]]


def test_names_that_differ_in_case_alone_are_refused() -> None:
    """A 7.0.15 server takes them, finds one of the two, and dies when the library is deleted."""
    code = b"#!lua name=t\nredis.register_function('g', function() end) redis.register_function('G', function() end)"
    reply = Shard().execute(load(code))
    assert reply == ErrorReply(b"ERR Error registering functions: ERR Function already exists in the library")


def test_functions_and_scripts_share_neither_globals_nor_settings() -> None:
    shard = Shard()
    setting = b"local before = cjson.encode_max_depth() cjson.encode_max_depth(7) return before"
    shard.execute(load(b"#!lua name=s\nredis.register_function('s', function() " + setting + b" end)"))
    assert [shard.execute((b"FCALL", b"s", b"0")) for _ in range(2)] == [1000, 7]
    assert [shard.execute((b"EVAL", setting, b"0")) for _ in range(2)] == [1000, 7]
    shard.execute((b"SCRIPT", b"FLUSH"))
    assert shard.execute((b"EVAL", setting, b"0")) == 1000


KEEPS_REDIS = b"""#!lua name=keeps
local kept, count = redis, 0
redis.register_function('later', function()
  count = count + 1
  return kept.register_function('added' .. count, function() return 1 end)
end)
redis.register_function('caught', function() return select(2, pcall(kept.register_function, 'x', function() end)) end)
"""
MANY = b"#!lua name=many\nfor i = 1, 3000 do redis.register_function('f' .. i, function() return i end) end"


@pytest.mark.server
def test_what_a_library_keeps_registers_nothing_later(judge: Judge) -> None:
    commands = [
        (b"FUNCTION", b"LOAD", KEEPS_REDIS),
        (b"FCALL", b"later", b"0"),
        (b"FCALL", b"later", b"0"),
        (b"FCALL", b"caught", b"0"),
        (b"FUNCTION", b"STATS"),
        (b"FUNCTION", b"LOAD", MANY),
        (b"FCALL", b"f2999", b"0"),
        (b"FUNCTION", b"STATS"),
    ]
    found = judge.differences(commands)
    assert not found, "\n".join(found)
