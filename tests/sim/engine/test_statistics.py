"""Percentiles are exact to a bucket, and the warm-up does not count."""

import numpy as np
import pytest

from orderlab.sim.engine.statistics import HELD_MAX, DeliveryHistogram, LatencyHistogram, difference_interval


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


def test_latencies_of_messages_are_those_of_their_instants_and_arrivals_are_counted_by_the_millisecond():
    draw = np.random.default_rng(2)
    messages, latency = draw.integers(0, 40_000, 3 * HELD_MAX), draw.integers(1, 60_000, 3 * HELD_MAX)
    by_instant, by_message = LatencyHistogram(0, 200_000), DeliveryHistogram(0, 200_000, lambda numbers: 5 * numbers)
    for pack in np.array_split(np.arange(len(messages)), 997):
        by_instant.add(5 * messages[pack], latency[pack])
        by_message.add_messages(messages[pack], 5 * messages[pack] + latency[pack])
    assert (by_message.count, by_message.mean_us(), by_message.max_us) == (
        by_instant.count,
        by_instant.mean_us(),
        by_instant.max_us,
    )
    arrived = (5 * messages + latency) // 1000
    assert by_message.arrived == {
        number: (int((arrived == number).sum()), float(latency[arrived == number].sum()))
        for number in np.unique(arrived).tolist()
    }


def test_differences_that_are_alike_but_for_rounding_are_alike():
    """Pairs that a constant tells apart: their last bits are arithmetic, and no interval is as narrow as those."""
    noise = 5 * np.random.default_rng(1).standard_normal(16)
    for shift in (2.0, 0.3, 0.0):
        before = 10.0 + noise
        rounded = difference_interval(before, 10.0 + shift + noise)
        exact = difference_interval(np.full(16, 8.0), np.full(16, 8.0) + shift)
        assert (rounded.low, rounded.high) == pytest.approx((exact.low, exact.high), abs=1e-12)
        assert rounded.half_width > 0.01
