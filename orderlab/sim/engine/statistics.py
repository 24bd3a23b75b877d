"""Statistics: latencies of a run in bounded memory, and confidence intervals over independent runs.

Warm-up is cut by a stated rule: nothing that was published before the end of the warm-up counts. A run has no
confidence interval: its seed draws once where clients are and when they publish, and however long it is, its batches
know of no other draw (of 30 seeds 2 held the mean of all in an interval by batch means, and 1 in a run five times as
long, ``notes/statistics.md``).

Replications have one, of the kind that their values ask for, and none of zero width. Flags (0 and 1) have the exact
interval of a proportion (Clopper, Pearson 1934), counts that of a Poisson rate (Garwood 1936), widened where single
values are large. Values most of which are equal, as losses are where losing is rare, have one from how many deviate and
by how much: Student's t takes what it has not seen for impossible. All others have Student's. Two one-sided intervals
make that of a difference (MOVER: Zou, Donner 2008). ``notes/statistics.md`` has the coverage.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from orderlab.model.errors import InputError

BUCKETS_PER_E = 100
"""Buckets grow by e^(1/100), 1 %: no percentile is further off than that."""
SLICE_US = 1000
SLICES_MAX = 5000
"""The series of mean latencies from which the end of the warm-up is told."""
BATCHES = 20
"""Equal parts of the measured interval, from whose means growth is told (`orderlab.sim.systems.sustainable`)."""

ARRIVALS_US = 1000
"""Arrivals are known ahead of time, and counted by the millisecond."""
HELD_MAX = 1 << 14
"""Latencies that wait to be counted."""


Ints = npt.NDArray[np.int64]


class LatencyHistogram:
    """Latencies in microseconds, in buckets of 1 %; sums by the batch that the instant of publishing falls into."""

    def __init__(self, begin_us: int, end_us: int, published_us: Callable[[Ints], Ints] | None = None) -> None:
        """``published_us`` tells when messages were published, for ``add_messages``."""
        self.begin_us = begin_us
        self.end_us = end_us
        self._published_us = published_us
        self._max_us = 0.0
        self._buckets = np.zeros(25 * BUCKETS_PER_E, np.int64)
        self._sums = np.zeros(BATCHES)
        self._counts = np.zeros(BATCHES, np.int64)
        self._slice_us = max(SLICE_US, -(-end_us // SLICES_MAX))
        self._slice_sums = np.zeros(end_us // self._slice_us + 1)
        self._slice_counts = np.zeros(end_us // self._slice_us + 1, np.int64)
        self._held: list[tuple[Ints, Ints]] = []
        self._held_messages: list[tuple[Ints, Ints]] = []
        """Messages, and when they had come so far."""
        self._held_count = 0

    def add(self, published_us: npt.NDArray[np.int64], latency_us: npt.NDArray[np.int64]) -> None:
        """Count the latencies of what was published within [begin, end)."""
        self._held.append((published_us, latency_us))
        self._held_count += len(latency_us)
        if self._held_count >= HELD_MAX:
            self._count_held()

    def add_messages(self, messages: Ints, at_us: Ints) -> None:
        """Count the latencies of ``messages``, which had come so far at these instants."""
        self._held_messages.append((messages, at_us))
        self._held_count += len(messages)
        if self._held_count >= HELD_MAX:
            self._count_held()

    def _count_held(self) -> None:
        """Count what is held: it pays off for many at once."""
        if not self._held_count:
            return
        held = self._held
        if self._held_messages:
            assert self._published_us is not None, "messages have instants"
            messages, at_us = (np.concatenate(column) for column in zip(*self._held_messages, strict=True))
            sent_us = self._published_us(messages)
            held = [*held, (sent_us, at_us - sent_us)]
        published_us, latency_us = (np.concatenate(column) for column in zip(*held, strict=True))
        self._held, self._held_messages, self._held_count = [], [], 0
        self._count(published_us, latency_us)

    def _count(self, published_us: Ints, latency_us: Ints) -> None:
        self._add_to_slices(published_us, latency_us)
        counts = (published_us >= self.begin_us) & (published_us < self.end_us)
        if not counts.all():
            published_us, latency_us = published_us[counts], latency_us[counts]
        if len(latency_us) == 0:
            return
        size = len(self._buckets)
        bucket = (np.log(np.maximum(latency_us, 1)) * BUCKETS_PER_E).astype(np.int64)
        self._buckets += np.bincount(np.minimum(bucket, size - 1), minlength=size)
        batch = (published_us - self.begin_us) * BATCHES // (self.end_us - self.begin_us)
        self._sums += np.bincount(batch, latency_us, BATCHES)
        self._counts += np.bincount(batch, minlength=BATCHES)
        self._max_us = max(self._max_us, float(latency_us.max()))

    @property
    def count(self) -> int:
        """How many were counted."""
        self._count_held()
        return int(self._counts.sum())

    @property
    def max_us(self) -> float:
        """The largest; 0 for an empty histogram."""
        self._count_held()
        return self._max_us

    def _add_to_slices(self, published_us: npt.NDArray[np.int64], latency_us: npt.NDArray[np.int64]) -> None:
        if not len(published_us):
            return
        places = np.minimum(published_us // self._slice_us, len(self._slice_counts) - 1)
        first = int(places.min())
        sums, counts = np.bincount(places - first, latency_us), np.bincount(places - first)
        self._slice_sums[first : first + len(sums)] += sums
        self._slice_counts[first : first + len(counts)] += counts

    def settled_us(self) -> float | None:
        """The instant of publishing from which on the mean latency has settled, by MSER-5; None if it has not
        (``mser_5``)."""
        self._count_held()
        full = self._slice_counts[:-1] > 0
        cut = mser_5(self._slice_sums[:-1][full] / self._slice_counts[:-1][full])
        if cut is None:
            return None
        return float(np.flatnonzero(full)[cut] * self._slice_us) if cut else 0.0

    def percentile_us(self, percent: float) -> float:
        """The percentile, to 1 %; 0 for an empty histogram."""
        if not self.count:
            return 0.0
        at = int(np.searchsorted(self._buckets.cumsum(), math.ceil(self.count * percent / 100)))
        return min(math.exp((at + 0.5) / BUCKETS_PER_E), self.max_us)

    def batch_means_us(self) -> npt.NDArray[np.float64]:
        """The means of the batches that have a latency, in the order of publishing."""
        full = self._counts > 0
        return self._sums[full] / self._counts[full]

    def mean_us(self) -> float:
        """The mean over all; 0 for an empty histogram."""
        return float(self._sums.sum() / self.count) if self.count else 0.0


class DeliveryHistogram(LatencyHistogram):
    """Latencies up to the delivery; what arrived, and how late, by the millisecond."""

    def __init__(self, begin_us: int, end_us: int, published_us: Callable[[Ints], Ints]) -> None:
        super().__init__(begin_us, end_us, published_us)
        self._arrived: dict[int, tuple[int, float]] = {}

    @property
    def arrived(self) -> dict[int, tuple[int, float]]:
        """Per millisecond, the messages that reached their subscribers in it, and the sum of their latencies in
        microseconds."""
        self._count_held()
        return self._arrived

    def _count(self, published_us: Ints, latency_us: Ints) -> None:
        slices, places = np.unique((published_us + latency_us) // ARRIVALS_US, return_inverse=True)
        sums = np.bincount(places, latency_us).tolist()
        for number, more, more_us in zip(slices.tolist(), np.bincount(places).tolist(), sums, strict=True):
            count, sum_us = self._arrived.get(number, (0, 0.0))
            self._arrived[number] = count + more, sum_us + more_us
        super()._count(published_us, latency_us)


def mser_5(series: npt.NDArray[np.float64]) -> int | None:
    """How many values of ``series`` belong to the warm-up: the cut that makes the standard error of the mean of what
    remains least, over means of five (White, 1997). None if that cut lies in the second half: it has not settled, or
    the run is too short to tell.
    """
    count = len(series) // 5
    means = series[: count * 5].reshape(count, 5).mean(axis=1)
    if count < 4:
        return None
    best, cut = math.inf, 0
    for dropped in range(count - 2):
        rest = means[dropped:]
        error = float(((rest - rest.mean()) ** 2).sum()) / len(rest) ** 2
        if error < best:
            best, cut = error, dropped
    return cut * 5 if cut <= count // 2 else None


COUNTED_MAX = 5
"""Below such a mean, counts are far enough from normal to be treated as counts."""

FLAGS_FROM = 30
"""Fewer values that are all 0 or 1 may be counts that have not yet come to 2."""
PAIRS_FROM = 12
"""Fewer pairs of flags have the interval that holds by construction, which is a third wider."""


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval; ``low`` and ``high`` are infinite where the values say nothing of
    it."""

    estimate: float
    low: float
    high: float
    count: int

    @property
    def half_width(self) -> float:
        """The longer of its two sides; infinite where it has no ends."""
        return max(self.high - self.estimate, self.estimate - self.low)


def interval_of(values: Sequence[float], confidence: float = 0.95, unit: float = 0.0) -> Interval:
    """The interval of the mean of independent values, of the kind that they ask for. ``unit``: by how much a value
    deviates that does, where other runs have shown it (`usual_deviation`). Raises InputError for none."""
    told = np.asarray(values, float)
    is_flag = unit <= 1 and bool(np.isin(told, (0, 1)).all())
    if len(told) < (1 if is_flag else 2) or not np.isfinite(told).all():
        return mean_interval(values, confidence)
    if is_flag:
        found = clopper_pearson(int(told.sum()), len(told), confidence)
        if len(told) >= FLAGS_FROM:
            return found
        return replace(found, high=max(found.high, garwood(float(told.sum()), confidence)[1] / len(told)))
    common, often = _most_common(told)
    is_count = bool((told >= 0).all() and (told == np.floor(told)).all())
    if 2 * often > len(told):
        return _by_deviations(told, common, confidence, is_count and common == 0, unit)
    if is_count and told.mean() < COUNTED_MAX:
        return _of_counts(told, confidence, unit)
    return mean_interval(values, confidence)


def difference_interval(a: Sequence[float], b: Sequence[float], confidence: float = 0.95) -> Interval:
    """The interval of the mean of b - a over pairs. Raises InputError for none."""
    before, after = np.asarray(a, float), np.asarray(b, float)
    with np.errstate(invalid="ignore"):  # of two infinite values nothing is known, and nothing is complained of
        difference = after - before
    if len(difference) == 0 or not np.isfinite(difference).all():
        return mean_interval(difference.tolist(), confidence)
    if np.isin(before, (0, 1)).all() and np.isin(after, (0, 1)).all():
        return _of_flags(difference, confidence)
    if len(difference) < 2:
        return mean_interval(difference.tolist(), confidence)
    difference = _without_rounding(difference, float(np.abs([before, after]).max()))
    common, often = _most_common(difference)
    if 2 * often > len(difference):
        return _by_deviations(difference, common, confidence, False)
    return mean_interval(difference.tolist(), confidence)


def _without_rounding(difference: npt.NDArray[np.float64], largest: float) -> npt.NDArray[np.float64]:
    """The differences of values of at most ``largest``; where most are alike but for their last bits, alike: what they
    vary by is arithmetic, not chance."""
    tolerance = 8 * float(np.spacing(largest))
    middle = float(np.sort(difference)[len(difference) // 2])
    near = np.abs(difference - middle) <= tolerance
    if 2 * near.sum() <= len(difference):
        return difference
    whole = float(np.rint(middle))
    return np.where(near, whole if abs(middle - whole) <= tolerance else middle, difference)


def _most_common(values: npt.NDArray[np.float64]) -> tuple[float, int]:
    (value, often), *_ = Counter(values.tolist()).most_common(1)
    return float(value), often


def is_mostly_equal(values: npt.NDArray[np.float64]) -> bool:
    """Whether more than half of the values are one and the same."""
    return 2 * _most_common(values)[1] > len(values)


def usual_deviation(samples: Sequence[npt.NDArray[np.float64]]) -> float:
    """By how much a value deviates that does, in samples most of whose values are equal; 0 where none does."""
    deviations = np.abs(np.concatenate([values - _most_common(values)[0] for values in samples] or [np.zeros(0)]))
    return _dispersion(deviations) if (deviations > 0).any() else 0.0


def _by_deviations(
    values: npt.NDArray[np.float64], common: float, confidence: float, only_up: bool, elsewhere: float = 0.0
) -> Interval:
    """Of a mean that lies at ``common`` but for some values above and, unless ``only_up``, below it: how often either
    comes is Poisson. Where no value deviates, one that did would by 1, or, where values are no whole numbers, by all of
    itself; or as ``elsewhere``, if that is more.
    """
    deviations = values - common
    is_whole = bool((values == np.floor(values)).all())
    unit = 1.0 if is_whole else abs(common) or 1.0
    if (deviations != 0).any():
        unit = max(unit if is_whole else 0.0, _dispersion(np.abs(deviations)))
    unit = max(unit, elsewhere)
    up = _rate(np.maximum(deviations, 0), unit, confidence, elsewhere)
    down = Interval(0, 0, 0, 0) if only_up else _rate(np.maximum(-deviations, 0), unit, confidence, elsewhere)
    return _difference(up, down, 0.0, common, len(values))


def _of_counts(values: npt.NDArray[np.float64], confidence: float, elsewhere: float = 0.0) -> Interval:
    """Of the mean of counts; where they vary more than Poisson, events come in groups of that size."""
    total, size = float(values.sum()), max(1.0, elsewhere, float(values.var(ddof=1) / values.mean()))
    low, high = garwood(total / size, confidence)
    return Interval(float(values.mean()), low * size / len(values), high * size / len(values), len(values))


def _dispersion(sizes: npt.NDArray[np.float64]) -> float:
    """Variance over mean of a compound Poisson sum of such sizes."""
    return float((sizes**2).sum() / sizes.sum())


def _rate(sizes: npt.NDArray[np.float64], unit: float, confidence: float, elsewhere: float = 0.0) -> Interval:
    """The mean of values that are mostly 0, from the exact Poisson interval of their number."""
    size = max(_dispersion(sizes), elsewhere) if (sizes > 0).any() else unit
    low, high = garwood(float(sizes.sum()) / size, confidence)
    return Interval(float(sizes.mean()), low * size / len(sizes), high * size / len(sizes), len(sizes))


def _of_flags(difference: npt.NDArray[np.float64], confidence: float) -> Interval:
    """Of the difference of two proportions in pairs, from the pairs in which only one of the two is 1."""
    pairs, ups, downs = len(difference), int((difference > 0).sum()), int((difference < 0).sum())
    if pairs < PAIRS_FROM:  # both at once, so that nothing is left to approximate
        both = (1 + confidence) / 2
        up, down = clopper_pearson(ups, pairs, both), clopper_pearson(downs, pairs, both)
        return Interval((ups - downs) / pairs, up.low - down.high, up.high - down.low, pairs)
    up, down = clopper_pearson(ups, pairs, confidence), clopper_pearson(downs, pairs, confidence)
    odds = [min(one.estimate / (1 - one.estimate), 1e9) if one.estimate < 1 else 1e9 for one in (up, down)]
    found = _difference(up, down, min(1.0, math.sqrt(odds[0] * odds[1])), 0.0, pairs)
    return Interval(found.estimate, max(-1.0, found.low), min(1.0, found.high), pairs)


def _difference(up: Interval, down: Interval, correlation: float, common: float, count: int) -> Interval:
    """``common`` + up - down. ``correlation``: by how much what goes up is missing among what goes down."""

    def reach(one: float, other: float) -> float:
        return math.sqrt(one**2 + other**2 + 2 * correlation * one * other)

    estimate = up.estimate - down.estimate
    low = estimate - reach(up.estimate - up.low, down.high - down.estimate)
    high = estimate + reach(up.high - up.estimate, down.estimate - down.low)
    return Interval(common + estimate, common + low, common + high, count)


def garwood(events: float, confidence: float = 0.95) -> tuple[float, float]:
    """Both ends of the exact interval of a Poisson mean of which ``events`` were seen."""
    from scipy import stats

    tail = (1 - confidence) / 2
    low = float(stats.chi2.ppf(tail, 2 * events)) / 2 if events > 0 else 0.0
    return low, float(stats.chi2.ppf(1 - tail, 2 * events + 2)) / 2


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """The interval of the mean of independent values, by Student's t. Raises InputError for none."""
    if len(values) == 0:
        raise InputError("no runs came to their end; there is nothing to take a mean of")
    with np.errstate(over="ignore", invalid="ignore"):  # infinite and huge values have no interval, and no complaint
        mean = float(np.mean(values))
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else math.inf
    if not math.isfinite(spread):
        return Interval(mean, -math.inf, math.inf, len(values))
    half = _student((1 + confidence) / 2, len(values) - 1) * spread / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half, len(values))


@functools.lru_cache(256)
def _student(share: float, freedom: int) -> float:
    """The quantile of Student's distribution, asked for again and again where configurations are many."""
    from scipy import stats

    return float(stats.t.ppf(share, freedom))


def clopper_pearson(hits: int, trials: int, confidence: float = 0.95) -> Interval:
    """The interval of a probability: never narrower than promised (Clopper, Pearson 1934)."""
    from scipy import stats

    if not 0 <= hits <= trials or trials == 0:
        raise InputError(f"{hits} of {trials}: no proportion")
    tail = (1 - confidence) / 2
    low = 0.0 if hits == 0 else float(stats.beta.ppf(tail, hits, trials - hits + 1))
    high = 1.0 if hits == trials else float(stats.beta.ppf(1 - tail, hits + 1, trials - hits))
    return Interval(hits / trials, low, high, trials)


def report_means(reports: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Means of every number that all reports have, by its path: mean, both ends of its nominal 95 % interval and its
    longer half (None for one report), least, greatest. Reports are of independent replications, so that the interval
    asks nothing of the autocorrelation within a run (Law, Simulation Modeling and Analysis, 9.4); heavy tails make it
    too short (`few_runs`)."""
    observed = [dict(numbers_of(report)) for report in reports]
    shared = [path for path in observed[0] if all(path in other for other in observed)]
    found = {}
    for path in shared:
        values = np.array([other[path] for other in observed])
        interval = interval_of(values.tolist()) if len(values) > 1 else None
        is_told = interval is not None and math.isfinite(interval.half_width)
        ends = (
            (interval.low, interval.high, interval.half_width)
            if interval is not None and is_told
            else (None, None, None)
        )
        low, high, half = (None if end is None else _round(end) for end in ends)
        found[path] = {
            "mean": _round(values.mean()), "half_width": half, "low": low, "high": high,
            "min": float(values.min()), "max": float(values.max()),
        }  # fmt: skip
    return found


def numbers_of(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number in a report, with its path."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from numbers_of(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for place, inner in enumerate(value):
            yield from numbers_of(inner, f"{path}[{place}]")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, float(value)


def _round(value: float) -> float:
    return float(f"{value:.4g}")
