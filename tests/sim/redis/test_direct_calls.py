"""What scripts do to ``call.c`` on purpose: the lock of the interpreter, references and exceptions come out whole."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lupa.lua51 as lupa
import pytest

from orderlab.sim.native import build as compiling
from orderlab.sim.native import install as compiled
from orderlab.sim.redis.lua.host import LuaHost, host_of
from orderlab.sim.redis.lua.sandbox import LIBRARIES, SCRIPT_FILES, Direct, Limits, Sandbox
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import Shard


@pytest.fixture(autouse=True, scope="module")
def machine_code() -> Iterator[None]:
    """The library alone, where this process runs interpreted."""
    try:
        place = compiling.build()
    except compiling.CannotCompile as reason:
        pytest.fail(f"machine code cannot be tested here: {reason}")
    patch = pytest.MonkeyPatch()
    patch.setattr(compiled, "library", lambda text: compiled.library_in(place, text))
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
    sandbox.install(SCRIPT_FILES, {"take": take}, {}, Direct(function, slot))
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


@pytest.mark.parametrize("result", [Text(b"x"), 1 << 63, object(), [], (), (None,) * 9, (True, Text(b"x")), (True, 1 << 64)])
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


def test_the_library_lies_beside_its_text() -> None:
    assert compiled.library(LIBRARIES / "call.c").exists()


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
        reply = evaluate(shard, f"cjson.encode_sparse_array(true, {setting}, {setting}) return cjson.encode({{[3] = 1, [9] = 2}})")
        assert isinstance(reply, bytes)
    runtime = lupa.LuaRuntime(encoding=None, unpack_returned_tuples=True)
    library = str(compiled.library(LIBRARIES / "json.c")).encode()
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
"""
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
    assert b"," not in b"".join(Shard().execute((b"EVAL", NUMBERS.replace(b"cjson.encode({0.75, 1e100})", b"1"), b"0"))[:3])
