"""Which parameters matter: Sobol' indices (variance shares) or Morris' elementary effects; SALib draws the points.

A run's result varies with its seed, too. Taken for an influence, that gives every parameter a part of the noise: the
total index of one that does nothing came out at 0.156. So each point is run at least twice, no two runs share their
seed, and the indices are made of products of differences from different runs, in which noise has the mean 0 (total:
Jansen 1999 with the square replaced; first: Saltelli 2010). The variance that is shared out is that between points
alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from orderlab.model.errors import InputError
from orderlab.sim.engine.few_runs import NOMINAL, Evidence
from orderlab.spark_sweeps.questions.asking import AnswerTable, Ask, metric_of
from orderlab.spark_sweeps.sweep_file.specification import Axis

RESAMPLES = 1000
TOP = float(np.nextafter(1.0, 0.0))
LEVELS = 4  # SALib takes a seed of 0 for none, hence the + 1 below


class Sensitivity(BaseModel):
    """What is asked: how ``metric`` depends on the axes. ``samples`` (a power of two for sobol) times axes + 2, or
    + 1 for morris, is the number of points.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    kind: Literal["sensitivity"]
    metric: str
    method: Literal["sobol", "morris"] = "sobol"
    samples: int = Field(default=64, ge=4)


@dataclass(frozen=True)
class Influence:
    """The influence of one parameter. sobol: ``first`` and ``total`` share of the variance; morris: mean absolute
    effect and its spread. ``*_half_width``: of the nominal 95 % interval by bootstrap.
    """

    parameter: str
    first: float
    first_half_width: float
    total: float
    total_half_width: float
    runs: int = 0
    """All that were done: each takes part in the figures of every parameter."""

    @property
    def is_noise(self) -> bool:
        """Whether the interval of the total holds 0."""
        return self.total <= self.total_half_width


def sensitivity(
    asked: Sensitivity, axes: Mapping[str, Axis], ask: Ask, replications: int, seed: int
) -> list[Influence]:
    """The influence of each axis, the most influential first. Raises InputError where runs failed: the method cannot
    leave points out.
    """
    names = list(axes)
    if len(names) < 2:
        raise InputError("question: sensitivity compares parameters; give at least two [axes]")
    problem = {"num_vars": len(names), "names": names, "bounds": [[0.0, 1.0]] * len(names)}
    cube = _sampled(asked, problem, seed)
    points = [{name: axes[name].at(min(float(x), TOP)) for name, x in zip(names, row, strict=True)} for row in cube]
    if asked.method == "sobol":
        replications = max(2, replications)
    found = ask("runs", points, replications)
    failed = [run for run in found if run.status != "ok"]
    if failed:
        raise InputError(
            f"sensitivity: {len(failed)} of {len(found)} runs failed, the first: {failed[0].replay}; fix them"
        )
    values = np.array([metric_of(run, asked.metric) for run in found]).reshape(len(points), replications)
    if not np.isfinite(values).all():
        raise InputError(f"sensitivity: {asked.metric} is not finite in every run; ask for another metric")
    if float(np.ptp(values)) == 0:
        raise InputError(f"sensitivity: {asked.metric} is {values[0, 0]:g} at every point; widen the axes")
    if asked.method == "sobol":
        influences = _indices(names, values.reshape(-1, len(names) + 2, replications), asked.metric, seed)
    else:
        influences = _effects(axes, cube, values.mean(axis=1), seed)
    influences = [replace(one, runs=len(found)) for one in influences]
    return sorted(influences, key=lambda one: (-one.total, one.parameter))


def _sampled(asked: Sensitivity, problem: dict[str, Any], seed: int) -> Any:
    if asked.method == "sobol":
        from SALib.sample import sobol

        return sobol.sample(problem, asked.samples, calc_second_order=False, seed=seed % 2**31 + 1)
    from SALib.sample import morris

    return morris.sample(problem, asked.samples, num_levels=LEVELS, seed=seed % 2**31 + 1)


def _indices(names: Sequence[str], values: Any, metric: str, seed: int) -> list[Influence]:
    """Of ``values`` by sample, then point (A, A with column k of B for each k, B), then replication. Raises InputError
    where seeds make as much of a difference as points.
    """
    samples, _, runs = values.shape
    values = (values - values.mean()) / (values.std() or 1.0)
    means = values.mean(axis=2)
    a, b, mixed = means[:, 0], means[:, -1], means[:, 1:-1]
    ends = values[:, [0, -1]]
    noise = ends.var(axis=2, ddof=1).mean(axis=1) / runs
    change = values[:, :1] - values[:, 1:-1]
    squares = change.mean(axis=2) ** 2 - change.var(axis=2, ddof=1) / runs  # the products of different runs
    weights = np.random.default_rng(seed).multinomial(samples, [1 / samples] * samples, RESAMPLES) / samples
    weights = np.concatenate((np.full((1, samples), 1 / samples), weights))

    mean = weights @ ((a + b) / 2)
    variance = (weights @ ((a**2 + b**2) / 2) - mean**2) * (2 * samples / (2 * samples - 1)) - weights @ noise
    if not variance[0] > 0 or float((variance > 0).mean()) < 0.975:
        raise InputError(
            f"sensitivity: {metric} varies no more from point to point than from seed to seed; raise "
            "replications.count or "
            "question.samples, or widen the axes"
        )
    usable = variance > 0
    weights, mean, variance = weights[usable], mean[usable], variance[usable, None]
    first = (
        weights @ (b[:, None] * (mixed - a[:, None])) - mean[:, None] * (weights @ (mixed - a[:, None]))
    ) / variance
    total = weights @ squares / 2 / variance
    return [
        Influence(
            name, max(0.0, float(first[0, k])), _reach(first[:, k]), max(0.0, float(total[0, k])), _reach(total[:, k])
        )
        for k, name in enumerate(names)
    ]


def _reach(drawn: Any) -> float:
    """Half of the nominal 95 % interval: how far resampling takes an estimate, which comes first;
    as much more as it lies below 0."""
    low, high = np.quantile(drawn[1:], [0.025, 0.975])
    return float(max(high - drawn[0], drawn[0] - low, 1.96 * drawn[1:].std()) + max(0.0, -drawn[0]))


def _effects(axes: Mapping[str, Axis], cube: Any, values: Any, seed: int) -> list[Influence]:
    """Of ``values`` by path and point, from each of which one parameter has moved to the next. A parameter that has
    listed values moves by whole ones: how far it came counts, and not how far the share of its range did."""
    names = list(axes)
    places = np.column_stack([_places(axes[name], cube[:, k]) for k, name in enumerate(names)])
    moved = np.diff(places.reshape(-1, len(names) + 1, len(names)), axis=1)
    changed = np.diff(values.reshape(-1, len(names) + 1), axis=1)
    rng = np.random.default_rng(seed)
    found = []
    for k, name in enumerate(names):
        path, step = np.nonzero(moved[:, :, k])
        effects = changed[path, step] / moved[path, step, k] if len(path) else np.zeros(len(moved))
        drawn = np.abs(effects)[rng.integers(len(effects), size=(RESAMPLES, len(effects)))].mean(axis=1)
        spread, half = float(effects.std(ddof=1)), float(1.96 * drawn.std(ddof=1))
        found.append(Influence(name, spread, 0.0, float(np.abs(effects).mean()), half))
    return found


def _places(axis: Axis, shares: Any) -> Any:
    """Where on an axis the values lie that are taken at these shares of it: 0 at its first value, 1 at its last."""
    if not axis.is_discrete and not (axis.is_whole and axis.scale == "linear"):
        return shares
    values = [axis.at(min(float(share), TOP)) for share in shares]
    if axis.is_discrete:
        listed = axis.listed()
        return np.array([listed.index(value) for value in values]) / max(1, len(listed) - 1)
    low, high = np.array(axis.listed(), float)[[0, -1]]
    return (np.array(values, float) - low) / (high - low)


def of_sensitivity(asked: Sensitivity, found: Sequence[Influence]) -> AnswerTable:
    """A row for each parameter, the most influential first."""
    evidence = Evidence(found[0].runs if found else None)
    if asked.method == "morris":
        rows = [
            {"parameter": one.parameter, "mean_absolute_effect": one.total, "half_width": one.total_half_width,
             "spread_of_effects": one.first, "runs": one.runs}
            for one in found
        ]  # fmt: skip
        return AnswerTable(rows, [
            f"Change of {asked.metric} when a parameter moves across its range, by elementary effects (Morris). A "
                "spread as "
            "large as the effect means that it bends or depends on other parameters. half_width: of nominal 95 % "
            "intervals.",
            NOMINAL,
        ], evidence=evidence)  # fmt: skip
    notes = [
        f"Shares of the variance of {asked.metric} (Sobol'): first is the parameter's own, total what it has a "
        "part in. "
        "half_width: of nominal 95 % intervals, by bootstrap. What differs from seed to seed alone is taken out: "
        "each point "
        "is run at least twice.",
        NOMINAL,
    ]
    if any(one.is_noise for one in found):
        names = ", ".join(one.parameter for one in found if one.is_noise)
        notes.append(f"Not told from no influence at all: {names}.")
    if any(one.total_half_width > 0.2 for one in found):
        notes.append("Intervals are wide: double question.samples before you read the order.")
    return AnswerTable([asdict(one) for one in found], notes, evidence=evidence)
