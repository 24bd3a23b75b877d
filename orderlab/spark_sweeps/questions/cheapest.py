"""The cheapest configuration that meets its targets, and the Pareto front of price against the first target."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from orderlab.model.errors import InputError, shortened
from orderlab.model.verdict import Outcome
from orderlab.sim.engine.few_runs import (
    NOMINAL,
    Evidence,
    exact_line,
    mean_at,
    nominal,
    quantile_interval,
    runs_needed,
)
from orderlab.sim.engine.skewed_means import ALLOWANCE, ValueShape, population_of
from orderlab.sim.engine.statistics import Interval
from orderlab.spark_sweeps.questions.asking import AnsweredRun, AnswerTable, finite, metric_of
from orderlab.spark_sweeps.results.rows import METRIC, PARAMETER, columns_beside
from orderlab.spark_sweeps.sweep_file.expressions import Expression


class Cheapest(BaseModel):
    """What is asked. ``price``: an expression of the parameters; ``targets``: metric -> upper bound."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    kind: Literal["cheapest"]
    price: str
    targets: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = Field(min_length=1)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    of_runs: float | None = Field(default=None, ge=0.5, lt=1)
    """The share of runs that have to keep each target, instead of their mean."""

    def interval(self, values: Sequence[float], confidence: float, population: ValueShape) -> Interval:
        """Of what a target is held against: the mean, or the quantile of runs."""
        if self.of_runs is None:
            return population.interval_of(values, confidence)
        return quantile_interval(values, self.of_runs, confidence)

    def confidence_of_each(self, configurations: int) -> float:
        """Of one configuration's interval: the best of many is chosen, also where all are alike (Bonferroni)."""
        return 1 - (1 - self.confidence) / configurations

    def insist_on_runs(self, configurations: int, replications: int, place: str) -> None:
        """Raise InputError where no configuration can be shown to keep its targets in that share of runs."""
        if self.of_runs is None:
            return
        needed = runs_needed(self.of_runs, self.confidence_of_each(configurations))
        if replications < needed:
            raise InputError(
                f"{place}: question.of_runs: {replications} replications cannot show what {100 * self.of_runs:g} % of "
                f"runs keep, of {configurations:,} configurations together; set replications.count to {needed} or more"
            )


@dataclass(frozen=True)
class Offer:
    """One configuration. It meets a target if the upper end of the interval does (with one replication: the value), and
    no run failed or broke a law. It is ``open`` if it does not, and the lower end of none that misses does.
    """

    point: int
    parameters: Mapping[str, Any]
    price: float
    metrics: Mapping[str, Interval]
    is_sound: bool
    meets: bool
    on_front: bool
    replay: str = ""
    """Of its first run."""
    values: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Each target's metric in its runs."""
    open: bool = False


def cheapest(asked: Cheapest, runs: Sequence[AnsweredRun]) -> list[Offer]:
    """All configurations, those that meet the targets first, then by price. Raises InputError for an unknown metric."""
    price = Expression(asked.price, "question.price")
    by_point: dict[int, list[AnsweredRun]] = {}
    for run in runs:
        by_point.setdefault(run.point, []).append(run)
    offers = []
    confidence = asked.confidence_of_each(len(by_point))
    surer = 1 - (1 - confidence) / len(asked.targets)  # all targets are to be met, and one is enough to be missed
    measured = {point: _measured(asked, mine) for point, mine in by_point.items()}
    populations = populations_of(asked, measured.values())
    for point, mine in by_point.items():
        sound = all(run.is_sound for run in mine)
        values = measured[point]
        found = {metric: asked.interval(told, confidence, populations[metric]) for metric, told in values.items()}
        meets = sound and all(
            _upper(found[metric]) <= bound or set(values[metric]) == {bound} for metric, bound in asked.targets.items()
        )
        is_open = sound and not meets
        is_open &= not any(
            _misses(asked.interval(told, surer, populations[metric]), asked.targets[metric])
            for metric, told in values.items()
        )
        cost = price_of(price, mine[0].parameters)
        offers.append(
            Offer(point, mine[0].parameters, cost, found, sound, meets, False, mine[0].replay, values, is_open)
        )
    first = next(iter(asked.targets))
    front = _front([offer for offer in offers if offer.is_sound], first)
    offers = [Offer(**{**vars(offer), "on_front": offer.point in front}) for offer in offers]
    return sorted(offers, key=lambda offer: (not offer.meets, offer.price, offer.point))


def _measured(asked: Cheapest, runs: Sequence[AnsweredRun]) -> dict[str, list[float]]:
    """Each target's metric in the runs of a configuration; empty where one failed or is not sound."""
    sound = all(run.is_sound for run in runs)
    return {metric: [metric_of(run, metric) for run in runs] for metric in (asked.targets if sound else ())}


def populations_of(asked: Cheapest, measured: Iterable[Mapping[str, Sequence[float]]]) -> dict[str, ValueShape]:
    """What all configurations tell of each target's metric; nothing is asked of it where quantiles are held
    against targets."""
    if asked.of_runs is not None:
        return dict.fromkeys(asked.targets, ValueShape())
    sound = [values for values in measured if values]
    return {metric: population_of([values[metric] for values in sound]) for metric in asked.targets}


def price_of(price: Expression, parameters: Mapping[str, Any]) -> float:
    """The price of a configuration. Raises InputError where it is no finite number."""
    found = price.evaluate(parameters)
    if isinstance(found, (int, float)) and abs(found) < math.inf:
        with contextlib.suppress(OverflowError):
            return float(found)
    raise InputError(
        f"question.price: {shortened(found)} is no price; give an expression whose value is a finite number"
    )


def _upper(interval: Interval) -> float:
    return interval.high if interval.count > 1 else interval.estimate


def _misses(interval: Interval, bound: float) -> bool:
    low = interval.low if interval.count > 1 and math.isfinite(interval.estimate) else interval.estimate
    return low > bound  # not so of NaN: what was not measured misses nothing


def _front(offers: Sequence[Offer], metric: str) -> set[int]:
    """Points that no cheaper or equally cheap offer beats in the metric."""
    best, front = float("inf"), set()
    for offer in sorted(offers, key=lambda offer: (offer.price, offer.metrics[metric].estimate)):
        if offer.metrics[metric].estimate < best:
            best = offer.metrics[metric].estimate
            front.add(offer.point)
    return front


OFFER = ("price", "sound", "meets", "open", "on_front")


def of_cheapest(asked: Cheapest, found: Sequence[Offer], names: Sequence[str]) -> AnswerTable:
    """A row for each configuration, those that meet the targets first, then by price."""
    rows = []
    means, highs = target_columns(asked.targets)
    columns = columns_beside((*OFFER, *means.values(), *highs.values()), names, PARAMETER)
    for offer in found:
        row: dict[str, Any] = {column: offer.parameters.get(name) for name, column in columns.items()}
        for metric in asked.targets:
            interval = offer.metrics.get(metric)
            row[means[metric]] = None if interval is None else interval.estimate
            row[highs[metric]] = None if interval is None else finite(interval.high)
        rows.append(
            {
                **row,
                **dict(zip(OFFER, (offer.price, offer.is_sound, offer.meets, offer.open, offer.on_front), strict=True)),
            }
        )
    outcome = Outcome.UNKNOWN if any(offer.open for offer in found) else Outcome.VIOLATED
    if any(offer.meets for offer in found):
        outcome = Outcome.HOLDS
    evidence = Evidence()
    for offer in found if asked.of_runs is None else ():
        for metric, values in offer.values.items():
            where = {name: offer.parameters[name] for name in names if name in offer.parameters}
            evidence.take(mean_at(metric, where), values)
    for metric, population in populations_of(asked, [offer.values for offer in found]).items():
        evidence.take_population(metric, population)
    notes = _notes(asked, len(found)) + _exact_lines(asked, found)
    return AnswerTable(rows, notes, outcome, tuple(columns.values()), tuple(offer.replay for offer in found), evidence)


def _notes(asked: Cheapest, configurations: int) -> list[str]:
    targets = ", ".join(f"{metric} <= {bound:g}" for metric, bound in asked.targets.items())
    first = next(iter(asked.targets))
    together = f"for all {configurations} configurations together (Bonferroni"
    if asked.of_runs is None:
        figure = "mean"
        by = f"the upper end of the mean's interval, {nominal(asked.confidence)} {together}; {ALLOWANCE}; "
        by += "with one replication by the value, which says nothing of chance)"
    else:
        figure = f"{100 * asked.of_runs:g} % quantile"
        by = f"the upper end of the interval of what {100 * asked.of_runs:g} % of runs do not exceed, by order "
        by += f"statistics, {100 * asked.confidence:g} % {together}; exact, whatever runs are like)"
    return [
        f"meets: {targets}, by {by}, and no run failed or broke a law (sound).",
        "open: it does not, and may: no target is missed by the lower end either, so that more replications decide.",
        f"on_front: nothing that costs as little or less has a lower {figure} of {first} (Pareto; of equals the "
        "first).",
        *([NOMINAL] if asked.of_runs is None else []),
    ]


def _exact_lines(asked: Cheapest, offers: Sequence[Offer]) -> list[str]:
    """What is known of targets that offers meet because each run lies at the target itself."""
    exact = {
        f"{metric} <= {bound:g}": len(offer.values[metric])
        for offer in offers
        if offer.meets
        for metric, bound in asked.targets.items()
        if set(offer.values.get(metric, ())) == {bound}
    }
    together = f"{100 * asked.confidence:g} % for all {len(offers)} configurations together"
    confidence = asked.confidence_of_each(len(offers))
    return [exact_line(text, runs, confidence, together) for text, runs in exact.items()]


def target_columns(targets: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """The columns of each target: of its mean and of the upper end of the mean's interval."""
    means = columns_beside(OFFER, targets, METRIC)
    ends = {metric: f"{column}.high" for metric, column in means.items()}
    beside = columns_beside((*OFFER, *means.values()), ends.values(), "interval")
    return means, {metric: beside[end] for metric, end in ends.items()}
