"""The sweep benchmark's loads are what it says; the benchmark itself needs a quiet machine."""

import time

import pytest

from benchmarks import sweep
from benchmarks.sweep import TO_REACH, WORKLOADS, lengths, run
from benchmarks.sweep_loads import burned
from orderlab.model.errors import InputError


def test_the_lengths_have_the_stated_mean_and_spread():
    assert lengths(10, 0.05, 0.0) == [0.05] * 10
    drawn = lengths(4000, 0.25, 1.0)
    assert sum(drawn) / 4000 == pytest.approx(0.25, rel=0.1)
    assert drawn == lengths(4000, 0.25, 1.0)
    assert max(drawn) > 2.5


def test_a_load_takes_the_processor_for_as_long_as_it_says():
    begun = time.process_time()
    assert burned(0.05) > 0
    assert time.process_time() - begun >= 0.05


def test_the_figures_are_named():
    assert set(WORKLOADS) | {"spark_check_vs_duckdb", "driver_memory_ratio"} == set(TO_REACH)


def test_parts_are_measured_alone_and_an_unknown_one_is_named(monkeypatch):
    monkeypatch.setattr(sweep, "driver_memory", lambda sizes: {20: 100.0})
    measured = run(["driver_memory_ratio"], sizes=(20,))
    assert measured["figures"] == {"driver_memory_ratio": 1.0}
    with pytest.raises(InputError, match='no part efficiency_1; did you mean "efficiency_1s"'):
        run(["efficiency_1"])
