"""Programs on redis-py for ``benchmarks.clients``, and frontrun's search of one of them in a process of its own.

``python -m benchmarks.clients_programs NAME PORT SECONDS`` searches with frontrun and prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any


def count(redis: Any) -> None:
    """Read a number and write the next one: frontrun's own example of a race."""
    redis.set("n", int(redis.get("n") or 0) + 1)


def hold(redis: Any) -> None:
    """Read and write within redis-py's lock."""
    with redis.lock("lock", timeout=10):
        count(redis)


def watch(redis: Any) -> None:
    """Read and write in a transaction that is tried again when what was read has changed."""

    def change(pipe: Any) -> None:
        value = int(pipe.get("n") or 0)
        pipe.multi()
        pipe.set("n", value + 1)

    redis.transaction(change, "n")


def twelve(redis: Any) -> None:
    """Six of twelve commands."""
    for _ in range(3):
        count(redis)


PROGRAMS: dict[str, tuple[Callable[[Any], None], int]] = {
    "count2": (count, 2),
    "count3": (count, 3),
    "lock2": (hold, 2),
    "lock3": (hold, 3),
    "watch2": (watch, 2),
}
"""Name -> what each client runs, and how many there are."""


def search_with_frontrun(name: str, port: int, seconds: float) -> dict[str, Any]:
    """Processor time and executions of frontrun's search, with its bound of two preemptions, and what it says."""
    import frontrun
    import redis

    function, clients = PROGRAMS[name]

    def setup() -> None:
        with redis.Redis(port=port) as client:
            client.flushall()

    def run(_: Any) -> None:
        with redis.Redis(port=port) as client:
            function(client)

    begun = time.process_time()
    result = frontrun.explore(
        setup=setup,
        workers=[run] * clients,
        invariant=lambda _: True,
        stop_on_first=False,
        preemption_bound=2,
        total_timeout=seconds,
        reproduce_on_failure=0,
    )
    return {
        "cpu_s": time.process_time() - begun,
        "executions": result.num_explored,
        "holds": result.property_holds,
        "why": str(getattr(result, "inconclusive_reason", "") or ""),
    }


if __name__ == "__main__":
    print(json.dumps(search_with_frontrun(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))))
