"""What a sweep would do: how many runs, which ones, and about how long, from a few of them done now and not kept."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from orderlab.spark_sweeps.costs import estimated
from orderlab.spark_sweeps.isolation import Ended, isolated
from orderlab.spark_sweeps.plan import Plan, Run
from orderlab.spark_sweeps.subject import Observed, subject_of
from orderlab.spark_sweeps.work import observe

PILOT_RUNS = 4
PILOT_S = 30.0
ESTIMATED_MAX = 2000


@dataclass(frozen=True)
class Preview:
    """Of a sweep that has not begun. ``cpu_s`` None: no run of the pilot came to its end."""

    runs: int
    points: int
    first: list[Run]
    pilot: list[Ended[Observed]]
    cpu_s: float | None
    cores: int

    @property
    def wall_s(self) -> float | None:
        """About how long it takes on so many cores, without start-up."""
        return None if self.cpu_s is None else self.cpu_s / self.cores


def preview(plan: Plan, cores: int, rows: int = 5) -> Preview:
    """Do a few runs, spread over the design, within PILOT_S seconds in all. Raises InputError."""
    subject = subject_of(plan.sweep.system)
    subject.warm_up()
    limits = plan.sweep.limits
    numbers = np.unique(np.linspace(0, len(plan) - 1, PILOT_RUNS).astype(int)).tolist()
    done: list[Ended[Any]] = []
    deadline = time.perf_counter() + PILOT_S
    while numbers and time.perf_counter() < deadline:
        most_s = min(limits.wall_s, max(0.1, deadline - time.perf_counter()))
        number = numbers.pop(0)
        done += isolated(lambda number: observe(plan, subject, number, None), [number], most_s, limits.memory_mib)
    measured = [(ended.item, ended.usage.wall_s) for ended in done if ended.status == "ok"]
    cpu_s = None
    if measured:
        some = np.unique(np.linspace(0, len(plan) - 1, ESTIMATED_MAX).astype(int))
        cpu_s = float(estimated(plan, some, measured, None).mean() * len(plan))
    first = [plan.run(number) for number in range(min(rows, len(plan)))]
    return Preview(len(plan), plan.points, first, done, cpu_s, cores)
