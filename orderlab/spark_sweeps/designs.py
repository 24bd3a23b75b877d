"""Designs: which points of the space that the axes span are run. Point ``i`` is a function of the sweep file alone.

A driver never holds a list of points: a grid counts in mixed radix, a table and a one-at-a-time design index, and
space-filling designs keep one array.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from orderlab.spark_sweeps.axes import Axis

Point = dict[str, Any]


class Design(Protocol):
    """Points by number."""

    def __len__(self) -> int: ...

    def point(self, number: int) -> Point:
        """The values of the axes at this point."""

    def columns(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """The same for many points: an array for each axis, of floating point if all its values are numbers."""


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


class Table:
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
            name: axis.at(share, self._listed.get(name)) for (name, axis), share in zip(self._axes.items(), shares, strict=True)
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
