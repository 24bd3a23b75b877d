"""Clients on redis.asyncio: tasks are lanes, the loop's clock is virtual; right programs and flawed neighbours."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

pytest.importorskip("greenlet")
pytest.importorskip("redis")

import redis.asyncio as redis_asyncio

from orderlab.clients import race, scenario
from orderlab.properties.clients.orders import OrderSearch
from orderlab.properties.clients.runs import controlled
from tests.properties.clients.test_clients import counter_flawed


async def count_right(redis: Any) -> None:
    await redis.incr("n")


async def count_flawed(redis: Any) -> None:
    await redis.set("n", int(await redis.get("n") or 0) + 1)


async def watch_right(redis: Any) -> None:
    async def change(pipe: Any) -> None:
        value = int(await pipe.get("n") or 0)
        pipe.multi()
        pipe.set("n", value + 1)

    await redis.transaction(change, "n")


async def watch_flawed(redis: Any) -> None:
    async with redis.pipeline() as pipe:
        await pipe.watch("n")
        value = int(await pipe.get("n") or 0)
        await pipe.set("n", value + 1)  # without MULTI the watch breaks nothing


async def lease_right(redis: Any, at: Any) -> None:
    async with redis.lock("job", timeout=10):
        with at("critical"):
            await asyncio.sleep(4)


async def lease_flawed(redis: Any, at: Any) -> None:
    await redis.lock("job", timeout=3).acquire()
    with at("critical"):
        await asyncio.sleep(4)


PAIRS = [
    (count_right, count_flawed, "serializable"),
    (watch_right, watch_flawed, "serializable"),
    (lease_right, lease_flawed, "at-most-1"),
]


@pytest.mark.parametrize(("right", "flawed", "law"), PAIRS, ids=[right.__name__ for right, _, _ in PAIRS])
def test_what_is_right_holds_and_its_neighbour_is_violated(right: Any, flawed: Any, law: str) -> None:
    verdict = race(scenario(clients=2)(right))
    assert (str(verdict.outcome), verdict.law) == ("holds", ""), verdict
    assert "all " in verdict.how_far
    found = race(scenario(clients=2)(flawed))
    assert (str(found.outcome), found.law) == ("violated", law)
    assert any(step.line.endswith(".py") or "test_asyncio" in step.line for step in found.steps)


def final_numbers(function: Any, clients: int = 1) -> set[str]:
    with controlled():
        search = OrderSearch(scenario(clients=clients)(function), 3000)
        found = {dict(run.outcome.keys).get("b'n'", "") for run in search.runs() if run.outcome is not None}
    assert search.work.is_exhausted
    return found


def test_the_orders_of_tasks_are_those_of_threads() -> None:
    async def tasks(redis: Any) -> None:
        await asyncio.gather(count_flawed(redis), count_flawed(redis), count_flawed(redis))

    with controlled():
        search = OrderSearch(scenario(clients=3)(counter_flawed), 3000)
        threads = {dict(run.outcome.keys)["b'n'"] for run in search.runs() if run.outcome is not None}
    assert final_numbers(tasks) == threads
    assert len(threads) == 3

    async def locked(redis: Any) -> None:
        lock = asyncio.Lock()

        async def count() -> None:
            async with lock:
                await count_flawed(redis)

        await asyncio.gather(count(), count())

    assert len(final_numbers(locked)) == 1


def test_sleeps_queues_and_timeouts_take_virtual_time() -> None:
    async def client(redis: Any) -> Any:
        begun = asyncio.get_running_loop().time()
        queue: asyncio.Queue[int] = asyncio.Queue()

        async def put() -> None:
            await asyncio.sleep(1000)
            await queue.put(7)

        task = asyncio.create_task(put())
        got = await queue.get()
        await task
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.sleep(100), 10)
        return got, round(asyncio.get_running_loop().time() - begun)

    begun = time.monotonic()
    with controlled():
        runs = list(OrderSearch(scenario(clients=2)(client), 100).runs())
    assert {run.outcome.ends for run in runs if run.outcome is not None} == {("(7, 1010)", "(7, 1010)")}
    assert time.monotonic() - begun < 30


def test_blocking_pops_and_channels_reach_the_task_that_waits() -> None:
    async def pop(redis: Any, at: Any) -> Any:
        if at.client:
            return await redis.rpush("jobs", "a") > 0
        return await redis_asyncio.Redis(socket_timeout=None).blpop("jobs", timeout=0)

    verdict = race(scenario(clients=2)(pop))
    assert str(verdict.outcome) == "holds", verdict

    async def listen(redis: Any, at: Any) -> Any:
        if at.client:
            while not await redis.publish("news", "x"):
                await asyncio.sleep(1)
            return None
        async with redis.pubsub(ignore_subscribe_messages=True) as channel:
            await channel.subscribe("news")
            while True:
                message = await channel.get_message(timeout=60)
                if message is not None:
                    return message["data"]

    with controlled():
        search = OrderSearch(scenario(clients=2, serial=False)(listen), 200)
        ends = {run.outcome.ends for run in search.runs() if run.outcome is not None}
    assert ends == {("b'x'", "None")}


def test_faults_strike_tasks_and_loops_outside_are_real() -> None:
    async def move(redis: Any) -> None:
        job = await redis.lpop("jobs")
        if job is not None:
            await redis.rpush("done", job)

    async def fill(redis: Any) -> None:
        await redis.rpush("jobs", "j")

    assert str(race(scenario(clients=1, setup=fill)(move)).outcome) == "holds"
    verdict = race(scenario(clients=1, setup=fill)(move), trouble=1, faults=("killed",))
    assert verdict.law == "serializable", verdict
    assert asyncio.run(asyncio.sleep(0, "real")) == "real"
