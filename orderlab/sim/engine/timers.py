"""Calling a function at an instant of virtual time: one event, no process."""

from __future__ import annotations

from collections.abc import Callable

import simpy


class _Call(simpy.Event):
    """An event that has succeeded already and only calls a function when its instant comes."""

    _ok = True
    _value = None

    def __init__(self, env: simpy.Environment, function: Callable[[], None]) -> None:
        self.env = env
        self.callbacks = [lambda _: function()]


def call_at(env: simpy.Environment, at_us: float, function: Callable[[], None]) -> None:
    """Call ``function`` at ``at_us``, rounded up to a whole microsecond; at once after this event if that is past."""
    delay = -int(-at_us // 1) - int(env.now)
    env.schedule(_Call(env, function), delay=delay if delay > 0 else 0)
