"""The replies to commands that were submitted together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orderlab.sim.redis.replies import Reply


class ReplyGroup:
    """Collects one reply for each of ``count`` commands, then calls ``on_done`` once."""

    __slots__ = ("left", "on_done", "replies")

    def __init__(self, count: int, on_done: Callable[[Sequence[Reply]], None]) -> None:
        self.replies: list[Reply] = [None] * count
        self.left = count
        self.on_done = on_done
