"""redis-py's own lock and transaction: mutual exclusion within the lease, and a change that no other one undoes."""

from __future__ import annotations

from typing import Any

from orderlab.clients import scenario


@scenario(clients=2)
def lock(redis: Any, at: Any) -> None:
    with redis.lock("job", timeout=10), at("critical"):
        at.sleep(1)


@scenario(clients=2)
def reacquired(redis: Any, at: Any) -> None:
    with redis.lock("job", timeout=10) as held, at("critical"):
        at.sleep(6)
        held.reacquire()
        at.sleep(6)


@scenario(clients=2)
def transaction(redis: Any) -> None:
    def change(pipe: Any) -> None:
        value = int(pipe.get("n") or 0)
        pipe.multi()
        pipe.set("n", value + 1)

    redis.transaction(change, "n")
