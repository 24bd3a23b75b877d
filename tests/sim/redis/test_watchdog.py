"""Scripts that nothing in their own process can stop end as an answer of the parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orderlab.child import asked_to_end
from orderlab.exit_codes import _defect
from orderlab.model.errors import InputError
from orderlab.sim.redis.lua import watchdog
from orderlab.sim.redis.lua.watchdog import Finished, RunningScript, Unfinished, watch
from orderlab.sim.redis.replies import Reply
from orderlab.sim.redis.shard import Shard


def run(script: bytes, *keys_and_args: bytes, keys: int = 0) -> Reply:
    reply = Shard().execute((b"EVAL", script, b"%d" % keys, *keys_and_args))
    return reply if not isinstance(reply, Exception) else repr(reply)


def test_work_that_ends() -> None:
    assert watch(lambda: run(b"return ARGV[1]", b"x")) == Finished(b"x")


def test_work_that_ends_its_process_has_no_answer() -> None:
    with pytest.raises(InputError, match=r"os._exit\(0\), without a verdict"):
        watch(lambda: os._exit(0))


def test_large_values_pass() -> None:
    assert watch(lambda: b"x" * 3_000_000) == Finished(b"x" * 3_000_000)


def test_errors_of_the_work_are_raised_here() -> None:
    def fail() -> None:
        raise InputError("store.toml: no such file")

    with pytest.raises(InputError, match="no such file"):
        watch(fail)


class NotPicklable(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__("odd")


def test_errors_that_cannot_travel_are_told() -> None:
    def fail() -> None:
        raise NotPicklable(1, 2)

    with pytest.raises(RuntimeError, match="NotPicklable: odd") as found:
        watch(fail)
    assert watchdog.IN_CHILD in found.value.__notes__[0]
    assert f"{watchdog.IN_CHILD}{__file__}:" in _defect(found.value)


ENDLESS = {
    "a pattern that backtracks": b"return string.find(string.rep('a', 40), string.rep('a?', 40) .. "
    b"string.rep('a', 40))",
    "patterns of many repetitions": b"return string.find(string.rep('a', 5000), string.rep('.*', 12) .. 'b')",
    "nothing, repeated": b"for i = 1, 1e9 do string.rep('', 2147483647) end",
}


@pytest.mark.parametrize("script", ENDLESS.values(), ids=ENDLESS.keys())
def test_endless_calls_of_the_library(script: bytes) -> None:
    result = watch(lambda: run(script, b"key", b"argument", keys=1), script_seconds_max=0.2, seconds_max=900)
    assert isinstance(result, Unfinished)
    assert result.reason == "the script did not end"
    assert result.script is not None
    assert (result.script.keys, result.script.args) == ((b"key",), (b"argument",))
    assert result.script.name == Shard().execute((b"SCRIPT", b"LOAD", script))
    assert result.seconds > 0.2


def test_a_slow_pattern_that_ends() -> None:
    script = b"return string.find(string.rep('a', 12), string.rep('a?', 12) .. string.rep('a', 12))"
    assert watch(lambda: run(script), script_seconds_max=600) == Finished(1)


def test_many_scripts_may_take_longer_than_one_may() -> None:
    def work() -> int:
        shard = Shard()
        argv = (b"EVAL", b"local n = 0 for i = 1, 200000 do n = n + i end return 1", b"0")
        return sum(shard.execute(argv) for _ in range(60))

    assert watch(work, script_seconds_max=0.5) == Finished(60)


def test_work_without_a_script_ends_at_its_deadline() -> None:
    def work() -> None:
        while True:
            pass

    result = watch(work, seconds_max=0.2)
    assert result == Unfinished("the work did not end", None, result.seconds)  # type: ignore[union-attr]


def test_a_crash_names_its_script() -> None:
    def work() -> None:
        assert watchdog.current is not None
        watchdog.current.begin(b"sha", [b"k"], [b"a"])
        os.kill(os.getpid(), signal.SIGSEGV)

    reason = "the process of the script died: killed by SIGSEGV"
    assert watch(work) == Unfinished(reason, RunningScript(b"sha", (b"k",), (b"a",)), 0.0, died=True)


def test_a_crash_between_scripts_names_none() -> None:
    def work() -> None:
        run(b"return 1")
        os._exit(3)

    assert watch(work) == Unfinished("the process of the script died: exit status 3", None, 0.0, died=True)


def test_arguments_too_long_to_note_are_left_out() -> None:
    def work() -> None:
        assert watchdog.current is not None
        watchdog.current.begin(b"sha", [], [b"x" * (2 << 20)])
        os.abort()

    result = watch(work)
    assert isinstance(result, Unfinished)
    assert result.script == RunningScript(b"sha", (), ())


def test_address_space_is_limited() -> None:
    def take(size: int) -> Callable[[], int]:
        return lambda: len(bytearray(size))

    assert watch(take(1 << 28), memory_bytes_max=4 << 30) == Finished(1 << 28)
    with pytest.raises(MemoryError):  # far more than this process may have freed and kept, which no limit sees
        watch(take(1 << 34), memory_bytes_max=64 << 20)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent is gone")
def test_a_child_does_not_outlive_its_parent(tmp_path: Path) -> None:
    """The pipe that both hold ends when the last of them does."""
    program = (
        "import os, sys, time\n"
        "from orderlab.sim.redis.lua.watchdog import watch\n"
        "def work():\n"
        "    os.write(1, b'begun')\n"
        "    while True: time.sleep(1)\n"
        "watch(work, seconds_max=600)\n"
    )
    root = Path(__file__).parents[3]
    with subprocess.Popen([sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.read(5) == b"begun"
        parent.kill()
        assert parent.stdout.read() == b""


@pytest.fixture
def ticking() -> Iterator[None]:
    """This process is interrupted now and then, as by Ctrl-C."""
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3, 0.3)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        asked_to_end.clear()


def until_asked() -> str:
    while not asked_to_end:
        time.sleep(0.01)
    return "what is known"


@pytest.mark.usefixtures("ticking")
def test_work_that_is_interrupted_answers_with_what_it_knows() -> None:
    assert watch(until_asked, in_order=True) == Finished("what is known")
    assert asked_to_end == [signal.SIGINT], "work that is begun after it shall be short"


@pytest.mark.usefixtures("ticking")
def test_interrupted_twice_it_ends_at_once() -> None:
    with pytest.raises(KeyboardInterrupt):
        watch(lambda: time.sleep(60), in_order=True)
    asked_to_end.clear()
    with pytest.raises(KeyboardInterrupt):
        watch(until_asked)


def test_the_answer_of_a_child_is_there_while_those_of_other_threads_go_on(tmp_path: Path) -> None:
    """No child holds the pipe of another, however many are made at once."""
    over = tmp_path / "over"

    def until_it_is_over() -> bool:
        while not over.exists():
            time.sleep(0.01)
        return True

    with ThreadPoolExecutor(16) as pool:
        children = [pool.submit(watch, work) for work in [until_it_is_over, lambda: False] * 8]
        try:
            assert [each.result(timeout=60) for each in children[1::2]] == [Finished(False)] * 8
        finally:
            over.touch()
        assert [each.result() for each in children[::2]] == [Finished(True)] * 8
