"""redis-semaphore: as many holders as ``count``; ``stale_client_timeout`` takes tokens back from those who are gone."""

from __future__ import annotations

from typing import Any

import redis as redis_py
from redis_semaphore import NotAvailable, Semaphore

from orderlab.clients import scenario


@scenario(clients=2)
def blocking(redis: Any, at: Any) -> None:
    patient = redis_py.Redis(socket_timeout=None)
    with Semaphore(patient, count=1, namespace="pool"), at("critical"):
        pass


@scenario(clients=2)
def two_tokens(redis: Any) -> bool:
    try:
        Semaphore(redis, count=2, namespace="pool", blocking=False).acquire()
    except NotAvailable:
        return False
    return True


def pool(redis: Any) -> Any:
    return Semaphore(redis, count=1, namespace="pool", stale_client_timeout=5, blocking=False)


def slow(redis: Any, at: Any) -> None:
    mine = pool(redis)
    mine.acquire()
    at.sleep(7)
    mine.release()


def in_time(redis: Any, at: Any) -> None:
    at.sleep(6 if at.client == 1 else 7.5)
    mine = pool(redis)
    try:
        mine.acquire()
    except NotAvailable:
        return
    with at("critical"):
        at.sleep(2)
    mine.release()


@scenario(clients=[slow, in_time, in_time])
def stale_holder(redis: Any) -> None:
    """The slow one is no longer marked: those that took over in time must be alone."""
