"""python-redis-lock: one holder at a time; who waits gets the lock when it is released."""

from __future__ import annotations

from typing import Any

import redis as redis_py
from redis_lock import Lock

from orderlab.clients import scenario


@scenario(clients=2)
def leased(redis: Any, at: Any) -> None:
    with Lock(redis, "job", expire=3), at("critical"):
        at.sleep(1)


@scenario(clients=2)
def waits(redis: Any, at: Any) -> None:
    patient = redis_py.Redis(socket_timeout=None)
    with Lock(patient, "job"), at("critical"):
        pass
