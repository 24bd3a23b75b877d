"""sherlock: locks that end after 60 s unless told otherwise.

Promised (docstring of ``RedisLock``): ``expire``: "set lock expiry time. If explicitly set to `None`, lock will not
expire."
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from sherlock import LockException, RedisLock

from orderlab.clients import scenario


@scenario(clients=2)
def default(redis: Any, at: Any) -> None:
    with RedisLock("job", client=redis), at("critical"):
        at.sleep(1)


@scenario(clients=2)
def without_end(redis: Any, at: Any) -> None:
    with suppress(LockException), RedisLock("job", client=redis, expire=None), at("critical"):
        at.sleep(1)


@scenario(clients=2)
def renewed(redis: Any, at: Any) -> None:
    lock = RedisLock("job", client=redis, expire=5, timeout=30)
    with lock, at("critical"):
        at.sleep(3)
        lock.renew()
        at.sleep(4)
