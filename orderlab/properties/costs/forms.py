"""The form of a cost as a function of one size: which of a few forms explains measurements best, and with what error.

Each form is fitted by least squares of the relative error. The error that is told is that of leaving one measurement
out and foretelling it from the others, so that a form which merely bends to its points does not win. Of two forms that
foretell alike the simpler one is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log2

import numpy as np

FORMS: Mapping[str, Callable[[float], float]] = {
    "": lambda n: 0.0,
    "log n": lambda n: log2(max(n, 1)),
    "n": lambda n: n,
    "n log n": lambda n: n * log2(max(n, 1)),
    "n²": lambda n: n * n,
}
"""What grows, the slowest first; nothing for what is constant."""
ORDER = tuple(FORMS)
GOOD, ALIKE = 0.02, 1.3
"""An error that needs no better form; by how much a simpler form may foretell worse."""
FLAT = 0.02
"""Measurements that differ by less, relative to the largest, are the same."""


@dataclass(frozen=True)
class Fitted:
    """``constant + slope · form(n)``, from the size ``begins`` on."""

    constant: float
    slope: float
    form: str
    error: float
    """Relative, of foretelling each measurement from the others; the root of the mean square."""
    begins: float = 0.0

    def at(self, size: float) -> float:
        """The cost that it foretells at a size."""
        return self.constant + self.slope * FORMS[self.form](size)

    @property
    def order(self) -> int:
        """How fast it grows: 0 not at all."""
        return ORDER.index(self.form)


def fitted(measured: Mapping[float, float] | Mapping[int, float]) -> Fitted:
    """The form of what was measured at each size."""
    sizes, values = zip(*sorted(measured.items()), strict=True)
    if _is_flat(values):
        return Fitted(float(np.median(values)), 0.0, "", _spread(values))
    flat = next((at for at in range(1, len(values) - 1) if _is_flat(values[at:])), None)
    if flat is not None:
        return Fitted(float(np.median(values[flat:])), 0.0, "", _spread(values[flat:]), sizes[flat])
    tried = [_fit(sizes, values, form) for form in ORDER[1:]]
    best = min(one.error for one in tried)
    return next(one for one in tried if one.error <= max(GOOD, ALIKE * best))


def _is_flat(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= FLAT * max(map(abs, values))


def _spread(values: Sequence[float]) -> float:
    middle = float(np.median(values))
    return 0.0 if not middle else float(np.sqrt(np.mean([(one / middle - 1) ** 2 for one in values])))


def _fit(sizes: Sequence[float], values: Sequence[float], form: str) -> Fitted:
    if len(sizes) < 3:
        constant, slope = _solve(sizes, values, form)
        return Fitted(constant, slope, form, _error(sizes, values, form, constant, slope))
    missed = []
    for left_out in range(len(sizes)):
        others = [at for at in range(len(sizes)) if at != left_out]
        constant, slope = _solve([sizes[at] for at in others], [values[at] for at in others], form)
        size, value = sizes[left_out], values[left_out]
        missed.append(_error([size], [value], form, constant, slope))
    constant, slope = _solve(sizes, values, form)
    return Fitted(constant, slope, form, float(np.sqrt(np.mean(np.square(missed)))))


def _solve(sizes: Sequence[float], values: Sequence[float], form: str) -> tuple[float, float]:
    weights = 1 / np.maximum(np.abs(values), 1e-9 + 1e-3 * float(np.max(np.abs(values))))
    columns = [np.ones(len(sizes))] if not form else [np.ones(len(sizes)), np.array([FORMS[form](n) for n in sizes])]
    solution = np.linalg.lstsq(np.stack(columns, axis=1) * weights[:, None], np.array(values) * weights, rcond=None)[0]
    constant, slope = float(solution[0]), float(solution[1]) if form else 0.0
    if constant < 0 < slope and min(values) >= 0:  # nothing costs less than nothing
        constant = 0.0
        slope = float(np.mean([value / FORMS[form](n) for n, value in zip(sizes, values, strict=True) if n > 1]))
    return constant, slope


def _error(sizes: Sequence[float], values: Sequence[float], form: str, constant: float, slope: float) -> float:
    floor = 1e-3 * max(map(abs, values)) or 1e-9
    points = zip(sizes, values, strict=True)
    missed = [(constant + slope * FORMS[form](n) - value) / max(abs(value), floor) for n, value in points]
    return float(np.sqrt(np.mean(np.square(missed))))
