"""The plan of a sweep: run ``i`` with its parameters and its seed, computed when it is asked for, wherever that is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from orderlab.model.errors import InputError
from orderlab.sim.engine.random_streams import RandomStreams
from orderlab.spark_sweeps.designs import Design, Grid, OneAtATime, Table, column_of, latin_hypercube, sobol
from orderlab.spark_sweeps.expressions import Expression
from orderlab.spark_sweeps.specification import RUNS_MAX, SweepFile

LEAST_COST = 1e-12


@dataclass(frozen=True)
class Run:
    """One run. ``parameters``: base, then the axes' values, then what is derived from them."""

    number: int
    point: int
    replication: int
    seed: int
    parameters: dict[str, Any]


class Plan:
    """All runs of a sweep: the replications of a point follow each other. Raises InputError for a design without runs."""

    def __init__(self, sweep: SweepFile, place: str = "sweep") -> None:
        self.sweep = sweep
        self.place = place
        self.design = _design(sweep)
        self.points = len(self.design)
        if len(self) > RUNS_MAX:
            raise InputError(f"{place}: {len(self):,} runs; at most {RUNS_MAX:,}: shorten an axis or sample the space")
        self._derived = [(name, Expression(text, f"{place}: derived.{name}")) for name, text in sweep.derived.items()]
        self._cost = None if sweep.cost is None else Expression(sweep.cost, f"{place}: cost")
        self.has_cost = self._cost is not None

    def __len__(self) -> int:
        return self.points * self.sweep.replications.count

    def run(self, number: int) -> Run:
        """Run ``number``, 0 <= number < len. Raises InputError where a derived parameter has no value."""
        run = self.undecided(number)
        for name, expression in self._derived:
            run.parameters[name] = expression.evaluate(run.parameters)
        return run

    def undecided(self, number: int) -> Run:
        """Run ``number`` without what is derived."""
        point, replication = divmod(number, self.sweep.replications.count)
        parameters = {**self.sweep.base, **self.design.point(point)}
        shared = self.sweep.replications.common_random_numbers
        name = f"replication-{replication}" if shared else f"point-{point}-replication-{replication}"
        seeds = self.sweep.design.seeds
        seed = seed_of(self.sweep.seed, name) if seeds is None else seeds[point]
        return Run(number, point, replication, seed, parameters)

    def stated_cost(self, run: Run) -> float:
        """What the file's ``cost`` says of a run. Raises InputError where that is not a positive number."""
        assert self._cost is not None
        cost = self._cost.evaluate(run.parameters)
        if isinstance(cost, (bool, str)) or cost <= 0:
            raise InputError(f"{self.place}: cost: {cost!r} for run {run.number}; a cost is a positive number")
        return float(cost)

    def columns(self, points: np.ndarray) -> dict[str, np.ndarray]:
        """About the parameters at many points, for estimates: an array for each, nan where a derived one has no value."""
        found = {name: np.full(len(points), value, None if _is_number(value) else object) for name, value in self.sweep.base.items()}
        found |= self.design.columns(points)
        for name, expression in self._derived:
            try:
                found[name] = expression.column(found, len(points))
            except (TypeError, ValueError, KeyError):
                found[name] = column_of([self._derived_at(int(point), name) for point in points])
        return found

    def _derived_at(self, point: int, name: str) -> Any:
        try:
            return self.run(point * self.sweep.replications.count).parameters[name]
        except InputError:
            return math.nan

    def stated_costs(self, points: np.ndarray) -> np.ndarray:
        """What the file's ``cost`` says of the runs of each point. Raises InputError as `stated_cost` does."""
        assert self._cost is not None
        try:
            costs = np.array(self._cost.column(self.columns(points), len(points)), float)
        except (TypeError, ValueError, KeyError):
            costs = np.full(len(points), np.nan)
        for place in np.flatnonzero(~(np.isfinite(costs) & (costs > 0))):
            try:
                run = self.run(int(points[place]) * self.sweep.replications.count)
            except InputError:
                costs[place] = LEAST_COST  # it becomes a row with its error
            else:
                costs[place] = self.stated_cost(run)
        return costs

    @cached_property
    def parameter_names(self) -> tuple[str, ...]:
        """The parameters that differ from run to run, and those that follow from them."""
        rows = self.sweep.design.rows or ()
        return tuple(dict.fromkeys([*self.sweep.axes, *(name for row in rows for name in row), *self.sweep.derived]))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def seed_of(seed: int, name: str) -> int:
    """A seed of 32 bits for a part of a sweep, from the sweep's own."""
    return RandomStreams(seed).stream(name).getrandbits(32)


def _design(sweep: SweepFile) -> Design:
    choice, axes = sweep.design, sweep.axes
    if choice.kind == "grid":
        return Grid(axes)
    if choice.kind == "one-at-a-time":
        return OneAtATime(axes, sweep.base)
    if choice.kind == "table":
        return Table(choice.rows or ())
    seed = seed_of(sweep.seed, "design")
    build = latin_hypercube if choice.kind == "latin-hypercube" else sobol
    return build(axes, choice.samples or 1, seed)
