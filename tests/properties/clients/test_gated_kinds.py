"""Schedules on a real server of clients on event loops, and of scenarios that a contract judges."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("greenlet")
pytest.importorskip("redis")

import redis.asyncio as aredis
from redis.exceptions import LockError

from orderlab.clients import race, scenario
from orderlab.model.errors import InputError
from orderlab.properties.clients.gate import ScheduledStep
from orderlab.properties.clients.gate_operations import operations_of
from orderlab.properties.clients.race_file import pytest_of_race
from orderlab.properties.clients.schedule_outcome import judged
from tests.in_process import orderlab
from tests.properties.clients.test_gated import on_both, server  # noqa: F401
from tests.properties.clients.test_history import LOCK, drop, holder, look_and_drop, look_and_take, take


async def counts(redis: Any) -> None:
    await redis.set("n", int(await redis.get("n") or 0) + 1)


async def transaction(redis: Any) -> None:
    value = int(await redis.get("n") or 0)
    async with redis.pipeline() as pipe:
        pipe.set("n", value + 1)
        pipe.incr("m")
        await pipe.execute()


async def two_tasks(redis: Any) -> None:
    async def one() -> None:
        value = int(await redis.get("n") or 0)
        await asyncio.sleep(0.1)
        await redis.set("n", value + 1)

    await asyncio.gather(one(), one())
    assert await redis.get("n") == b"2"


def with_a_loop_of_its_own(_: Any, at: Any) -> None:
    async def main() -> None:
        client = aredis.Redis.from_url("redis://elsewhere:1234")
        lock = client.lock("job", timeout=1, sleep=0.6)
        await lock.acquire()
        with at("critical"):
            await asyncio.sleep(1.6)
        with suppress(LockError):
            await lock.release()
        await client.aclose()

    asyncio.run(main())


async def fill(redis: Any) -> None:
    await redis.rpush("q", "a")


async def move(redis: Any) -> None:
    await redis.rpush("log", await redis.lpop("q") or b"none")


async def take_one(_: Any, at: Any) -> None:
    client = aredis.Redis(socket_timeout=None)  # else redis-py 8 asks again each five seconds, eleven times
    await client.blpop("jobs", timeout=0)
    at.once(await client.incr("taken") // 2)
    await client.aclose()


async def hand_over(redis: Any) -> None:
    await redis.lpush("jobs", "a", "b")


async def three_were_taken(redis: Any) -> bool:
    return bool(await redis.get("taken") == b"3")


CASES = {
    "a lost update": (scenario(clients=2)(counts), {}),
    "a transaction": (scenario(clients=2)(transaction), {}),
    "tasks": (scenario(clients=1)(two_tasks), {}),
    "a loop of its own": (scenario(clients=2)(with_a_loop_of_its_own), {}),
    "a lost reply": (scenario(clients=1, setup=fill)(move), {"trouble": 1, "faults": ("reply-lost",)}),
    "a client killed": (scenario(clients=1, setup=fill)(move), {"trouble": 1, "faults": ("killed",)}),
    "a wait": (scenario(clients=[take_one, hand_over, take_one])(three_were_taken), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_tasks_meet_the_gate(server: Any, name: str) -> None:  # noqa: F811
    judged_one, how = CASES[name]
    verdict, seen = on_both(server, judged_one, **how)
    assert verdict.law
    assert seen.law == verdict.law


def test_tasks_that_were_repaired_are_right(server: Any) -> None:  # noqa: F811
    async def repaired(redis: Any) -> None:
        await redis.incr("n")

    steps = [ScheduledStep(f"{client}.1", "command", name) for name in ("GET", "SET") for client in (0, 1)]
    seen = judged(server, scenario(clients=2)(repaired), steps)
    assert not seen.law
    assert "client 0.1 comes with INCRBY, not GET" in seen.strayed


ASYNC_FILE = """
from orderlab.clients import scenario

@scenario(clients=2)
async def count(redis):
    await redis.set("n", int(await redis.get("n") or 0) + 1)
"""


def test_an_exported_test_of_tasks_stands_alone(tmp_path: Path) -> None:
    file, test = tmp_path / "counts.py", tmp_path / "test_counts.py"
    file.write_text(ASYNC_FILE)
    assert orderlab("race", f"{file}:count", "--export", f"pytest={test}").returncode == 1
    alone = "import sys; sys.modules['orderlab'] = None; import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    words = [sys.executable, "-c", alone, "-q", "-p", "no:cacheprovider", "-p", "no:orderlab", str(test)]
    assert subprocess.run(words, cwd=tmp_path, timeout=600).returncode == 0
    file.write_text(ASYNC_FILE.replace('set("n", int(await redis.get("n") or 0) + 1)', 'incr("n")'))
    assert subprocess.run(words, cwd=tmp_path, timeout=600).returncode == 1


# -- contracts ---------------------------------------------------------------------------------------------------


def test_what_a_lock_answers_on_a_server_is_held_against_its_contract(server: Any) -> None:  # noqa: F811
    flawed = scenario(clients=2, **LOCK)(holder(look_and_take, drop))
    verdict, seen = on_both(server, flawed)
    assert verdict.law == seen.law == "mutual-exclusion"
    right = scenario(clients=2, **LOCK)(holder(take, drop))
    steps = [ScheduledStep("0", "command", "SET"), ScheduledStep("1", "command", "SET")]
    assert not judged(server, right, steps, operations_of(right.contract)).law


def test_a_lease_of_a_contract_takes_its_time_on_a_server(server: Any) -> None:  # noqa: F811
    late = scenario(clients=2, **LOCK)(holder(take, look_and_drop, 1.2))
    verdict, seen = on_both(server, late, trouble=1, faults=("paused-longer",))
    assert verdict.law == seen.law == "lease-kept"


def test_what_asks_no_operation_of_its_contract_is_told(server: Any) -> None:  # noqa: F811
    def asks(redis: Any, at: Any) -> None:
        at.does("acquired", lambda: redis.get("l"))

    wrong = scenario(clients=1, **LOCK)(asks)
    with pytest.raises(InputError, match='no operation of LockStore; did you mean "acquire"'):
        judged(server, wrong, [ScheduledStep("0", "command", "GET")], operations_of(wrong.contract))


def test_a_contract_is_not_exported_to_who_has_no_orderlab() -> None:
    flawed = scenario(clients=2, **LOCK)(holder(look_and_take, drop))
    with pytest.raises(InputError, match="a contract is judged by orderlab"):
        pytest_of_race(flawed, race(flawed), Path("a.py"), Path("test_a.py"), "broken")
