"""Calling a function at an instant of virtual time: one event, no process."""

from __future__ import annotations

from collections.abc import Callable

import simpy


def call_at(env: simpy.Environment, at_us: float, function: Callable[[], None]) -> None:
    """Call ``function`` at ``at_us``, rounded up to a whole microsecond; at once after this event if that is past."""
    delay = -int(-at_us // 1) - int(env.now)
    event = simpy.Timeout(env, delay if delay > 0 else 0)
    event.callbacks.append(lambda _: function())
