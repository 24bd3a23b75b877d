"""Targets that a share of runs has to keep, by order statistics: exact whatever the runs are like."""

import numpy as np
import pytest

from orderlab.model.errors import InputError
from orderlab.sim.engine.few_runs import median_interval, quantile_interval, runs_needed
from orderlab.spark_sweeps.questions.aims import Best
from orderlab.spark_sweeps.questions.asking import AnsweredRun
from orderlab.spark_sweeps.questions.cheapest import Cheapest, cheapest, of_cheapest
from tests.in_process import orderlab

SHARE, CONFIGURATIONS = 0.9, 20
DRAWS = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "exponential": lambda rng, size: rng.standard_exponential(size),
    "slow in one of twenty": lambda rng, size: np.where(rng.random(size) < 0.05, 3.0, 1.0) + 0.01 * rng.random(size),
    "flags": lambda rng, size: (rng.random(size) < 0.3).astype(float),
}


def truth_of(draw):
    """The quantile of a population, from very many draws."""
    return float(np.quantile(draw(np.random.default_rng(0), 1_000_000), SHARE, method="inverted_cdf"))


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("share", [0.1, 0.5, SHARE])
def test_the_interval_of_a_quantile_holds_it_for_any_population(draw, share):
    rng = np.random.default_rng(1)
    truth = float(np.quantile(draw(rng, 1_000_000), share, method="inverted_cdf"))
    rows = draw(rng, (600, runs_needed(share) + 20))
    intervals = [quantile_interval(row, share) for row in rows]
    near = 1e-3  # the truth is itself of draws
    held = np.mean([one.low - near <= truth <= one.high + near for one in intervals])
    assert held >= 0.935


def test_too_few_values_have_no_end():
    values = list(range(runs_needed(0.95)))
    assert quantile_interval(values, 0.95).high == values[-1]
    assert quantile_interval(values[1:], 0.95).high == np.inf
    assert median_interval(values[:5]) is None
    assert quantile_interval([1.0, np.nan], 0.5).high == np.inf


def offers_of(values, bound, **more):
    """``values``: a row of runs for each configuration."""
    asked = Cheapest(kind="cheapest", price="a", targets={"ms": bound}, **more)
    runs = [
        AnsweredRun(point, number, {"a": point}, number, "ok", "holds", {"ms": float(value)}, "replay")
        for point, row in enumerate(values)
        for number, value in enumerate(row)
    ]
    return asked, cheapest(asked, runs)


def met_at_the_bound(sweeps, replications):
    """The share of sweeps in which one of many configurations meets, all of them exactly at the target, by draw."""
    shares = {}
    for name in ("normal", "exponential"):
        rng, truth = np.random.default_rng(7), truth_of(DRAWS[name])
        met = 0
        for _ in range(sweeps):
            values = DRAWS[name](rng, (CONFIGURATIONS, replications))
            met += any(offer.meets for offer in offers_of(values, truth, of_runs=SHARE)[1])
        shares[name] = met / sweeps
    return shares


def test_of_many_configurations_at_the_target_few_are_said_to_meet_it():
    assert max(met_at_the_bound(40, 90).values()) <= 0.1  # 40 sweeps tell no more


@pytest.mark.exhaustive
def test_of_many_configurations_at_the_target_one_in_twenty_sweeps_meets_at_most():
    assert max(met_at_the_bound(500, 90).values()) <= 0.05


def test_what_most_runs_keep_is_told_from_the_mean():
    """A mean of 3.1 meets 5; one run in eight does not."""
    rng = np.random.default_rng(3)
    seldom = np.where(rng.random((1, 200)) < 0.125, 18.0, 1.0) + rng.random((1, 200)) / 10
    assert offers_of(seldom, 5.0)[1][0].meets
    asked, (offer,) = offers_of(seldom, 5.0, of_runs=SHARE)
    assert not offer.meets
    assert not offer.open or offer.metrics["ms"].low < 5
    table = of_cheapest(asked, [offer], ["a"])
    assert "order statistics" in " ".join(table.notes)
    assert not table.evidence.warnings
    assert offers_of(seldom, 5.0, of_runs=0.8)[1][0].meets


def test_a_strict_share_needs_so_many_runs(tmp_path):
    file = tmp_path / "sweep.toml"
    text = """
system = "tests.spark_sweeps.subjects:tuned"
output = "out"
[base]
cure = "lua"
linger = 5.0
[axes]
producers = [4, 7]
[replications]
count = {count}
[question]
kind = "cheapest"
price = "producers"
targets = {{ ms = 15.0 }}
of_runs = 0.95
"""
    file.write_text(text.format(count=20))
    refused = orderlab("sweep", file, "--dry-run")
    assert refused.returncode == 2
    assert "set replications.count to 86 or more" in refused.stderr
    file.write_text(text.format(count=86))
    assert orderlab("sweep", file, "--dry-run").returncode == 0


def test_a_search_has_as_few_finalists_as_can_show_it():
    question = {"kind": "best", "minimise": "ms", "subject_to": ["p99_ms <= 100"], "parameters": {"a": [1, 2]}}
    asked = Best.model_validate({**question, "runs": 1200, "of_runs": 0.95})
    assert asked.finalists == 3
    assert asked.final_runs // 3 >= runs_needed(0.95, asked.level(3))
    assert asked.final_runs // 4 < runs_needed(0.95, asked.level(4))
    assert Best.model_validate({**question, "runs": 1200}).finalists == 7
    with pytest.raises(ValueError, match="set runs to 288 or more"):
        Best.model_validate({**question, "runs": 200, "of_runs": 0.95})
    low = Best.model_validate({**question, "subject_to": ["rate >= 5"], "runs": 1200, "of_runs": 0.95})
    (constraint,) = low.constraints
    assert low.figure(constraint, [1.0, *[9.0] * 99]) == 9.0
    assert low.figure(constraint, [*[1.0] * 6, *[9.0] * 94]) == 1.0


def test_a_share_and_an_early_end_by_the_mean_exclude_each_other():
    with pytest.raises(InputError, match="cannot show what 95 % of runs"):
        Cheapest(kind="cheapest", price="a", targets={"ms": 1.0}, of_runs=0.95).insist_on_runs(1, 10, "sweep.toml")
