"""What each question's answer looks like: rows of plain values, notes that say how to read them, and the outcome."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from orderlab.model.verdict import Outcome
from orderlab.spark_sweeps.questions.capacity import Bracket, Capacity
from orderlab.spark_sweeps.questions.cheapest import Cheapest, Offer
from orderlab.spark_sweeps.questions.comparison import Comparison, Difference
from orderlab.spark_sweeps.questions.rare_event import RareAnswer, RareEvent
from orderlab.spark_sweeps.questions.risk import Likelihood, Risk
from orderlab.spark_sweeps.questions.sensitivity import Influence, Sensitivity

COMMANDS = ("first_event", "first_violation")
"""Columns that hold a command that replays a run."""


PARAMETER, METRIC = "parameter", "metric"


def columns_beside(taken: Collection[str], names: Iterable[str], kind: str) -> dict[str, str]:
    """Name -> its column in a table that has the columns ``taken``: the name itself, or ``parameter.NAME`` where another
    column is called so. Users name parameters and metrics as they like, and no column may hide another.
    """
    names = list(dict.fromkeys(names))
    used = {*taken, *names}
    found = {}
    for name in names:
        column = name
        while column in taken or (column != name and column in used):
            column = f"{kind}.{column}"
        used.add(column)
        found[name] = column
    return found


@dataclass(frozen=True)
class Told:
    """An answer. ``outcome`` is VIOLATED where the question has a target and it is missed, UNKNOWN where it stayed open.
    ``settings``: the columns that say which configuration a row is about.
    """

    rows: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)
    outcome: Outcome = Outcome.HOLDS
    settings: tuple[str, ...] = ()


def of_capacity(asked: Capacity, found: Sequence[Bracket]) -> Told:
    """A row for each configuration: the highest rate that is kept and the lowest that is not."""
    kept, broken, at_kept = capacity_columns(asked.parameter, asked.metric)
    names = columns_beside((kept, broken, at_kept, "runs", "sure"), (name for one in found for name in one.configuration), PARAMETER)
    rows = [
        {
            **{names[name]: value for name, value in bracket.configuration.items()},
            kept: bracket.kept, broken: bracket.to_json()["broken"], at_kept: bracket.at_kept, "runs": bracket.runs,
            "sure": bracket.is_sure,
        }
        for bracket in found
    ]  # fmt: skip
    notes = [
        f"kept: every run came to its end and broke no law, and the interval of the mean of {asked.metric} lies below "
        f"{asked.below:g}; of a simulated system also: everything is delivered, and latency does not grow by 1 % or more. "
        f"The capacity lies between {kept} and {broken} ({asked.confidence:.0%}); that no law "
        "breaks at a rate is known for its runs alone.",
    ]
    if any(not bracket.is_sure for bracket in found):
        notes.append(
            f"Not sure: between them are rates whose intervals hold the limit even after {asked.replications_max} "
            "replications: raise question.replications_max, or make runs longer, for a narrower answer."
        )
    if any(bracket.kept == 0 for bracket in found):
        notes.append(f"{kept} 0: not even {asked.low:g} is kept; lower question.from.")
    if any(bracket.broken == float("inf") for bracket in found):
        notes.append(f"{broken} empty: even {asked.high:g} is kept; raise question.to.")
    return Told(rows, notes, settings=tuple(names.values()))


def capacity_columns(parameter: str, metric: str) -> tuple[str, str, str]:
    """The columns of the rate that is kept, of the one that is not, and of the metric at the former."""
    kept, broken = f"{parameter}_kept", f"{parameter}_broken"
    return kept, broken, columns_beside((kept, broken), [f"{metric}_at_kept"], METRIC)[f"{metric}_at_kept"]


def of_sensitivity(asked: Sensitivity, found: Sequence[Influence]) -> Told:
    """A row for each parameter, the most influential first."""
    if asked.method == "morris":
        rows = [
            {"parameter": one.parameter, "mean_absolute_effect": one.total, "half_width": one.total_half_width,
             "spread_of_effects": one.first}
            for one in found
        ]  # fmt: skip
        return Told(rows, [
            f"Change of {asked.metric} when a parameter moves across its range, by elementary effects (Morris). A spread as "
            "large as the effect means that it bends or depends on other parameters. half_width: of 95 % intervals.",
        ])  # fmt: skip
    notes = [
        f"Shares of the variance of {asked.metric} (Sobol'): first is the parameter's own, total what it has a part in. "
        "half_width: of 95 % intervals, by bootstrap. What differs from seed to seed alone is taken out: each point is run at "
        "least twice.",
    ]
    if any(one.is_noise for one in found):
        names = ", ".join(one.parameter for one in found if one.is_noise)
        notes.append(f"Not told from no influence at all: {names}.")
    if any(one.total_half_width > 0.2 for one in found):
        notes.append("Intervals are wide: double question.samples before you read the order.")
    return Told([asdict(one) for one in found], notes)


def of_risk(asked: Risk, found: Likelihood) -> Told:
    """One row: the test's decision, and the interval of the probability."""
    told = asdict(found)
    interval = told.pop("interval")
    row = {**told, "probability": interval["estimate"], "low": interval["low"], "high": interval["high"],
           "runs": interval["count"]}  # fmt: skip
    outcome = {"acceptable": Outcome.HOLDS, "unacceptable": Outcome.VIOLATED}.get(found.decision, Outcome.UNKNOWN)
    notes = [
        f"Wald's test between {asked.acceptable:g} (acceptable) and {asked.unacceptable:g} (unacceptable), each wrong "
        f"answer with a probability of about {asked.error:g}. low to high: 95 % by Clopper and Pearson, the early end included.",
    ]
    if found.failed:
        notes.append(f"{found.failed} runs that failed or put no law to the test are counted as violations: nobody knows what they would have shown.")
    if found.violations == 0:
        notes.append("Not one violation: for the probability of something so rare ask a rare-event question.")
    return Told([row], notes, outcome)


def of_rare_event(asked: RareEvent, found: RareAnswer) -> Told:
    """One row: the probability, its interval, the effort, and the plain runs beside it."""
    one, plain = found.splitting, found.plain
    row: dict[str, Any] = {
        "probability": one.probability, "low": one.low, "high": one.high, "runs": one.evaluations,
        "as_many_plain": found.as_many_plain, "levels": max(len(levels) for levels in one.levels),
        "died_out": one.died_out, "failed": found.failed,
    }  # fmt: skip
    if plain is not None:
        row |= {"plain": plain.estimate, "plain_low": plain.low, "plain_high": plain.high, "plain_runs": plain.count}
        row["agrees"] = found.agrees
    event = "a violated law" if asked.above is None else f"{asked.score} above {asked.above:g}"
    notes = [
        f"Probability of {event}, by importance splitting along {asked.score}: {asked.populations} independent populations "
        f"of {asked.samples} runs a level. The 95 % interval comes from how they differ; it is approximate.",
    ]
    if found.as_many_plain is not None and one.levels:
        times = found.as_many_plain / one.evaluations
        notes.append(
            f"Plain runs would have to be about {found.as_many_plain:,.0f} for an interval of this width"
            + (f", {times:,.1f} times as many." if times >= 1 else ": fewer than this took. At such a probability count plain runs.")
        )
    if one.died_out:
        notes.append(
            f"{one.died_out} of {asked.populations} populations found no way above their last level: take more samples, or a "
            "score that tells better how near a run comes. Their part of the interval reaches from 0 to that level."
        )
    if found.failed:
        notes.append(f"{found.failed} runs that failed or put no law to the test are counted as the event: nobody knows what they would have shown.")
    if found.agrees is False:
        notes.append("The interval of the plain runs lies apart: trust those, and take more samples.")
    row["first_event"] = found.first_event
    return Told([row], notes, Outcome.UNKNOWN if one.probability == 0 else Outcome.HOLDS)


def of_cheapest(asked: Cheapest, found: Sequence[Offer], names: Sequence[str]) -> Told:
    """A row for each configuration, those that meet the targets first, then by price."""
    rows = []
    means, highs = target_columns(asked.targets)
    columns = columns_beside((*OFFER, *means.values(), *highs.values()), names, PARAMETER)
    for offer in found:
        row: dict[str, Any] = {column: offer.parameters.get(name) for name, column in columns.items()}
        for metric in asked.targets:
            interval = offer.metrics.get(metric)
            row[means[metric]] = None if interval is None else interval.estimate
            row[highs[metric]] = None if interval is None else _finite(interval.high)
        rows.append({**row, **dict(zip(OFFER, (offer.price, offer.is_sound, offer.meets, offer.on_front), strict=True))})
    targets = ", ".join(f"{metric} < {bound:g}" for metric, bound in asked.targets.items())
    first = next(iter(asked.targets))
    notes = [
        f"meets: {targets}, by the upper end of the mean's {asked.confidence:.0%} interval (with one replication by the "
        "value), and no run failed or broke a law (sound).",
        f"on_front: nothing that costs as little or less has a lower mean of {first} (Pareto; of equals the first).",
    ]
    if not any(offer.meets for offer in found):
        notes.append("No configuration meets the targets.")
    outcome = Outcome.HOLDS if any(offer.meets for offer in found) else Outcome.VIOLATED
    return Told(rows, notes, outcome, tuple(columns.values()))


OFFER = ("price", "sound", "meets", "on_front")


def target_columns(targets: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Of each target the columns of its mean and of the upper end of the mean's interval."""
    means = columns_beside(OFFER, targets, METRIC)
    ends = {metric: f"{column}.high" for metric, column in means.items()}
    beside = columns_beside((*OFFER, *means.values()), ends.values(), "interval")
    return means, {metric: beside[end] for metric, end in ends.items()}


def of_comparison(asked: Comparison, found: Sequence[Difference], names: Sequence[str]) -> Told:
    """A row for each metric and setting of the other parameters."""
    columns = columns_beside(DIFFERENCE, (name for name in names if any(name in one.others for one in found)), PARAMETER)
    rows = [
        {
            "metric": one.metric, **{column: one.others[name] for name, column in columns.items() if name in one.others},
            "a": one.a, "b": one.b,
            "difference": one.difference.estimate, "low": _finite(one.difference.low), "high": _finite(one.difference.high),
            "pairs": one.difference.count, "ratio": one.ratio, "differs": one.differs, "unpaired": one.unpaired,
        }
        for one in found
    ]  # fmt: skip
    notes = [
        f"a: {asked.parameter} = {asked.a}, b: {asked.parameter} = {asked.b}; difference is b - a over runs with the same seed, "
        f"low to high its {asked.confidence:.0%} interval (of flags and rare counts from the pairs that differ, else Student's), ratio "
        "b / a. differs: the interval leaves out 0.",
    ]
    if len(found) > 1:
        notes.append(
            f"{len(found)} intervals at {asked.confidence:.0%} each: about {len(found) * (1 - asked.confidence):.1g} of them "
            "would miss where nothing differs."
        )
    return Told(rows, notes, settings=tuple(columns.values()))


DIFFERENCE = ("metric", "a", "b", "difference", "low", "high", "pairs", "ratio", "differs", "unpaired")


def _finite(value: float) -> float | None:
    return value if abs(value) != float("inf") else None


def shown(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Values as a table prints them."""
    return [{name: cell(value) for name, value in row.items()} for row in rows]


def cell(value: Any) -> str:
    """One of them."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
