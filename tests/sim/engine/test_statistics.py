"""Percentiles are exact to a bucket, and the warm-up does not count."""

import numpy as np

from orderlab.sim.engine.statistics import LatencyHistogram


def test_percentiles_and_mean_agree_with_numpy():
    latency = np.random.default_rng(1).lognormal(9, 1, 50_000).astype(np.int64)
    histogram = LatencyHistogram(0, 50_000)
    histogram.add(np.arange(50_000), latency)
    assert abs(histogram.mean_us() / latency.mean() - 1) < 1e-9
    for percent in (50, 90, 99, 99.9):
        assert abs(histogram.percentile_us(percent) / np.percentile(latency, percent) - 1) < 0.02


def test_what_was_published_in_the_warm_up_does_not_count():
    histogram = LatencyHistogram(100, 200)
    histogram.add(np.array([99, 100, 199, 200]), np.array([1, 2, 3, 4]))
    assert histogram.count == 2
    assert histogram.max_us == 3
