"""Percentiles are exact to a bucket; intervals cover the mean as often as they say."""

import numpy as np

from sim.statistics import LatencyHistogram, half_width


def test_percentiles_and_mean_agree_with_numpy():
    latency = np.random.default_rng(1).lognormal(9, 1, 50_000).astype(np.int64)
    histogram = LatencyHistogram(0, 50_000)
    histogram.add(np.arange(50_000), latency)
    assert abs(histogram.mean_us().mean / latency.mean() - 1) < 1e-9
    for percent in (50, 90, 99, 99.9):
        assert abs(histogram.percentile_us(percent) / np.percentile(latency, percent) - 1) < 0.02


def test_what_was_published_in_the_warm_up_does_not_count():
    histogram = LatencyHistogram(100, 200)
    histogram.add(np.array([99, 100, 199, 200]), np.array([1, 2, 3, 4]))
    assert histogram.count == 2
    assert histogram.max_us == 3


def test_the_interval_covers_the_mean_about_as_often_as_it_says():
    draw = np.random.default_rng(2)
    covered = 0
    for _ in range(1000):
        means = draw.normal(5.0, 1.0, 20)
        covered += abs(means.mean() - 5.0) <= half_width(means)
    assert 930 <= covered <= 970
    assert half_width(np.array([1.0])) is None
