"""Intervals hold what they are to hold as often as they say: measured on systems whose truth is known.

`python -m pytest -s -m exhaustive tests/spark_sweeps/test_coverage.py` prints the figures of ``notes/statistics.md``.
"""

import functools
import math

import numpy as np
import pytest
from scipy import stats

from orderlab.sim.engine.statistics import difference_interval, interval_of, report_means
from orderlab.spark_sweeps.questions.asking import AnsweredRun
from orderlab.spark_sweeps.questions.capacity import Capacity, capacity
from orderlab.spark_sweeps.questions.risk import Risk, risk
from orderlab.spark_sweeps.questions.sensitivity import Sensitivity, sensitivity
from orderlab.spark_sweeps.results.rows import _is_precise, _sizes, confidence_of
from orderlab.spark_sweeps.sweep_file.specification import Axis, sweep_of

FEW, MANY = 40, 400
TIMES = pytest.mark.parametrize("times", [FEW, pytest.param(MANY, marks=pytest.mark.exhaustive)])


def insist(what, held):
    """At least 95 %, but for chance: three standard deviations of a share of so many."""
    share = float(np.mean(held))
    print(f"{what}: {share:.1%} of {len(held)}")
    assert share >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / len(held)), what


@functools.lru_cache(None)
def of_flags(hits, runs):
    return interval_of([1.0] * hits + [0.0] * (runs - hits))


@functools.lru_cache(None)
def of_pairs(up, down, pairs):
    a = np.array([0.0] * up + [1.0] * down + [0.0] * (pairs - up - down))
    b = np.array([1.0] * up + [0.0] * down + [0.0] * (pairs - up - down))
    return difference_interval(a, b)


@pytest.mark.parametrize("runs", [1, 3, 8, 30, pytest.param(100, marks=pytest.mark.exhaustive)])
def test_a_proportion_is_held_whatever_it_is(runs):
    worst = 1.0
    for p in (0.001, 0.01, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999):
        found = [of_flags(hits, runs) for hits in range(runs + 1)]
        assert all(one.low < one.high for one in found)
        worst = min(worst, sum(stats.binom.pmf(k, runs, p) for k, one in enumerate(found) if one.low <= p <= one.high))
    print(f"flags, {runs} runs: at least {worst:.1%} (exact)")
    assert worst >= 0.95


@pytest.mark.parametrize("pairs", [5, 12, pytest.param(40, marks=pytest.mark.exhaustive)])
def test_a_difference_of_flags_in_pairs_is_held_whatever_they_are(pairs):
    worst = 1.0
    for up in (0.001, 0.02, 0.1, 0.3, 0.45):
        for down in (0.0, 0.001, 0.02, 0.1, 0.3, 0.45):
            held = 0.0
            for m in range(pairs + 1):
                for k in range(m + 1):
                    one = of_pairs(k, m - k, pairs)
                    assert one.low < one.high
                    if one.low - 1e-9 <= up - down <= one.high + 1e-9:
                        held += stats.multinomial.pmf([k, m - k, pairs - m], pairs, [up, down, 1 - up - down])
            worst = min(worst, held)
    print(f"flags, {pairs} pairs: at least {worst:.1%} (exact)")
    assert worst >= 0.95


@TIMES
@pytest.mark.parametrize("mean", [0.02, 0.3, 1, 4, 40])
def test_a_mean_of_counts_is_held_and_so_is_that_of_their_differences(mean, times):
    rng = np.random.default_rng([1, round(mean * 100)])
    for runs in (5, 20, 60):
        held, held_pairs = [], []
        for _ in range(times):
            one, common = interval_of(rng.poisson(mean, runs)), rng.poisson(mean, runs)
            assert one.low < one.high
            held.append(one.low <= mean <= one.high)
            pair = difference_interval(common + rng.poisson(mean / 2, runs), common + rng.poisson(mean, runs))
            held_pairs.append(pair.low <= mean / 2 <= pair.high)
        insist(f"counts of {mean:g}, {runs} runs", held)
        insist(f"counts of {mean:g} in pairs, {runs} pairs", held_pairs)


@TIMES
def test_replications_hold_their_mean(times):
    rng = np.random.default_rng(2)
    found = [report_means([{"ms": 30 + rng.normal()} for _ in range(5)])["ms"] for _ in range(times)]
    insist("5 replications", [one["low"] <= 30 <= one["high"] for one in found])


DRAWS = {
    "flag 0.02": (0.02, lambda rng, n: (rng.random(n) < 0.02).astype(float)),
    "flag 0.3": (0.3, lambda rng, n: (rng.random(n) < 0.3).astype(float)),
    "normal": (10.0, lambda rng, n: rng.normal(10, 2, n)),
    "log-normal": (1.0, lambda rng, n: np.exp(0.3 * rng.standard_normal(n) - 0.045)),
}


@TIMES
@pytest.mark.parametrize("kind", DRAWS)
@pytest.mark.parametrize("half_width", [0.05, 0.5])
def test_replications_until_hold_their_mean_wherever_they_end(kind, half_width, times):
    until = {"metric": "x", "half_width": half_width, "first": 5}
    sweep = sweep_of({"system": "a:b", "output": "x", "replications": {"count": 300, "until": until}}, "x")
    confidence, (truth, draw) = confidence_of(sweep), DRAWS[kind]
    rng, held, sizes = np.random.default_rng(3), [], []
    for _ in range(times):
        values = draw(rng, 300)
        size = next(
            n for n in _sizes(5, 300) if n == 300 or _is_precise(values[:n], sweep.replications.until, confidence)
        )
        found = interval_of(values[:size], confidence)
        assert found.low < found.high
        held.append(found.low <= truth <= found.high)
        sizes.append(size)
    insist(f"until {half_width:g}, {kind}, after {np.mean(sizes):.0f} runs", held)


@TIMES
@pytest.mark.parametrize("truth", [0.005, 0.05, 0.2])
def test_a_risk_is_held_after_an_early_end(truth, times):
    given = {"kind": "risk", "faults": ["redis-stall"], "from": 0, "to": 1, "acceptable": 0.01, "unacceptable": 0.1}
    rng = np.random.default_rng(4)

    def ask(name, points, replications):
        return [
            AnsweredRun(k, 0, {}, 0, "ok", "violated" if rng.random() < truth else "holds", {}, "")
            for k in range(len(points))
        ]

    found = [risk(Risk.model_validate({**given, "batch": 16}), {}, ask, seed).interval for seed in range(times)]
    insist(
        f"risk of {truth:g}, {np.mean([one.count for one in found]):.0f} runs",
        [one.low <= truth <= one.high for one in found],
    )


@TIMES
@pytest.mark.parametrize("curve", ["queue", "line"])
@pytest.mark.parametrize("spread", [0.02, 0.1, 0.3])
def test_the_capacity_lies_between_kept_and_broken(curve, spread, times):
    asked = Capacity.model_validate(
        {"kind": "capacity", "parameter": "rate", "from": 1, "to": 400, "metric": "ms", "below": 90}
    )
    truth = 90.0 if curve == "line" else 100 * (1 - 10 / 90)
    rng, held, runs, widths = np.random.default_rng(5), [], [], []

    def ask(name, points, replications):
        found = []
        for place, point in enumerate(points):
            for number in range(replications):
                rate = point["rate"]
                is_over = curve == "queue" and rate >= 100
                mean = rate if curve == "line" else 10 / max(1e-9, 1 - rate / 100)
                ms = mean * math.exp(spread * rng.standard_normal() - spread**2 / 2)
                status = "timeout" if is_over else "ok"
                found.append(AnsweredRun(place, number, point, 0, status, None, {} if is_over else {"ms": ms}, ""))
        return found

    for _ in range(times):
        (bracket,) = capacity(asked, [{}], ask)
        held.append(bracket.kept <= truth <= bracket.broken)
        runs.append(bracket.runs)
        widths.append((bracket.broken - bracket.kept) / truth)
    insist(f"capacity, {curve}, variation {spread:.0%}, {np.mean(runs):.0f} runs, {np.mean(widths):.1%} wide", held)


CUBE = {name: Axis.model_validate({"from": -math.pi, "to": math.pi}) for name in ("x", "y", "z", "inert")}
TRUE = {"x": (0.3139, 0.5576), "y": (0.4424, 0.4424), "z": (0.0, 0.2437), "inert": (0.0, 0.0)}


@TIMES
@pytest.mark.parametrize("noise", [0.0, 2.0])
def test_sobol_indices_are_held_and_an_inert_parameter_has_none(noise, times):
    rng, held, inert = np.random.default_rng(6), {name: [] for name in TRUE}, []

    def ask(name, points, replications):
        def f(x, y, z, inert):
            return math.sin(x) + 7 * math.sin(y) ** 2 + 0.1 * z**4 * math.sin(x) + noise * rng.standard_normal()

        return [
            AnsweredRun(place, number, point, 0, "ok", None, {"f": f(**point)}, "")
            for place, point in enumerate(points) for number in range(replications)
        ]  # fmt: skip

    for seed in range(times // 4 if times == FEW else times):
        for one in sensitivity(Sensitivity(kind="sensitivity", metric="f"), CUBE, ask, 1, seed):
            first, total = TRUE[one.parameter]
            held[one.parameter] += [
                abs(one.first - first) <= one.first_half_width,
                abs(one.total - total) <= one.total_half_width,
            ]
            if one.parameter == "inert":
                inert.append(one.total)
    for name, each in held.items():
        insist(f"Sobol' indices of {name}, noise {noise:g}", each)
    print(
        f"total index of an inert parameter, noise {noise:g}: {np.mean(inert):.3f}, 0 in "
        f"{np.mean(np.array(inert) == 0):.0%}"
    )
    assert np.mean(inert) < 0.03
    assert np.median(inert) < 0.02
