"""Generated Lua scripts: calls in all their forms, conversions both ways, the libraries, and errors at every point."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from tests.laboratory.conformance.grammar import KEYS, TEXTS, Argv, Draw

EXPRESSIONS = """
1
-1
3.7
-3.7
0/0
1/0
2^31
2^53
2^63
-2^63
1e100
true
false
nil
'text'
'\\0\\255\\r\\n'
{}
{1, 2, nil, 4}
{1, 2, 3, x = 4}
{1, {2, {3, {}}}, 'a'}
{false, true, 1.9, '1.9'}
{ok = 'FINE'}
{ok = 'two\\r\\nlines'}
{err = 'MYCODE text'}
{err = 'plain'}
{err = ''}
{err = 5}
{ok = 5}
{ok = {}}
{double = 3.5}
{map = {a = 1}}
{big_number = '123'}
{big_number = '-12\\r\\n3x'}
{big_number = 'a\\0b'}
{{big_number = ''}}
{double = 0/0}
{double = -(0/0)}
{{double = -1/0}}
{double = -0}
{verbatim_string = {string = 'a\\0b', format = 'txt'}}
{set = {a = true, [1] = 5}}
redis.error_reply('no code')
redis.error_reply('-CODE dash')
redis.error_reply('ERR full text')
redis.status_reply('GOOD')
redis.sha1hex('x')
redis.sha1hex(12)
#KEYS
#ARGV
KEYS
ARGV
KEYS[1]
ARGV[2]
KEYS[99]
tonumber(ARGV[1])
tonumber('0x10')
tonumber('1e2')
tonumber(' 12 ')
tonumber('12a')
tostring(1e15)
tostring(123456789012345678)
tostring(0.1)
tostring(-0)
tostring(1/0)
tostring(nil)
100 .. ''
2^53 .. ''
1.5 .. 'x'
string.format('%d', 3)
string.format('%5.2f|%s|%q', 3.14159, 'x', 'a"b')
string.format('%.14g', 2^53)
string.rep('ab', 5)
string.byte('A')
string.char(0, 255)
('abc'):sub(2)
('a,b,c'):find(',', 1, true)
('key=val'):match('(%w+)=(%w+)')
('abc'):gsub('%w', '%0%0')
('x'):rep(3, ',')
table.concat({1, 2, 'a'}, '-')
table.getn({1, 2, 3})
#{1, 2, nil, 4}
select('#', unpack({1, 2, 3}))
select(2, 'a', 'b')
pcall(unpack, {}, 0, 2^31 - 1)
pcall(unpack, {}, -2^31, 2^31 - 1)
pcall(unpack, {}, -2^31)
select('#', unpack({}, 2^31 - 2, 2^31 - 1))
select('#', unpack({}, 1, 7000))
pcall(select, -2^31, 1)
table.concat({1}, ',', 2^31 - 1, -2^31)
pcall(table.concat, {1}, ',', -2^31, 1)
table.maxn({[2^53] = 1, [-1] = 2, x = 3})
table.foreachi({1, 2, 3}, function(i, v) if i == 2 then return v * 10 end end)
table.foreach({7}, function(k, v) return k + v end)
(function() local t = {1, 2} table.insert(t, -5, 'x') return #t end)()
(function() local t = {3, 1, 2} table.sort(t) return table.concat(t, ',') end)()
(function() local t = {} for i = 1, 1200 do t[i] = (i * 7919) % 1201 end table.sort(t) return t[600] end)()
string.rep('ab', -2^31)
string.rep('ab', 2^32 + 1)
string.sub('abc', -2^31, 2^31 - 1)
string.byte('abc', -2^31, 2^31)
pcall(string.format, '%100d', 1)
string.gsub('abc', '', '-', 2^32 + 2)
('abc'):find('', 2^31 - 1)
(string.rep('a', 3000) .. 'b'):find('a-b')
(string.rep('ab', 2000)):gsub('a(b)', '%1x', 3)
(string.rep('key=val;', 600)):match('(%w+)=(%w+);$')
pcall(string.match, string.rep('x', 40), string.rep('()', 33))
bit.lshift(1, 2^31)
bit.tohex(-1, -2^31)
pcall(struct.pack, 'i2147483647', 1)
struct.unpack('', 'abc', -2)
struct.unpack('', 'abc', 2^40)
pcall(struct.unpack, 'b', 'abc', -2)
pcall(cmsgpack.unpack_limit, '\\1\\2', 1, 2^31)
cmsgpack.unpack_limit('\\1\\2', 2^31, 0)
pcall(cjson.encode, {[2^31 - 1] = 1})
(function() local t = {} for i = 1, 8100 do t = {t} end return pcall(cjson.encode, t) end)()
unpack({1, 2, 3})
type(redis.call)
type(KEYS)
next({})
math.floor(-3.5)
math.fmod(-7, 3)
-7 % 3
math.max(1, 5, 3)
math.huge
bit.band(0xff, 0x0f)
bit.bor(1, 2^31)
bit.bnot(0)
bit.lshift(1, 31)
bit.arshift(-8, 1)
bit.tohex(255, -4)
bit.tobit(2^32 + 1)
bit.rol(0x12345678, 12)
bit.bswap(0x12345678)
cjson.encode({1, 2, {a = 1}})
cjson.encode({})
cjson.encode({1, nil, 3})
cjson.encode({[1] = 1, [10] = 2})
cjson.encode({x = 1.5})
cjson.encode(0.1)
cjson.encode(1e15)
cjson.encode(123456789012345)
cjson.encode(-0)
cjson.encode('a/b"\\\\\\n\\1\\127')
cjson.encode(true)
cjson.encode(cjson.null)
cjson.encode(1/0)
cjson.decode('[1,2.5,"x",null,true,{"a":[]}]')[2]
cjson.decode('[1,null,3]')
cjson.decode('{"a":{"b":[1,2]}}').a.b
cjson.decode('{"a":null}').a == cjson.null
cjson.decode('"\\\\u00e9\\\\n"')
cjson.decode('[1,')
cjson.decode('nul')
cjson.decode('')
cjson.decode('1e3')
cjson.decode('{"a":1}x')
cjson.encode(cjson.decode('{"k":[{},[],""]}'))
cmsgpack.pack({1, 2, 3})
cmsgpack.pack({a = 1})
cmsgpack.pack(1.5, 'x', nil, true)
cmsgpack.unpack(cmsgpack.pack({1, {2}, 'x'}))
cmsgpack.unpack('\\193')
struct.pack('>I2', 258)
struct.pack('<i4Hs', -1, 7, 'abc')
struct.unpack('>I2', '\\1\\2')
struct.size('>I2I4')
struct.pack('>I9', 1)
pcall(error, 'x')
pcall(error, {err = 'E x'})
pcall(redis.call, 'GET')
pcall(cjson.decode, '{')
select(2, pcall(error, 'a\\0b'))
redis.error_reply('a\\0b')
{err = 'a\\0b'}
redis.pcall('COMMAND', 'GETKEYS', 'EVAL', 'x', ARGV[1] or 1, 'a', 'b')
redis.pcall('COMMAND', 'GETKEYS', 'EVAL', 'x', '1x', 'a')
redis.pcall('COMMAND', 'GETKEYS', 'EVAL', 'x', -1, 'a')
redis.pcall('COMMAND', 'GETKEYS', 'ZUNIONSTORE', 'd', ARGV[1] or 2, 'a', 'b')
redis.pcall('COMMAND', 'GETKEYS', 'LMPOP', 2^53, 'a', 'LEFT')
redis.pcall('COMMAND', 'GETKEYS', 'SINTERCARD', '99999999999999999999', 'a')
redis.pcall('SELECT', 0)
redis.pcall('SELECT', 99)
redis.pcall('DEBUG', 'JMAP')
redis.pcall('DEBUG', 'PROTOCOL', 'double')
loadstring('return 1 + 1')()
setmetatable({}, {__index = function() return 7 end}).x
getmetatable('').__index == string
rawget({5}, 1)
assert(1, 'fine')
os.clock() >= 0
redis.LOG_WARNING
redis.REPL_ALL
redis.replicate_commands()
redis.set_repl(redis.REPL_ALL)
redis.breakpoint()
redis.log(redis.LOG_DEBUG, 'x')
redis.call('ECHO', 12)
redis.call('ECHO', 1.5)
redis.call('ECHO', 1e20)
redis.call('ECHO', -0.1)
redis.call('PING').ok
type(redis.pcall('NOSUCH'))
redis.pcall('NOSUCH', 'x')
redis.pcall('GET')
redis.pcall('GET', 'a', 'b')
redis.pcall()
redis.pcall('GET', {})
redis.pcall('GET', nil)
redis.pcall('GET', true)
redis.pcall('MULTI')
redis.pcall('BLPOP', 'nolist', 0)
redis.pcall('EVAL', 'return 1', 0)
redis.pcall('SCRIPT', 'FLUSH')
redis.pcall('INCR', KEYS[1])
redis.pcall('LPUSH', KEYS[1], 'x').err
""".strip().splitlines()

FAILURES = """
error('custom')
error({err = 'MYERR table'})
error('a\\0b')
error({err = 'a\\0b'})
unpack({}, 0, 2^31 - 1)
struct.unpack('b', 'abc', -2)
string.gsub(string.rep('a', 9000), 'a-%', 'x')
error({err = 'table', x = 1})
error()
error(nil)
error(42)
local x = nil; x.y = 1
local x = nothing_here
global_variable = 1
redis.call('NOSUCH')
redis.call('GET')
redis.call('INCRBY', KEYS[1], 'x')
redis.call('SET', 'k', {})
redis.call()
redis.call({})
redis.error_reply()
redis.error_reply(1)
redis.status_reply()
redis.sha1hex()
redis.setresp(4)
redis.setresp()
redis.log()
redis.log('x', 'y')
KEYS[1]()
local a = {} .. 'x'
local a = 1 + {}
local a = #5
string.rep()
('x'):bad()
tostring()
unpack({}, 1, 1e7)
assert(false, 'asserted')
assert(nil)
redis.x = 1
setmetatable(_G, {})
rawset(_G, 'x', 1)
redis.call = nil
cjson.encode({[1] = 1, [1000] = 1})
cjson.encode({[{}] = 1})
cjson.encode(function() end)
cjson.decode(5)
cjson.decode({})
struct.unpack('>I4', 'x')
cmsgpack.pack()
bit.band()
bit.band('x', 1)
table.concat({{}})
return return
x =
goto done
for
local function f() return f() + 1 end f()
string.dump(function() end)
coroutine.create(function() end)
collectgarbage()
newproxy()
""".strip().splitlines()

ESCAPES = """
print('x')
dofile('x')
require('x')
loadfile('x')
os.exit()
os.time()
io.open('x')
debug.getinfo(1)
""".strip().splitlines()
"""Failures on a server; where there is no sandbox (fakeredis) they reach the machine: ``os.exit()`` ends it."""

SHEBANGS = (
    "#!lua\n",
    "#!lua flags=no-writes\n",
    "#!lua flags=allow-oom,allow-stale\n",
    "#!lua flags=no-cluster\n",
    "#!lua flags=allow-cross-slot-keys\n",
    "#!lua flags=nosuch\n",
    "#!lua name=x\n",
    "#!python\n",
    "#!\n",
)


def literal(argument: bytes) -> str:
    """``argument`` as a Lua string literal."""
    plain = all(32 <= byte < 127 and byte not in b"'\\" for byte in argument)
    return f"'{argument.decode()}'" if plain else "'" + "".join(f"\\{byte:03d}" for byte in argument) + "'"


def call(argv: Argv, draw: Draw) -> str:
    """The arguments of ``redis.call``; canonical integers now and then as Lua numbers."""
    words = []
    for argument in argv:
        is_number = argument.isdigit() and len(argument) < 6 and (argument == b"0" or argument[:1] != b"0")
        words.append(argument.decode() if is_number and draw.random() < 0.5 else literal(argument))
    return ", ".join(words)


def script(draw: Draw, commands: Sequence[Argv], failures: Sequence[str]) -> str:
    """A script that runs ``commands`` and some expressions, keeps what they give, and perhaps fails somewhere."""
    lines = ["local r = {}"]
    fails_at = draw.randrange(2 * len(commands) + 2)
    for index, argv in enumerate(commands):
        if index == fails_at:
            lines.append(failures[draw.randrange(len(failures))])
        function = "redis.call" if draw.random() < 0.35 else "redis.pcall"
        lines.append(f"r[#r + 1] = {function}({call(argv, draw)})")
        if draw.random() < 0.3:
            lines.append(f"r[#r + 1] = {EXPRESSIONS[draw.randrange(len(EXPRESSIONS))]}")
    if draw.random() < 0.1:
        lines.insert(1 + draw.randrange(len(lines)), "redis.setresp(3)")
    lines.append("return r" if draw.random() < 0.7 else f"return {EXPRESSIONS[draw.randrange(len(EXPRESSIONS))]}")
    shebang = SHEBANGS[draw.randrange(len(SHEBANGS))] if draw.random() < 0.08 else ""
    return shebang + "\n".join(lines)


def script_step(draw: Draw, commands: Sequence[Argv], failures: Sequence[str]) -> list[Argv]:
    """A script called in one of the ways in which scripts are called."""
    source = script(draw, commands, failures).encode()
    keys = [KEYS[draw.randrange(len(KEYS))] for _ in range(draw.randrange(3))]
    args = [TEXTS[draw.randrange(len(TEXTS))] for _ in range(draw.randrange(3))]
    number = b"%d" % len(keys)
    if draw.random() < 0.03:
        number = (b"-1", b"99", b"x", b"")[draw.randrange(4)]
    return WAYS[draw.randrange(len(WAYS))](source, (number, *keys, *args))


def _eval(source: bytes, rest: Argv) -> list[Argv]:
    return [(b"EVAL", source, *rest)]


def _eval_ro(source: bytes, rest: Argv) -> list[Argv]:
    return [(b"EVAL_RO", source, *rest)]


def _evalsha(source: bytes, rest: Argv) -> list[Argv]:
    sha = hashlib.sha1(source).hexdigest().encode()
    return [
        (b"SCRIPT", b"LOAD", source),
        (b"EVALSHA", sha, *rest),
        (b"EVALSHA_RO", sha.upper(), *rest),
        (b"SCRIPT", b"EXISTS", sha, b"0" * 40),
    ]


def _function(source: bytes, rest: Argv) -> list[Argv]:
    body = source.split(b"\n", 1)[1] if source.startswith(b"#!") else source
    header = b"#!lua name=lib\nredis.register_function('fun', function(KEYS, ARGV)\n"
    return [
        (b"FUNCTION", b"LOAD", b"REPLACE", header + body + b"\nend)"),
        (b"FCALL", b"fun", *rest),
        (b"FCALL_RO", b"fun", *rest),
        (b"FUNCTION", b"FLUSH"),
    ]


WAYS: Sequence[Callable[[bytes, Argv], list[Argv]]] = (_eval, _eval, _eval, _eval, _eval, _eval_ro, _evalsha, _function)
