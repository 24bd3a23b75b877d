"""huey: rate limits and locks of tasks, and counters that end.

Promised (docs/api.rst): ``rate_limit``: "Maximum invocations in the given window"; ``lock_task``: "to prevent multiple
invocations of a task from running concurrently", with ``ttl``: "so a killed worker cannot hold it forever".
"""

from __future__ import annotations

from typing import Any

from huey import RedisExpireHuey, RedisHuey
from huey.exceptions import RateLimitExceeded, TaskLockedException

from orderlab.clients import scenario


@scenario(clients=2)
def rate_limit(redis: Any, at: Any) -> None:
    try:
        RedisHuey("app").rate_limit("mails", limit=1, per=60).acquire()
    except RateLimitExceeded:
        return
    at.once("the mail of this minute")


@scenario(clients=2)
def lock(redis: Any, at: Any) -> None:
    try:
        with RedisExpireHuey("app").lock_task("report"), at("report"):
            at.sleep(1)
    except TaskLockedException:
        pass


def slow(redis: Any, at: Any) -> None:
    with RedisExpireHuey("app").lock_task("report", ttl=5):
        at.sleep(6)


def in_time(redis: Any, at: Any) -> None:
    at.sleep(5.5 if at.client == 1 else 6.5)
    try:
        with RedisExpireHuey("app").lock_task("report", ttl=5), at("report"):
            at.sleep(2)
    except TaskLockedException:
        pass


@scenario(clients=[slow, in_time, in_time])
def lapsed_lock(redis: Any) -> None:
    """The slow task is no longer marked: those that took over in time must be alone."""


def counters_end(redis: Any) -> bool:
    return all(redis.ttl(key) != -1 for key in redis.keys("huey.c*"))


@scenario(clients=1)
def counter(redis: Any, at: Any) -> None:
    at.finally_(counters_end)
    RedisExpireHuey("app", expire_time=60).storage.incr("chord")
