"""What a client draws, and the process that it stands for: the same in every run of a schedule, and its own."""

from __future__ import annotations

import inspect
import os
import random
import uuid
from collections.abc import Callable
from typing import Any, cast

FIRST_PID = 10_000_000
"""No system has a process of this number, so that a signal to it reaches nobody."""


def draws_replaced(lane_here: Callable[[], Any]) -> list[tuple[Any, str, Any]]:
    """(owner, attribute, what to put there). ``lane_here``: the lane that asks, with its ``rng`` and ``client``."""
    real_bytes, real_uuid1, real_seed, real_pid = os.urandom, uuid.uuid1, random.Random.seed, os.getpid

    def drawing(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def draw(*args: Any, **kwargs: Any) -> Any:
            lane = lane_here()
            return real(*args, **kwargs) if lane is None else getattr(lane.rng, name)(*args, **kwargs)

        return draw

    def urandom(size: int) -> bytes:
        lane = lane_here()
        return real_bytes(size) if lane is None else bytes(lane.rng.randbytes(size))

    def uuid1(*given: Any, **named: Any) -> uuid.UUID:
        return real_uuid1(*given, **named) if lane_here() is None else uuid.UUID(bytes=urandom(16), version=4)

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        lane = lane_here() if a is None else None
        real_seed(self, a if lane is None else lane.rng.getrandbits(64), version)

    def getpid() -> int:
        lane, here = lane_here(), cast(Any, inspect.currentframe()).f_back  # never its own frame: that keeps itself
        if lane is None or str(here.f_globals.get("__name__")).startswith("redis."):
            # A pool of a module would begin anew at each turn.
            return real_pid()
        return FIRST_PID + (int(lane.client) if lane.client.isdigit() else -1)

    sharing = {name: getattr(random, name) for name in random.__all__}
    return [
        *[(random, name, drawing(name, real)) for name, real in sharing.items() if hasattr(real, "__self__")],
        (random.Random, "seed", seed),
        (os, "urandom", urandom),
        (random, "_urandom", urandom),  # of SystemRandom, and so of secrets
        (uuid, "uuid1", uuid1),
        (os, "getpid", getpid),
    ]
