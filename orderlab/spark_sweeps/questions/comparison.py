"""A against B on the same seeds: differences run by run, so that what both have in common cancels out."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.sim.engine.few_runs import NOMINAL, Evidence, mean_at, nominal
from orderlab.sim.engine.statistics import Interval, difference_interval
from orderlab.spark_sweeps.questions.asking import AnsweredRun, AnswerTable, finite, metric_of
from orderlab.spark_sweeps.results.rows import PARAMETER, columns_beside
from orderlab.spark_sweeps.sweep_file.specification import Listed, Value


class Comparison(BaseModel):
    """What is asked: ``metrics`` with ``parameter`` at ``b`` minus the same at ``a``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    kind: Literal["comparison"]
    parameter: str
    a: Value
    b: Value
    metrics: Listed[str] = Field(min_length=1)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)


@dataclass(frozen=True)
class Difference:
    """The difference of one metric at one setting of the other parameters. ``ratio`` of the means; ``unpaired``: runs
    whose partner failed. ``differs``: the interval leaves out 0.
    """

    metric: str
    others: Mapping[str, Any]
    a: float
    b: float
    difference: Interval
    ratio: float | None
    unpaired: int
    replay: str = ""
    """Of the first run with b."""
    values: Sequence[float] = ()
    """The differences, pair by pair."""
    unmeasured: int = 0
    """Pairs of which a run has no finite number: they are left out, and what they hide may be the worst."""

    @property
    def differs(self) -> bool:
        """Whether chance alone is an unlikely explanation."""
        return self.difference.low > 0 or self.difference.high < 0


def comparison(asked: Comparison, runs: Sequence[AnsweredRun], derived: Collection[str] = ()) -> list[Difference]:
    """Differences by metric and by the other parameters; what is ``derived`` follows from these and the compared one.
    Raises InputError where no pair of runs shares its seed."""
    if asked.a == asked.b:
        raise InputError(f"question: a and b are both {asked.a!r}; compare two values of {asked.parameter}")
    sides: dict[Any, dict[tuple[Any, int], AnsweredRun]] = {asked.a: {}, asked.b: {}}
    for run in runs:
        value = run.parameters.get(asked.parameter)
        if value in sides:
            others = tuple(
                (name, other)
                for name, other in run.parameters.items()
                if name != asked.parameter and name not in derived
            )
            sides[value][others, run.seed] = run
    for value, found in sides.items():
        if not found:
            raise InputError(f"question: no run has {asked.parameter} = {value!r}; add it to axes.{asked.parameter}")
    common = [key for key in sides[asked.a] if key in sides[asked.b]]
    if not common:
        raise InputError("question: no two runs share their seed; set replications.common_random_numbers = true")
    groups: dict[Any, list[tuple[AnsweredRun, AnsweredRun]]] = {}
    for key in common:
        groups.setdefault(key[0], []).append((sides[asked.a][key], sides[asked.b][key]))
    differences = [
        _difference(asked, metric, dict(others), pairs) for metric in asked.metrics for others, pairs in groups.items()
    ]
    if not any(found.difference.count for found in differences):
        raise InputError(
            f"question: no pair of runs has a number for {' or '.join(asked.metrics)}, so that nothing is compared; "
            f"see {differences[0].replay}; ask for another metric"
        )
    return differences


def _difference(
    asked: Comparison, metric: str, others: Mapping[str, Any], pairs: Sequence[tuple[AnsweredRun, AnsweredRun]]
) -> Difference:
    ended = [(one, other) for one, other in pairs if one.status == other.status == "ok"]
    if not ended:
        raise InputError(
            f"question: no pair of runs came to its end at {others or 'any point'}; see why: {pairs[0][0].replay}"
        )
    whole = [pair for pair in ended if all(math.isfinite(metric_of(run, metric)) for run in pair)]
    if not whole:
        nothing = Interval(math.nan, -math.inf, math.inf, 0)
        return Difference(
            metric,
            others,
            math.nan,
            math.nan,
            nothing,
            None,
            len(pairs) - len(ended),
            ended[0][1].replay,
            (),
            len(ended),
        )
    values = [(metric_of(one, metric), metric_of(other, metric)) for one, other in whole]
    side_a, side_b = zip(*values, strict=True)
    found = difference_interval(side_a, side_b, asked.confidence)
    mean_a, mean_b = sum(side_a) / len(values), sum(side_b) / len(values)
    return Difference(
        metric,
        others,
        mean_a,
        mean_b,
        found,
        mean_b / mean_a if mean_a else None,
        len(pairs) - len(ended),
        whole[0][1].replay,
        [after - before for before, after in values],
        len(ended) - len(whole),
    )


DIFFERENCE = ("metric", "a", "b", "difference", "low", "high", "pairs", "ratio", "differs", "unpaired", "unmeasured")


def of_comparison(asked: Comparison, found: Sequence[Difference], names: Sequence[str]) -> AnswerTable:
    """A row for each metric and setting of the other parameters."""
    columns = columns_beside(
        DIFFERENCE, (name for name in names if any(name in one.others for one in found)), PARAMETER
    )
    rows = [
        {
            "metric": one.metric,
            **{column: one.others[name] for name, column in columns.items() if name in one.others},
            "a": finite(one.a),
            "b": finite(one.b),
            "difference": finite(one.difference.estimate),
            "low": finite(one.difference.low),
            "high": finite(one.difference.high),
            "pairs": one.difference.count,
            "ratio": one.ratio,
            "differs": one.differs,
            "unpaired": one.unpaired,
            "unmeasured": one.unmeasured,
        }
        for one in found
    ]
    notes = [
        f"a: {asked.parameter} = {asked.a}, b: {asked.parameter} = {asked.b}; difference is b - a over runs with the "
        "same seed, "
        f"low to high its {nominal(asked.confidence)} interval (of flags and rare counts from the pairs that "
        "differ, else "
        "Student's), ratio b / a. differs: the interval leaves out 0.",
        NOMINAL,
    ]
    if len(found) > 1:
        notes.append(
            f"{len(found)} intervals at {nominal(asked.confidence)} each: about "
            f"{len(found) * (1 - asked.confidence):.1g} "
            "of them would miss where nothing differs."
        )
    outcome = Outcome.HOLDS
    if any(one.unmeasured for one in found):
        outcome = Outcome.UNKNOWN
        notes.append(
            "unmeasured: pairs in which a run came to its end without a finite number, left out of all else here. Such "
            "runs are seldom the best ones, so the comparison stays open."
        )
    evidence = Evidence()
    for one in found:
        if len(one.values):
            where = {name: one.others[name] for name in columns if name in one.others}
            evidence.take(mean_at(f"difference of {one.metric}", where), one.values, asked.confidence)
    return AnswerTable(
        rows,
        notes,
        outcome,
        settings=tuple(columns.values()),
        replays=tuple(one.replay for one in found),
        evidence=evidence,
    )
