"""The cheapest configuration that meets its targets, and the Pareto front of price against the first target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from orderlab.sim.engine.intervals import Interval, interval_of
from orderlab.spark_sweeps.expressions import Expression
from orderlab.spark_sweeps.questions.asking import Answered, metric_of


class Cheapest(BaseModel):
    """What is asked. ``price``: an expression of the parameters; ``targets``: metric -> upper bound."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: Literal["cheapest"]
    price: str
    targets: dict[str, float] = Field(min_length=1)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)


@dataclass(frozen=True)
class Offer:
    """One configuration. It meets a target if the upper end of the mean's interval does (with one replication: the
    value), and no run failed or broke a law.
    """

    point: int
    parameters: Mapping[str, Any]
    price: float
    metrics: Mapping[str, Interval]
    is_sound: bool
    meets: bool
    on_front: bool


def cheapest(asked: Cheapest, runs: Sequence[Answered]) -> list[Offer]:
    """All configurations, those that meet the targets first, then by price. Raises InputError for an unknown metric."""
    price = Expression(asked.price, "question.price")
    by_point: dict[int, list[Answered]] = {}
    for run in runs:
        by_point.setdefault(run.point, []).append(run)
    offers = []
    for point, mine in by_point.items():
        sound = all(run.is_sound for run in mine)
        found = {
            metric: interval_of([metric_of(run, metric) for run in mine], asked.confidence)
            for metric in (asked.targets if sound else ())
        }
        meets = sound and all(_upper(found[metric]) < bound for metric, bound in asked.targets.items())
        cost = float(price.evaluate(mine[0].parameters))
        offers.append(Offer(point, mine[0].parameters, cost, found, sound, meets, False))
    first = next(iter(asked.targets))
    front = _front([offer for offer in offers if offer.is_sound], first)
    offers = [Offer(**{**vars(offer), "on_front": offer.point in front}) for offer in offers]
    return sorted(offers, key=lambda offer: (not offer.meets, offer.price, offer.point))


def _upper(interval: Interval) -> float:
    return interval.high if interval.count > 1 else interval.estimate


def _front(offers: Sequence[Offer], metric: str) -> set[int]:
    """Points that no cheaper or equally cheap offer beats in the metric."""
    best, front = float("inf"), set()
    for offer in sorted(offers, key=lambda offer: (offer.price, offer.metrics[metric].estimate)):
        if offer.metrics[metric].estimate < best:
            best = offer.metrics[metric].estimate
            front.add(offer.point)
    return front
