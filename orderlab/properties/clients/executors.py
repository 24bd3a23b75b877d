"""``concurrent.futures`` under the scheduler: threads of a pool are lanes, and pools outlive no execution."""

from __future__ import annotations

import concurrent.futures.thread
import weakref
from collections.abc import Callable
from typing import Any, Final

from orderlab.properties.clients.execution import current, lane_here
from orderlab.properties.clients.virtual import LaneLock

_USED: Final = "_orderlab_execution"
"""Where a pool keeps the execution that it was used in."""
_THREADS: Final = "_threads"


class InOrder(dict[Any, None]):
    """Threads of a pool in the order in which they were made: a set's order is that of their addresses."""

    def add(self, thread: Any) -> None:
        """As of a set."""
        self[thread] = None


def _submit(kept: Callable[..., Any]) -> Callable[..., Any]:
    def submit(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        execution = current.execution
        if execution is None or execution.lane is None:
            return kept(self, *args, **kwargs)
        used = vars(self).get(_USED)
        if used is not execution:
            if used is not None:  # made where its module was, whose other threads ended with their execution
                self.__init__(self._max_workers, self._thread_name_prefix, self._initializer, self._initargs)
            setattr(self, _USED, execution)
            setattr(self, _THREADS, InOrder())
            execution.pools.append((execution.lane.client, weakref.ref(self)))
        return kept(self, *args, **kwargs)

    return submit


def _run(kept: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, *args: Any) -> None:
        kept(self, *args)
        lane = lane_here()
        if lane is not None:
            lane.calls += 1

    return run


def finished(client: str) -> None:
    """Do what a process does at its end: let the pools of ``client`` do what they were handed."""
    for owner, reference in tuple(current.execution.pools):
        pool = reference()
        if owner == client and pool is not None:
            pool.shutdown()


def replacements() -> list[tuple[Any, str, Any]]:
    """(class or module, attribute, what to put there)."""
    module: Any = concurrent.futures.thread
    pool = concurrent.futures.ThreadPoolExecutor
    return [
        (module, "_global_shutdown_lock", LaneLock()),
        (module, "_threads_queues", weakref.WeakKeyDictionary()),
        (pool, "submit", _submit(pool.submit)),
        (module._WorkItem, "run", _run(module._WorkItem.run)),
    ]
