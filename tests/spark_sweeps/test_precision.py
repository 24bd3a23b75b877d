"""Replications until the mean is known: the same runs whatever the engine, the order and the interruptions."""

import numpy as np
import pytest

from orderlab.model.errors import InputError
from orderlab.report.sweep_page import write_report
from orderlab.spark_sweeps.results.folder import ResultFolder
from orderlab.spark_sweeps.results.rows import _is_precise, _sizes, wanted_runs
from orderlab.spark_sweeps.runs.job import SweepOptions, load, run_sweep
from orderlab.spark_sweeps.runs.workers import PoolEngine
from orderlab.spark_sweeps.sweep_file.specification import Until

NOISY = (
    'system = "tests.spark_sweeps.subjects:noisy"\n[axes]\nspread = [0, 8, 13, 1000]\n[replications]\ncount = 40\n'
    'common_random_numbers = false\nuntil = { metric = "ms", half_width = 0.05, first = 4 }\n'
)


def runs_of(folder, planned):
    return sorted(run for table in ResultFolder(folder).tables(planned) for run in table.column("run").to_pylist())


@pytest.mark.parametrize("engine", ["pool", pytest.param("on_spark", marks=pytest.mark.xdist_group("spark"))])
def test_a_point_has_as_many_replications_as_it_needs(engine, request, sweep_file):
    path = sweep_file(NOISY)
    summary = run_sweep(path, request.getfixturevalue(engine))
    assert (summary.counts.rows, summary.stopped) == (summary.runs, None)
    assert summary.runs + summary.spared == 160
    points = [run // 40 for run in runs_of(summary.folder, 160)]
    many = [points.count(point) for point in range(4)]
    assert many[0] == 4  # no spread: the first look is enough
    assert 4 < min(many[1:3]) <= max(many[1:3]) < many[3] == 40  # where it is never enough, count is the most
    assert set(many) <= set(_sizes(4, 40))
    page = write_report(summary.folder).read_text()
    assert f"{summary.spared} more were spared" in page
    assert "Unfinished" not in page


def test_an_interrupted_sweep_comes_to_the_same_runs(pool, sweep_file, tmp_path):
    path = sweep_file(NOISY)
    whole = run_sweep(path, _one_by_one, SweepOptions(output=str(tmp_path / "whole")))
    first = run_sweep(path, pool)
    for file in ResultFolder(first.folder).files()[::2]:
        file.unlink()
    assert 0 < ResultFolder(first.folder).counts().rows < first.runs
    second = run_sweep(path, pool)
    assert (second.runs, second.spared, second.digest) == (whole.runs, whole.spared, whole.digest)
    assert runs_of(second.folder, 160) == runs_of(whole.folder, 160)
    assert run_sweep(path, _no_engine).digest == whole.digest


def test_failed_runs_say_nothing_of_the_mean(pool, sweep_file):
    path = sweep_file(
        NOISY.replace("spread = [0, 8, 13, 1000]", 'spread = [0, "none"]').replace("count = 40", "count = 9")
    )
    summary = run_sweep(path, pool)
    points = [run // 9 for run in runs_of(summary.folder, 18)]
    assert (points.count(0), points.count(1), summary.counts.failed) == (4, 9, 9)


def test_the_first_look_waits_for_all_of_the_first_replications(pool, sweep_file):
    path = sweep_file(NOISY)
    _, plan = load(path)
    folder = ResultFolder(path.parent / "out")
    folder.rows_path.mkdir(parents=True)
    assert np.flatnonzero(wanted_runs(plan, folder)).tolist() == [
        40 * point + k for point in range(4) for k in range(4)
    ]


def test_what_is_precise():
    until = Until(metric="ms", half_width=0.05)
    assert _is_precise(np.array([99.0, 100.0, 101.0, 100.5, 99.5]), until, 0.95)
    assert not _is_precise(np.array([3.0, 3.0]), until, 0.95)  # that two are equal is not to know what all are
    assert not _is_precise(np.array([3.0, np.nan]), until, 0.95)
    assert not _is_precise(np.array([-1.0, 1.0]), until, 0.95)  # a mean of nothing has no relative width


@pytest.mark.parametrize("odd", [np.inf, -np.inf])
def test_a_mean_that_is_no_number_is_never_precise(odd):
    until = Until(metric="ms", half_width=0.5)
    assert not _is_precise(np.array([1.0, odd, 1.0, 1.0, 1.0, 1.0]), until, 0.95)
    assert _is_precise(np.array([1.0, 1.1, 1.0, 1.0, 1.0, 1.0]), until, 0.95)


@pytest.mark.parametrize("how", ["inf", "nan"])
def test_a_metric_that_is_no_number_gets_all_replications(how, pool, sweep_file):
    path = sweep_file(
        'system = "tests.spark_sweeps.subjects:odd_at_times"\n[axes]\n'
        f'how = ["{how}", "1"]\n[replications]\ncount = 12\n'
        'common_random_numbers = false\nuntil = { metric = "x", half_width = 0.5 }\n'
    )
    summary = run_sweep(path, pool)
    points = [run // 12 for run in runs_of(summary.folder, 24)]
    assert (points.count(0), points.count(1)) == (12, 5)


def test_a_flag_that_was_not_seen_yet_is_not_known():
    until = Until(metric="lost", half_width=0.5)
    for size in _sizes(5, 500)[:-1]:
        assert not _is_precise(np.zeros(size), until, 0.99)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('"ms"', '"mz"'), 'replications.until.metric: no metric "mz"'),
        (("count = 40", "count = 4"), "replications: until looks first after 4; raise count"),
        (("half_width = 0.05", "half_width = 0"), "replications.until.half_width"),
        (("[axes]", '[record]\nmetrics = ["x"]\n[axes]'), "ms is not recorded; add it to record.metrics"),
    ],
)
def test_a_rule_that_makes_no_sense_is_one_line(change, told, sweep_file, pool):
    with pytest.raises(InputError) as caught:
        run_sweep(sweep_file(NOISY.replace(*change)), pool)
    assert told in str(caught.value)


def _one_by_one(folder):
    """An engine with one process and one run a chunk, the last run first."""

    class OneByOne(PoolEngine):
        def run(self, order, chunks, should_stop):
            return super().run(order, np.concatenate(chunks)[::-1].reshape(-1, 1), should_stop)

    return OneByOne(1)


def _no_engine(folder):
    raise AssertionError("nothing is left to run")
