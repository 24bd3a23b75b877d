"""Races within one client on a real server: its threads, calls of its pools and tasks, judged by whole ones there."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("greenlet")
pytest.importorskip("redis")

from orderlab.clients import race, scenario
from orderlab.model.verdict import Outcome
from orderlab.properties.clients import schedule_outcome
from orderlab.properties.clients.oracle import judged as judged_on_kernel
from orderlab.properties.clients.oracle import serial
from orderlab.properties.clients.orders import walk
from orderlab.properties.clients.race import RaceVerdict
from orderlab.properties.clients.race_file import gated_steps
from orderlab.properties.clients.runs import carried_out, controlled
from orderlab.properties.clients.scenario import Scenario
from orderlab.properties.clients.schedule_outcome import judged
from tests.in_process import orderlab
from tests.properties.clients.test_gated import on_both, server  # noqa: F401
from tests.properties.clients.test_serial_orders import counts, in_a_pool, in_threads, pushes


async def counts_later(redis: Any) -> None:
    await redis.set("n", int(await redis.get("n") or 0) + 1)


async def gathers(redis: Any) -> None:
    await asyncio.gather(*[counts_later(redis) for _ in range(2)])


CASES = {
    "threads": scenario(clients=1)(in_threads(counts)),
    "threads that push": scenario(clients=1)(in_threads(pushes)),
    "a pool": scenario(clients=1)(in_a_pool(counts)),
    "tasks": scenario(clients=1)(gathers),
    "threads of one client beside another": scenario(clients=[in_threads(counts), counts])(lambda redis: None),
}


@pytest.mark.parametrize("name", CASES)
def test_a_race_within_one_client_is_one_on_a_server(server: Any, name: str) -> None:  # noqa: F811
    verdict, seen = on_both(server, CASES[name])
    assert verdict.law == seen.law == "serializable"


# -- generated programs ------------------------------------------------------------------------------------------

PIECES = ("GET SET", "GET SET INCR", "GET PUSH", "INCR", "TAKE PUSH", "ONCE PUSH", "INCR PUSH", "PUSH GET SET")


def piece(redis: Any, words: list[str], tag: str) -> list[Any]:
    """Commands to make of a piece of work; each a call, whose answer the next is handed."""
    calls: dict[str, Any] = {
        "GET": lambda seen: redis.get("n"),
        "INCR": lambda seen: redis.incr("n"),
        "SET": lambda seen: redis.set("n", int(seen if isinstance(seen, (int, bytes)) else 0) + 1),
        "PUSH": lambda seen: redis.rpush("l", str(seen) + tag),
        "TAKE": lambda seen: redis.lpop("l"),
        "ONCE": lambda seen: redis.setnx("own", tag),
    }
    return [calls[word] for word in words]


def work(redis: Any, words: list[str], tag: str) -> None:
    seen: Any = 0
    for call in piece(redis, words, tag):
        seen = call(seen)


async def work_later(redis: Any, words: list[str], tag: str) -> None:
    seen: Any = 0
    for call in piece(redis, words, tag):
        seen = await call(seen)


def program(seed: int) -> Scenario:
    draws = random.Random(f"within:{seed}")
    pieces = [draws.choice(PIECES).split() for _ in range(2)]

    def in_threads_of_two(redis: Any) -> None:
        threads = [threading.Thread(target=work, args=(redis, each, f"{at}")) for at, each in enumerate(pieces)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    def in_a_pool_of_two(redis: Any) -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda at: work(redis, pieces[at], f"{at}"), range(2)))

    async def in_tasks(redis: Any) -> None:
        await asyncio.gather(*[work_later(redis, each, f"{at}") for at, each in enumerate(pieces)])

    return scenario(clients=1)(draws.choice([in_threads_of_two, in_a_pool_of_two, in_tasks]))


@pytest.mark.parametrize("seeds", [range(16), pytest.param(range(16, 300), marks=pytest.mark.exhaustive)])
def test_a_server_convicts_what_the_kernel_convicts_and_nothing_else(server: Any, seeds: range) -> None:  # noqa: F811
    """Orders that are drawn, of generated programs; at most few go otherwise on the server, which is then told."""
    convicted = strayed = count = 0
    for seed in seeds:
        judged_one = program(seed)
        with controlled():
            run = carried_out(judged_one, walk(seed), recording=True)
            law, what = judged_on_kernel(judged_one, run, serial(judged_one)) or ("", "")
        steps, choices = tuple(run.execution.steps), tuple(run.execution.choices)
        for verdict in (
            RaceVerdict("", Outcome.HOLDS, law, what, "", steps, choices, 1, 1),
            race(judged_one, "quick"),
        ):
            if not verdict.choices:
                continue
            seen = judged(server, judged_one, gated_steps(judged_one, verdict))
            count, convicted, strayed = count + 1, convicted + bool(verdict.law), strayed + bool(seen.strayed)
            assert seen.strayed or (seen.law, seen.undecided) == (verdict.law, ""), (seed, verdict.what, seen)
    assert convicted > count / 4
    assert strayed <= count / 6


def test_where_not_every_order_could_be_tried_nothing_is_said_to_hold(
    server: Any, monkeypatch: pytest.MonkeyPatch,  # noqa: F811
) -> None:  # fmt: skip
    verdict = race(CASES["threads"])
    monkeypatch.setattr(schedule_outcome, "ORDERS_S", 0.0)
    monkeypatch.setattr(schedule_outcome, "ORDERS_MIN", 0)
    seen = judged(server, CASES["threads"], gated_steps(CASES["threads"], verdict))
    assert not seen.law
    assert seen.undecided.startswith("not every order of whole clients and of their threads was tried")


FILES = {
    "threads": """
import threading
from orderlab.clients import scenario

@scenario(clients=1)
def count(redis):
    def one():
        redis.set("n", int(redis.get("n") or 0) + 1)
    threads = [threading.Thread(target=one) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
""",
    "a pool": """
from concurrent.futures import ThreadPoolExecutor
from orderlab.clients import scenario
POOL = ThreadPoolExecutor(2)

@scenario(clients=1)
def count(redis):
    def one(_):
        redis.set("n", int(redis.get("n") or 0) + 1)
    list(POOL.map(one, range(2)))
""",
    "gather": """
import asyncio
from orderlab.clients import scenario

@scenario(clients=1)
async def count(redis):
    async def one():
        await redis.set("n", int(await redis.get("n") or 0) + 1)
    await asyncio.gather(one(), one())
""",
    "tasks with a lock": """
import asyncio
from orderlab.clients import scenario

@scenario(clients=1)
async def count(redis):
    lock = asyncio.Lock()
    async def one():
        value = int(await redis.get("n") or 0)
        async with lock:
            await redis.set("n", value + 1)
    await asyncio.gather(one(), one())
""",
}
REPAIRS = (
    ('redis.set("n", int(redis.get("n") or 0) + 1)', 'redis.incr("n")'),
    ('await redis.set("n", int(await redis.get("n") or 0) + 1)', 'await redis.incr("n")'),
    (
        '        value = int(await redis.get("n") or 0)\n        async with lock:\n',
        '        async with lock:\n            value = int(await redis.get("n") or 0)\n',
    ),
)
ALONE = "import sys; sys.modules['orderlab'] = None; import pytest; sys.exit(pytest.main(sys.argv[1:]))"


@pytest.mark.parametrize("kind", FILES)
def test_an_exported_test_of_one_client_falls_until_it_is_fixed(tmp_path: Path, kind: str) -> None:
    file, report = tmp_path / "counts.py", tmp_path / "race.json"
    broken, fixed = tmp_path / "test_broken.py", tmp_path / "test_fixed.py"
    file.write_text(FILES[kind])
    told = orderlab("race", f"{file}:count", "--report", f"json={report}", "--export", f"pytest={broken}")
    assert told.returncode == 1, told.stderr
    again = orderlab("replay", str(report), "--trust-adapter", "--export", f"pytest={fixed}", "--expect", "fixed")
    assert again.returncode == 1, again.stderr
    forced = orderlab("replay", str(report), "--trust-adapter", "--backend", "auto")
    assert forced.returncode == 1, forced.stdout

    def outcomes() -> tuple[int, int]:
        words = [sys.executable, "-c", ALONE, "-q", "-p", "no:cacheprovider", "-p", "no:orderlab"]
        told = subprocess.run(
            [*words, str(broken), str(fixed)], capture_output=True, text=True, cwd=tmp_path, timeout=60
        ).stdout
        return told.count(" passed"), told.count(" failed")

    assert outcomes() == (1, 1)
    text = FILES[kind]
    for before, after in REPAIRS:
        text = text.replace(before, after)
    file.write_text(text)
    assert outcomes() == (1, 1), "now the other way round"
