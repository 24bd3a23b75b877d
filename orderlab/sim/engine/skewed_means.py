"""Ends of intervals of means that hold where values are skewed.

Student's interval of the mean of exponential values has an upper end that is too low: runs with a low mean also have
a low spread. Of one configuration that costs a few per cent; where the best of a hundred is chosen, it decides (of a
hundred that all lie at the target one "met" it in 70 % of sweeps). So how skewed values are is read from all
configurations together, and the ends are those that gamma distributed values of that skewness ask for. A gamma
distribution has the exact end by one expectation: sum and proportions of its values are independent (Lukacs 1955).

What the values leave open is taken for as skewed as the exponential distribution. Values that no gamma distribution
explains have no ends: a few runs that differ much from all others, or configurations of which only some have them.
Configurations that share random numbers tell less of the shape (of sums of cubes the correlation is about that of the
values cubed; its square is taken), and err together: of k that correlate by r as 1 + (k - 1)(1 - r^2) do (Nyholt
2004). By that number the ends for skewed values are divided, and Student's by k.

What no run has shown is not seen here (`few_runs`), and shapes of configurations are taken to be alike.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from orderlab.sim.engine.statistics import Interval, interval_of, is_mostly_equal, mean_interval, usual_deviation

Floats = npt.NDArray[np.float64]

SKEWNESS = (0.0, 0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
"""Of the distributions that are tried, which are gamma distributions with the shape (2 / skewness)^2; the first is
normal."""
EXPONENTIAL = 2.0
DRAWS_MAX, VALUES_MAX = 20_000, 1_000_000
"""Samples of each, and values in all samples of one, by which expectations are taken."""
TAIL_MIN = 1e-4
"""The least tail of which the draws tell; beyond it ends grow as Student's do."""
LEFT_OPEN = 2.0
"""Standard errors up to which a skewness is not excluded."""
SHOWN = 1.0
"""Standard errors by which a skewness beyond that of the exponential distribution has to be exceeded."""
EXPLAINED = 3.0
"""Standard errors up to which configurations differ in skewness as samples of one distribution do."""

ALLOWANCE = "it allows for values as skewed as those of all configurations together show or leave open"


@dataclass(frozen=True)
class Samples:
    """What samples of so many values of one distribution show."""

    skewness: float
    """Of the distribution."""
    mean: float
    spread: float
    kurtosis: float
    """Of the skewness of samples."""
    variation: Floats
    """Of each sample, standard deviation over mean; empty of the normal distribution."""

    def end(self, count: int, tail: float) -> float:
        """How many standard errors above its estimate the mean lies in no more than a share ``tail`` of samples."""
        from scipy import optimize, special, stats

        student = float(stats.t.isf(tail, count - 1))
        if not len(self.variation):
            return student
        if tail < TAIL_MIN:
            return student * self.end(count, TAIL_MIN) / float(stats.t.isf(TAIL_MIN, count - 1))
        total = count * (2 / self.skewness) ** 2

        def beyond(logarithm: float) -> float:
            reach = total / (1 + math.exp(logarithm) * self.variation / math.sqrt(count))
            return math.log(max(float(special.gammainc(total, reach).mean()), 1e-300) / tail)

        low, high = math.log(student) - 1, math.log(student) + 12
        return max(student, math.exp(optimize.brentq(beyond, low, high, xtol=1e-4)))


@functools.lru_cache(64)
def _samples(count: int) -> tuple[Samples, ...]:
    """Of each of `SKEWNESS`, the same in every process."""
    draws = max(500, min(DRAWS_MAX, VALUES_MAX // count))
    shapes = []
    for skewness in SKEWNESS:
        rng = np.random.default_rng([count, round(100 * skewness)])
        values = (
            rng.standard_gamma((2 / skewness) ** 2, (draws, count)) if skewness else rng.standard_normal((draws, count))
        )
        of_samples = skewness_of(values)
        spread = float(of_samples.std())
        kurtosis = float(((of_samples - of_samples.mean()) ** 4).mean()) / spread**4 if spread > 1e-9 else 1.0
        variation = values.std(axis=1, ddof=1) / values.mean(axis=1) if skewness else np.zeros(0)
        shapes.append(Samples(skewness, float(of_samples.mean()), spread, kurtosis, variation))
    return tuple(shapes)


def skewness_of(samples: Floats) -> Floats:
    """The skewness of each row; 0 where all its values are equal."""
    deviations = samples - samples.mean(axis=1, keepdims=True)
    squares = (deviations**2).mean(axis=1)
    cubes = (deviations**3).mean(axis=1)
    skewed: Floats = np.divide(cubes, squares**1.5, out=np.zeros_like(cubes), where=squares > 0)
    return skewed


@dataclass(frozen=True)
class ValueShape:
    """What all configurations together tell of the values of one metric."""

    up: float | None = EXPONENTIAL
    """How skewed they may be to the right; None where no distribution that is tried explains them."""
    down: float | None = EXPONENTIAL
    """To the left."""
    unit: float = 0.0
    """By how much a value deviates that does, where most are equal; 0 where none was seen."""
    apart: float = 1.0
    """As how many independent configurations they err, of each: 1, unless they share random numbers."""

    @property
    def is_explained(self) -> bool:
        """Whether intervals of means have ends."""
        return self.up is not None and self.down is not None

    def interval_of(self, values: Sequence[float], confidence: float) -> Interval:
        """The interval of the mean, with ends that allow for the skewness; that of `interval_of` for flags, counts, and
        values most of which are equal, which vary by another law."""
        interval = interval_of(values, confidence, self.unit)
        if len(values) < 2 or not math.isfinite(interval.half_width) or interval != mean_interval(values, confidence):
            return interval
        error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
        if error == 0:
            return interval
        tail = (1 - confidence) / 2
        student = _end(0.0, len(values), tail)
        up, down = (max(student, _end(skewed, len(values), tail / self.apart)) for skewed in (self.up, self.down))
        return replace(interval, low=interval.estimate - error * down, high=interval.estimate + error * up)


@functools.lru_cache(1024)
def _end_of(place: int, count: int, tail: float) -> float:
    """`Samples.end` of one of `SKEWNESS`."""
    return _samples(count)[place].end(count, tail)


def _end(skewness: float | None, count: int, tail: float) -> float:
    if skewness is None:
        return math.inf
    above = max(1, int(np.searchsorted(SKEWNESS, skewness)))
    part = (skewness - SKEWNESS[above - 1]) / (SKEWNESS[above] - SKEWNESS[above - 1])
    less, more = (math.log(_end_of(place, count, tail)) for place in (above - 1, above))
    return math.exp((1 - part) * less + part * more)


def population_of(configurations: Sequence[Sequence[float]]) -> ValueShape:
    """What is known of the values of one metric in these configurations; their shapes are taken to be alike."""
    finite = [np.asarray(values, float) for values in configurations if len(values) > 1]
    finite = [values for values in finite if np.isfinite(values).all()]
    mostly_equal = [values for values in finite if is_mostly_equal(values)]
    varying = [values for values in finite if not is_mostly_equal(values)]
    seen = np.array([skewness_of(values[None])[0] for values in varying])
    counts, shared = [len(values) for values in varying], _correlation(varying) ** 2
    alike = 1 + (len(varying) - 1) * shared
    return ValueShape(
        _side(seen, counts, alike),
        _side(-seen, counts, alike),
        usual_deviation(mostly_equal),
        apart=1 - shared + shared / max(1, len(varying)),
    )


def _side(seen: Floats, counts: Sequence[int], alike: float) -> float | None:
    """The greatest skewness to the right that is reckoned with: what is shown, and what is left open up to that of the
    exponential distribution. ``alike``: by how much the variance of a sum grows as configurations share random
    numbers."""
    if not len(seen):
        return EXPONENTIAL
    by_shape = list(zip(*(_samples(count) for count in counts), strict=True))
    distances = []
    for shape in by_shape:
        error = math.sqrt(sum(sample.spread**2 for sample in shape) * alike)
        off = float(seen.sum()) - sum(sample.mean for sample in shape)
        distances.append(off / error if error > 1e-9 else 0.0)
    falling = -np.array(distances)
    if falling[-1] < -LEFT_OPEN or not _is_explained(seen, by_shape, int(np.abs(falling).argmin()), alike):
        return None
    shown, left_open = (
        float(np.interp(limit, falling, SKEWNESS)) if falling[0] < limit else 0.0 for limit in (-SHOWN, LEFT_OPEN)
    )
    return max(shown, min(left_open, EXPONENTIAL))


def _is_explained(seen: Floats, by_shape: Sequence[Sequence[Samples]], best: int, alike: float) -> bool:
    """Whether configurations differ in skewness no more than samples of that distribution do."""
    shape = by_shape[best]
    apart = [
        ((own - sample.mean) / sample.spread) ** 2
        for own, sample in zip(seen, shape, strict=True)
        if sample.spread > 1e-9
    ]
    if len(apart) < 2:
        return True
    error = math.sqrt(sum(max(sample.kurtosis - 1, 0.1) for sample in shape) * alike)
    return bool(sum(apart) - len(apart) <= EXPLAINED * error)


def _correlation(configurations: Sequence[Floats]) -> float:
    """How much the values of configurations go up and down together, as they do on common random numbers: 0 to 1."""
    count = min(map(len, configurations), default=0)
    rows = [values[:count] - values[:count].mean() for values in configurations if np.ptp(values[:count]) > 0]
    if len(rows) < 2:
        return 0.0
    together = np.sum([row / row.std() for row in rows], axis=0)
    return float(np.clip(((together**2).mean() - len(rows)) / (len(rows) * (len(rows) - 1)), 0.0, 1.0))
