"""Capacity: the highest rate at which a configuration keeps its target, by bisection of many configurations at once.

A rate is *kept* when every run came to its end, no law was violated, and the confidence interval of the metric's mean
lies below the target; it is *broken* when a run was unsound, or the interval lies above. Runs of simulated systems must
also have delivered all, and their latency must not grow, by the rule of ``orderlab simulate --sustainable``
(`orderlab.sim.systems.sustainable`): a short run can be below any target on its way up. While an interval straddles its
limit, more replications are added, up to ``replications_max``; a rate that is open even then stays open, and the search
goes on to either side of it. So noise makes the bracket wide, and not wrong.

No two runs share their seed: what chance did at one rate it does not do again at the next. Every look at a rate is one
more chance to err, and a search errs at the few rates nearest to the capacity if at all: of the error that is allowed
each look takes the part 1 / (RATES_NEAR x looks). ``notes/statistics.md`` has how often the bracket held the truth.
Assumes that what is kept at a rate is kept below it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from orderlab.model.verdict import Outcome
from orderlab.sim.engine.few_runs import NOMINAL, Evidence, mean_at, nominal
from orderlab.sim.engine.statistics import Interval, interval_of, mean_interval
from orderlab.sim.systems.sustainable import GROWTH_MAX_MS_PER_S
from orderlab.spark_sweeps.questions.asking import AnsweredRun, AnswerTable, Ask, metric_of
from orderlab.spark_sweeps.results.rows import METRIC, PARAMETER, columns_beside
from orderlab.spark_sweeps.runs.subject import COMPLETE, GROWTH

ROUNDS_MAX = 200
RATES_NEAR = 2


class Capacity(BaseModel):
    """What is asked: the largest ``parameter`` between ``from`` and ``to`` with ``metric`` below ``below``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)
    kind: Literal["capacity"]
    parameter: str
    low: float = Field(alias="from", gt=0, allow_inf_nan=False)
    high: float = Field(alias="to", gt=0, allow_inf_nan=False)
    metric: str
    below: float = Field(allow_inf_nan=False)
    tolerance: float = Field(default=0.05, gt=0, lt=1)
    """The answer lies between two rates that differ by at most this share."""
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    replications: int = Field(default=4, ge=1)
    replications_max: int = Field(default=32, ge=1)
    integer: bool = False

    @model_validator(mode="after")
    def _low_below_high(self) -> Capacity:
        if self.low >= self.high:
            raise ValueError(f"from {self.low:g} is not below to {self.high:g}; exchange them")
        if self.replications > self.replications_max:
            raise ValueError(f"replications {self.replications} is above replications_max {self.replications_max}")
        return self

    @property
    def looks(self) -> list[int]:
        """After how many replications a rate is looked at."""
        sizes = [self.replications]
        while sizes[-1] < self.replications_max:
            sizes.append(min(2 * sizes[-1], self.replications_max))
        return sizes

    @property
    def confidence_of_a_look(self) -> float:
        """So that the bracket holds the capacity with ``confidence``."""
        return 1 - (1 - self.confidence) / (RATES_NEAR * len(self.looks))


@dataclass
class Bracket:
    """Where the capacity of one configuration lies. ``kept`` 0: not even the lowest rate; ``broken`` inf: no rate;
    ``open``: rates between that stayed undecided.
    """

    configuration: Mapping[str, Any]
    tolerance: float
    kept: float = 0.0
    broken: float = math.inf
    open: list[float] = field(default_factory=list)
    runs: int = 0
    at_kept: float | None = None
    """The metric at the rate that is kept."""
    seen: list[dict[str, Any]] = field(default_factory=list)
    replay: str = ""
    """Of the first run at the rate that is kept; where none is, of the first that was tried."""

    @property
    def is_decided(self) -> bool:
        """Whether nothing that stayed open makes it wider than was asked for."""
        return not self.open or self.broken - self.kept <= self.tolerance * self.broken < math.inf

    def values_at(self, rate: float) -> list[float]:
        """The metric in the runs of the last look at a rate; none where a run was unsound."""
        return next((one.get("values", []) for one in reversed(self.seen) if one["rate"] == rate), [])

    def to_json(self) -> dict[str, Any]:
        """As plain values; infinity is null."""
        return {**asdict(self), "broken": None if math.isinf(self.broken) else self.broken}


def capacity(asked: Capacity, configurations: Sequence[Mapping[str, Any]], ask: Ask) -> list[Bracket]:
    """The bracket of each configuration. ``ask`` must give every round seeds of its own. Raises InputError as runs do,
    and for a metric that there is not.
    """
    brackets = [Bracket(dict(configuration), asked.tolerance) for configuration in configurations]
    number = 0
    while True:
        trials = [(bracket, rate) for bracket in brackets if (rate := _next(bracket, asked)) is not None]
        if not trials or number >= ROUNDS_MAX:
            return brackets
        seen: dict[int, list[AnsweredRun]] = {id(bracket): [] for bracket, _ in trials}
        done = 0
        for size in asked.looks:
            if not trials:
                break
            number += 1
            points = [{**bracket.configuration, asked.parameter: rate} for bracket, rate in trials]
            found = ask(f"round-{number:03d}", points, size - done)
            undecided = []
            for place, (bracket, rate) in enumerate(trials):
                mine = seen[id(bracket)]
                mine += found[place * (size - done) : (place + 1) * (size - done)]
                bracket.runs += size - done
                if not _decide(bracket, rate, mine, asked):
                    undecided.append((bracket, rate))
            trials, done = undecided, size
        for bracket, rate in trials:
            bracket.open = sorted([*bracket.open, rate])


def _next(bracket: Bracket, asked: Capacity) -> float | None:
    """The next rate to try: the highest, the lowest, then between what is kept, open and broken."""
    tried = {one["rate"] for one in bracket.seen}
    if math.isinf(bracket.broken) and bracket.kept < asked.high and asked.high not in tried:
        return asked.high
    if bracket.kept == 0 and bracket.broken > asked.low and asked.low not in tried:
        return asked.low
    if bracket.broken - bracket.kept <= asked.tolerance * bracket.broken < math.inf:
        return None
    ends = (
        [(bracket.kept, bracket.open[0]), (bracket.open[-1], bracket.broken)]
        if bracket.open
        else [(bracket.kept, bracket.broken)]
    )
    closed = asked.tolerance / len(ends)  # what is open lies between two gaps
    for low, high in ends:
        if low == 0 or math.isinf(high) or high - low <= closed * high:
            continue
        rate = math.sqrt(low * high)
        rate = round(rate) if asked.integer else float(f"{rate:.6g}")
        if rate not in tried:
            return rate
    return None


def _steady(runs: Sequence[AnsweredRun], confidence: float) -> bool | None:
    """Whether all has arrived and the latency does not grow; None: nobody knows. Runs that do not tell are steady."""
    if any(run.metrics.get(COMPLETE, 1.0) < 1 for run in runs):
        return False
    slopes = [run.metrics[GROWTH] for run in runs if GROWTH in run.metrics]
    if not slopes:
        return True
    return _side(_mean(slopes, confidence), GROWTH_MAX_MS_PER_S)


def _side(interval: Interval, limit: float) -> bool | None:
    """Whether the mean lies below the limit; None where the interval holds it."""
    if interval.high < limit:
        return True
    return False if interval.low >= limit else None


def _mean(values: Sequence[float], confidence: float) -> Interval:
    """Values that chance leaves alone are known, unless they are flags or counts of something rare."""
    return (
        mean_interval(values, confidence)
        if len(set(values)) == 1 and values[0] not in (0, 1)
        else interval_of(values, confidence)
    )


def _decide(bracket: Bracket, rate: float, runs: Sequence[AnsweredRun], asked: Capacity) -> bool:
    """Narrow the bracket, if these runs decide; whether they do."""
    unsound = sum(not run.is_sound for run in runs)
    told: dict[str, Any] = {"rate": rate, "runs": len(runs), "unsound": unsound}
    is_kept: bool | None = False
    if not unsound:
        values = [metric_of(run, asked.metric) for run in runs]
        interval = _mean(values, asked.confidence_of_a_look)
        told |= {"values": values, "mean": interval.estimate, "low": interval.low, "high": interval.high}
        is_kept = _side(interval, asked.below)
        if is_kept is not False:
            is_steady = _steady(runs, asked.confidence_of_a_look)
            is_kept = is_steady if is_kept or is_steady is False else None
    bracket.seen.append({**told, "kept": is_kept})
    if is_kept or not bracket.replay:
        bracket.replay = runs[0].replay
    if is_kept:
        bracket.kept, bracket.at_kept = rate, told["mean"]
        bracket.open = [one for one in bracket.open if one > rate]
    elif is_kept is False:
        bracket.broken = rate
        bracket.open = [one for one in bracket.open if one < rate]
    return is_kept is not None


def of_capacity(asked: Capacity, found: Sequence[Bracket]) -> AnswerTable:
    """A row for each configuration: the highest rate that is kept and the lowest that is not."""
    kept, broken, at_kept = capacity_columns(asked.parameter, asked.metric)
    taken = (kept, broken, at_kept, "runs", "decided")
    names = columns_beside(taken, (name for one in found for name in one.configuration), PARAMETER)
    rows = [
        {
            **{names[name]: value for name, value in bracket.configuration.items()},
            kept: bracket.kept, broken: bracket.to_json()["broken"], at_kept: bracket.at_kept, "runs": bracket.runs,
            "decided": bracket.is_decided,
        }
        for bracket in found
    ]  # fmt: skip
    notes = [
        f"kept: every run came to its end and broke no law, and the interval of the mean of {asked.metric} lies below "
        f"{asked.below:g}; of a simulated system also: everything is delivered, and latency does not grow by 1 % "
        "or more. "
        f"The capacity lies between {kept} and {broken} ({nominal(asked.confidence)}); that no law "
        "breaks at a rate is known for its runs alone.",
        NOMINAL,
    ]
    if any(not bracket.is_decided for bracket in found):
        notes.append(
            f"Not decided: between them are rates whose intervals hold the limit even after {asked.replications_max} "
            "replications: raise question.replications_max, or make runs longer, for a narrower answer."
        )
    if any(bracket.broken <= asked.low for bracket in found):
        notes.append(f"{kept} 0 and {broken} {asked.low:g}: not even {asked.low:g} is kept; lower question.from.")
    if any(bracket.kept >= asked.high for bracket in found):
        notes.append(f"{broken} empty: even {asked.high:g} is kept; raise question.to.")
    lacks_end = any(
        (bracket.kept == 0 and bracket.broken > asked.low) or (bracket.broken == math.inf and bracket.kept < asked.high)
        for bracket in found
    )
    if lacks_end:
        notes.append(
            f"{kept} 0, or {broken} empty, where the rates at that end stayed open: nothing is known of that end."
        )
    evidence = Evidence()
    for bracket in found:
        for rate in (bracket.kept, bracket.broken):
            if values := bracket.values_at(rate):
                where = {asked.parameter: rate, **bracket.configuration}
                evidence.take(mean_at(asked.metric, where), values, asked.confidence_of_a_look)
    return AnswerTable(
        rows, notes, Outcome.UNKNOWN if lacks_end else Outcome.HOLDS, tuple(names.values()),
        tuple(bracket.replay for bracket in found), evidence,
    )  # fmt: skip


def capacity_columns(parameter: str, metric: str) -> tuple[str, str, str]:
    """The columns of the rate that is kept, of the one that is not, and of the metric at the former."""
    kept, broken = f"{parameter}_kept", f"{parameter}_broken"
    return kept, broken, columns_beside((kept, broken), [f"{metric}_at_kept"], METRIC)[f"{metric}_at_kept"]
