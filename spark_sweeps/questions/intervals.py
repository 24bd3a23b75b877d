"""Intervals and tests of few numbers: means by Student's t, proportions by Clopper and Pearson, and Wald's test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from model.errors import InputError


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval; ``low`` and ``high`` are infinite where one value says nothing."""

    estimate: float
    low: float
    high: float
    count: int


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Of the mean of independent values, by Student's t. Raises InputError for none."""
    from scipy import stats

    if len(values) == 0:
        raise InputError("no runs came to their end; there is nothing to take a mean of")
    with np.errstate(over="ignore", invalid="ignore"):  # infinite and huge values have no interval, and no complaint
        mean = float(np.mean(values))
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else math.inf
    if not math.isfinite(spread):
        return Interval(mean, -math.inf, math.inf, len(values))
    half = float(stats.t.ppf((1 + confidence) / 2, len(values) - 1)) * spread / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half, len(values))


def clopper_pearson(hits: int, trials: int, confidence: float = 0.95) -> Interval:
    """Of a probability: never narrower than promised (Clopper, Pearson 1934)."""
    from scipy import stats

    if not 0 <= hits <= trials or trials == 0:
        raise InputError(f"{hits} of {trials}: no proportion")
    tail = (1 - confidence) / 2
    low = 0.0 if hits == 0 else float(stats.beta.ppf(tail, hits, trials - hits + 1))
    high = 1.0 if hits == trials else float(stats.beta.ppf(1 - tail, hits + 1, trials - hits))
    return Interval(hits / trials, low, high, trials)


def wald_test(outcomes: Sequence[bool], acceptable: float, unacceptable: float, error: float) -> tuple[str, int]:
    """Is the probability at most ``acceptable`` or at least ``unacceptable``? ("acceptable", "unacceptable" or
    "undecided", after how many outcomes). Each wrong answer has at most about probability ``error`` (Wald 1945).
    """
    if not 0 < acceptable < unacceptable < 1:
        raise InputError(
            f"acceptable {acceptable:g} must lie below unacceptable {unacceptable:g}, both between 0 and 1"
        )
    accept, reject = math.log(error / (1 - error)), math.log((1 - error) / error)
    hit, miss = math.log(unacceptable / acceptable), math.log((1 - unacceptable) / (1 - acceptable))
    evidence = 0.0
    for number, outcome in enumerate(outcomes, 1):
        evidence += hit if outcome else miss
        if evidence <= accept:
            return "acceptable", number
        if evidence >= reject:
            return "unacceptable", number
    return "undecided", len(outcomes)
