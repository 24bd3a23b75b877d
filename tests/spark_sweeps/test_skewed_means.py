"""Who "meets" a target where values are skewed: of many configurations exactly at it hardly one, whatever the values.

`python -m pytest -s -m exhaustive tests/spark_sweeps/test_skewed_means.py` prints the table of
``notes/statistics.md``.
"""

import math

import numpy as np
import pytest

from orderlab.sim.engine.skewed_means import ValueShape, _end, population_of
from orderlab.sim.engine.statistics import interval_of, mean_interval
from orderlab.spark_sweeps.questions.aims import Best
from orderlab.spark_sweeps.questions.asking import AnsweredRun
from orderlab.spark_sweeps.questions.best import Tried, _finalist, _populations, measured_of
from orderlab.spark_sweeps.questions.cheapest import Cheapest, cheapest, of_cheapest
from tests.spark_sweeps.test_few_runs import POPULATIONS

ASKED = Cheapest(kind="cheapest", price="a", targets={"ms": 1.0})
SKEWED = ("normal, 10 %", "log-normal, 0.3", "log-normal, 1", "exponential")
"""Those of which at most 5 % of sweeps are to have one that "meets"."""


def losses(rng, n):
    """Thirty at once, in one run of thirty."""
    return 30.0 * rng.poisson(1 / 30, n)


def runs_of(values):
    """A configuration for each row."""
    return [
        AnsweredRun(a, r, {"a": a}, r, "ok", "holds", {"ms": float(value)}, "")
        for a, row in enumerate(values)
        for r, value in enumerate(row)
    ]


def share_met(draw, configurations, runs, times, seed=5):
    rng = np.random.default_rng([seed, configurations, runs])
    return np.mean([
        any(offer.meets for offer in cheapest(ASKED, runs_of(draw(rng, configurations * runs).reshape(-1, runs))))
        for _ in range(times)
    ])  # fmt: skip


@pytest.mark.parametrize("name", ["log-normal, 1", "exponential"])
@pytest.mark.parametrize("runs", [3, 10])
def test_of_a_hundred_skewed_configurations_at_the_target_hardly_one_meets_it(name, runs):
    assert share_met(POPULATIONS[name], 100, runs, 40) <= 0.125  # at 5 % more in 1 of 70 repetitions of this


def test_a_loss_that_other_configurations_show_is_not_excluded_where_none_was_seen():
    assert share_met(losses, 100, 10, 20) == 0
    few, many = [0.0] * 10, [0.0, 30.0] + [0.0] * 8
    assert interval_of(few).high < 1
    assert population_of([few, many]).interval_of(few, 0.95).high > 3
    assert population_of([few, few]).interval_of(few, 0.95) == interval_of(few)


def test_configurations_clearly_below_the_target_still_meet_it():
    rng = np.random.default_rng(3)
    for runs, below in ((3, 0.1), (5, 0.7), (20, 0.95)):
        values = below + 0.005 * rng.standard_normal((100, runs))
        assert all(offer.meets for offer in cheapest(ASKED, runs_of(values))), runs


def test_ends_are_those_of_a_plain_simulation():
    """The second algorithm: t of samples, drawn and counted."""
    rng = np.random.default_rng(4)
    for count, shape in ((5, 1.0), (10, 4.0), (20, 1.0)):
        values = rng.standard_gamma(shape, (200_000, count)) - shape
        t = values.mean(axis=1) / (values.std(axis=1, ddof=1) / math.sqrt(count))
        for tail in (0.025, 0.0025):
            assert _end(2 / math.sqrt(shape), count, tail) == pytest.approx(-np.quantile(t, tail), rel=0.05)


def test_even_values_of_many_runs_have_nearly_students_ends():
    rng = np.random.default_rng(5)
    values = [rng.normal(10, 1, 20) for _ in range(30)]
    wider = [
        population_of(values).interval_of(list(mine), 0.99).half_width / mean_interval(list(mine), 0.99).half_width
        for mine in values
    ]
    assert 1 <= np.mean(wider) <= 1.15


def test_values_that_all_configurations_share_are_one_sample():
    """On common random numbers a hundred configurations tell no more of the shape than one."""
    rng = np.random.default_rng(16)
    one = rng.normal(10, 1, 10)
    alone, shared = population_of([one]), population_of([one + place for place in range(100)])
    apart = population_of([rng.normal(10, 1, 10) for _ in range(100)])
    assert shared.up == pytest.approx(alone.up, abs=0.01)
    assert apart.up < 0.6 < alone.up
    assert (alone.apart, shared.apart, apart.apart) == (1, pytest.approx(0.01), pytest.approx(1, abs=0.01))
    assert shared.interval_of(list(one), 0.999).high >= mean_interval(list(one), 0.999).high - 1e-9


@pytest.mark.parametrize("shared", [0.0, 0.5, 0.9, 1.0])
def test_hardly_one_meets_the_target_where_configurations_share_a_part_of_their_chance(shared):
    rng, met = np.random.default_rng(9), 0
    for _ in range(40):
        common, own = rng.exponential(1, 10), rng.exponential(1, (50, 10))
        met += any(offer.meets for offer in cheapest(ASKED, runs_of(shared * common + (1 - shared) * own)))
    assert met <= 5


def test_a_few_runs_apart_from_all_others_meet_nothing_and_are_told():
    rng = np.random.default_rng(7)
    values = 0.8 + 0.02 * rng.standard_normal((100, 10))
    values[rng.random(values.shape) < 0.03] = 7.0
    table = of_cheapest(ASKED, cheapest(ASKED, runs_of(values)), ["a"])
    assert not any(row["meets"] for row in table.rows)
    assert table.outcome == "unknown"
    assert table.evidence.warnings[0].startswith("ms: a few runs differ from the others by more than skewed values do")
    even = of_cheapest(ASKED, cheapest(ASKED, runs_of(0.8 + 0.02 * rng.standard_normal((100, 10)))), ["a"])
    assert even.outcome == "holds"
    assert not even.evidence.unexplained


def test_finalists_meet_constraints_by_the_same_ends():
    asked = Best(kind="best", minimise="ms", subject_to=("ms <= 1",), runs=400, parameters={"a": {"from": 0, "to": 1}})
    rng, met = np.random.default_rng(8), 0
    for _ in range(40):
        runs = [runs_of([row]) for row in rng.exponential(1, (10, 10))]
        populations = _populations(asked, [measured_of(asked, mine) for mine in runs])
        met += any(_finalist(asked, Tried({}, (1.0,), (0.0,)), mine, 10, populations).meets for mine in runs)
    assert met <= 5
    assert population_of([]) == ValueShape()


@pytest.mark.exhaustive
@pytest.mark.parametrize("configurations", [1, 10, 100])
def test_the_table_of_sweeps_in_which_one_at_the_target_meets_it(configurations):
    for runs in (3, 10, 20) if configurations == 100 else (5, 20, 60):
        found = {
            name: share_met(draw, configurations, runs, 500)
            for name, draw in {**POPULATIONS, "losses": losses}.items()
        }  # fmt: skip
        told = " | ".join(f"{100 * share:.1f}" for share in found.values())
        print(f"\n| {configurations} | {runs} | {told} |", end="", flush=True)
        for name in SKEWED:
            assert found[name] <= 0.05 + 2.33 * math.sqrt(0.05 * 0.95 / 500), (name, runs, found[name])
