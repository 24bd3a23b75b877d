"""The contract of a rate limiter over a sliding window, as its owner would write it."""

from __future__ import annotations

from orderlab.contract import Call, Contract, law


class SlidingWindow(Contract):
    """hit(limit, window_ms) -> 1 accepted, 0 refused. The state: when hits were accepted, oldest first."""

    operations = {"hit": ("limit", "window_ms")}
    limit, window_ms = 2, 1000

    def initial(self):
        return ()

    def elapse(self, state, now_ms):
        return tuple(at for at in state if at >= now_ms - self.window_ms)

    def outcomes(self, state, call, now_ms):
        within = sum(at > now_ms - self.window_ms for at in state)
        on_edge = len(state) - within  # exactly one window old: counted or not
        if within < self.limit:
            yield 1, (*state, now_ms)
        if within + on_edge >= self.limit:
            yield 0, state

    def deadlines_ms(self, state):
        return [at + self.window_ms for at in state]

    def calls(self, client, seen):
        yield Call.of("hit", limit=self.limit, window_ms=self.window_ms)

    @law("at-most-n", "no window holds more accepted hits than the limit")
    def at_most_n(self, before, call, reply, now_ms):
        full = sum(at > now_ms - self.window_ms for at in before) >= self.limit
        return reply == 0 if full else None

    @law("refusal-when-full", "a hit is refused only when the window is full")
    def refusal_when_full(self, before, call, reply, now_ms):
        return len(before) >= self.limit if reply == 0 else None
