"""Statistics of a run: latencies in bounded memory, their mean, percentiles, and means of equal parts of the run.

Warm-up is cut by a stated rule: nothing that was published before the end of the warm-up counts. A run has no confidence
interval: its seed draws once where clients are and when they publish, and however long it is, its batches know of no other
draw (of 30 seeds 2 held the mean of all in an interval by batch means, and 1 in a run five times as long,
``notes/statistics.md``). Replications have one (`orderlab.sim.engine.intervals`).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

BUCKETS_PER_E = 100
"""Buckets grow by e^(1/100), 1 %: no percentile is further off than that."""
SLICE_US = 1000
SLICES_MAX = 5000
"""The series of mean latencies from which the end of the warm-up is told."""
BATCHES = 20
"""Equal parts of the measured interval, from whose means growth is told (`orderlab.sim.systems.sustainable`)."""

HELD_MAX = 1 << 14
"""Latencies that wait to be counted."""


class LatencyHistogram:
    """Latencies in microseconds, in buckets of 1 %; sums by the batch that the instant of publishing falls into."""

    def __init__(self, begin_us: int, end_us: int) -> None:
        self.begin_us = begin_us
        self.end_us = end_us
        self._max_us = 0.0
        self._buckets = np.zeros(25 * BUCKETS_PER_E, np.int64)
        self._sums = np.zeros(BATCHES)
        self._counts = np.zeros(BATCHES, np.int64)
        self._slice_us = max(SLICE_US, -(-end_us // SLICES_MAX))
        self._slice_sums = np.zeros(end_us // self._slice_us + 1)
        self._slice_counts = np.zeros(end_us // self._slice_us + 1, np.int64)
        self._held: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
        self._held_count = 0

    def add(self, published_us: npt.NDArray[np.int64], latency_us: npt.NDArray[np.int64]) -> None:
        """Count the latencies of what was published within [begin, end)."""
        self._held.append((published_us, latency_us))
        self._held_count += len(latency_us)
        if self._held_count >= HELD_MAX:
            self._count_held()

    def _count_held(self) -> None:
        """Count what is held: it pays off for many at once."""
        if not self._held:
            return
        published_us = np.concatenate([published for published, _ in self._held])
        latency_us = np.concatenate([latency for _, latency in self._held])
        self._held, self._held_count = [], 0
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
        """The instant of publishing from which on the mean latency has settled, by MSER-5; None if it has not (``mser_5``)."""
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


def mser_5(series: npt.NDArray[np.float64]) -> int | None:
    """How many values of ``series`` belong to the warm-up: the cut that makes the standard error of the mean of what
    remains least, over means of five (White, 1997). None if that cut lies in the second half: it has not settled, or the
    run is too short to tell.
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
