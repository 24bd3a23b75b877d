"""The plan of a sweep: its design, and run ``i`` with its parameters and its seed, a function of the sweep file alone.

A driver never holds a list of points: a grid counts in mixed radix, a table and a one-at-a-time design index, and
space-filling designs keep one array.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from orderlab.model.errors import InputError
from orderlab.sim.engine.random_streams import RandomStreams
from orderlab.spark_sweeps.sweep_file.expressions import Expression
from orderlab.spark_sweeps.sweep_file.specification import RUNS_MAX, Axis, SweepFile

Point = dict[str, Any]


class Design(Protocol):
    """Points by number."""

    def __len__(self) -> int: ...

    def point(self, number: int) -> Point:
        """The values of the axes at this point."""

    def columns(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Values of many points: an array for each axis, of floating point if all its values are numbers."""


def column_of(values: Sequence[Any]) -> np.ndarray:
    """Values as an array: floating point for numbers, else objects. A number that is too large for that is infinite."""
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return np.array([float(value) if abs(value) < 1e300 else math.inf for value in values])
    found = np.empty(len(values), object)
    found[:] = values
    return found


def _columns_by_point(design: Design, numbers: np.ndarray) -> dict[str, np.ndarray]:
    points = [design.point(int(number)) for number in numbers]
    names = dict.fromkeys(name for point in points for name in point)
    return {name: column_of([point.get(name) for point in points]) for name in names}


class Grid:
    """Every combination; the last axis changes fastest."""

    def __init__(self, axes: Mapping[str, Axis]) -> None:
        self._values = {name: axis.listed() for name, axis in axes.items()}
        self._columns = {name: column_of(values) for name, values in self._values.items()}
        self._length = math.prod(len(values) for values in self._values.values())

    def __len__(self) -> int:
        return self._length

    def point(self, number: int) -> Point:
        found: Point = {}
        for name in reversed(self._values):
            number, place = divmod(number, len(self._values[name]))
            found[name] = self._values[name][place]
        return {name: found[name] for name in self._values}

    def columns(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        for name in reversed(self._columns):
            numbers, places = np.divmod(numbers, len(self._columns[name]))
            found[name] = self._columns[name][places]
        return found


class OneAtATime:
    """The base point, then each axis through its values while the others stay at the base."""

    def __init__(self, axes: Mapping[str, Axis], base: Mapping[str, Any]) -> None:
        self._centre = {name: base.get(name, axis.at(0.5)) for name, axis in axes.items()}
        self._moves = [
            (name, value) for name, axis in axes.items() for value in axis.listed() if value != self._centre[name]
        ]

    def __len__(self) -> int:
        return 1 + len(self._moves)

    def point(self, number: int) -> Point:
        return dict(self._centre) if number == 0 else {**self._centre, **dict([self._moves[number - 1]])}

    def columns(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        return _columns_by_point(self, numbers)


class DesignRows:
    """The rows that the file lists."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def point(self, number: int) -> Point:
        return dict(self._rows[number])

    def columns(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        return _columns_by_point(self, numbers)


class SpaceFilling:
    """Points of the unit cube, mapped through the axes."""

    def __init__(self, axes: Mapping[str, Axis], samples: np.ndarray) -> None:
        self._axes = axes
        self._listed = {name: axis.listed() for name, axis in axes.items() if axis.is_discrete}
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def point(self, number: int) -> Point:
        shares = self._samples[number].tolist()
        return {
            name: axis.at(share, self._listed.get(name))
            for (name, axis), share in zip(self._axes.items(), shares, strict=True)
        }

    def columns(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        return _columns_by_point(self, numbers)


def latin_hypercube(axes: Mapping[str, Axis], samples: int, seed: int) -> SpaceFilling:
    """One point in each of ``samples`` slices of every axis (McKay, Beckman, Conover 1979)."""
    from scipy.stats import qmc  # takes a second to import, and most designs do without

    return SpaceFilling(axes, qmc.LatinHypercube(len(axes), rng=np.random.default_rng(seed)).random(samples))


def sobol(axes: Mapping[str, Axis], samples: int, seed: int) -> SpaceFilling:
    """A scrambled Sobol' sequence; balanced where ``samples`` is a power of two."""
    from scipy.stats import qmc

    engine = qmc.Sobol(len(axes), scramble=True, rng=np.random.default_rng(seed))
    drawn = engine.random_base2(max(0, (samples - 1).bit_length()))[:samples]
    return SpaceFilling(axes, np.minimum(drawn, np.nextafter(1.0, 0.0)))


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
    """All runs of a sweep: the replications of a point follow each other. Raises InputError for a design without
    runs."""

    def __init__(self, sweep: SweepFile, place: str = "sweep") -> None:
        self.sweep = sweep
        self.place = place
        _insist_on_a_size(sweep, place)
        self.design = _design(sweep)
        self.points = len(self.design)
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
        """About the parameters at many points, for estimates: an array for each, nan where a derived one has no
        value."""
        found = {
            name: np.full(len(points), value, None if _is_number(value) else object)
            for name, value in self.sweep.base.items()
        }
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


def _insist_on_a_size(sweep: SweepFile, place: str) -> None:
    """Raise InputError for more runs than a plan can number; the product of many axes may be beyond any machine
    integer."""
    choice, axes = sweep.design, sweep.axes.values()
    if choice.kind == "grid":
        points = math.prod(len(axis.listed()) for axis in axes)
    elif choice.kind == "one-at-a-time":
        points = 1 + sum(len(axis.listed()) for axis in axes)
    else:
        points = choice.samples or len(choice.rows or ())
    runs = points * sweep.replications.count
    if runs > RUNS_MAX:
        told = f"{runs:,}" if runs < 10**15 else f"more than 10^{len(str(runs)) - 1}"
        raise InputError(f"{place}: {told} runs; at most {RUNS_MAX:,}: shorten an axis or sample the space")


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
        return DesignRows(choice.rows or ())
    seed = seed_of(sweep.seed, "design")
    build = latin_hypercube if choice.kind == "latin-hypercube" else sobol
    return build(axes, choice.samples or 1, seed)
