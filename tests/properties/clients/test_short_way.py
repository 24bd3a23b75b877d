"""The short way of a command: replies, steps and exceptions as redis-py's own, and clients of the same make."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

pytest.importorskip("greenlet")
pytest.importorskip("redis")

import redis as redis_py

from orderlab.clients import race
from orderlab.properties.clients import straight, virtual, wiring
from orderlab.properties.clients.execution import Execution, current
from orderlab.properties.clients.footprints import is_of_one_key
from orderlab.properties.clients.orders import OrderSearch
from orderlab.properties.clients.runs import controlled
from orderlab.properties.clients.scenario import scenario
from orderlab.sim.redis.client import Client
from orderlab.sim.redis.registry import find
from tests.properties.clients.test_clients import COMMANDS, program

TROUBLES = ("reply-lost", "refused", "timeout", "killed")


MORE = ["ZADD z 2.5 b", "ZSCORE z b", "ZRANGE z 0 -1 WITHSCORES", "HSET h f 1", "HGETALL h", "SMEMBERS s"]


def of_each_type(redis: Any) -> list[Any]:
    """Replies that differ between protocols."""
    return [redis.execute_command(*line.split()) for line in MORE] + [redis.zscore("z", "b"), redis.hgetall("h")]


def test_replies_are_of_the_protocol_that_redis_py_asks_for() -> None:
    with controlled():
        short = searched([of_each_type], 0)
    with virtual.installed(wiring.replacements()):
        own = searched([of_each_type], 0)
    assert short == own
    assert short[0][0][0].ends[0].count("2.5") == 3


def searched(clients: list[Any], budget: int) -> tuple[list[Any], int]:
    search = OrderSearch(scenario(clients=clients)(lambda redis: None), 300, TROUBLES, budget)
    runs = [(run.outcome, tuple(run.execution.choices)) for run in search.runs()]
    return runs, search.work.executions


@pytest.mark.parametrize("budget", [0, 1])
def test_both_ways_do_the_same(budget: int) -> None:
    for seed in range(4):
        draws = random.Random(f"ways:{seed}")
        clients = [program(draws, 2) for _ in range(2)]
        with controlled():
            short = searched(clients, budget)
        with virtual.installed(wiring.replacements()):
            own = searched(clients, budget)
        assert short == own, f"seed {seed}"


def test_what_a_command_of_one_key_touched_is_at_least_what_the_kernel_notes() -> None:
    draws = random.Random("footprints")
    lines = [line.split() for line in COMMANDS if is_of_one_key(find((line.split()[0].encode(),)))]  # type: ignore[arg-type]
    assert len(lines) > 25
    noted, short = Execution(), Execution()
    for _ in range(600):
        argv = tuple(word.encode() for word in draws.choice(lines))
        first = noted.command(Client(id=1), argv)
        second = short.command_of_one_key(Client(id=1), argv)
        assert repr(first) == repr(second)
        one, other = noted.touched.taken(), short.touched.taken()
        assert one.reads <= other.reads
        assert one.writes <= other.writes, argv
        assert not one.is_whole


def test_a_fresh_client_is_one_of_redis_py_and_shares_nothing_that_changes() -> None:
    with controlled():
        made, fresh, other = redis_py.Redis(), straight.fresh_client(), straight.fresh_client()
    assert vars(made).keys() == vars(fresh).keys()
    assert vars(made.connection_pool).keys() == vars(fresh.connection_pool).keys()
    for mine, theirs in ((fresh, other), (fresh.connection_pool, other.connection_pool)):
        for name, value in vars(mine).items():
            assert type(value) is type(getattr(theirs, name))
            if isinstance(value, (dict, list, set)) or hasattr(value, "acquire"):
                assert value is not getattr(theirs, name), name
    retries = [each.connection_pool.connection_kwargs.get("retry") for each in (fresh, other)]
    assert retries == [None, None] or retries[0] is not retries[1], "redis-py 5 has none"
    assert current.execution is None


def test_texts_are_encoded_as_their_client_says() -> None:
    class Name(str):
        """A text of another class."""

    seen: list[bytes] = []

    def client(redis: Any) -> None:
        for made in (redis, redis_py.Redis(encoding="latin-1"), redis_py.Redis(encoding_errors="replace")):
            made.set("a", "ä")
            seen.append(redis.get("a"))
            made.set(Name("a"), Name("ä"))
            seen.append(redis.get("a"))
        redis_py.Redis(encoding="ascii", encoding_errors="replace").set("a", "ä")
        seen.append(redis.get("a"))

    assert str(race(scenario(clients=1)(client)).outcome) == "holds"
    assert set(seen[:2]) == set(seen[4:6]) == {"ä".encode()}
    assert set(seen[2:4]) == {"ä".encode("latin-1")}
    assert seen[6] == b"?"


def test_a_copied_client_has_locks_of_its_own_whichever_kind_they_are() -> None:
    """Pools of redis-py 5 have plain locks, those of later ones reentrant ones."""

    class Pool:
        def __init__(self) -> None:
            self.plain, self.reentrant, self.waiting = threading.Lock(), threading.RLock(), [1]

    template = Pool()
    made = straight._copied(template, straight._own(template))
    assert made.plain is not template.plain
    assert made.reentrant is not template.reentrant
    assert (made.plain.acquire(), made.waiting, made.waiting is template.waiting) == (True, [1], False)
