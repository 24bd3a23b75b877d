"""What a search for the best is after: metrics to be least or greatest, constraints, and which of two is better."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from orderlab.sim.engine.few_runs import quantile_interval, quantile_of, runs_needed
from orderlab.sim.engine.skewed_means import ValueShape
from orderlab.sim.engine.statistics import Interval
from orderlab.spark_sweeps.sweep_file.specification import Axis, Listed

FINALISTS_MAX, FINAL_RUNS_MIN = 7, 5
"""Configurations that are run again at the end, for each aim, and how often each at least."""
VIOLATIONS = "violations"
"""In a constraint: 1 for a run in which a law broke, 0 for one whose laws held."""
_CONSTRAINT = re.compile(r"\s*(\S+?)\s*(<=|>=|==|<|>)\s*([-+0-9.eE]+)\s*")


@dataclass(frozen=True)
class Bound:
    """One of ``subject_to``."""

    metric: str
    relation: str
    bound: float

    @property
    def text(self) -> str:
        """As it is written."""
        return f"{self.metric} {self.relation} {self.bound:g}"

    def excess(self, value: float) -> float:
        """How far ``value`` is beyond the bound; at most 0 where it meets it."""
        if self.relation == "==":
            return abs(value - self.bound)
        over = value - self.bound if self.relation[0] == "<" else self.bound - value
        return over if over or len(self.relation) == 2 else math.ulp(self.bound)

    def is_met_exactly(self, values: Sequence[float]) -> bool:
        """Whether every value is the bound itself, and that is allowed: a count that is at most 0 says no more."""
        return len(self.relation) == 2 and all(value == self.bound for value in values)

    def far_end(self, interval: Interval) -> float:
        """The end of an interval that is nearer to a breach."""
        return interval.low if self.relation[0] == ">" else interval.high

    def near_end(self, interval: Interval) -> float:
        """The other one."""
        return interval.high if self.relation[0] == ">" else interval.low

    def share(self, of_runs: float) -> float:
        """Which quantile of runs has to meet it, if so many of them have to."""
        return 1 - of_runs if self.relation[0] == ">" else of_runs


def constraint_of(text: str) -> Bound:
    """The constraint that a line says. Raises ValueError."""
    matched = _CONSTRAINT.fullmatch(text)
    try:
        bound = float(matched[3]) if matched else math.nan
    except ValueError:
        bound = math.nan
    if matched is None or not math.isfinite(bound):
        raise ValueError(f'"{text}" is no constraint; write METRIC <= NUMBER, with <=, <, >=, > or ==')
    return Bound(matched[1], matched[2], bound)


def insist_on_room(constraints: Sequence[Bound]) -> None:
    """Raise ValueError for two constraints of a metric that no value meets together."""
    for lower in constraints:
        for upper in constraints:
            if lower.metric != upper.metric or lower.relation[0] == "<" or upper.relation[0] == ">":
                continue
            is_strict = len(lower.relation) == 1 or len(upper.relation) == 1
            if lower.bound > upper.bound or (is_strict and lower.bound == upper.bound):
                raise ValueError(f"{lower.text} and {upper.text} exclude each other; correct one of them")


class Aim(NamedTuple):
    """A metric, and the sign that makes less of it better."""

    metric: str
    sign: int

    @property
    def word(self) -> str:
        """What is looked for."""
        return "least" if self.sign == 1 else "greatest"


class Short(BaseModel):
    """A first look at every configuration of a batch: one run of a share of the length, after which the worse ones
    stop."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    parameter: str
    """Of [base]: how long a run is, ``duration_s``."""
    share: float = Field(default=0.25, gt=0, lt=1)
    """Of that length; a look counts as so much of a run."""
    keep: float = Field(default=0.5, gt=0, lt=1)
    """The share of a batch that goes on."""

    def length(self, whole: float) -> float:
        """The length of a look, whole where runs are counted in whole units."""
        return max(1, round(whole * self.share)) if isinstance(whole, int) else whole * self.share


class Best(BaseModel):
    """What is asked: the configuration of ``parameters`` with the least (or greatest) mean of a metric."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    kind: Literal["best"]
    minimise: str | Listed[str] | None = None
    maximise: str | Listed[str] | None = None
    """One metric, or several: then their front is the answer."""
    subject_to: Listed[str] = ()
    runs: int = Field(ge=20, le=1_000_000)
    """All that may be done."""
    parameters: dict[str, Axis] = Field(min_length=1)
    sampler: Literal["tpe", "random", "grid"] = "tpe"
    batch: int = Field(default=16, ge=1, le=10_000)
    """Configurations that are proposed at once; more keep more cores busy, and search less cleverly."""
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    of_runs: float | None = Field(default=None, ge=0.5, lt=1)
    """The share of runs that have to keep each constraint, instead of their mean."""
    short: Short | None = None

    @model_validator(mode="after")
    def _has_one_aim(self) -> Best:
        names = [aim.metric for aim in self.aims]
        if not names or len(set(names)) < len(names):
            raise ValueError('give either minimise = "METRIC" or maximise = "METRIC"; of several metrics each once')
        if VIOLATIONS in names:
            raise ValueError(f'{VIOLATIONS} is a constraint, not an aim; write subject_to = ["{VIOLATIONS} == 0"]')
        insist_on_room([constraint_of(text) for text in self.subject_to])
        if self.short is not None and len(names) > 1:
            raise ValueError("short: of several aims no configuration is hopeless by one run; remove it")
        if self.short is not None and self.short.parameter in self.parameters:
            raise ValueError(f"short.parameter: {self.short.parameter} is searched; name the length of runs")
        if self.of_runs is not None and self.final_runs < (needed := runs_needed(self.of_runs, self.level(1))):
            raise ValueError(
                f"of_runs: {self.final_runs} runs of a finalist, a quarter of {self.runs}, cannot show what "
                f"{100 * self.of_runs:g} % of runs keep; set runs to {4 * needed} or more"
            )
        return self

    @property
    def final_runs(self) -> int:
        """Those that are kept for the finalists."""
        return self.runs // 4

    @property
    def finalists(self) -> int:
        """How many there are: few enough that the runs of each can show what is asked."""
        most = max(1, min(FINALISTS_MAX * len(self.aims), self.final_runs // FINAL_RUNS_MIN))
        if self.of_runs is None:
            return most
        return next(
            many for many in range(most, 0, -1)
            if many == 1 or self.final_runs // many >= runs_needed(self.of_runs, self.level(many))
        )  # fmt: skip

    def level(self, finalists: int) -> float:
        """The confidence of each interval, so that those of all finalists and aims hold together (Bonferroni)."""
        return 1 - (1 - self.confidence) / (finalists * len(self.aims))

    def cost_of(self, replications: int) -> float:
        """What a configuration of the search costs on average, in runs of full length."""
        return replications if self.short is None else self.short.share + self.short.keep * replications

    def _is_of_runs(self, constraint: Bound) -> bool:
        return self.of_runs is not None and constraint.metric != VIOLATIONS

    def figure(self, constraint: Bound, values: Sequence[float]) -> float:
        """What a constraint is held against: the mean, or the quantile of runs."""
        if self._is_of_runs(constraint):
            return quantile_of(values, constraint.share(self.of_runs or 0.5))
        return float(np.mean(values))

    def interval(
        self, constraint: Bound, values: Sequence[float], confidence: float, population: ValueShape
    ) -> Interval:
        """The interval of `figure`; ``population``: what all finalists tell of the metric."""
        if self._is_of_runs(constraint):
            return quantile_interval(values, constraint.share(self.of_runs or 0.5), confidence)
        return population.interval_of(values, confidence)

    @property
    def aims(self) -> list[Aim]:
        """What is minimised, then what is maximised."""
        given = ((self.minimise, 1), (self.maximise, -1))
        return [
            Aim(name, sign) for names, sign in given for name in ((names,) if isinstance(names, str) else names or ())
        ]

    def signed(self, values: Sequence[float] | None) -> tuple[float, ...]:
        """A value for each aim so that less is better; infinite where nothing was measured."""
        if values is None:
            return (math.inf,) * len(self.aims)
        return tuple(aim.sign * value for aim, value in zip(self.aims, values, strict=True))

    @property
    def constraints(self) -> list[Bound]:
        """Those of ``subject_to``."""
        return [constraint_of(text) for text in self.subject_to]

    @property
    def measured(self) -> list[str]:
        """The metrics that runs have to record."""
        names = [*(aim.metric for aim in self.aims), *(constraint.metric for constraint in self.constraints)]
        return [name for name in dict.fromkeys(names) if name != VIOLATIONS]


@dataclass(frozen=True)
class Tried:
    """A configuration of the search. ``values``: the mean of each aim; None: one of its runs failed, or showed no
    number, or it was stopped early."""

    parameters: Mapping[str, Any]
    values: tuple[float, ...] | None
    excess: tuple[float, ...] = ()
    look: float | None = None
    """The aim in its short run, if there was one that measured."""
    is_stopped: bool = False
    """Whether nothing but a short run was done."""

    @property
    def is_feasible(self) -> bool:
        """Whether its runs met the constraints."""
        return self.values is not None and all(over <= 0 for over in self.excess)

    @property
    def breach(self) -> float:
        """How far it is beyond the constraints, in all."""
        return sum(max(0.0, over) for over in self.excess)


def key_of(point: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells configurations apart."""
    return tuple(point.items())


def leading(asked: Best, tried: Sequence[Tried], many: int) -> list[Tried]:
    """The best of what was tried, within the constraints if anything is. Of one aim the ``many`` best; of several those
    that nothing dominates by its means, and more of those that only these dominate, until there are ``many``.
    """
    left = [one for one in tried if one.values is not None]
    kept = [one for one in left if one.is_feasible] or sorted(left, key=lambda one: one.breach)[:many]
    if len(asked.aims) == 1:
        return sorted(kept, key=lambda one: (one.breach, *asked.signed(one.values)))[:many]
    chosen: list[Tried] = []
    while kept and len(chosen) < many:
        signed = [asked.signed(one.values) for one in kept]
        front = [
            one for one, mine in zip(kept, signed, strict=True) if not any(dominates(other, mine) for other in signed)
        ]
        chosen += front
        kept = [one for one in kept if one not in front]
    return chosen


def dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether ``one`` is nowhere worse and somewhere better; less is better."""
    return all(a <= b for a, b in zip(one, other, strict=True)) and any(a < b for a, b in zip(one, other, strict=True))
