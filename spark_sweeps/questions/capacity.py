"""Capacity: the highest rate at which a configuration keeps its target, by bisection of many configurations at once.

A rate is kept when every run comes to its end, no law is violated, and the mean of the metric over the replications lies
below the target; the t interval says how sure that is. Runs of simulated systems must also have delivered all, and their
latency must not grow, by the rule of ``orderlab simulate --sustainable`` (`sim.systems.sustainable`): a short run can be
below any target on its way up. While the interval straddles the target, or the latency seems to grow and may not,
replications double, up to ``replications_max``; then the means decide and the answer says that it is not sure. Assumes
that what is kept at a rate is kept below it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sim.systems.sustainable import GROWTH_MAX_MS_PER_S
from spark_sweeps.questions.asking import Answered, Ask, metric_of
from spark_sweeps.questions.intervals import mean_interval
from spark_sweeps.simulated import COMPLETE, GROWTH

ROUNDS_MAX = 60


class Capacity(BaseModel):
    """What is asked: the largest ``parameter`` between ``from`` and ``to`` with ``metric`` below ``below``."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
    kind: Literal["capacity"]
    parameter: str
    low: float = Field(alias="from", gt=0)
    high: float = Field(alias="to", gt=0)
    metric: str
    below: float
    tolerance: float = Field(default=0.05, gt=0, lt=1)
    """The answer lies between two rates that differ by at most this share."""
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    replications: int = Field(default=2, ge=1)
    replications_max: int = Field(default=8, ge=1)
    integer: bool = False

    @model_validator(mode="after")
    def _low_below_high(self) -> Capacity:
        if self.low >= self.high:
            raise ValueError(f"from {self.low:g} is not below to {self.high:g}; exchange them")
        return self


@dataclass
class Bracket:
    """Where the capacity of one configuration lies. ``kept`` 0: not even the lowest rate; ``broken`` inf: every rate."""

    configuration: Mapping[str, Any]
    kept: float = 0.0
    broken: float = math.inf
    runs: int = 0
    is_sure: bool = True
    at_kept: float | None = None
    """The metric at the rate that is kept."""
    seen: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As plain values; infinity is null."""
        return {**asdict(self), "broken": None if math.isinf(self.broken) else self.broken}


def capacity(asked: Capacity, configurations: Sequence[Mapping[str, Any]], ask: Ask) -> list[Bracket]:
    """The bracket of each configuration. Raises InputError as runs do, and for a metric that there is not."""
    brackets = [Bracket(dict(configuration)) for configuration in configurations]
    number = 0
    while True:
        trials = [(bracket, rate) for bracket in brackets if (rate := _next(bracket, asked)) is not None]
        if not trials or number == ROUNDS_MAX:
            return brackets
        replications = asked.replications
        while trials:
            number += 1
            points = [{**bracket.configuration, asked.parameter: rate} for bracket, rate in trials]
            found = ask(f"round-{number:03d}", points, replications)
            open_still = []
            for place, (bracket, rate) in enumerate(trials):
                mine = found[place * replications : (place + 1) * replications]
                bracket.runs += replications
                if not _decide(bracket, rate, mine, asked, is_last=2 * replications > asked.replications_max):
                    open_still.append((bracket, rate))
            trials, replications = open_still, 2 * replications


def _next(bracket: Bracket, asked: Capacity) -> float | None:
    """The next rate to try: the highest, the lowest, then between what is kept and what is not."""
    if math.isinf(bracket.broken):
        rate = asked.high if bracket.kept < asked.high else None
    elif bracket.kept == 0:
        rate = asked.low if bracket.broken > asked.low else None
    else:
        closed = bracket.broken - bracket.kept <= asked.tolerance * bracket.broken
        rate = None if closed else math.sqrt(bracket.kept * bracket.broken)
    if rate is None:
        return None
    kept = round(rate) if asked.integer else float(f"{rate:.6g}")
    return None if kept in (bracket.kept, bracket.broken) else kept


def _steady(runs: Sequence[Answered], confidence: float) -> tuple[bool, bool]:
    """(all has arrived and the latency does not grow, whether that is sure); runs that do not tell are steady."""
    if any(run.metrics.get(COMPLETE, 1.0) < 1 for run in runs):
        return False, True
    slopes = [run.metrics[GROWTH] for run in runs if GROWTH in run.metrics]
    if not slopes:
        return True, True
    found = mean_interval(slopes, confidence)
    if found.estimate < GROWTH_MAX_MS_PER_S:
        return True, True
    return False, found.low >= GROWTH_MAX_MS_PER_S


def _decide(bracket: Bracket, rate: float, runs: Sequence[Answered], asked: Capacity, is_last: bool) -> bool:
    """Narrow the bracket, if these runs decide; whether they do."""
    sound = [run for run in runs if run.is_sound]
    told: dict[str, Any] = {"rate": rate, "runs": len(runs), "unsound": len(runs) - len(sound)}
    if len(sound) < len(runs):
        is_kept, sure = False, True
    else:
        interval = mean_interval([metric_of(run, asked.metric) for run in runs], asked.confidence)
        told |= {"mean": interval.estimate, "low": interval.low, "high": interval.high}
        sure = not interval.low < asked.below <= interval.high
        is_kept = interval.estimate < asked.below
        if is_kept:
            is_steady, sure_of_that = _steady(runs, asked.confidence)
            is_kept, sure = is_steady, sure and sure_of_that
        if not sure and not is_last:
            bracket.seen.append({**told, "decided": False})
            return False
    bracket.seen.append({**told, "decided": True, "kept": is_kept, "sure": sure})
    bracket.is_sure &= sure
    if is_kept:
        bracket.kept, bracket.at_kept = rate, told["mean"]
    else:
        bracket.broken = rate
    return True
