"""Moments that a store has written down itself: in scores, fields, texts, in milliseconds or in seconds.

A store may act at another moment than the contract says: a retry that waits too short, a lease whose renewal was not
noted. What it noted tells when. What lies beyond all that the contract and the keys wait for is no matter: a store that
is late shows at the contract's own moment.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from typing import Any

from orderlab.properties.engine.run import ContractRun

NUMBER = re.compile(rb"(?<![\d.])\d{9,15}(?:\.\d{1,6})?(?![\d.])")
"""Digits that may be a moment."""
UNITS_MS = (1, 1000)
"""Milliseconds, and seconds."""


def noted_ms(run: ContractRun) -> set[int]:
    """The moments from now on that stand in a store's keys, up to the last that is due anyway; of a large store none,
    for looking would take longer than a step."""
    now_ms, last_ms = run.judge.now_ms, max(run.deadlines_ms, default=0)
    if last_ms < now_ms or run.core.is_large:
        return set()
    return {
        int(number * unit_ms)
        for _, value, _ in run.core.keyspace.values()
        for number in _numbers(value)
        for unit_ms in UNITS_MS
        if now_ms <= number * unit_ms <= last_ms
    }


def agreement(run: ContractRun) -> Hashable:
    """Whether what a store has noted is what the contract waits for, and the other way round."""
    now_ms, noted, kept = run.judge.now_ms, noted_ms(run), set(run.backend.deadlines_ms())
    due = {at for state in run.judge.states() for at in run.judge.asked.deadlines_ms(state) if at >= now_ms}
    return frozenset(at in due for at in noted), frozenset(at in noted or at in kept for at in due)


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, bytes):
        yield from map(float, NUMBER.findall(value))
    elif isinstance(value, int | float):
        yield value
    elif isinstance(value, tuple | list | frozenset):
        for item in value:
            yield from _numbers(item)
