"""The rate limiter as a sequential specification: at most so many hits are accepted within a window.

The edge of a window belongs to either side: a hit that is exactly one window old counts, or does not.
``lua/limiter/window.py`` is the sliding window as an owner would write it.

Verified: what is accepted and refused within one window length. Not verified: buckets of tokens, limits that change
while hits are counted, and queues in front of the limiter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from orderlab.model.contracts.base import Bound, Call, Clocks, Contract, Exchange, Outcome, Reply, law, next_serial


class Promises(BaseModel):
    """What a limiter says of itself: table ``[promises]`` of its ``store.toml``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: int = Field(2, ge=1, le=100)
    """Hits that are accepted within a window: the store's own, or what is tried of one that takes <limit>."""
    window_ms: int = Field(1000, ge=10)
    """How long a window is: likewise."""
    window: Literal["sliding", "from the first hit"] = "sliding"
    """Whether any stretch of that length is a window, or one begins with the first hit after the last one ended."""
    clocks: Clocks = "any"
    """Whether the clocks of clients may differ from the server's."""


class Window(NamedTuple):
    """When hits were accepted, the oldest first, and when one was refused last, that may still matter."""

    accepted_ms: tuple[int, ...] = ()
    refused_ms: int | None = None


class LimiterStore(Contract):
    """hit(limit, window_ms, request) -> 1 accepted, 0 refused; no two hits have the same request. See the module's
    text."""

    operations: ClassVar = {"hit": ("limit", "window_ms", "request")}
    optional: ClassVar = {"hit": ("limit", "window_ms", "request")}
    promises_table: ClassVar[type[Promises]] = Promises
    steps_per_client: ClassVar[int] = 4

    def __init__(self, promises: Promises | None = None, bound: Bound | None = None) -> None:
        self.promises = promises or Promises()

    def initial(self) -> Window:
        return Window()

    def elapse(self, state: Window, now_ms: int) -> Window:
        first_ms = now_ms - self.promises.window_ms
        refused_ms = state.refused_ms if state.refused_ms is not None and state.refused_ms >= first_ms else None
        if self.promises.window == "sliding":
            accepted_ms = tuple(at for at in state.accepted_ms if at >= first_ms)
        else:
            accepted_ms = state.accepted_ms if state.accepted_ms and state.accepted_ms[0] >= first_ms else ()
        return Window(accepted_ms, refused_ms)

    def deadlines_ms(self, state: Window) -> Iterable[int]:
        counted = state.accepted_ms if self.promises.window == "sliding" else state.accepted_ms[:1]
        return [at + self.promises.window_ms for at in counted]

    def size(self, state: Window) -> int:
        return len(state.accepted_ms)

    def needs_nothing(self, state: Window) -> bool:
        return not state.accepted_ms

    def outcomes(self, state: Window, call: Call, now_ms: int) -> Iterator[Outcome]:
        for counted in self._counted(state, now_ms):
            if len(counted) < self.promises.limit:
                yield 1, Window((*counted, now_ms), state.refused_ms)
            else:
                yield 0, Window(state.accepted_ms, now_ms)

    def _counted(self, state: Window, now_ms: int) -> Iterator[tuple[int, ...]]:
        """The hits that count now: those on the edge, and all else with them, or without."""
        yield state.accepted_ms
        first_ms = now_ms - self.promises.window_ms
        if first_ms in state.accepted_ms:
            within = tuple(at for at in state.accepted_ms if at > first_ms)
            yield within if self.promises.window == "sliding" else ()

    def calls(self, client: int, seen: Sequence[Exchange]) -> Iterator[Call]:
        request = f"r{client}.{next_serial(0, [one.call['request'] for one in seen])}"
        yield Call.of("hit", limit=self.promises.limit, window_ms=self.promises.window_ms, request=request)

    @law("at-most-n", "no window holds more accepted hits than the limit")
    def at_most_n(self, before: Window, call: Call, reply: Reply, now_ms: int) -> bool | None:
        full = all(len(counted) >= self.promises.limit for counted in self._counted(before, now_ms))
        return bool(reply == 0) if full else None

    @law("refusal-when-full", "a hit is refused only when the window is full")
    def refusal_when_full(self, before: Window, call: Call, reply: Reply, now_ms: int) -> bool | None:
        return len(before.accepted_ms) >= self.promises.limit if reply == 0 and before.refused_ms is None else None

    @law("no-charge", "what was refused is not counted")
    def no_charge(self, before: Window, call: Call, reply: Reply, now_ms: int) -> bool | None:
        if before.refused_ms is None:
            return None
        return len(before.accepted_ms) >= self.promises.limit if reply == 0 else True
