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
    """Somebody who can do the work. ``prepare`` is not timed; ``work`` is, and returns how many units it did.

    ``cpu_seconds`` is the processor time that all processes of the contender have used so far.
    """

    name: str
    prepare: Callable[[], None]
    work: Callable[[], int]
    cpu_seconds: Callable[[], float] = time.process_time


@dataclass(frozen=True)
class Timings:
    """Units per second of each contender, one number for each round: by the wall clock, and by processor time.

    The second is the rate of one core that a contender has to itself, with all its processes on it. Other work on the
    machine changes it little, and does not favour whoever spreads over more cores.
    """

    rates: Mapping[str, Sequence[float]]
    core_rates: Mapping[str, Sequence[float]]

    def median(self, name: str) -> float:
        """The contender's median rate, units per second."""
        return statistics.median(self.rates[name])

    def ratio(self, name: str, peer: str) -> float:
        """The median over the rounds of how many times faster ``name`` is than ``peer``."""
        return _median_ratio(self.rates[name], self.rates[peer])

    def core_median(self, name: str) -> float:
        """The contender's median rate, units per second of one core."""
        return statistics.median(self.core_rates[name])

    def core_ratio(self, name: str, peer: str) -> float:
        """The median over the rounds of how many times more ``name`` does than ``peer`` with one core."""
        return _median_ratio(self.core_rates[name], self.core_rates[peer])


def _median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return statistics.median(one / other for one, other in zip(ours, theirs, strict=True))


def take_turns(contenders: Sequence[Contender], rounds: int = ROUNDS_MIN) -> Timings:
    """Time every contender once a round; one more round before, not counted, warms all of them up.

    Collection of garbage is off while a contender works, as ``timeit`` has it.
    """
    if rounds < ROUNDS_MIN:
        raise ValueError(f"{rounds} rounds: a median needs at least {ROUNDS_MIN}")
    rates: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    core_rates: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for round_number in range(rounds + 1):
        for contender in contenders:
            contender.prepare()
            gc.collect()
            gc.disable()
            begun, cpu_begun = time.perf_counter(), contender.cpu_seconds()
            units = contender.work()
            seconds, cpu_seconds = time.perf_counter() - begun, contender.cpu_seconds() - cpu_begun
            gc.enable()
            if round_number:
                rates[contender.name].append(units / seconds)
                core_rates[contender.name].append(units / max(cpu_seconds, 1e-9))
    return Timings(rates, core_rates)


def report(benchmark: str, figures: Mapping[str, float], detail: Mapping[str, Any]) -> dict[str, Any]:
    """The object that ``orderlab bench NAME --json`` prints; figures rounded to four significant digits."""
    rounded = {name: float(f"{figure:.4g}") for name, figure in figures.items()}
    return {"benchmark": benchmark, "figures": rounded, "detail": dict(detail)}
