"""pottery's RedisSimpleQueue: ``get()`` "block[s] if necessary until an item is available"."""

from __future__ import annotations

from typing import Any

from pottery import RedisSimpleQueue

from orderlab.clients import scenario


def two_items(redis: Any) -> None:
    queue = RedisSimpleQueue(redis=redis, key="queue")
    queue.put("a")
    queue.put("b")


@scenario(clients=2, setup=two_items)
def get(redis: Any, at: Any) -> None:
    at.once(RedisSimpleQueue(redis=redis, key="queue").get())
