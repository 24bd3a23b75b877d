"""``concurrent.futures`` where clients run: threads of a pool are lanes, and pools outlive no run of the clients.

A run is an execution on the kernel, or one on a real server.
"""

from __future__ import annotations

import concurrent.futures.thread
import weakref
from collections.abc import Callable
from typing import Any, Final

_USED: Final = "_orderlab_run"
"""Where a pool keeps the run that it was used in."""
_THREADS: Final = "_threads"


class InOrder(dict[Any, None]):
    """Threads of a pool in the order in which they were made: a set's order is that of their addresses."""

    def add(self, thread: Any) -> None:
        """As of a set."""
        self[thread] = None


def finished(run: Any, client: str) -> None:
    """Do what a process does at its end: let the pools of ``client`` do what they were handed."""
    for owner, reference in tuple(run.pools):
        pool = reference()
        if owner == client and pool is not None:
            pool.shutdown()


def pools_replaced(run_here: Callable[[], Any], lane_here: Callable[[], Any]) -> list[tuple[Any, str, Any]]:
    """(class or module, attribute, what to put there). ``run_here``: the run of the lane that asks, which keeps the
    pools that were used and by which client."""
    module: Any = concurrent.futures.thread
    pool = concurrent.futures.ThreadPoolExecutor
    submitted, carried_out = pool.submit, module._WorkItem.run

    def submit(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        lane, run = lane_here(), run_here()
        if lane is None:
            return submitted(self, *args, **kwargs)
        used = vars(self).get(_USED)
        if used is not run:
            if used is not None:  # made where its module was, whose other threads ended with their run
                self.__init__(self._max_workers, self._thread_name_prefix, self._initializer, self._initargs)
            setattr(self, _USED, run)
            setattr(self, _THREADS, InOrder())
            run.pools.append((lane.client, weakref.ref(self)))
        return submitted(self, *args, **kwargs)

    def call(self: Any, *args: Any) -> None:
        carried_out(self, *args)
        lane = lane_here()
        if lane is not None:
            lane.calls += 1

    return [
        (module, "_threads_queues", weakref.WeakKeyDictionary()),
        (pool, "submit", submit),
        (module._WorkItem, "run", call),
    ]
