"""dramatiq's rate limiters on Redis.

Promised: ``ConcurrentRateLimiter`` "ensures that only `limit` concurrent operations may happen at the same time",
``WindowRateLimiter`` "that only `limit` operations may happen over some sliding window".
"""

from __future__ import annotations

from typing import Any

import redis as redis_py
from dramatiq.rate_limits import Barrier, BucketRateLimiter, ConcurrentRateLimiter, WindowRateLimiter
from dramatiq.rate_limits.backends import RedisBackend

from orderlab.clients import scenario


@scenario(clients=2)
def bucket(redis: Any, at: Any) -> None:
    with BucketRateLimiter(RedisBackend(), "b", limit=1, bucket=60_000).acquire(raise_on_failure=False) as is_let_in:
        if is_let_in:
            at.once("call")


@scenario(clients=2)
def concurrent(redis: Any, at: Any) -> None:
    with ConcurrentRateLimiter(RedisBackend(), "c", limit=1).acquire(raise_on_failure=False) as is_let_in:
        if is_let_in:
            with at("critical"):
                at.sleep(1)


def two_holders(redis: Any) -> None:
    for _ in range(2):
        ConcurrentRateLimiter(RedisBackend(), "c", limit=2)._acquire()  # what the beginning of its `with` does


def first_leaves(redis: Any, at: Any) -> None:
    ConcurrentRateLimiter(RedisBackend(), "c", limit=2)._release()  # what its end does


@scenario(clients=[first_leaves], setup=two_holders)
def slot_of_the_other(redis: Any) -> bool:
    """The other is still in there, and so is its slot while the key lasts."""
    return redis.get("c") != b"0"


@scenario(clients=2)
def window(redis: Any, at: Any) -> None:
    with WindowRateLimiter(RedisBackend(), "w", limit=1, window=10).acquire(raise_on_failure=False) as is_let_in:
        if is_let_in:
            at.once("call")


class SlowLine(redis_py.Redis):
    """A client whose MULTI is two milliseconds late."""

    def pipeline(self, *args: Any, **kwargs: Any) -> Any:
        import time

        pipe: Any = super().pipeline(*args, **kwargs)
        multi = pipe.multi
        pipe.multi = lambda: (time.sleep(0.002), multi())
        return pipe


def at_the_turn(redis: Any, at: Any) -> None:
    at.sleep(0.999 if at.client == 0 else 1.0)
    backend = RedisBackend(client=SlowLine() if at.client == 0 else redis)
    with WindowRateLimiter(backend, "w", limit=1, window=10).acquire(raise_on_failure=False) as is_let_in:
        if is_let_in:
            at.once("call")


@scenario(clients=[at_the_turn, at_the_turn])
def turn_of_a_second(redis: Any) -> None:
    """Two calls within two milliseconds, of which a second begins in between."""


def makes_barrier(redis: Any) -> None:
    Barrier(RedisBackend(), "bar").create(parties=2)


@scenario(clients=2, setup=makes_barrier)
def barrier(redis: Any, at: Any) -> None:
    if Barrier(RedisBackend(), "bar").wait(block=False):
        at.once("cleared")
