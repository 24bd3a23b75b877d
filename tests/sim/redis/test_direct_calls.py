"""What scripts do to ``call.c`` on purpose: the lock of the interpreter, references and exceptions come out whole."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import lupa.lua51 as lupa
import pytest

from orderlab.sim.native import build as compiling
from orderlab.sim.native import choose
from orderlab.sim.native import install as compiled
from orderlab.sim.redis.conditions import ScriptTimeout
from orderlab.sim.redis.lua.host import LuaHost, host_of
from orderlab.sim.redis.lua.limits import Limits
from orderlab.sim.redis.lua.sandbox import LIBRARIES, SCRIPT_FILES, Direct, Sandbox
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import Shard, execute_all


@pytest.fixture(autouse=True, scope="module")
def machine_code() -> Iterator[None]:
    """The library alone, where this process runs interpreted."""
    try:
        place = compiling.build()
    except compiling.CannotCompile as reason:
        pytest.fail(f"machine code cannot be tested here: {reason}")
    patch = pytest.MonkeyPatch()
    patch.setattr(choose, "library", lambda text: compiled.library_in(place, text))
    yield
    patch.undo()


def evaluate(shard: Shard, script: str) -> Reply:
    return shard.execute((b"EVAL", script.encode(), b"0"))


def is_direct(shard: Shard) -> bool:
    return host_of(shard)._engine.sandbox.function("direct_call") is not None


def caller_of(function: Any) -> tuple[Any, list[Any]]:
    """redis.call of a runtime that leads to ``function``, and what lupa is asked to take."""
    slot: list[Any] = [None]
    taken: list[Any] = []

    def take() -> tuple[None, bytes]:
        taken.append(slot[0])
        return None, b"full"

    sandbox = Sandbox(Limits())
    of_version = {"has": lambda *release: True, "text": lambda text: text, "is_valkey": lambda: False}
    sandbox.install(SCRIPT_FILES, {"take": take, **of_version}, {}, Direct(function, slot))
    return sandbox.function("libraries")[b"redis"][b"call"], taken


@pytest.mark.parametrize(
    ("given", "argv"),
    [
        ((b"x",), (b"x",)),
        ((b"", b"a\0b"), (b"", b"a\0b")),
        ((b"x", 1, -1, 0, -0.0, 10**14, 10**15, 2**53, 2.5), (b"x", b"1", b"-1", b"0", b"-0", b"100000000000000",
         b"1000000000000000", b"9007199254740992", b"2.5")),
        ((1e17, -1e16, 2.0**63, 1e100, 5e-324, 0.1), (b"1e+17", b"-10000000000000000", b"9.2233720368547758e+18",
         b"1e+100", b"4.9406564584124654e-324", b"0.10000000000000001")),
        ((float("inf"), -float("inf"), float("nan")), (b"inf", b"-inf", b"nan")),
        ((b"y" * 1000,) * 1000, (b"y" * 1000,) * 1000),
    ],
)  # fmt: skip
def test_arguments_are_texts_and_counted(given: tuple[Any, ...], argv: tuple[bytes, ...]) -> None:
    heard: list[Any] = []
    call, _ = caller_of(lambda *received: heard.append(received))
    call(*given)
    assert heard == [(argv, sum(map(len, argv)))]


@pytest.mark.parametrize(
    "result", [b"", b"a\0b", 0, -1, 2**53, False, b"x" * (1 << 20), -0.5], ids=lambda result: str(result)[:20]
)
def test_plain_results_are_returned(result: Any) -> None:
    call, taken = caller_of(lambda argv, size: result)
    assert call(b"x") == result
    assert not taken


def test_arrays_are_tables() -> None:
    for items in ((), (b"a",), (b"a", False, 3), tuple(range(4000))):
        call, taken = caller_of(lambda argv, size, items=items: (True, *items) if items else True)
        assert tuple(call(b"x").values()) == items
        assert not taken


class Text(bytes):
    """Not what its type says."""


@pytest.mark.parametrize(
    "result", [Text(b"x"), 1 << 63, object(), [], (), (None,) * 9, (True, Text(b"x")), (True, 1 << 64)]
)
def test_what_is_not_plain_is_left_to_lupa(result: Any) -> None:
    call, taken = caller_of(lambda argv, size: result)
    with pytest.raises(lupa.LuaError, match="not enough memory"):
        call(b"x")
    assert taken == [result]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RecursionError("deep"), MemoryError()])
def test_an_exception_waits_in_the_slot(error: BaseException) -> None:
    def fail(argv: Any, size: int) -> None:
        raise error

    call, taken = caller_of(fail)
    for _ in range(3):
        with pytest.raises(lupa.LuaError, match="not enough memory"):
            call(b"x")
    assert taken == [error] * 3


def test_an_exception_ends_the_script() -> None:
    shard = Shard()
    assert is_direct(shard)
    engine = host_of(shard)._engine
    slot = engine._slot
    slot[0] = KeyboardInterrupt()
    assert engine._take() == (None, b"abort")
    assert slot == [None]
    assert isinstance(engine._stopped, KeyboardInterrupt)


LEAKS = {
    "texts": "redis.call('SET', 'k', 'v') redis.call('GET', 'k')",
    "numbers": "redis.call('SET', 'k', i % 7) redis.call('SET', 'k', 0.1) redis.call('INCRBY', 'n', 1)",
    "arrays": "redis.call('MGET', 'k', 'none') redis.call('HGETALL', 'h') redis.call('LRANGE', 'none', 0, -1)",
    "errors": "redis.pcall('GET') redis.pcall('INCR', 'k') pcall(redis.call, 'LPUSH', 'k', 1)",
    "what is slow": "redis.pcall('GET', {}) redis.pcall() redis.pcall('HSCAN', 'h', 0)",
    "a coroutine": "coroutine.wrap(function() redis.call('GET', 'k') end)()",
}


@pytest.mark.parametrize("body", LEAKS.values(), ids=LEAKS.keys())
def test_no_reference_is_kept(body: str) -> None:
    shard = Shard()
    assert is_direct(shard)
    evaluate(shard, "redis.call('HSET', 'h', 'f', 'v')")
    script = f"for i = 1, 1500 do {body} end return 1"
    counts = []
    gc.collect()
    gc.freeze()  # what other tests hold takes long to go through
    try:
        for _ in range(4):
            assert evaluate(shard, script) == 1
            gc.collect()
            counts.append(sys.getallocatedblocks())
    finally:
        gc.unfreeze()
    assert counts[3] - counts[1] < 300, counts


def test_full_memory_in_the_middle_of_a_call_leaves_no_lock_behind() -> None:
    """Results are pushed while another thread needs the interpreter: if the lock were kept, it would wait for ever."""
    shard = Shard()
    shard.lua_host = LuaHost(shard, Limits(memory_bytes_max=8 << 20))
    assert is_direct(shard)
    shard.execute((b"SET", b"k", b"x" * (1 << 20)))
    for _ in range(5):
        reply = evaluate(shard, "local t = {} while true do t[#t + 1] = redis.call('GET', 'k') .. #t end")
        assert isinstance(reply, ErrorReply)
        assert b"not enough memory" in reply.message
        assert evaluate(shard, "return #redis.call('GET', 'k')") == 1 << 20
    done = threading.Event()
    threading.Thread(target=done.set).start()
    assert done.wait(60)


def test_an_error_of_memory_while_results_are_pushed_is_an_error_of_the_script() -> None:
    """Nothing keeps a result of the true function so large; here one is."""
    results = [(True, *[b"%d" % i * (1 << 20) for i in range(200)]), b"small"]
    call, taken = caller_of(lambda argv, size: results[len(argv) - 1])
    for _ in range(3):
        with pytest.raises(lupa.LuaMemoryError):
            call(b"x")
        assert call(b"x", b"y") == b"small"
    assert not taken


def test_threads_with_states_of_their_own_do_not_disturb_each_other() -> None:
    script = "for i = 1, 20000 do redis.call('INCR', 'n') redis.call('SET', 'k', i) end return redis.call('GET', 'n')"
    replies: dict[int, Reply] = {}

    def work(number: int) -> None:
        replies[number] = evaluate(Shard(), script)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert replies == dict.fromkeys(range(4), b"20000")


WORDS = ("k", "l", "z", "h", "s", "none", "1", "-1", "0", "2.5", "a\\0b", "x" * 70)
NUMBERS_GIVEN = ("1", "0", "-3", "2^53", "0.1", "-0.0", "1e300", "0/0", "1/0", "7")
COMMANDS = (
    "GET k",
    "SET k ?",
    "SET k ? EX 10",
    "SET k ? NX",
    "DEL k l",
    "INCR k",
    "INCRBY k ?",
    "INCRBYFLOAT k ?",
    "APPEND k ?",
    "STRLEN k",
    "MGET k none",
    "ZADD z ? ?",
    "ZADD z 1 ? 2 ?",
    "ZREM z ?",
    "ZCARD z",
    "ZSCORE z ?",
    "ZRANGE z 0 -1 WITHSCORES",
    "ZREVRANGE z 0 0 WITHSCORES",
    "ZRANDMEMBER none",
    "HSET h ? ?",
    "HGET h ?",
    "HMGET h ? ?",
    "HGETALL h",
    "HDEL h ?",
    "LPUSH l ?",
    "LRANGE l 0 -1",
    "LPOP l",
    "SADD s ?",
    "SMEMBERS s",
    "TYPE k",
    "EXPIRE k ?",
    "TTL k",
    "PERSIST k",
    "EXISTS k l z",
    "TIME",
    "TIME extra",
    "PING",
    "ECHO ?",
    "get k",
    "Get k",
    "NOSUCH k",
    "GET",
    "EVAL x 0",
    "SUBSCRIBE c",
    "CONFIG GET maxmemory",
    "OBJECT ENCODING k",
    "GETRANGE k 0 -1",
    "SETRANGE k 5000 ?",
    "SELECT 1",
    "RENAME none l",
    "SETBIT k 7 1",
    "ZADD z 3 m",
    "ZADD z 7 n",
    "ZREM z m",
    "ZADD h 1 m",
    "DEL z",
    "DEL k",
    "EXPIRE z 2",
    "EXPIRE k 2",
    "SET z ?",
    "SET k ? EX 2",
    "GET z",
    "RENAME z k",
)


def some_script(draw: random.Random) -> str:
    """A script of calls, some of which fail; it returns what it has seen of them."""

    def argument(word: str) -> str:
        if word != "?":
            return f"'{word}'"
        return draw.choice(NUMBERS_GIVEN) if draw.random() < 0.4 else f"'{draw.choice(WORDS)}'"

    lines = ["local seen = {}"]
    for _ in range(draw.randrange(1, 12)):
        words = ", ".join(map(argument, draw.choice(COMMANDS).split()))
        shape = draw.random()
        if shape < 0.6:
            lines.append(f"seen[#seen + 1] = redis.pcall({words})")
        elif shape < 0.75:
            lines.append(f"seen[#seen + 1] = {{pcall(redis.call, {words})}}")
        elif shape < 0.8:
            lines.append(f"redis.setresp({draw.choice((2, 3))})")
        elif shape < 0.85:
            lines.append(f"seen[#seen + 1] = coroutine.wrap(function() return redis.pcall({words}) end)()")
        elif shape < 0.88:
            lines.append(
                "local many = {} for i = 1, 40 do many[2 * i - 1], many[2 * i] = i, 'm' .. i end redis.call('ZADD', "
                "'m', unpack(many))"
            )
        elif shape < 0.9:
            lines.append(f"seen[#seen + 1] = redis.pcall({words}, {{}})")
        else:
            lines.append(f"seen[#seen + 1] = redis.call({words})")
    returned = draw.choice(
        (
            "seen",
            "#seen",
            "seen[1]",
            "redis.call('GET', 'k')",
            "{1, 'a', 2.5}",
            "{1, 'a', false}",
            "nil",
            "true",
            "KEYS[1] .. ARGV[1]",
            "{KEYS[2], ARGV[2]}",
        )
    )
    return "\n".join([*lines, f"return {returned}"])


def outcome_of(shard: Shard, script: bytes) -> tuple[Any, ...]:
    """All that a run leaves: the reply, or the error with its line, the keys, and what the run took."""
    before = shard.work, shard.charged, shard.dirty
    reply = shard.execute((b"EVAL", script, b"2", b"k1", b"k2", b"v1", b"2"))
    taken = tuple(now - then for now, then in zip((shard.work, shard.charged, shard.dirty), before, strict=True))
    return repr(reply), taken, shard.freeze(), shard.database, shard.resp


def test_a_script_runs_alike_with_and_without_lupa() -> None:
    """Generated scripts, run one after another in three nodes: straight, by lupa, and while their effects are
    recorded."""
    straight, by_lupa, recorded = Shard(), Shard(), Shard()
    host_of(by_lupa)._engine._fast_path = None
    fast_path = host_of(straight)._engine._fast_path
    assert fast_path is not None
    runs: list[Any] = []
    host_of(straight)._engine._fast_path = fast_path._replace(
        run=lambda *given: runs.append(fast_path.run(*given)) or runs[-1]
    )
    draw = random.Random(20)
    for number in range(400):
        script = some_script(draw).encode()
        for shard in (straight, by_lupa, recorded):
            shard.now_ms = 1_700_000_000_000 + number * 3000
        recorded.effects = []
        expected = outcome_of(by_lupa, script)
        assert outcome_of(straight, script) == expected, script.decode()
        reply, _, *state = outcome_of(recorded, script)  # TIME is a call like any other then, and counted
        assert [reply, *state] == [expected[0], *expected[2:]], script.decode()
    assert len(runs) == 400
    assert NotImplemented not in runs


def test_scripts_of_a_pipeline_run_as_each_alone() -> None:
    """The same for lines of EVALSHA that come together: their replies, the keys, and what they took."""
    together, alone = Shard(), Shard()
    host_of(alone)._engine._fast_path = None
    draw = random.Random(21)
    for number in range(60):
        lines: list[tuple[bytes, ...]] = []
        for _ in range(draw.randrange(1, 8)):
            source = (
                draw.choice((b"", b"#!lua\n", b"collectgarbage('setpause', 300)\n") if number % 9 == 8 else (b"",))
                + some_script(draw).encode()
            )
            _, sha = (host_of(shard).load(source).sha for shard in (together, alone))
            lines.append((b"EVALSHA", sha, draw.choice((b"2", b"0", b"4", b"02", b"x")), b"k1", b"k2", b"v1", b"2"))
            if draw.random() < 0.1:
                lines.append(draw.choice(((b"GET", b"k"), (b"EVALSHA", b"none", b"0"), (b"EVALSHA",))))
        seen = []
        for shard in (together, alone):
            shard.now_ms = 1_700_000_000_000 + number * 3000
            before = shard.work, shard.charged, shard.dirty
            replies = (
                execute_all(shard, lines)
                if shard is together
                else [reply for line in lines for reply in execute_all(shard, [line])]
            )
            taken = tuple(
                now - then for now, then in zip((shard.work, shard.charged, shard.dirty), before, strict=True)
            )
            seen.append((repr(replies), taken, shard.freeze(), shard.database, shard.resp, shard.work_max))
        assert seen[0] == seen[1], lines


def test_a_limit_ends_a_pipeline_at_the_same_call() -> None:
    seen = []
    for is_straight in (True, False):
        shard = Shard()
        shard.lua_host = LuaHost(shard, Limits(argument_bytes_max=2000))
        if not is_straight:
            host_of(shard)._engine._fast_path = None
        sha = (
            host_of(shard)
            .load(b"for i = 1, tonumber(ARGV[1]) do redis.call('INCR', 'k') redis.pcall('HSCAN', 'h', 0) end return 1")
            .sha
        )
        for count in (b"3", b"19", b"3"):
            try:
                end = repr(execute_all(shard, [(b"EVALSHA", sha, b"0", each) for each in (b"2", b"4", count, b"3")]))
            except ScriptTimeout as limit:
                end = str(limit)
            seen.append((is_straight, end, shard.execute((b"GET", b"k")), shard.work, shard.work_max))
    assert [one[1:] for one in seen[:3]] == [one[1:] for one in seen[3:]]
    assert "bytes" in seen[1][1]


@pytest.mark.parametrize(("bytes_max", "memory_max"), [(400, 128 << 20), (5000, 128 << 20), (128 << 20, 4 << 20)])
def test_limits_end_a_script_at_the_same_call_with_and_without_lupa(bytes_max: int, memory_max: int) -> None:
    left = []
    for is_straight in (True, False):
        shard = Shard()
        shard.lua_host = LuaHost(shard, Limits(argument_bytes_max=bytes_max, memory_bytes_max=memory_max))
        if not is_straight:
            host_of(shard)._engine._fast_path = None
        script = (
            "local t = {} for i = 1, 200 do redis.call('SET', 'k', i) t[i] = string.rep('y', 100000) .. i "
            "redis.pcall('HSCAN', 'h', 0) end"
        )
        try:
            end = repr(evaluate(shard, script))
        except ScriptTimeout as limit:
            end = str(limit)
        left.append((end, shard.execute((b"GET", b"k")), shard.work))
    assert left[0] == left[1]
    assert left[0][1] != b"200"


DEEP = (
    "string.gsub('a', 'a', f)",
    "redis.pcall('PING') redis.pcall('GET') string.gsub('a', 'a', f)",
    "table.sort({1, 2}, function() f() return false end)",
    "local ok, message = pcall(f) if not ok then error(message) end",
    "f()",
)


@pytest.mark.parametrize("body", DEEP)
def test_calls_nest_as_deep_with_and_without_lupa(body: str) -> None:
    """Lua counts the functions of C that lie on one another, those of its caller too."""
    replies = []
    for is_straight in (True, False):
        shard = Shard()
        if not is_straight:
            host_of(shard)._engine._fast_path = None
        script = (
            f"local depth = 0 local function f() depth = depth + 1 {body} end local _, message = pcall(f) "
            f"return {{depth, message}}"
        )
        replies.append(evaluate(shard, script))
    assert replies[0] == replies[1]
    assert isinstance(replies[0], list)
    assert b"stack overflow" in cast(bytes, replies[0][1])


def test_a_closed_state_gives_its_memory_back() -> None:
    """The pool of small blocks goes with the state: forty that held 10 MB each fit where four do."""
    script = b"local t = {} for i = 1, 100000 do t[i] = 'item ' .. i end return #t"
    peaks = []
    for states in (4, 40):
        text = f"""
import gc, resource
from orderlab.sim.native import install
install.install()
from orderlab.sim.redis.shard import Shard
for _ in range({states}):
    assert Shard().execute((b"EVAL", {script!r}, b"0")) == 100000
    gc.collect()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
        run = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True, text=True)
        peaks.append(int(run.stdout))
    assert peaks[1] < peaks[0] + (60 << 10), peaks


def test_the_library_lies_beside_its_text() -> None:
    assert choose.library(LIBRARIES / "call.c").exists()


def test_a_state_serves_one_thread_at_a_time() -> None:
    shard = Shard()
    evaluate(shard, "return 1")
    engine = host_of(shard)._engine
    begun, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        numbers = engine._enter()
        begun.set()
        go_on.wait(60)
        engine._leave(numbers)

    other = threading.Thread(target=hold)
    other.start()
    assert begun.wait(60)
    with pytest.raises(RuntimeError, match="one script at a time"):
        evaluate(shard, "return 1")
    go_on.set()
    other.join()
    assert evaluate(shard, "return 1") == 1, "one thread after another is no harm"


def test_settings_out_of_range_reach_no_cast_of_c() -> None:
    shard = Shard()
    open_json = host_of(shard)._engine.sandbox._host[b"open_json"]
    assert open_json is not None
    for setting in ("1", "2147483647"):
        reply = evaluate(
            shard, f"cjson.encode_sparse_array(true, {setting}, {setting}) return cjson.encode({{[3] = 1, [9] = 2}})"
        )
        assert isinstance(reply, bytes)
    runtime = lupa.LuaRuntime(encoding=None, unpack_returned_tuples=True)
    library = str(choose.library(LIBRARIES / "json.c")).encode()
    read, write = runtime.execute(b"return package.loadlib(..., 'orderlab_json')(nil, {})", library)
    table = runtime.eval(b"{1, 2}")
    for wild in (float("nan"), float("-inf"), float("inf"), -1.0, 1e300, -1e300):
        assert read(b"1", wild) == (True, 1)
        assert write(table, wild, 0.0, 0.0) in (None, b"[1,2]")
        assert write(table, 1000.0, wild, wild) in (None, b"[1,2]")


NUMBERS = b"""
local decoded = cjson.decode('[0.25, 1e-3, "a"]')
redis.call('SET', 'k', 0.5)
return {tostring(1.5), 2.5 .. '', tonumber('3.5') .. '', cjson.encode({0.75, 1e100}), decoded[1] .. '', decoded[2] .. '',
  redis.call('GET', 'k'), string.format('%.2f', 4.125), loadstring('return 5.5')() .. '', redis.call('INCRBYFLOAT', 'f', 0.1),
  cmsgpack.unpack(cmsgpack.pack(6.5)) .. '', struct.unpack('d', struct.pack('d', 7.5)) .. '', math.floor('8.5') .. ''}
"""  # noqa: E501
UNDER_A_LOCALE = """
import locale, os, sys
name = locale.setlocale(locale.LC_ALL, sys.argv[1])
assert locale.localeconv()["decimal_point"] == ",", name
from orderlab.sim import compiled
if sys.argv[2] == "compiled":
    compiled.install()
from orderlab.sim.redis.shard import Shard
script = sys.stdin.buffer.read()
print(Shard().execute((b"EVAL", script, b"0")))
assert locale.localeconv()["decimal_point"] == ","
"""


@pytest.mark.parametrize("kind", ["compiled", "interpreted"])
def test_numbers_have_a_point_under_every_locale(tmp_path: Path, kind: str) -> None:
    """The locale is made here: few machines have one with a comma."""
    made = subprocess.run(
        ["localedef", "-i", "de_DE", "-f", "UTF-8", str(tmp_path / "de_DE.UTF-8")], capture_output=True, check=False
    )
    assert (tmp_path / "de_DE.UTF-8").exists(), f"no locale to test with; apt-get install locales ({made.stderr!r})"
    run = subprocess.run(
        [sys.executable, "-c", UNDER_A_LOCALE, "de_DE.UTF-8", kind],
        input=NUMBERS, capture_output=True, check=False, env={**os.environ, "LOCPATH": str(tmp_path)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr.decode()
    assert run.stdout.decode().strip() == repr(Shard().execute((b"EVAL", NUMBERS, b"0")))
    assert b"," not in b"".join(
        Shard().execute((b"EVAL", NUMBERS.replace(b"cjson.encode({0.75, 1e100})", b"1"), b"0"))[:3]
    )
