"""Served nodes in a thread of their own, for programs that are clients of them: tests, benchmarks, the fixture."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, TypeVar

T = TypeVar("T")


class Served(Protocol):
    """What can be served: a node, or nodes together."""

    async def start(self) -> None:
        """Listen."""
        ...

    async def stop(self) -> None:
        """Close the ports and every connection."""
        ...


S = TypeVar("S", bound=Served)


class InBackground:
    """A thread with an event loop; a context manager. A node, with its Lua states, is made, used and ended there."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="orderlab-serve", daemon=True)
        self._served: list[Served] = []
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def serve(self, make: Callable[[], S]) -> S:
        """Start what ``make`` makes there. Raises what it raises."""

        async def started() -> S:
            served = make()
            await served.start()
            return served

        served = asyncio.run_coroutine_threadsafe(started(), self.loop).result()
        self._served.append(served)
        return served

    def call(self, function: Callable[[], T]) -> T:
        """What ``function`` returns there, between two commands. Raises what it raises."""

        async def called() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(called(), self.loop).result()

    def stop(self) -> None:
        """End all that is served; idempotent."""
        if self._thread.is_alive():
            for served in self._served:
                asyncio.run_coroutine_threadsafe(served.stop(), self.loop).result()
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()

    def __enter__(self) -> InBackground:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
