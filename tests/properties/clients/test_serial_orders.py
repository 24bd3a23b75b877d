"""What clients do one after the other: every order of their threads, and when keys end, belongs to it."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Any

import pytest

pytest.importorskip("greenlet")
pytest.importorskip("redis")

from orderlab.clients import race, scenario


def counts(redis: Any) -> None:
    redis.set("n", int(redis.get("n") or 0) + 1)


def pushes(redis: Any) -> None:
    redis.rpush("l", redis.incr("n"))


def in_threads(call: Any) -> Any:
    def client(redis: Any) -> None:
        other = threading.Thread(target=call, args=(redis,))
        other.start()
        call(redis)
        other.join()

    return client


def in_a_pool(call: Any) -> Any:
    def client(redis: Any) -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda _: call(redis), range(3)))

    return client


def in_threads_of_its_own(redis: Any) -> None:
    other = threading.Thread(target=lambda: redis.rpush("l", "other"))
    other.start()
    redis.rpush("l", "main")
    other.join()


def in_a_pool_of_two(redis: Any) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda number: redis.rpush("l", number), range(3)))


async def in_tasks(redis: Any) -> None:
    await asyncio.gather(*[redis.rpush("l", number) for number in range(3)])


@pytest.mark.parametrize("client", [in_threads_of_its_own, in_a_pool_of_two, in_tasks])
def test_threads_of_one_client_may_come_in_any_order(client: Any, capfd: Any) -> None:
    verdict = race(scenario(clients=1)(client))
    assert (str(verdict.outcome), verdict.what) == ("holds", "")
    assert verdict.orders > 2
    assert capfd.readouterr().err == ""  # pools log what the end of an execution raises in them


@pytest.mark.parametrize("client", [in_threads(counts), in_threads(pushes), in_a_pool(counts)])
def test_threads_of_one_client_that_part_each_other_are_violated(client: Any) -> None:
    assert race(scenario(clients=1)(client)).law == "serializable"


def test_the_threads_of_two_clients_are_in_no_order_of_whole_clients() -> None:
    assert race(scenario(clients=2)(in_threads_of_its_own)).law == "serializable"


def lease(redis: Any) -> None:
    redis.set("lease", 1, px=1000)


def extends(redis: Any) -> None:
    redis.pexpire("lease", redis.pttl("lease") + 10_000)


def renews(redis: Any) -> None:
    redis.pexpire("lease", 10_000)


def sleeps_and_renews(redis: Any, at: Any) -> None:
    at.sleep(0.1)
    redis.pexpire("lease", 10_000)


def test_a_deadline_that_no_order_one_after_the_other_leaves_is_a_violation() -> None:
    """Two extend a lease by ten seconds, and one extension is lost. Where time goes by deadlines are left aside."""
    verdict = race(scenario(clients=2, setup=lease)(extends))
    assert verdict.law == "serializable"
    assert "key b'lease' ends after 11000 ms" in verdict.what
    for right in (renews, sleeps_and_renews):
        assert str(race(scenario(clients=2, setup=lease)(right)).outcome) == "holds"


@pytest.mark.parametrize(
    "stamp",
    [
        lambda: time.time(),
        lambda: datetime.now(UTC).isoformat(),
        lambda: formatdate(time.time()),
        lambda: time.ctime(),
    ],
)
def test_when_something_happened_is_no_outcome_however_it_is_written(stamp: Any) -> None:
    """Who polls for a lock gets it later than who comes when it is free, and what was to end by then has ended."""

    def client(redis: Any) -> None:
        while not redis.set("lock", 1, nx=True):
            time.sleep(0.3)
        time.sleep(1)
        redis.set("last", stamp())
        redis.set(f"done:{redis.incr('n')}", 1, px=1100)
        redis.delete("lock")

    assert str(race(scenario(clients=2)(client)).outcome) == "holds"


def test_a_key_that_was_to_go_and_has_time_left_is_told() -> None:
    def toggles(redis: Any) -> None:
        was_there = redis.exists("mark")
        time.sleep(1)
        if was_there:
            redis.delete("mark")
        else:
            redis.set("mark", 1, px=10_000)

    assert race(scenario(clients=2)(toggles)).law == "serializable"
