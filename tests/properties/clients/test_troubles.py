"""Conditions of the node and restarts as faults of client code: those that do harm, beside the nearest that do none."""

from __future__ import annotations

import time
from typing import Any

import pytest

pytest.importorskip("greenlet")
pytest.importorskip("redis")

import redis as redis_py

from orderlab.clients import race, scenario
from orderlab.model.errors import InputError
from orderlab.properties.clients.race import RaceVerdict
from orderlab.properties.clients.troubles import ALL_TROUBLES, TROUBLES

REFUSALS = sorted(set(ALL_TROUBLES) - set(TROUBLES) - {"restart"})


def with_one(function: Any, fault: str, clients: int = 2, **how: Any) -> RaceVerdict:
    return race(scenario(clients=clients, **how)(function), trouble=1, faults=(fault,))


def two_steps(redis: Any) -> None:
    redis.incr("a")
    redis.incr("b")


def one_step(redis: Any) -> None:
    redis.incr("a")


def transaction(redis: Any) -> None:
    with redis.pipeline() as pipe:
        pipe.incr("{x}a")
        pipe.incr("{x}b")
        pipe.execute()


@pytest.mark.parametrize("fault", REFUSALS)
def test_a_refusal_between_two_writes_leaves_half_and_one_of_all_leaves_nothing(fault: str) -> None:
    assert with_one(two_steps, fault).law == "serializable"
    assert str(with_one(one_step, fault).outcome) == "holds"
    assert str(with_one(transaction, fault).outcome) == "holds"


@pytest.mark.parametrize(
    ("fault", "error"),
    [("read-only", "ReadOnlyError"), ("out-of-memory", "OutOfMemoryError"), ("moved", "MovedError"),
     ("slot-migrates", "AskError"), ("cluster-down", "ClusterDownError"), ("busy", "ResponseError")],
)  # fmt: skip
def test_clients_are_told_in_the_words_of_a_server(fault: str, error: str) -> None:
    seen = set()

    async def asks(redis: Any) -> None:
        try:
            await redis.set("a", 1)
        except redis_py.RedisError as refused:
            seen.add(type(refused).__name__)

    def also(redis: Any) -> None:
        try:
            redis.set("a", 1)
        except redis_py.RedisError as refused:
            seen.add(type(refused).__name__)
            assert redis.get("a") is None

    assert str(with_one(also, fault, 1).outcome) != "unknown"
    with_one(asks, fault, 1)
    assert seen == {error}


def test_reads_are_served_by_a_replica_and_by_a_full_node() -> None:
    def reads(redis: Any) -> Any:
        return redis.get("a")

    for fault in ("read-only", "out-of-memory"):
        verdict = with_one(reads, fault, 1)
        assert (str(verdict.outcome), verdict.orders) == ("holds", 2), "one without, and the same with"


def test_a_restart_loses_what_was_not_synced_and_nothing_else() -> None:
    def right_away(redis: Any) -> None:
        redis.set("a", 1)
        redis.incr("b")
        assert redis.get("a") == b"1"

    def a_second_later(redis: Any) -> None:
        redis.set("a", 1)
        time.sleep(1.5)
        redis.incr("b")
        assert redis.get("a") == b"1"

    assert with_one(right_away, "restart", 1, serial=False).law == "assertion"
    assert with_one(a_second_later, "restart", 1, serial=False).law == "", (
        "a write within the second is not asked about"
    )


def test_a_restart_breaks_connections_waits_and_what_was_watched() -> None:
    ends: set[str] = set()

    def waits(redis: Any, at: Any) -> None:
        once = redis_py.Redis(socket_timeout=None, retry=None)
        if at.client:
            once.set("other", 1)
            once.set("more", 1)
            return
        try:
            once.blpop("queue", timeout=3)
            ends.add("timed out")
        except redis_py.ConnectionError:
            ends.add("broke")

    def watches(redis: Any, at: Any) -> None:
        if at.client:
            redis.set("other", 1)
            redis.get("other")
            return
        with redis.pipeline() as pipe:
            pipe.watch("a")
            pipe.multi()
            pipe.set("a", 1)
            try:
                pipe.execute()
                ends.add("executed")
            except redis_py.WatchError:
                ends.add("was told")

    with_one(waits, "restart", serial=False)
    assert ends == {"timed out", "broke"}
    ends.clear()
    with_one(watches, "restart", serial=False)
    assert ends == {"executed", "was told"}


def test_faults_that_are_not_named_are_the_usual_ones() -> None:
    assert str(race(scenario(clients=1)(one_step), trouble=1, faults=("moved",)).outcome) == "holds"
    with pytest.raises(InputError, match='did you mean "moved"'):
        race(scenario(clients=1)(one_step), trouble=1, faults=("move",))
