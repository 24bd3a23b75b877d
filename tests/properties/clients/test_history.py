"""Contracts as oracles: methods of client code are operations, judged as a history under concurrency."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("greenlet")
pytest.importorskip("redis")

from redis.exceptions import LockError

from orderlab.clients import race, scenario
from orderlab.contract import Call, Contract
from orderlab.model.errors import InputError
from orderlab.properties.clients.orders import OrderSearch
from orderlab.properties.clients.runs import controlled

ROOT = Path(__file__).parents[3]
LOCK: dict[str, Any] = {"oracle": "lock", "promises": {"tokens": "caller"}}


def take(redis: Any, token: str) -> Any:
    return redis.set("l", token, nx=True, px=1000)


def look_and_take(redis: Any, token: str) -> int:
    if redis.exists("l"):
        return 0
    redis.set("l", token, px=1000)
    return 1


def look_and_drop(redis: Any, token: str) -> int:
    return redis.delete("l") if redis.get("l") == token.encode() else 0


def drop(redis: Any, token: str) -> Any:
    script = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
    return redis.eval(script, 1, "l", token)


def holder(taking: Any, dropping: Any, late_s: float = 0) -> Any:
    def client(redis: Any, at: Any) -> None:
        token = f"t{at.client}"
        if at.client and late_s:
            time.sleep(late_s)
        if at.does("acquire", lambda: taking(redis, token), token=token, ttl_ms=1000):
            if at.client and late_s:
                time.sleep(0.9)
            at.does("release", lambda: dropping(redis, token), token=token)

    return client


@pytest.mark.parametrize(("taking", "law"), [(look_and_take, "mutual-exclusion"), (take, "")])
def test_a_lock_that_is_looked_at_and_then_taken_falls(taking: Any, law: str) -> None:
    verdict = race(scenario(clients=2, **LOCK)(holder(taking, drop)))
    assert verdict.law == law
    assert law or str(verdict.outcome) == "holds"
    assert "mutual-exclusion" in verdict.laws


@pytest.mark.parametrize(("dropping", "law"), [(look_and_drop, "lease-kept"), (drop, "")])
def test_a_lock_that_is_looked_at_and_then_dropped_falls_when_its_holder_is_paused(dropping: Any, law: str) -> None:
    paused: dict[str, Any] = {"trouble": 1, "faults": ("paused-longer",)}
    assert race(scenario(clients=2, **LOCK)(holder(take, dropping, 1.2)), **paused).law == law


def test_the_lock_of_redis_py_keeps_its_contract() -> None:
    def client(redis: Any, at: Any) -> None:
        token = f"t{at.client}"
        lock = redis.lock("job", timeout=1, blocking=False)
        if at.does("acquire", lambda: lock.acquire(token=token), token=token, ttl_ms=1000):
            at.does("release", lambda: lock.release() or 1, token=token, refused=LockError)

    kept: dict[str, Any] = {"trouble": 1, "faults": ("killed", "scripts-flushed", "paused")}
    assert str(race(scenario(clients=2, **LOCK)(client), **kept).outcome) == "holds"
    assert race(scenario(clients=2, **LOCK)(client), trouble=1, faults=("failover",)).law, "the lock is given twice"


def test_an_operation_that_ends_in_an_exception_is_open() -> None:
    """A hit whose reply is lost counts or does not; one that was sent twice counts twice, which no limit forgives."""

    def hit(redis: Any, at: Any) -> None:
        for _ in range(2):
            at.does("hit", lambda: int(redis.incr("h") <= 2), limit=2, window_ms=60_000)

    limiter: dict[str, Any] = {"oracle": "limiter", "promises": {"limit": 2, "window_ms": 60_000}}
    lost: dict[str, Any] = {"trouble": 1, "faults": ("refused", "killed")}
    assert str(race(scenario(clients=2, **limiter)(hit), **lost).outcome) == "holds"
    assert race(scenario(clients=2, **limiter)(hit), trouble=1, faults=("reply-lost",)).law


class Pair(Contract):
    """Two counters that are read at once."""

    operations: ClassVar = {"add": ("to",), "read": ()}

    def initial(self) -> Any:
        return (0, 0)

    def outcomes(self, state: Any, call: Call, now_ms: int) -> Iterable[Any]:
        if call.name == "read":
            yield state, state
        else:
            yield None, (state[0] + (call["to"] == "a"), state[1] + (call["to"] == "b"))

    def calls(self, client: int, seen: Any) -> Iterable[Call]:
        return ()


def adder(to: str) -> Any:
    return lambda redis, at: at.does("add", lambda: redis.incr(to), reply=lambda _: None, to=to)


def read_in_turn(redis: Any, at: Any) -> None:
    at.does("read", lambda: (int(redis.get("a") or 0), int(redis.get("b") or 0)))


def read_at_once(redis: Any, at: Any) -> None:
    at.does("read", lambda: [int(each or 0) for each in redis.mget("a", "b")])


@pytest.mark.parametrize("reduction", [True, False])
@pytest.mark.parametrize(("reader", "is_flawed"), [(read_in_turn, True), (read_at_once, False)])
def test_which_operation_ended_before_another_began_is_never_reduced_away(
    reader: Any, is_flawed: bool, reduction: bool
) -> None:
    """The adders touch nothing in common: only the order of their operations tells that (0, 1) was never the state."""
    judged = scenario(clients=[adder("a"), adder("b"), reader], oracle=Pair())(lambda redis: None)
    with controlled():
        assert any(run.violation for run in OrderSearch(judged, 1000, reduction=reduction).runs()) is is_flawed


def test_asyncio_methods_are_operations_too() -> None:
    async def client(redis: Any, at: Any) -> None:
        async def look() -> int:
            if await redis.exists("l"):
                return 0
            await redis.set("l", at.client, px=1000)
            return 1

        await at.does("acquire", look, token=f"t{at.client}", ttl_ms=1000)

    assert race(scenario(clients=2, **LOCK)(client)).law == "mutual-exclusion"


def test_a_store_names_its_contract_for_the_library_around_it() -> None:
    def client(redis: Any, at: Any) -> None:
        at.does("hit", lambda: int(redis.incr("h") <= 2), limit=2, window_ms=60_000)

    assert str(race(scenario(clients=3, oracle=ROOT / "lua/limiter")(client)).outcome) == "holds"


def test_what_cannot_be_judged_is_told() -> None:
    with pytest.raises(InputError, match="no client calls an operation"):
        race(scenario(clients=1, oracle="limiter")(lambda redis: redis.get("a")))
    with pytest.raises(InputError, match=r"at.does\('hut'\).*did you mean"):
        race(scenario(clients=1, oracle="limiter")(lambda redis, at: at.does("hut", lambda: 1)))
    with pytest.raises(InputError, match="names no contract"):
        race(scenario(clients=1)(lambda redis, at: at.does("hit", lambda: 1)))
    with pytest.raises(InputError, match="oracle='lok'"):
        scenario(clients=1, oracle="lok")(lambda redis: None)
