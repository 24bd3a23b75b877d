"""How a broker's process reaches its store: pipelines, pools of blocking connections, JDBC; here, what all of them need
of a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orderlab.sim.redis.hash_slots import hash_slot
from orderlab.sim.redis.registry import SCRIPT_CALLS
from orderlab.sim.redis.replies import Reply
from orderlab.sim.servers.requests import Request


def slot_of(request: Request) -> int:
    """The slot of what a script (name, digest, number of keys, keys) or a plain command (name, key) is called on."""
    return hash_slot(bytes(request.argv[3 if request.argv[0].lower() in SCRIPT_CALLS else 1]))


class ReplyGroup:
    """Collects one reply for each of ``count`` commands, then calls ``on_done`` once."""

    __slots__ = ("left", "on_done", "replies")

    def __init__(self, count: int, on_done: Callable[[Sequence[Reply]], None]) -> None:
        self.replies: list[Reply] = [None] * count
        self.left = count
        self.on_done = on_done
