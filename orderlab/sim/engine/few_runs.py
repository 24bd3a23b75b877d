"""What few runs cannot tell of a mean: what they did not show, and when a few of them carry it.

No interval of a mean holds it for every population: what happens seldom and weighs much moves the mean, and most
samples do not show it (Bahadur, Savage 1956). So intervals of means are called *nominal*: they hold the mean as often
as they say where runs vary about normally, and less where a few differ much (``notes/statistics.md`` has how much
less).

Two things are known whatever the population is. What n runs have not shown happens in at most 1 - 0.05^(1/n) of runs,
with 95 % (the rule of three, 3/n, is its bound). And the interval of the median by order statistics always holds it; it
needs six runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from orderlab.sim.engine.skewed_means import ValueShape
from orderlab.sim.engine.statistics import Interval, interval_of, numbers_of

UNSEEN = 0.05
"""The chance that something more frequent than `unseen_share` did not show."""
CARRIERS_MAX, CARRIERS_SHARE = 3, 0.1
"""At most so many, at most this share of the runs and at least one, are a few that may carry the mean."""
REST_MIN = 4
"""Runs that must be left when the few are taken out."""


def nominal(confidence: float = 0.95) -> str:
    """How the confidence of an interval of a mean is called."""
    return f"nominal {100 * confidence:.4g} %"


NOMINAL = (
    "Nominal: intervals of means hold them as often as that where runs vary about normally, and less where a few runs "
    "differ much from the others (notes/statistics.md)."
)


def mean_at(metric: str, setting: Mapping[str, Any]) -> str:
    """What a mean is called in a warning."""
    where = ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in setting.items()
    )
    return f"{metric} at {where}" if where else metric


def unseen_share(runs: int, chance: float = UNSEEN) -> float:
    """The share of runs up to which something may happen and not have been seen in so many independent ones, but for a
    ``chance`` of 5 %."""
    return 1.0 - math.exp(math.log(chance) / runs)


def exact_line(bound: str, runs: int, confidence: float, how_sure: str) -> str:
    """What to know of a ``bound`` that each of so many runs is at, as of a count that was 0 in all."""
    share = 100 * unseen_share(runs, 1 - confidence)
    return (
        f"{bound}: met, for each of {runs:,} runs is exactly at the bound. Of others is known that they are "
        f"at most {share:.2g} % of all runs ({how_sure}; exact)."
    )


def unseen_line(runs: int) -> str:
    """What to know of a mean over so many runs, whatever their values are."""
    figure = "a figure rests on one run" if runs == 1 else f"a figure rests on {runs:,} runs"
    return (
        f"{figure}: what happens in up to {100 * unseen_share(runs):.2g} % of runs may be unseen, and is in no interval"
    )


def carriers(values: Sequence[float], confidence: float = 0.95) -> list[int]:
    """The places of the few values that carry the mean: without them it has an interval that leaves out the mean of
    all.

    Taken out are 1, 2 or 3 of the values that lie furthest from the median, at most a tenth; empty where none carry it,
    or where too few are left to tell.
    """
    told = np.asarray(values, float)
    if len(told) < REST_MIN + 1 or not np.isfinite(told).all():
        return []
    order = np.argsort(-np.abs(told - np.median(told)), kind="stable")
    mean = float(told.mean())
    most = min(CARRIERS_MAX, max(1, math.floor(len(told) * CARRIERS_SHARE)), len(told) - REST_MIN)
    for few in range(1, most + 1):
        rest = interval_of(told[np.sort(order[few:])].tolist(), confidence)
        if not rest.low <= mean <= rest.high:
            return sorted(int(place) for place in order[:few])
    return []


def quantile_of(values: Sequence[float], share: float) -> float:
    """The least of the values that a ``share`` of them does not exceed."""
    return float(np.quantile(np.asarray(values, float), share, method="inverted_cdf"))


def quantile_interval(values: Sequence[float], share: float, confidence: float = 0.95) -> Interval:
    """The value that a ``share`` of the population does not exceed, and its interval by order statistics, which holds
    it whatever the population is. An end is infinite where so few values do not reach it (`runs_needed`).
    """
    from scipy import stats

    sample = np.asarray(values, float)
    if np.isnan(sample).any():
        return Interval(math.nan, -math.inf, math.inf, len(sample))
    ends = stats.quantile_test(sample, q=0, p=share).confidence_interval(confidence)
    low = -math.inf if math.isnan(ends.low) else float(ends.low)
    high = math.inf if math.isnan(ends.high) else float(ends.high)
    return Interval(quantile_of(values, share), low, high, len(sample))


def runs_needed(share: float, confidence: float = 0.95) -> int:
    """The fewest values with which both ends of `quantile_interval` are finite."""
    rarer = max(share, 1 - share)
    return math.ceil(math.log((1 - confidence) / 2) / math.log(rarer))


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Both ends of the exact interval of the median; None for fewer values than it needs."""
    interval = quantile_interval(values, 0.5, confidence)
    return (interval.low, interval.high) if math.isfinite(interval.low) and math.isfinite(interval.high) else None


@dataclass
class Evidence:
    """What lies behind the means of an answer: the fewest runs of one, and which means a few runs carry."""

    fewest: int | None = None
    carried: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    """Metrics whose values no distribution that is tried explains."""

    def take(self, name: str, values: Sequence[float], confidence: float = 0.95) -> None:
        """Look at the values behind one mean; ``name`` says which it is."""
        self.fewest = len(values) if self.fewest is None else min(self.fewest, len(values))
        few = carriers(values, confidence)
        if few:
            rest = [value for place, value in enumerate(values) if place not in few]
            middle = median_interval(values)
            median = (
                ""
                if middle is None
                else f"; median {np.median(values):.4g} ({middle[0]:.4g} to {middle[1]:.4g}, exact)"
            )
            self.carried.append(
                f"{name}: {len(few)} of {len(values)} runs {'carries' if len(few) == 1 else 'carry'} the mean, "
                f"{np.mean(values):.4g} with "
                f"and {np.mean(rest):.4g} without{median}"
            )

    def take_population(self, metric: str, population: ValueShape) -> None:
        """Look at what all configurations tell of a metric."""
        if not population.is_explained:
            self.unexplained.append(metric)

    @property
    def unseen(self) -> str:
        """`unseen_line` of the mean with the fewest runs; empty without a mean."""
        return "" if self.fewest is None else unseen_line(self.fewest)

    @property
    def warnings(self) -> list[str]:
        """In words, for the first lines of an answer."""
        lines = [
            f"{metric}: a few runs differ from the others by more than skewed values do, so that no interval of its "
            "mean is claimed, and no target of it is met; ask what most runs keep (of_runs)"
            for metric in self.unexplained
        ]
        return lines + self._carried_lines()

    def _carried_lines(self) -> list[str]:
        if not self.carried:
            return []
        more = f"; and {len(self.carried) - 1:,} more means like it" if len(self.carried) > 1 else ""
        return [f"{self.carried[0]}{more}: a few runs decide, so that no confidence is claimed; raise replications"]


def evidence_of(reports: Sequence[Mapping[str, Any]], figures: Iterable[str]) -> Evidence:
    """What is known of the means of these figures, by their paths, over reports of independent replications."""
    observed = [dict(numbers_of(report)) for report in reports]
    evidence = Evidence()
    for figure in figures:
        evidence.take(figure, [report[figure] for report in observed])
    return evidence
