"""Scripts that try to get out, to leave something behind, or to use up the machine.

An escape attempt returns what it got hold of; ``CONTRABAND`` is what no script may ever see. After each attempt the
next script must find everything as it was.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from orderlab.sim.redis.conditions import ScriptTimeout
from orderlab.sim.redis.lua.host import LuaHost
from orderlab.sim.redis.lua.limits import Limits
from orderlab.sim.redis.lua.sandbox import (
    FUNCTION_FILES,
    LIBRARIES,
    OP_GETGLOBAL,
    OP_SETGLOBAL,
    Sandbox,
    code_of,
    functions_of,
)
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import Shard

LIMITS = Limits(instructions_max=2_000_000, seconds_max=1.0, memory_bytes_max=16 << 20, argument_bytes_max=32 << 20)

ESCAPES = {
    "the table of lupa": "return tostring(rawget(_G, 'python'))",
    "the table of lupa by walking": "for k, v in pairs(_G) do if type(v) == 'userdata' then return k end end",
    "python.eval": "return python.eval('1+1')",
    "python.builtins": "return python.builtins.open('/etc/passwd').read()",
    "os.execute": "return os.execute('id')",
    "os.getenv": "return os.getenv('PATH')",
    "io.open": "return io.open('/etc/passwd'):read('*a')",
    "io.popen": "return io.popen('id'):read('*a')",
    "require": "return require('os')",
    "package.loaded": "return tostring(package.loaded.os)",
    "package.loadlib": "return package.loadlib('libc.so.6', 'system')",
    "module": "module('x', package.seeall) return tostring(os)",
    "dofile": "return dofile('/etc/passwd')",
    "loadfile": "return tostring(loadfile('/etc/passwd'))",
    "newproxy": "local p = newproxy(true) return tostring(getmetatable(p))",
    "getfenv of a function": "return tostring(getfenv(redis.call).python)",
    "getfenv of a level": "for i = 0, 9 do local ok, e = pcall(getfenv, i) if ok and rawget(e, 'python') then return "
        "i end end",
    "setfenv": "setfenv(1, {redis = 1})",
    "setfenv of the host": "setfenv(redis.call, setmetatable({}, {__index = function(t, k) return k end}))",
    "debug.getupvalue": "return tostring(debug.getupvalue(redis.call, 1))",
    "debug.getregistry": "return tostring(debug.getregistry())",
    "debug from the error handler": "return tostring(__redis__err__handler('x').dbg)",
    "attributes of redis.call": "return tostring(redis.call.__globals__)",
    "items of redis.call": "return tostring(redis.call['__class__'])",
    "attributes of a reply": "return tostring(redis.call('get', 'nokey').__class__)",
    "attributes of an integer reply": "return tostring((redis.call('exists', 'k')).__class__)",
    "attributes of a status": "return tostring(redis.call('set', 'k', 'v').__class__)",
    "attributes of a string reply": "return tostring(redis.call('echo', 'x').__class__)",
    "attributes of JSON null": "return tostring(cjson.null.__class__)",
    "calling JSON null": "return cjson.null()",
    "writing to JSON null": "cjson.null.x = 1",
    "the metatable of JSON null": "return type(getmetatable(cjson.null))",
    "a Python exception by pcall": "return type(select(2, pcall(redis.call, {}, {}, {})))",
    "a Python exception by a bad reply": "return type(select(2, pcall(cjson.decode, string.rep('[', 100000))))",
    "a Python exception by xpcall": "return xpcall(function() cmsgpack.unpack('\\193') end, function(e) return "
        "type(e) end)",
    "a Python exception by a coroutine": "return type(select(2, coroutine.resume(coroutine.create(redis.call), 'x')))",
    "a Python object as an argument": "return redis.call('echo', cjson.null)",
    "a table as an argument": "return redis.call('echo', setmetatable({}, {__tostring = function() return 'x' end}))",
    "a function as an argument": "return redis.call('echo', function() end)",
    "a coroutine as an argument": "return redis.call('echo', coroutine.create(function() end))",
    "bytecode": "return tostring(loadstring('\\27Lua'))",
    "bytecode of a dump": "return tostring(loadstring(string.dump(function() return 1 end)))",
    "bytecode in pieces": "local s, i = string.dump(function() return 1 end), 0 "
    "return tostring(load(function() i = i + 1 if i <= #s then return s:sub(i, i) end end))",
    "a dump of a host function": "return #string.dump(redis.call)",
    "a dump of pcall": "return #string.dump(pcall)",
    "a dump of what cjson.new made": "return tostring(loadstring(string.dump(cjson.new().encode)))",
    "marks of the tree builder": "local t = cmsgpack.unpack('\\129\\128\\1') for k in pairs(t) do return type(k) end",
    "the environment of a chunk": "return tostring(loadstring('return python')())",
    "the environment of a coroutine": "return coroutine.wrap(function() return tostring(rawget(_G, 'python')) end)()",
    "an upvalue by a metamethod": "return tostring(getmetatable(_G).__index(getmetatable(_G), 'python'))",
    "the iterator of pairs": "local f, s, c = pairs(redis) return tostring(s == redis) .. type(c)",
    "the table behind a stand-in": "local f, s = pairs(string) s.format = 1",
    "next with a forged state": "local k = next(redis) return tostring(next({[k] = 'own'}, nil) == k)",
    "a place forged as the host's": "loadstring('error(\"host:1: x\")', '=host')()",
    "a userdata with a finalizer": "setmetatable({}, {__gc = function() python.eval('1') end}) collectgarbage() "
        "return 1",
}  # fmt: skip
CONTRABAND = re.compile(
    rb"<built-in|<function|<class|<module|<bound|object at 0x|root:|uid=|POBJECT|lupa|Traceback|PyObject|__builtins__"
)
ALLOWED = {
    b"nil", b"function", b"string", b"table", b"false", b"truenil", b"true", b"nilnil", 1, None, b"OK", b"number",
}  # fmt: skip

POISON = {
    "a global": "x = 1",
    "a global by rawset": "rawset(_G, 'x', 1)",
    "a global by a loaded chunk": "loadstring('x = 1')()",
    "a field of a library": "string.format = function() return 'poison' end",
    "a field by rawset": "rawset(string, 'rep', nil)",
    "a field by table.insert": "table.insert(redis, 'poison')",
    "a field by position": "table.insert(redis, 1, 'poison')",
    "a field by pairs": "for k in pairs(math) do math[k] = nil end",
    "a field by table.foreach": "table.foreach(table, function(k) table[k] = nil end)",
    "redis.call": "redis.call = function() return 'poison' end",
    "the metatable of strings": "getmetatable('').__index = function() return 'poison' end",
    "a new metamethod of strings": "getmetatable('').__add = function() return 'poison' end",
    "the string library by the metatable": "getmetatable('').__index.rep = nil",
    "the metatable of globals": "getmetatable(_G).__index = function() return 'poison' end",
    "a metatable for a library": "setmetatable(redis, {__index = function() return 'poison' end})",
    "a metatable for globals": "setmetatable(_G, {__newindex = rawset})",
    "the metatable of a metatable": "setmetatable(getmetatable(_G), {__newindex = rawset})",
    "a metatable for JSON null": "setmetatable(cjson.null, {__index = {}})",
    "cjson.null": "cjson.null = 1",
    "a new cjson module": "local c = cjson.new() c.encode = nil c.null = nil",
    "KEYS of the next script": "KEYS.poison = 1 ARGV[7] = 'poison'",
    "a metatable for KEYS": "setmetatable(KEYS, {__index = function() return 'poison' end})",
    "the collector": "collectgarbage('stop') collectgarbage('setpause', 100000)",
    "a library sorted": "table.sort(redis)",
    "a library emptied": "while table.remove(math) do end",
    "a thread left suspended": "coroutine.wrap(function() KEYS = coroutine.yield() end)()",
}

HEALTH = b"""
local names = {}
for _, name in ipairs({'_G', 'string', 'table', 'math', 'redis', 'cjson', 'cmsgpack', 'struct', 'bit', 'coroutine'}) do
  for field, value in pairs(name == '_G' and _G or _G[name]) do
    names[#names + 1] = name .. '.' .. tostring(field) .. ':' .. type(value)
  end
  names[#names + 1] = name .. #_G[name] .. type(getmetatable(_G[name]))
end
table.sort(names)
names[#names + 1] = ('%s=%d'):format('a', 5) .. ('x'):rep(3) .. #KEYS .. #ARGV .. tostring(KEYS[1]) .. tostring(ARGV[7])
names[#names + 1] = tostring(getmetatable(KEYS)) .. tostring(KEYS.poison) .. tostring(rawget(_G, 'x'))
names[#names + 1] = cjson.encode({a = cjson.null}) .. cjson.encode(cjson.decode('[1,{"b":null}]')) .. tostring(pcall(error))
names[#names + 1] = tostring(pcall(function() return ('x') + 1 end)) .. redis.call('echo', 'alive')
return names
"""  # noqa: E501


def new_shard(limits: Limits = LIMITS) -> Shard:
    shard = Shard()
    shard.lua_host = LuaHost(shard, limits)
    return shard


def evaluate(shard: Shard, script: str) -> Reply:
    return shard.execute((b"EVAL", script.encode("latin-1"), b"1", b"key", b"argument"))


@pytest.fixture(scope="module")
def healthy() -> Reply:
    names = new_shard().execute((b"EVAL", HEALTH, b"0"))
    assert len(names) > 150
    return names


def health(shard: Shard) -> Reply:
    return shard.execute((b"EVAL", HEALTH, b"0"))


@pytest.mark.parametrize("attempt", ESCAPES.values(), ids=ESCAPES.keys())
def test_no_way_out(attempt: str, healthy: Reply) -> None:
    shard = new_shard()
    reply = evaluate(shard, attempt)
    text = reply.message if isinstance(reply, ErrorReply) else repr(reply).encode()
    assert not CONTRABAND.search(text), text
    assert isinstance(reply, ErrorReply) or reply in ALLOWED, reply
    assert health(shard) == healthy


@pytest.mark.parametrize("attempt", POISON.values(), ids=POISON.keys())
def test_nothing_is_left_behind(attempt: str, healthy: Reply) -> None:
    shard = new_shard()
    evaluate(shard, attempt)
    evaluate(shard, f"pcall(function() {attempt} end)")
    assert health(shard) == healthy


def test_the_health_check_sees_poison() -> None:
    shard = new_shard()
    healthy = health(shard)
    shard.execute((b"EVAL", b"cjson.encode_max_depth(1)", b"0"))
    assert health(shard) != healthy, "settings of cjson do stay, as on a server"


# -- exhaustion
# ----------------------------------------------------------------------------------------------------------

ENDLESS = {
    "a loop": "while true do end",
    "a loop of pcall": "while true do pcall(error) end",
    "a loop after a caught loop": "pcall(function() while true do end end) while true do end",
    "a loop in a loop of pcall": "while true do pcall(function() while true do end end) end",
    "a loop in the error handler": "xpcall(error, function() while true do end end)",
    "a loop in the handler of a loop": "xpcall(function() while true do end end, function() while true do end end)",
    "a tail call": "local function f() return f() end f()",
    "a loop in a coroutine": "coroutine.wrap(function() while true do end end)()",
    "a loop in a coroutine, caught": "while true do coroutine.resume(coroutine.create(function() while true do end "
        "end)) end",
    "a loop over short coroutines": "while true do coroutine.wrap(function() for i = 1, 100 do end end)() end",
    "a coroutine resumed for ever": "local f = coroutine.wrap(function() while true do coroutine.yield() end end) "
        "while true do f() end",
    "a loop in a metamethod": "return setmetatable({}, {__index = function() while true do end end}).x",
    "a loop in a comparison": "table.sort({3, 2, 1}, function() while true do end end)",
    "a loop in a replacement": "string.gsub('x', 'x', function() while true do end end)",
    "a loop in an iterator": "for x in function() return 1 end do end",
    "a loop in a reader": "load(function() while true do end end)",
    "a reader that goes on": "load(function() return 'x = 1 ' end)",
    "a loop in a loaded chunk": "loadstring('while true do end')()",
    "redis.call for ever": "while true do redis.call('ping') end",
    "redis.pcall for ever": "while true do redis.pcall('nosuch') end",
    "a reply of exponential size": "local t = {} t[1] = t t[2] = t return t",
    "a map of exponential size": "local t = {} t.map = {t, t, a = t} return t",
    "JSON of exponential size": "local t = {} for i = 1, 30 do t = {t, t} end return cjson.encode(t)",
    "JSON of numbers, read for ever": "local s = '[' .. string.rep('1,', 5e5) .. '1]' while true do "
        "cjson.decode(s) end",
    "JSON of emptied tables, for ever": "local t, a = {}, {} for i = 1, 6e4 do t['k' .. i] = 1 end for k in pairs(t) "
        "do t[k] = nil end "
    "for i = 1, 240 do a[i] = t end while true do cjson.encode(a) end",
    "MessagePack of exponential size": "local t = {} t[1] = t t[2] = t t[3] = t t[4] = t return cmsgpack.pack(t)",
    "a host function for ever": "while true do cjson.encode({}) end",
    "long strings, copied for ever": "local s = string.rep('x', 1e6) while true do s = s:reverse() end",
    "a megabyte of arguments": "local s = string.rep('x', 1e6) for i = 1, 100 do redis.call('echo', s) end",
}  # fmt: skip


@pytest.mark.parametrize("attempt", ENDLESS.values(), ids=ENDLESS.keys())
def test_what_does_not_end_is_ended(attempt: str, healthy: Reply) -> None:
    shard = new_shard()
    with pytest.raises(ScriptTimeout, match="did not end within its limit of"):
        evaluate(shard, attempt)
    assert health(shard) == healthy


OVERSIZED = {
    "a long string": "return string.rep('x', 1e9)",
    "a doubled string": "local s = 'x' while true do s = s .. s end",
    "a table of tables": "local t = {} while true do t[#t + 1] = {} end",
    "a table of coroutines": "local t = {} while true do t[#t + 1] = coroutine.create(function() end) end",
    "a joined table": "local s = string.rep('x', 1e6) local t = {} for i = 1, 1000 do t[i] = s end return "
        "table.concat(t)",
    "a replacement": "return string.gsub(string.rep('x', 1e5), 'x', string.rep('y', 1e4))",
    "a format": "local s = string.rep('x', 4e6) return string.format('%s%s%s%s%s%s%s%s%s%s%s%s%s', s, s, s, s, s, s, "
        "s, s, s, s, s, s, s)",
    "JSON": "local s = string.rep('\\1', 4e6) return cjson.encode({s, s, s, s, s})",
    "MessagePack": "local s = string.rep('x', 4e6) return cmsgpack.pack({s, s, s, s, s, s, s, s, s, s, s, s, s})",
    "memory caught, then a reply": "local t = {} pcall(function() for i = 1, 1e9 do t[i] = string.rep('x', 1e5) .. i "
        "end end) "
    "return redis.call('echo', string.rep('x', 1000))",
    "memory caught, then a library": "local t = {} pcall(function() for i = 1, 1e9 do t[i] = string.rep('x', 1e5) .. "
        "i end end) "
    "return bit.tohex(1)",
    "a large reply, many times": "redis.call('set', 'k', string.rep('x', 4e6)) local t = {} "
    "for i = 1, 100 do t[i] = redis.call('get', 'k') .. i end return #t",
    "a source that grows": "local s = 'return 1' while true do s = s .. ' --' .. s loadstring(s) end",
}  # fmt: skip


@pytest.mark.parametrize("attempt", OVERSIZED.values(), ids=OVERSIZED.keys())
def test_what_is_too_large_is_an_error(attempt: str, healthy: Reply) -> None:
    shard = new_shard(replace(LIMITS, instructions_max=100_000_000))
    reply = evaluate(shard, attempt)
    assert isinstance(reply, ErrorReply)
    assert b"not enough memory" in reply.message
    assert health(shard) == healthy
    assert shard.lua_host is not None
    assert evaluate(shard, "return #string.rep('x', 1e6)") == 1_000_000


DEEP = {
    "recursion": ("local function f() return 1 + f() end f()", b"stack overflow"),
    "recursion by pcall": ("local function f() return pcall(f) end return tostring(f())", None),
    "recursion in a metamethod": (
        "local t = setmetatable({}, {__newindex = function(t, k, v) t[k] = v end}) t.x = 1",
        b"C stack overflow",
    ),
    "a loop of metatables": ("local t = {} setmetatable(t, {__index = t}) return t.x", b"loop in gettable"),
    "nested parentheses": ("return loadstring(string.rep('(', 1e5))", None),
    "nested coroutines": ("local function f() coroutine.wrap(f)() end f()", b"C stack overflow"),
    "a nested reply": ("local t = 1 for i = 1, 50000 do t = {t} end return #t", None),
    "nested JSON to encode": (
        "local t = 1 for i = 1, 50000 do t = {t} end return cjson.encode(t)",
        b"excessive nesting (1001)",
    ),
    "nested JSON to decode": (
        "return cjson.decode(string.rep('[', 100000))",
        b"too many nested data structures (1001)",
    ),
    "nested MessagePack": (
        "return cmsgpack.unpack(string.rep('\\145', 100000))",
        b"stack overflow (in function mp_decode_to_lua_array)",
    ),
    "a pattern of many items": ("return string.find('a', string.rep('.-', 100000) .. 'b')", b"pattern too complex"),
    "many results": ("return unpack({}, 1, 1e7)", b"too many results to unpack"),
    "huge MessagePack headers": ("return cmsgpack.unpack('\\221\\255\\255\\255\\255')", b"Missing bytes"),
    "a huge structure": ("return struct.pack('i33', 1)", b"integral size 33"),
    "a function with more parameters than stack": (
        "local t = {} for i = 1, 190 do t[i] = 'a' .. i end "
        "return select(2, loadstring('local function f(' .. table.concat(t, ',') .. ', ...) end'))",
        b"function or expression too complex",
    ),
}


@pytest.mark.parametrize(("attempt", "expected"), DEEP.values(), ids=DEEP.keys())
def test_depth_is_bounded(attempt: str, expected: bytes | None, healthy: Reply) -> None:
    shard = new_shard()
    reply = evaluate(shard, attempt)
    text = reply.message if isinstance(reply, ErrorReply) else repr(reply).encode()
    assert expected is None or expected in text, text
    assert health(shard) == healthy


def test_limits_let_ordinary_work_pass() -> None:
    shard = new_shard()
    assert evaluate(shard, "local n = 0 for i = 1, 100000 do n = n + i end return n") == 5_000_050_000
    assert evaluate(shard, "for i = 1, 4000 do redis.call('incr', 'n') end return redis.call('get', 'n')") == b"4000"
    assert evaluate(shard, "local t = {} for i = 1, 50000 do t[i] = 'v' .. i end return #table.concat(t)") == 288_894


def test_a_stopped_script_keeps_what_it_wrote() -> None:
    shard = new_shard()
    with pytest.raises(ScriptTimeout):
        evaluate(shard, "redis.call('set', 'a', 'b') while true do end")
    assert shard.execute((b"GET", b"a")) == b"b"


def test_limits_stop_at_the_same_place_each_time() -> None:
    def counted() -> Reply:
        shard = new_shard()
        with pytest.raises(ScriptTimeout):
            evaluate(shard, "while true do for i = 1, 400 do end redis.call('incr', 'n') end")
        return shard.execute((b"GET", b"n"))

    assert counted() == counted() != b"1"


# -- the trusted files
# ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCTION_FILES)
def test_trusted_functions_use_no_globals(name: str) -> None:
    """The globals are gone once scripts run: what a function needs it must hold in locals."""
    import lupa.lua51 as lupa

    runtime = lupa.LuaRuntime(encoding=None)
    main = runtime.compile((LIBRARIES / f"{name}.lua").read_bytes())
    chunk = runtime.eval(b"string.dump")(main)
    used = [
        function.constants[instruction >> 14]
        for function in functions_of(chunk)[1:]
        for instruction in function.code
        if instruction & 63 in (OP_GETGLOBAL, OP_SETGLOBAL)
    ]
    assert used == []


def test_the_globals_of_the_runtime_are_gone() -> None:
    shard = new_shard()
    assert evaluate(shard, "return 1") == 1
    assert shard.lua_host is not None
    runtime = shard.lua_host._engine.sandbox._runtime
    assert list(runtime.globals().keys()) == []


def test_attributes_are_denied() -> None:
    sandbox = Sandbox(LIMITS)
    f = sandbox._runtime.eval(b"function(object) return object.__class__ end")
    with pytest.raises(AttributeError):
        f(len)


CODE = b"local a, b = 1, 'x'\nfor i = 1, 3 do if a < i then b = b .. i end end\nreturn {a, b, #KEYS == 2}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"\n", b" -- a remark\n\n"),
        (b"a", b"count"),
        (b"b", b"text"),
        (b"  ", b" "),
        (b"for i", b"for  --[[ each ]] i"),
    ],
)
def test_code_is_the_same_without_lines_comments_and_names_of_locals(old: bytes, new: bytes) -> None:
    words = re.sub(rb"\b%s\b" % re.escape(old), lambda _: new, CODE) if old.isalpha() else CODE.replace(old, new)
    assert code_of(words) == code_of(CODE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"1, 'x'", b"2, 'x'"),
        (b"'x'", b"'y'"),
        (b"<", b"<="),
        (b"1, 3", b"1, 3, 2"),
        (b"{a, b", b"{b, a"),
        (b"KEYS", b"ARGV"),
        (b"== 2", b"~= 2"),
        (b"local a, b", b"a, b"),
        (b"3 do", b"3.5 do"),
    ],
)
def test_code_differs_where_any_instruction_or_constant_does(old: bytes, new: bytes) -> None:
    assert old in CODE
    assert code_of(CODE.replace(old, new, 1)) != code_of(CODE)
