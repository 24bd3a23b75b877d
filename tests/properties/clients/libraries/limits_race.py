"""limits: no more hits than the limit, with each of its strategies on Redis."""

from __future__ import annotations

from typing import Any

from limits import parse, storage, strategies

from orderlab.clients import scenario


def hits(strategy: Any, at: Any) -> None:
    if strategy(storage.RedisStorage("redis://localhost")).hit(parse("1/minute"), "eve"):
        at.once("call")


@scenario(clients=2)
def fixed_window(redis: Any, at: Any) -> None:
    hits(strategies.FixedWindowRateLimiter, at)


@scenario(clients=2)
def moving_window(redis: Any, at: Any) -> None:
    hits(strategies.MovingWindowRateLimiter, at)


@scenario(clients=2)
def sliding_window_counter(redis: Any, at: Any) -> None:
    hits(strategies.SlidingWindowCounterRateLimiter, at)
