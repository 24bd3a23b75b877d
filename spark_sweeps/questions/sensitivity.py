"""Which parameters matter: Sobol' indices (variance shares) or Morris' elementary effects, through SALib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from model.errors import InputError
from spark_sweeps.axes import Axis
from spark_sweeps.questions.asking import Answered, Ask, metric_of

LEVELS = 4  # SALib takes a seed of 0 for none, hence the + 1 below


class Sensitivity(BaseModel):
    """What is asked: how ``metric`` depends on the axes. ``samples`` (a power of two for sobol) times axes + 2, or
    + 1 for morris, is the number of points.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: Literal["sensitivity"]
    metric: str
    method: Literal["sobol", "morris"] = "sobol"
    samples: int = Field(default=64, ge=4)


@dataclass(frozen=True)
class Influence:
    """Of one parameter. sobol: ``first`` and ``total`` share of the variance; morris: mean absolute effect and its
    spread. ``*_half_width``: of the 95 % interval by bootstrap.
    """

    parameter: str
    first: float
    first_half_width: float
    total: float
    total_half_width: float


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
    top = np.nextafter(1.0, 0.0)
    points = [{name: axes[name].at(min(float(x), top)) for name, x in zip(names, row, strict=True)} for row in cube]
    found = ask("runs", points, replications)
    failed = [run for run in found if run.status != "ok"]
    if failed:
        raise InputError(
            f"sensitivity: {len(failed)} of {len(found)} runs failed, the first: {failed[0].replay}; mend them"
        )
    values = _means(found, asked.metric, len(points), replications)
    if float(np.ptp(values)) == 0:
        raise InputError(f"sensitivity: {asked.metric} is {values[0]:g} at every point; widen the axes")
    return sorted(_analysed(asked, problem, cube, values, seed), key=lambda one: (-one.total, one.parameter))


def _means(found: Sequence[Answered], metric: str, points: int, replications: int) -> Any:
    return np.array([metric_of(run, metric) for run in found]).reshape(points, replications).mean(axis=1)


def _sampled(asked: Sensitivity, problem: dict[str, Any], seed: int) -> Any:
    if asked.method == "sobol":
        from SALib.sample import sobol

        return sobol.sample(problem, asked.samples, calc_second_order=False, seed=seed % 2**31 + 1)
    from SALib.sample import morris

    return morris.sample(problem, asked.samples, num_levels=LEVELS, seed=seed % 2**31 + 1)


def _analysed(asked: Sensitivity, problem: dict[str, Any], cube: Any, values: Any, seed: int) -> list[Influence]:
    if asked.method == "sobol":
        from SALib.analyze import sobol

        told = sobol.analyze(problem, values, calc_second_order=False, seed=seed % 2**31 + 1)
        columns = (told["S1"], told["S1_conf"], told["ST"], told["ST_conf"])
    else:
        from SALib.analyze import morris

        told = morris.analyze(problem, cube, values, num_levels=LEVELS, seed=seed % 2**31 + 1)
        columns = (told["mu_star"], told["mu_star_conf"], told["mu_star"], told["mu_star_conf"])
        return [
            Influence(name, float(spread), 0.0, float(effect), float(half))
            for name, effect, half, spread in zip(problem["names"], *columns[:2], told["sigma"], strict=True)
        ]
    return [Influence(name, *(float(x) for x in row)) for name, *row in zip(problem["names"], *columns, strict=True)]
