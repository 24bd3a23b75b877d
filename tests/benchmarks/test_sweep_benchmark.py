"""The sweep benchmark's loads are what it says; the benchmark itself needs a quiet machine."""

import time

import pytest

from benchmarks.sweep import TO_REACH, WORKLOADS, lengths
from benchmarks.sweep_loads import burned


def test_the_lengths_have_the_stated_mean_and_spread():
    assert lengths(10, 0.05, 0.0) == [0.05] * 10
    drawn = lengths(4000, 0.25, 1.0)
    assert sum(drawn) / 4000 == pytest.approx(0.25, rel=0.1)
    assert drawn == lengths(4000, 0.25, 1.0)
    assert max(drawn) > 2.5


def test_a_load_takes_the_processor_for_as_long_as_it_says():
    begun = time.process_time()
    assert burned(0.05) > 0
    assert time.process_time() - begun == pytest.approx(0.05, abs=0.02)


def test_the_figures_are_named():
    assert set(WORKLOADS) | {"spark_check_vs_duckdb", "driver_memory_ratio"} == set(TO_REACH)
