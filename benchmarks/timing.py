"""Shared by the benchmarks: fair repetition, medians, and the one JSON object that each benchmark prints.

Machines are shared and noisy, so contenders take turns within every round, and a figure is the median of the rounds'
ratios.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ROUNDS_MIN = 5


@dataclass(frozen=True)
class Contender:
    """Somebody who can do the work. ``prepare`` is not timed; ``work`` is, and returns how many units it did."""

    name: str
    prepare: Callable[[], None]
    work: Callable[[], int]


@dataclass(frozen=True)
class Timings:
    """Units per second of each contender, one number for each round."""

    rates: Mapping[str, Sequence[float]]

    def median(self, name: str) -> float:
        """The contender's median rate, units per second."""
        return statistics.median(self.rates[name])

    def ratio(self, name: str, peer: str) -> float:
        """The median over the rounds of how many times faster ``name`` is than ``peer``."""
        return statistics.median(
            ours / theirs for ours, theirs in zip(self.rates[name], self.rates[peer], strict=True)
        )


def take_turns(contenders: Sequence[Contender], rounds: int = ROUNDS_MIN) -> Timings:
    """Time every contender once a round; one more round before, not counted, warms all of them up.

    Collection of garbage is off while a contender works, as ``timeit`` has it.
    """
    if rounds < ROUNDS_MIN:
        raise ValueError(f"{rounds} rounds: a median needs at least {ROUNDS_MIN}")
    rates: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for round_number in range(rounds + 1):
        for contender in contenders:
            contender.prepare()
            gc.collect()
            gc.disable()
            begun = time.perf_counter()
            units = contender.work()
            seconds = time.perf_counter() - begun
            gc.enable()
            if round_number:
                rates[contender.name].append(units / seconds)
    return Timings(rates)


def report(benchmark: str, figures: Mapping[str, float], detail: Mapping[str, Any]) -> dict[str, Any]:
    """The object that ``orderlab bench NAME --json`` prints; figures rounded to four significant digits."""
    rounded = {name: float(f"{figure:.4g}") for name, figure in figures.items()}
    return {"benchmark": benchmark, "figures": rounded, "detail": dict(detail)}
