"""Pools of threads, locks and queues of the standard library as lanes; what really waits is told and ends."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("greenlet")
pytest.importorskip("redis")

from orderlab.clients import race, scenario
from orderlab.model.errors import InputError
from orderlab.properties.clients import runs
from tests.in_process import orderlab

POOLS = """
import asyncio, queue, threading, random
from concurrent.futures import ThreadPoolExecutor
import redis as redis_py
from orderlab.clients import scenario

KEPT = ThreadPoolExecutor(2)
LOCK = threading.Lock()

def added(redis):
    n = int(redis.get("n") or 0)
    redis.set("n", n + 1)

def both(redis):
    assert redis.get("n") == b"2"

def in_pool(redis):
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: redis.incr("n"), range(2)))

def in_pool_read_then_written(redis):
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: added(redis), range(2)))

def nobody_awaits(redis):
    KEPT.submit(redis.incr, "n")
    KEPT.submit(redis.incr, "n")

def locked(redis):
    def work():
        with LOCK:
            added(redis)
    threads = [threading.Thread(target=work) for _ in range(2)]
    [each.start() for each in threads]
    [each.join() for each in threads]

async def in_threads(redis):
    await asyncio.gather(*[asyncio.to_thread(lambda: redis_py.Redis().incr("n")) for _ in range(2)])

def handed_on(redis):
    line = queue.SimpleQueue()
    thread = threading.Thread(target=lambda: [redis.incrby("n", line.get()) for _ in range(2)])
    thread.start()
    line.put(1)
    line.put(1)
    thread.join()
"""
ONE_BY_ONE = """
@scenario(clients=[{name}])
def is_two(redis):
    both(redis)
"""


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("in_pool", 0),
        ("in_pool_read_then_written", 1),
        ("nobody_awaits", 0),
        ("locked", 0),
        ("in_threads", 0),
        ("handed_on", 0),
    ],
)
def test_threads_of_pools_are_lanes(name: str, code: int, tmp_path: Path) -> None:
    file = tmp_path / "pools.py"
    file.write_text(POOLS + ONE_BY_ONE.format(name=name))
    result = orderlab("race", file)
    assert result.returncode == code, result.stdout + result.stderr


DRAWS = """
import random
from orderlab.clients import scenario
@scenario(clients=2)
def drawn(redis):
    redis.set(f"k{random.random()}", 1)
@scenario(clients=1)
def dies(redis):
    raise ValueError("as it is written")
@scenario(clients=2)
def counted(redis):
    n = int(redis.get("n") or 0)
    redis.set("n", n + 1)
"""


def test_the_first_execution_draws_as_all_and_a_bad_scenario_hides_no_other(tmp_path: Path) -> None:
    file = tmp_path / "draws.py"
    file.write_text(DRAWS)
    result = orderlab("race", file)
    assert "drawn: holds" in result.stdout, result.stdout
    assert "counted: violated" in result.stdout
    assert "dies: every client dies" in result.stderr
    assert result.returncode == 2


def test_a_lock_that_is_real_is_told_by_its_place(tmp_path: Path) -> None:
    (tmp_path / "before.py").write_text("import threading\nclass Kept:\n    lock = threading.Lock()\n")
    test = tmp_path / "test_kept.py"
    test.write_text(
        textwrap.dedent(
            """
            import threading
            from before import Kept
            from orderlab.clients import race

            @race(clients=1)
            def test_it(redis):
                def work():
                    with Kept.lock:
                        redis.incr("n")
                threads = [threading.Thread(target=work) for _ in range(2)]
                [each.start() for each in threads]
                [each.join() for each in threads]
            """
        )
    )
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)],
        cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert ended.returncode == 1, ended.stdout
    assert "test_kept.py:9 for what no scheduler sees" in ended.stdout, ended.stdout


def test_a_loop_that_never_ends_is_told_as_code_that_makes_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def spins(redis: Any) -> None:
        redis.incr("n")
        while True:
            pass

    monkeypatch.setattr(runs, "STILL_S", 0.2)
    monkeypatch.setattr(runs, "ENDLESS_TIMES", 3)
    with pytest.raises(InputError, match=r"client 0 computes at \S+test_real_waits.py:\d+, and made no step for \d s"):
        race(scenario(clients=2)(spins))
