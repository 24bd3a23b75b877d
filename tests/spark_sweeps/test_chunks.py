"""Chunks and costs: every run once, the longest first, cores that end together, estimates that follow the
parameters."""

import numpy as np
import pytest

from orderlab.spark_sweeps.runs.costs import CHUNKS_MAX, FLOOR_S, CostModel, chunks_of, numbers_of


@pytest.mark.parametrize("cores", [1, 2, 16])
@pytest.mark.parametrize("lengths", ["equal", "log-normal", "one long", "short"])
def test_every_run_is_in_one_chunk_and_the_cores_end_together(cores, lengths):
    rng = np.random.default_rng(3)
    costs = {
        "equal": np.full(400, 1.0), "log-normal": rng.lognormal(0, 1, 400), "short": np.full(5000, 0.001),
        "one long": np.where(np.arange(400) == 77, 30.0, 1.0),
    }[lengths]  # fmt: skip
    runs = np.arange(1000, 1000 + len(costs))
    chunks = chunks_of(runs, costs, cores)
    assert sorted(np.concatenate(chunks).tolist()) == runs.tolist()
    assert costs[chunks[0][0] - 1000] == costs.max()
    free = np.zeros(cores)
    for chunk in chunks:  # as an engine does: the next chunk goes to the core that is free first
        free[free.argmin()] += costs[chunk - 1000].sum()
    assert free.max() <= costs.sum() / cores + max(costs.max(), FLOOR_S)


def test_short_runs_are_grouped_and_there_are_never_too_many_chunks():
    assert len(chunks_of(np.arange(5000), np.full(5000, 0.001), 2)) <= 12
    assert len(chunks_of(np.arange(200_000), np.full(200_000, 1.0), 4)) <= CHUNKS_MAX + 100
    assert chunks_of(np.arange(0), np.zeros(0), 2) == []


def test_estimates_follow_numbers_and_choices():
    def true(parameters):
        return 0.001 * parameters["n"] * (3 if parameters["mode"] == "slow" else 1)

    seen = [{"n": n, "mode": mode} for n in (10, 30, 100, 300, 1000) for mode in ("slow", "fast")]
    model = CostModel([(parameters, true(parameters)) for parameters in seen])
    for parameters in ({"n": 50, "mode": "slow"}, {"n": 700, "mode": "fast"}):
        assert model.seconds(parameters) == pytest.approx(true(parameters), rel=0.6)
    assert model.seconds({"n": 10**9, "mode": "slow"}) <= 31  # no wild extrapolation


def test_without_rows_every_run_costs_the_same():
    assert CostModel([]).seconds({"n": 3}) == CostModel([]).seconds({"n": 4}) == pytest.approx(1)


def test_numbers_of_the_runs_that_are_wanted(monkeypatch):
    monkeypatch.setattr("orderlab.spark_sweeps.runs.costs.BLOCK_RUNS", 7)
    wanted = np.random.default_rng(0).random(100) < 0.4
    assert numbers_of(wanted).tolist() == np.flatnonzero(wanted).tolist()
    assert numbers_of(np.zeros(20, np.bool_)).tolist() == []


@pytest.mark.parametrize("many", [1000, 1001, 1999])
def test_of_very_many_runs_neighbours_go_together(monkeypatch, many):
    monkeypatch.setattr("orderlab.spark_sweeps.runs.costs.FRAGMENTS_MAX", 100)
    runs = np.arange(5, 5 + many)
    costs = np.where(runs < 500, 1.0, 9.0)
    chunks = chunks_of(runs, costs, 2)
    assert sorted(np.concatenate(chunks).tolist()) == runs.tolist()
    means = [costs[chunk - 5].mean() for chunk in chunks]
    assert means == sorted(means, reverse=True)
