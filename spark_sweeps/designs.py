"""Designs: which points of the space that the axes span are run. Point ``i`` is a function of the sweep file alone.

A driver never holds a list of points: a grid counts in mixed radix, a table and a one-at-a-time design index, and
space-filling designs keep one array.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from spark_sweeps.axes import Axis

Point = dict[str, Any]


class Design(Protocol):
    """Points by number."""

    def __len__(self) -> int: ...

    def point(self, number: int) -> Point:
        """The values of the axes at this point."""


class Grid:
    """Every combination; the last axis changes fastest."""

    def __init__(self, axes: Mapping[str, Axis]) -> None:
        self._values = {name: axis.listed() for name, axis in axes.items()}
        self._length = math.prod(len(values) for values in self._values.values())

    def __len__(self) -> int:
        return self._length

    def point(self, number: int) -> Point:
        found: Point = {}
        for name in reversed(self._values):
            number, place = divmod(number, len(self._values[name]))
            found[name] = self._values[name][place]
        return {name: found[name] for name in self._values}


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


class Table:
    """The rows that the file lists."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def point(self, number: int) -> Point:
        return dict(self._rows[number])


class SpaceFilling:
    """Points of the unit cube, mapped through the axes."""

    def __init__(self, axes: Mapping[str, Axis], samples: np.ndarray) -> None:
        self._axes = axes
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def point(self, number: int) -> Point:
        return {name: axis.at(float(self._samples[number, k])) for k, (name, axis) in enumerate(self._axes.items())}


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
