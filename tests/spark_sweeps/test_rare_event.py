"""Rare events by importance splitting: known probabilities, plain runs beside them, and the question in a sweep
file."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from orderlab.model.errors import InputError
from orderlab.sim.engine.random_streams import RandomStreams
from orderlab.sim.engine.statistics import clopper_pearson
from orderlab.spark_sweeps.questions.answer import answer
from orderlab.spark_sweeps.questions.rare_event import Population, Rarity, next_level, pooled, splitting
from orderlab.spark_sweeps.runs.job import load, single_run
from orderlab.spark_sweeps.sweep_file.specification import MANIFEST

POISSON = (
    'system = "tests.spark_sweeps.subjects:struck"\n[base]\nmost = {most}\n[question]\nkind = "rare-event"\n'
    'faults = ["redis-stall", "redis-failover:1"]\nmean_faults = 1\nfrom = 0.1\nto = 0.5\nscore = "{score}"\n{more}\n'
)


def normal(inputs):
    """A standard normal sum, whatever the dimension."""
    return stats.norm.ppf(inputs).sum(axis=1) / math.sqrt(inputs.shape[1])


def test_splitting_finds_a_probability_of_three_in_a_million():
    covered = 0
    for seed in range(8):
        rare = splitting(normal, 5, 4.5, 200, seed=seed)
        assert rare.probability == pytest.approx(stats.norm.sf(4.5), rel=2.0)
        covered += rare.low <= stats.norm.sf(4.5) <= rare.high
        assert rare.evaluations < 8_000  # plain Monte Carlo would need tens of millions
        assert rare == splitting(normal, 5, 4.5, 200, seed=seed)
    assert covered >= 6


def test_populations_that_agree_by_chance_make_no_interval_of_one_point():
    same = Population(0.02, 0.02, (1.0,), variance=(1 / 0.2 - 1 + 1 / 0.1 - 1) / 10)
    found = pooled([same, same], 40)
    assert found.low < 0.01 < 0.02 < 0.04 < found.high


def plain_monte_carlo(score, dimensions, bound, samples, seed):
    """Estimate the probability by counting: the second algorithm."""
    inputs = RandomStreams(seed).vector_stream("plain-monte-carlo").random((samples, dimensions))
    found = clopper_pearson(int((score(inputs) > bound).sum()), samples)
    return Rarity(found.estimate, found.low, found.high, (), samples)


def test_splitting_and_plain_monte_carlo_agree_where_both_are_feasible():
    rare = splitting(normal, 5, 2.5, 200, seed=1, share=0.2)
    plain = plain_monte_carlo(normal, 5, 2.5, 40_000, seed=1)
    assert rare.low <= plain.high
    assert plain.low <= rare.high
    assert plain.low <= stats.norm.sf(2.5) <= plain.high
    mild = splitting(normal, 5, -1.0, 200, seed=1)  # not rare: nothing is split, and the interval is exact
    assert (mild.evaluations, mild.levels) == (1000, ((),) * 5)
    assert mild.low <= stats.norm.sf(-1.0) <= mild.high


def test_levels_are_chosen_among_the_scores_that_occur():
    scores = np.array([0.0] * 6 + [1.0] * 3 + [2.0])
    assert next_level(scores, 5.0, 4) == 0.0
    assert next_level(scores, 5.0, 1) == 1.0
    assert next_level(scores, 1.5, 2) == 0.0  # only one lies above the bound
    assert next_level(scores, 1.5, 1) is None
    assert next_level(np.ones(10), 5.0, 2) is None


def test_a_score_that_foretells_nothing_makes_the_interval_wide_and_not_wrong():
    found = splitting(lambda inputs: np.where(inputs[:, 0] > 1 - 1e-7, 2.0, 0.0), 1, 1.0, 100, seed=1)
    assert (found.probability, found.low, found.high) == (0.0, 0.0, clopper_pearson(0, 500).high)  # plain runs, it is

    def misleading(inputs):
        return np.where(inputs[:, 1] > 1 - 1e-7, 2.0, (inputs[:, 0] > 0.9).astype(float) - 1)

    found = splitting(misleading, 2, 1.0, 100, seed=1)
    assert (found.probability, found.low, found.died_out) == (0.0, 0.0, 5)
    assert 0.05 < found.high < 0.3  # no more than the probability of the last level

    for populations, samples, share in ((1, 100, 0.1), (5, 10, 0.1), (5, 100, 0.9)):
        with pytest.raises(InputError, match="splitting"):
            splitting(normal, 1, 1.0, samples, 1, share, populations)


@pytest.mark.parametrize(
    ("text", "most"),
    [
        (POISSON.format(most=3, score="faults", more="samples = 80\nplain_runs = 400"), 3),
        (POISSON.format(most=99, score="faults", more="samples = 60\nabove = 4"), 4),
        (POISSON.format(most=4, score="seeded", more="samples = 60"), 4),  # the score knows nothing of the event
    ],
)
def test_a_rare_event_of_known_probability_in_a_sweep_file(text, most, sweep_file, pool):
    sweep, plan = load(path := sweep_file(text))
    found = answer(path, sweep, plan, pool, None)
    (row,) = found.rows
    true = stats.poisson.sf(most, 1)
    assert row["low"] <= true <= row["high"]
    assert row["failed"] == 0
    if "seeded" not in text:
        assert row["low"] > 0
        assert row["probability"] == pytest.approx(true, rel=1.5)
        _, _, round_of_it, _, number = row["first_event"].split()
        again = single_run(Path(round_of_it) / MANIFEST, int(number))
        assert again["metrics"]["faults"] > most
    if "plain_runs" in text:
        assert row["plain_low"] <= true <= row["plain_high"]
        assert row["agrees"]
    assert answer(path, sweep, plan, _no_engine, None).rows == found.rows  # every step is there already


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('score = "faults"', 'score = "fults"'), 'no metric "fults"; did you mean "faults"?'),
        (("from = 0.1", "from = 0.9"), "from 0.9 s is not before to 0.5 s; exchange them"),
        (("mean_faults = 1", "mean_faults = 0"), "question.mean_faults"),
        (('"redis-stall"', '"redis-stal"'), 'question.faults: unknown fault "redis-stal"; did you mean "redis-stall"?'),
        (("most = 3", 'most = "many"'), "question: all 200 runs failed"),
        (("[question]", "[axes]\nb = [1, 2]\n[question]"), "rare-event is asked of one configuration"),
        (("samples = 40", "samples = 10\nshare = 0.1"), "a share of 0.1 of 10 samples is not 2"),
    ],
)
def test_a_question_that_makes_no_sense_is_one_line(change, told, sweep_file, pool):
    text = POISSON.format(most=3, score="faults", more="samples = 40\nplain_runs = 10").replace(*change)
    sweep, plan = load(path := sweep_file(text))
    with pytest.raises(InputError) as caught:
        answer(path, sweep, plan, pool, None)
    assert told in str(caught.value)


@pytest.mark.exhaustive
def test_splitting_and_plain_runs_agree_on_a_small_real_system(sweep_file, pool):
    path = sweep_file(
        'system = "tbmq-p2p"\n[base]\npublishers = 5\nrate = 10\nredis_nodes = 1\nwarm_up_s = 0.1\nduration_s = '
        "0.2\n[question]\n"
        'kind = "rare-event"\nfaults = ["redis-stall:0:0.05"]\nmean_faults = 1\nfrom = 0.1\nto = 0.3\n'
        'score = "latency.publish_to_delivery.mean_ms"\nabove = 42\nsamples = 40\npopulations = 4\nplain_runs = 600\n'
    )
    sweep, plan = load(path)
    (row,) = answer(path, sweep, plan, pool, None).rows
    assert row["agrees"]
    assert 0 < row["low"] < row["plain"] < row["high"] < 0.2
    assert row["levels"] >= 1


def _no_engine(folder):
    raise AssertionError("nothing is left to run")
