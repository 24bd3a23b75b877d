"""walrus: rate limits and a lock.

Promised: ``RateLimit``: "Allows up to `limit` number of events every per the given number of seconds"; ``RateLimitLua``
the same, "to ensure atomicity"; ``Lock``: "You can set a TTL on a lock to reduce the potential for deadlocks".
"""

from __future__ import annotations

from typing import Any

import walrus

from orderlab.clients import scenario


@scenario(clients=2)
def rate_limit(redis: Any, at: Any) -> None:
    if not walrus.Database().rate_limit("calls", limit=1, per=60).limit("eve"):
        at.once("call")


@scenario(clients=2)
def rate_limit_script(redis: Any, at: Any) -> None:
    if not walrus.Database().rate_limit_lua("calls", limit=1, per=60).limit("eve"):
        at.once("call")


@scenario(clients=1)
def rate_limit_script_window(redis: Any, at: Any) -> None:
    limiter = walrus.Database().rate_limit_lua("calls", limit=1, per=60)
    for _ in range(3):
        if not limiter.limit("eve"):
            at.once("call of this minute")
        at.sleep(5)


@scenario(clients=2)
def lock(redis: Any, at: Any) -> None:
    with walrus.Database().lock("job", ttl=3000), at("critical"):
        at.sleep(1)


def holder_that_dies(ttl: int) -> Any:
    def client(redis: Any) -> None:
        walrus.Database().lock("job", ttl=ttl).acquire()

    return client


def waiter(ttl: int) -> Any:
    def client(redis: Any) -> None:
        held = walrus.Database(socket_timeout=None).lock("job", ttl=ttl)
        held.acquire()
        held.release()

    return client


@scenario(clients=[holder_that_dies(1000), waiter(1000)], serial=False)
def lapse_of_a_second(redis: Any) -> None:
    """Who waits gets the lock when it lapses."""


@scenario(clients=[holder_that_dies(500), waiter(500)], serial=False)
def lapse_of_half_a_second(redis: Any) -> None:
    """Who waits gets the lock when it lapses."""
