"""EVAL, EVALSHA, SCRIPT: arguments, the script cache, shebang flags, transactions."""

from __future__ import annotations

import hashlib
from itertools import product
from typing import TYPE_CHECKING

import pytest

from orderlab.sim.redis.replies import ErrorReply, UnhashableReply
from orderlab.sim.redis.shard import Shard

if TYPE_CHECKING:
    from conftest import Judge

Command = tuple[bytes, ...]


def sha(script: bytes) -> bytes:
    return hashlib.sha1(script).hexdigest().encode()


def words(*commands: bytes) -> list[Command]:
    return [tuple(command.split()) for command in commands]


ARGUMENTS: list[Command] = [
    (),
    (b"return 1",),
    *((b"return 1", count) for count in (b"x", b"-1", b"0", b"1", b"1.5", b"", b" 0", b"99999999999999999999")),
    (b"return 1", b"2", b"a"),
    (b"return KEYS", b"1", b"a", b"b"),
    (b"return ARGV", b"1", b"a", b"b"),
    (b"return {#KEYS, #ARGV}", b"2", b"a", b"b"),
    (b"return {KEYS[1], ARGV[1]}", b"1", b"\0\xff", b""),
]
COMMANDS = (b"EVAL", b"EVAL_RO", b"EVALSHA", b"EVALSHA_RO", b"eval")
ARGUMENT_CASES = [(command, *arguments) for command, arguments in product(COMMANDS, ARGUMENTS)]

SET = b"return redis.call('set', KEYS[1], ARGV[1])"
CACHE_CASES: list[Command] = [
    (b"EVALSHA", sha(SET), b"1", b"k", b"v"),
    (b"SCRIPT", b"EXISTS", sha(SET)),
    (b"SCRIPT", b"LOAD", SET),
    (b"SCRIPT", b"EXISTS", sha(SET), sha(b"x"), sha(SET).upper(), b"zz"),
    (b"EVALSHA", sha(SET), b"1", b"k", b"v"),
    (b"EVALSHA", sha(SET).upper(), b"1", b"k", b"v"),
    (b"EVALSHA_RO", sha(SET), b"1", b"k", b"v"),
    (b"EVAL_RO", SET, b"1", b"k", b"v"),
    (b"EVALSHA", b"short", b"x"),
    (b"EVALSHA", sha(SET), b"x"),
    (b"EVALSHA", sha(SET), b"5"),
    (b"SCRIPT", b"FLUSH"),
    (b"EVALSHA", sha(SET), b"1", b"k", b"v"),
    (b"SCRIPT", b"LOAD", b"x x"),
    (b"SCRIPT", b"LOAD", b"return 1", b"y"),
    *words(
        b"SCRIPT FLUSH SYNC", b"SCRIPT FLUSH async", b"SCRIPT FLUSH X", b"SCRIPT FLUSH SYNC X", b"script exists",
        b"SCRIPT LOAD", b"SCRIPT", b"SCRIPT KILL", b"SCRIPT KILL x", b"SCRIPT NOSUCH", b"SCRIPT DEBUG",
    ),
]  # fmt: skip

READ_ONLY_CASES: list[Command] = [
    (command, script, b"1", b"k")
    for command in (b"EVAL", b"EVAL_RO")
    for script in (
        b"return redis.call('get', KEYS[1])", b"return redis.call('set', KEYS[1], 1)",
        b"return redis.pcall('set', KEYS[1], 1)", b"return redis.call('publish', 'a', 'b')",
        b"return redis.call('expire', KEYS[1], 100)",
    )
]  # fmt: skip

SHEBANGS = [
    b"#!lua\nreturn 1",
    b"#!lua flags=no-writes\nreturn redis.call('set', 'a', 'b')",
    b"#!lua flags=no-writes\nreturn redis.call('get', 'a')",
    b"#!lua flags=\nreturn 1",
    b"#!lua flags=bad\nreturn 1",
    b"#!lua flags=no-writes,allow-oom,allow-stale,no-cluster,allow-cross-slot-keys\nreturn 1",
    b"#!lua flags=no-writes flags=allow-oom\nreturn 1",
    b"#!lua flags=no-writes,\nreturn 1",
    b"#!lua flags=,no-writes\nreturn 1",
    b"#!lua flags=no_writes\nreturn 1",
    b"#!lua name=x\nreturn 1",
    b"#!lua name\nreturn 1",
    b"#!python\nreturn 1",
    b"#! lua\nreturn 1",
    b"#!\nreturn 1",
    b"#!lua",
    b"#!",
    b"#!LUA\nreturn 1",
    b"#!luaX\nreturn 1",
    b" #!lua\nreturn 1",
    b"#!lua\r\nreturn 1",
    b"#!lua\0x\nreturn 1",
    b'#!"lua"\nreturn 1',
    b'"#!lua"\nreturn 1',
    b"#!lua\tflags=no-writes\nreturn redis.pcall('set', 'a', 1)",
    b"#!lua  flags=allow-oom   \nreturn 5",
    b'#!lua "flags=no-writes"\nreturn redis.pcall("set", "a", 1)',
    b"#!lua 'flags=no-writes'\nreturn redis.pcall('set', 'a', 1)",
    b'#!lua "flags\nreturn 5',
    b'#!lua flags="no-writes"\nreturn redis.pcall("set", "a", 1)',
    b'#!lua flags=no-writes"x"\nreturn 1',
    b"#!lua 'fl\\'ags'\nreturn 1",
    b'#!lua "fl\\x61gs=no-writes"\nreturn redis.pcall("set", "a", 1)',
    b'#!lua "a\\n\\r\\t\\b\\a\\q"\nreturn 1',
    b"#!lua\n\nerror('x')",
    b"#!lua\nreturn redis.call('nosuch')",
]
BODIES = [
    b"x x",
    b"return",
    b"",
    b"\0return 1",
    b"return 1\0 garbage",
    b"\x1bLua",
    b"\n\n\nx x",
    b"-- c\nreturn KEYS[1]",
]
SHEBANG_CASES: list[Command] = [
    command
    for script in SHEBANGS + BODIES
    for command in ((b"EVAL", script, b"0"), (b"SCRIPT", b"LOAD", script), (b"EVAL_RO", script, b"0"))
]

TRANSACTION_CASES: list[Command] = [
    (b"MULTI",),
    (b"EVAL", b"return redis.call('set', 'mm', 1)", b"0"),
    (b"EVALSHA", sha(b"nope"), b"0"),
    (b"SCRIPT", b"LOAD", b"return 7"),
    (b"EXEC",),
    (b"MULTI",),
    (b"EVAL", b"return 1"),
    (b"EXEC",),
]

MANY = tuple(b"k%d" % number for number in range(10_000))
SIZE_CASES: list[Command] = [
    (b"EVAL", b"return {#KEYS, #ARGV, KEYS[150], ARGV[50]}", b"150", *MANY[:200]),
    (b"EVAL", b"return {#KEYS, #ARGV, KEYS[9000], ARGV[50]}", b"9000", *MANY),
    (b"EVAL", b"return {#KEYS, #ARGV, ARGV[9000]}", b"0", *MANY),
    (b"EVAL", b"local t = {} for i = 1, 10000 do t[i] = i end return t", b"0"),
    (b"EVAL", b"local t = {} for i = 1, 10000 do t[i] = {i, 'x'} end return t", b"0"),
    (b"EVAL", b"for i = 1, 9000 do redis.call('rpush', 'big', i) end return #redis.call('lrange', 'big', 0, -1)", b"0"),
    (b"EVAL", b"return redis.call('lrange', 'big', 0, -1)", b"0"),
    (b"EVAL", b"return string.rep('x', 3000000)", b"0"),
]


@pytest.mark.server
@pytest.mark.parametrize("resp", [2, 3])
@pytest.mark.parametrize(
    "commands",
    [ARGUMENT_CASES, CACHE_CASES, READ_ONLY_CASES, SHEBANG_CASES, TRANSACTION_CASES, SIZE_CASES],
    ids=["arguments", "cache", "read-only", "shebang", "transaction", "size"],
)
def test_a_server_replies_the_same(judge: Judge, commands: list[Command], resp: int) -> None:
    found = judge.differences(commands, resp)
    assert not found, "\n".join(found)


def test_the_kernel_has_no_debugger() -> None:
    shard = Shard()
    assert shard.execute((b"SCRIPT", b"DEBUG", b"no")) == b"OK"
    assert shard.execute((b"SCRIPT", b"DEBUG", b"YES")) == ErrorReply(b"ERR Use SCRIPT DEBUG YES/SYNC/NO")


def test_scripts_survive_what_the_keyspace_does_not() -> None:
    shard = Shard()
    mark = shard.snapshot()
    assert shard.execute((b"SCRIPT", b"LOAD", SET)) == sha(SET)
    shard.execute((b"EVALSHA", sha(SET), b"1", b"k", b"v"))
    shard.rollback(mark)
    shard.execute((b"FLUSHALL",))
    assert shard.execute((b"SCRIPT", b"EXISTS", sha(SET))) == [1]
    assert shard.execute((b"GET", b"k")) is None


def test_a_failing_script_keeps_what_it_wrote() -> None:
    shard = Shard()
    reply = shard.execute((b"EVAL", b"redis.call('set', 'a', 1) redis.call('nosuch')", b"0"))
    assert isinstance(reply, ErrorReply)
    assert shard.execute((b"GET", b"a")) == b"1"


def test_time_stands_still_in_a_script() -> None:
    shard = Shard()
    shard.now_ms = 1_700_000_000_123
    script = (
        b"local a = redis.call('time') for i = 1, 1000 do end local b = redis.call('time') return {a[1], b[1], "
        b"a[2], b[2]}"
    )
    assert shard.execute((b"EVAL", script, b"0")) == [b"1700000000", b"1700000000", b"123000", b"123000"]


@pytest.mark.parametrize(
    "now_us",
    [0, 999_999, 1_000_000, 1_700_000_000_123_456, (1 << 52) - 1, 1 << 52, 9_999_999_999_999_999, 10**18 + 999_999],
)
@pytest.mark.parametrize("name", ["TIME", "time", "tImE"])
def test_a_script_reads_the_clock_of_the_shard(now_us: int, name: str) -> None:
    """TIME in capitals is answered without leaving Lua; whatever the spelling and the year, it is the same answer."""
    shard = Shard()
    shard.now_ms, shard.now_us = divmod(now_us, 1000)
    script = b"return redis.call('%b')" % name.encode()
    expected = shard.execute((b"TIME",))
    assert expected == [b"%d" % (now_us // 10**6), b"%d" % (now_us % 10**6)]
    assert shard.execute((b"EVAL", script, b"0")) == expected
    shard.effects = []
    assert shard.execute((b"EVAL", script, b"0")) == expected
    assert next(effect.argv[0] for effect in shard.effects) == name.encode()
    shard.effects = None
    shard.now_ms += 1
    assert shard.execute((b"EVAL", script, b"0")) == shard.execute((b"TIME",)) != expected


def test_the_clock_takes_no_argument() -> None:
    shard = Shard()
    for arguments in (b"''", b"nil, 1"):
        reply = shard.execute((b"EVAL", b"return redis.call('TIME', %b)" % arguments, b"0"))
        assert isinstance(reply, ErrorReply), arguments
    reply = shard.execute((b"EVAL", b"return redis.call('TIME', nil)", b"0"))
    assert isinstance(reply, ErrorReply)
    assert b"must be strings or integers" in reply.message


def test_a_key_nested_too_deep_for_python_is_told() -> None:
    shard = Shard()
    shard.execute((b"HELLO", b"3"))
    script = b"local t = {1} for _ = 1, %d do t = {t} end return {set = {[t] = true}}"
    assert isinstance(shard.execute((b"EVAL", script % 150, b"0")), set)
    with pytest.raises(UnhashableReply, match="nested deeper than 200 levels"):
        shard.execute((b"EVAL", script % 3000, b"0"))
    assert shard.execute((b"EVAL", b"return 1", b"0")) == 1
