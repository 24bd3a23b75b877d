"""Replications: seeds of their own, Student-t intervals; and the warm-up by MSER-5."""

import numpy as np
import pytest

from orderlab.sim.engine.random_streams import replication_seed
from orderlab.sim.engine.statistics import LatencyHistogram, mser_5, report_means


def test_the_first_replication_is_the_run_itself_and_no_two_are_alike():
    seeds = [replication_seed(7, number) for number in range(100)]
    assert seeds[0] == 7
    assert len(set(seeds)) == 100
    assert max(seeds) < 2**53
    assert seeds[1] != replication_seed(8, 1)


def test_the_interval_is_that_of_student():
    found = report_means([{"a": {"b": value}, "name": "x", "flag": True} for value in (10.0, 12.0, 14.0)])
    assert found == {
        "a.b": {
            "mean": 12.0,
            "half_width": pytest.approx(4.968, abs=1e-3),
            "low": pytest.approx(7.032, abs=1e-3),
            "high": pytest.approx(16.97, abs=1e-2),
            "min": 10.0,
            "max": 14.0,
        }
    }


def test_one_run_has_no_interval_and_a_figure_that_some_lack_is_left_out():
    assert report_means([{"a": 1}])["a"]["half_width"] is None
    assert list(report_means([{"a": 1, "b": [2]}, {"a": 3}])) == ["a"]


def series(rising, level, length=400):
    """A ramp of ``rising`` values up to a noisy level."""
    noise = np.random.Generator(np.random.PCG64(1)).normal(0, 1, length)
    return np.concatenate((np.linspace(0, level, rising), np.full(length - rising, level))) + noise


def test_the_ramp_is_cut_and_hardly_more():
    assert 95 <= mser_5(series(100, 50.0)) <= 140
    assert mser_5(series(0, 50.0)) < 100


def test_what_never_settles_is_not_cut_but_told():
    assert mser_5(np.linspace(0, 50, 400)) is None
    assert mser_5(np.ones(12)) is None


def test_a_histogram_tells_from_when_on_its_mean_has_settled():
    histogram = LatencyHistogram(50_000, 400_000)
    values = series(100, 50.0)
    published = np.arange(400) * 1000
    histogram.add(published, (values * 100 + 1000).astype(np.int64))
    assert 95_000 <= histogram.settled_us() <= 140_000
