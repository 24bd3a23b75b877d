"""The best configuration: one metric at its least or most, under constraints, found by a search in batches of runs.
Of several metrics the front: configurations of which none is better in all.

Three quarters of the runs search: a sampler proposes a batch, the sweep runs it, the sampler is told. A batch is a
function of the seed and of the results of the batches before it, in their order, so that a search that was stopped goes
on with the same proposals. All configurations of the search have the same seeds, which flatters the ones that win on
them. The last quarter is therefore run on fresh seeds, by the few best alone: only these runs are in the answer. Its
intervals hold for all finalists together (Bonferroni), as the best of them is chosen after they were seen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.sim.engine.few_runs import NOMINAL, Evidence, exact_line, mean_at, nominal
from orderlab.sim.engine.skewed_means import ALLOWANCE, ValueShape, population_of
from orderlab.sim.engine.statistics import Interval, difference_interval, interval_of
from orderlab.spark_sweeps.questions.aims import (
    VIOLATIONS,
    Best,
    Short,
    Tried,
    dominates,
    key_of,
    leading,
)
from orderlab.spark_sweeps.questions.asking import (
    AnsweredRun,
    AnswerTable,
    Ask,
    finite,
    insist_on_an_end,
    insist_on_judgement,
    metric_of,
)  # fmt: skip
from orderlab.spark_sweeps.questions.dependence import Dependence, dependence_of
from orderlab.spark_sweeps.questions.proposals import Grid, Sampler
from orderlab.spark_sweeps.results.rows import METRIC, PARAMETER, columns_beside
from orderlab.spark_sweeps.sweep_file.plan import seed_of


@dataclass(frozen=True)
class Finalist:
    """One of the best of the search on fresh seeds. ``meets``: by the ends of the intervals; ``open``: it may."""

    parameters: Mapping[str, Any]
    values: Mapping[str, Sequence[float]]
    """Of each aim, in the order of the seeds; empty where a run failed."""
    intervals: Mapping[str, Interval]
    constraints: Mapping[str, Interval]
    meets: bool
    open: bool
    replay: str
    violations: int = 0
    """How many of its runs broke a law, whether or not the question forbids it."""
    chosen: bool = False
    """The best by its mean; of several aims: on the front by its means."""
    is_tied: bool = False
    """Whether it meets the constraints, and is not told from a better one by differences on the same seeds."""

    @property
    def means(self) -> tuple[float, ...] | None:
        """Of each aim; None where it was not measured."""
        return tuple(interval.estimate for interval in self.intervals.values()) or None


@dataclass
class Search:
    """What a search came to, in the order of its proposals."""

    tried: dict[tuple[Any, ...], Tried] = field(default_factory=dict)
    finalists: list[Finalist] = field(default_factory=list)
    populations: Mapping[str, ValueShape] = field(default_factory=dict)
    """What the finalists tell of each metric whose mean a constraint is about."""
    importance: Mapping[str, Mapping[str, Interval]] = field(default_factory=dict)
    dependence: Sequence[Dependence] = ()
    runs: int = 0
    cost: float = 0.0
    """Runs of full length that they took as long as."""
    left: int = 0
    """Configurations that there were runs for, and none to be tried."""


def measured_of(asked: Best, runs: Sequence[AnsweredRun]) -> dict[str, list[float]] | None:
    """Each metric of a configuration's runs; None where one failed or is no number: that is no measurement."""
    if any(run.status != "ok" for run in runs):
        return None
    measured = {name: [metric_of(run, name) for run in runs] for name in asked.measured}
    if any(constraint.metric == VIOLATIONS for constraint in asked.constraints):
        if any(run.tells_nothing for run in runs):
            return None
        measured[VIOLATIONS] = [float(run.outcome == "violated") for run in runs]
    return measured if all(math.isfinite(value) for values in measured.values() for value in values) else None


def best(asked: Best, ask: Ask, replications: int, seed: int, length: float = 0.0) -> Search:
    """Search, then run the finalists; ``length``: of a whole run, where configurations have a short look first. Raises
    InputError where no run measured anything."""
    search, left = Search(), int((asked.runs - asked.final_runs) / asked.cost_of(replications))
    if left < 1:
        raise InputError(f"question.runs: {asked.runs} are too few for replications.count {replications}; raise runs")
    proposals = Grid(asked, left) if asked.sampler == "grid" else Sampler(asked, seed)
    number = 0
    while left and (points := proposals.batch(number, min(asked.batch, left), search.tried)):
        looks = _looks(asked, asked.short, search, points, ask, number, length) if asked.short else {}
        going_on = [point for point in points if key_of(point) not in search.tried]
        answered = ask(f"batch-{number:04d}", going_on, replications)
        if number == 0 and any(constraint.metric == VIOLATIONS for constraint in asked.constraints):
            insist_on_judgement(answered)
        for place, point in enumerate(going_on):
            mine = answered[place * replications : (place + 1) * replications]
            search.tried[key_of(point)] = replace(_tried(asked, point, mine), look=looks.get(key_of(point)))
        search.runs += len(answered)
        search.cost += len(answered)
        if number == 0 and all(run.status != "ok" for run in answered):
            insist_on_an_end(answered)
        proposals.tell(search.tried)
        left, number = left - len(points), number + 1
    search.left = left
    candidates = [tried for tried in search.tried.values() if tried.values is not None]
    if not candidates:
        raise InputError(
            f"question: not one of {len(search.tried)} configurations was measured: in each a run failed, or "
            f"{' or '.join(asked.measured)} was no finite number; see the rows of batch-0000"
        )
    if len(asked.aims) > 1:
        chosen = _spread(asked, leading(asked, candidates, asked.finalists), asked.finalists)
    else:
        candidates.sort(key=lambda tried: (tried.breach, *asked.signed(tried.values)))
        chosen = _candidates(asked, candidates, asked.finalists)
    _run_finalists(asked, search, chosen, ask, seed)
    search.importance = proposals.importance()
    tried = list(search.tried.values())
    by_aim = (dependence_of(aim.metric, place, asked.parameters, tried) for place, aim in enumerate(asked.aims))
    search.dependence = [dependence for dependence in by_aim if dependence is not None]
    return search


def _looks(
    asked: Best, short: Short, search: Search, points: Sequence[Mapping[str, Any]], ask: Ask, number: int, length: float
) -> dict[tuple[Any, ...], float]:
    """Look at each point of a batch by one short run, and stop the worse ones; what the others showed."""
    rows = [{**point, short.parameter: short.length(length)} for point in points]
    runs = ask(f"short-{number:04d}", rows, 1)
    search.runs += len(runs)
    search.cost += len(runs) * short.share
    looked = [_tried(asked, point, [run]) for point, run in zip(points, runs, strict=True)]
    looked.sort(key=lambda tried: (tried.values is None, tried.breach, *asked.signed(tried.values)))
    going_on = math.ceil(short.keep * len(points))
    for tried in looked[going_on:]:
        if tried.values is not None:
            tried = replace(tried, values=None, look=tried.values[0], is_stopped=True)
        search.tried[key_of(tried.parameters)] = tried
    return {key_of(tried.parameters): tried.values[0] for tried in looked[:going_on] if tried.values is not None}


ROOM = (0.05, 0.1, 0.2, 0.35, 0.5)
"""Shares of the configurations within the constraints that have less room than the best of the rest."""


def _candidates(asked: Best, ranked: Sequence[Tried], many: int) -> list[Tried]:
    """Who is run again: half by value, half the best of those with more and more room to the constraints: where the
    best lie at a bound, noise leaves them open."""
    bounds = [place for place, constraint in enumerate(asked.constraints) if constraint.relation != "=="]
    feasible = [tried for tried in ranked if tried.is_feasible]
    if not bounds or not feasible:
        return list(ranked[:many])
    scales = [float(np.std([tried.excess[place] for tried in ranked])) or 1.0 for place in bounds]
    room = [
        min(-tried.excess[place] / scale for place, scale in zip(bounds, scales, strict=True)) for tried in feasible
    ]
    chosen = list(feasible[: many - many // 2])
    for least in np.quantile(room, ROOM[-(many // 2) :] if many > 1 else []):
        roomy = (tried for tried, has in zip(feasible, room, strict=True) if has >= least and tried not in chosen)
        chosen += list(itertools.islice(roomy, 1))
    rest = (tried for tried in ranked if tried not in chosen)
    return [*chosen, *itertools.islice(rest, many - len(chosen))]


def _spread(asked: Best, front: Sequence[Tried], many: int) -> list[Tried]:
    """At most ``many`` of a front: the best of each aim, then again and again who lies furthest from those chosen."""
    values = np.array([asked.signed(tried.values) for tried in front])
    width = np.ptp(values, axis=0)
    places = list(dict.fromkeys(int(place) for place in values.argmin(axis=0)))[:many]
    scaled = (values - values.min(axis=0)) / np.where(width > 0, width, 1.0)
    while len(places) < min(many, len(front)):
        apart = np.min(np.linalg.norm(scaled[:, None] - scaled[places], axis=2), axis=1)
        apart[places] = -1.0
        places.append(int(apart.argmax()))
    return [front[place] for place in places]


def _tried(asked: Best, point: Mapping[str, Any], runs: Sequence[AnsweredRun]) -> Tried:
    measured = measured_of(asked, runs)
    if measured is None:
        return Tried(point, None)
    over = []
    for constraint in asked.constraints:
        values = measured[constraint.metric]
        exact = constraint.relation == "=="
        over.append(
            max(map(constraint.excess, values)) if exact else constraint.excess(asked.figure(constraint, values))
        )
    return Tried(point, tuple(float(np.mean(measured[aim.metric])) for aim in asked.aims), tuple(over))


def _run_finalists(asked: Best, search: Search, candidates: Sequence[Tried], ask: Ask, seed: int) -> None:
    each = asked.final_runs // len(candidates)
    seeds = [seed_of(seed, f"final-{number}") for number in range(each)]
    rows = [tried.parameters for tried in candidates for _ in seeds]
    answered = ask(FINAL_ROUND, rows, 1, seeds * len(candidates))
    search.runs += len(answered)
    search.cost += len(answered)
    runs = [answered[place * each : (place + 1) * each] for place in range(len(candidates))]
    search.populations = _populations(asked, [measured_of(asked, mine) for mine in runs])
    finalists = [
        _finalist(asked, tried, mine, len(candidates), search.populations)
        for tried, mine in zip(candidates, runs, strict=True)
    ]
    search.finalists = _ranked(asked, _told_apart(asked, finalists))


def _told_apart(asked: Best, finalists: Sequence[Finalist]) -> list[Finalist]:
    """The finalists, with the chosen ones among those that meet the constraints, and those that are tied with them."""
    meeting = [finalist for finalist in finalists if finalist.meets]
    means = {id(finalist): asked.signed(finalist.means) for finalist in meeting}
    if len(asked.aims) == 1:
        chosen = sorted(meeting, key=lambda finalist: means[id(finalist)])[:1]
    else:
        chosen = [
            finalist for finalist in meeting
            if not any(dominates(means[id(other)], means[id(finalist)]) for other in meeting)
        ]  # fmt: skip
    level = asked.level(len(finalists))

    def is_worse(finalist: Finalist, than: Finalist) -> bool:
        """Whether all aims are told to be no better, by paired differences."""
        apart = [difference_interval(than.values[aim.metric], finalist.values[aim.metric], level) for aim in asked.aims]
        return all((one.low if aim.sign == 1 else -one.high) > 0 for aim, one in zip(asked.aims, apart, strict=True))

    compared = []
    for finalist in finalists:
        if finalist in chosen:
            finalist = replace(finalist, chosen=True)
        elif finalist.meets:
            finalist = replace(finalist, is_tied=not any(is_worse(finalist, other) for other in chosen))
        compared.append(finalist)
    return compared


def _ranked(asked: Best, finalists: Sequence[Finalist]) -> list[Finalist]:
    def rank(finalist: Finalist) -> tuple[Any, ...]:
        return not finalist.chosen, not finalist.meets, not finalist.open, asked.signed(finalist.means)

    return sorted(finalists, key=rank)


def _populations(asked: Best, measured: Sequence[Mapping[str, Sequence[float]] | None]) -> dict[str, ValueShape]:
    """What all finalists tell of each metric whose mean a constraint is about."""
    names = [] if asked.of_runs is not None else [bound.metric for bound in asked.constraints if bound.relation != "=="]
    told = [values for values in measured if values is not None]
    return {name: population_of([values[name] for values in told]) for name in dict.fromkeys(names)}


def _finalist(
    asked: Best, tried: Tried, runs: Sequence[AnsweredRun], many: int, populations: Mapping[str, ValueShape]
) -> Finalist:
    measured = measured_of(asked, runs)
    broken = sum(run.outcome == "violated" for run in runs)
    if measured is None:
        return Finalist(tried.parameters, {}, {}, {}, False, False, runs[0].replay, broken)
    level = asked.level(many)
    intervals: dict[str, Interval] = {}
    meets = may = True
    for constraint, before in zip(asked.constraints, tried.excess, strict=True):
        values = measured[constraint.metric]
        population = populations.get(constraint.metric, ValueShape())
        interval = intervals[constraint.text] = asked.interval(constraint, values, level, population)
        kept = before <= 0 and constraint.is_met_exactly(values)
        if constraint.relation == "==":
            meets, may = meets and kept, may and kept
        elif not kept:
            meets &= constraint.excess(constraint.far_end(interval)) <= 0
            may &= constraint.excess(constraint.near_end(interval)) <= 0
    aims = {aim.metric: measured[aim.metric] for aim in asked.aims}
    means = {metric: interval_of(mine, level) for metric, mine in aims.items()}
    return Finalist(tried.parameters, aims, means, intervals, meets, may and not meets, runs[0].replay, broken)


FINAL_ROUND = "final"
RANKED_MIN = 8
"""Pairs from which an agreement of ranks is told."""
FINAL = ("value", "low", "high", "meets", "open", "chosen", "tied", "violations", "runs")
FRONT = ("meets", "open", "on_front", "tied", "violations", "runs")
"""Of several aims, each with three columns of its own (`aim_columns`)."""


def aim_columns(asked: Best) -> dict[str, tuple[str, str, str]]:
    """Of each aim the columns of its mean and of both ends of its interval."""
    if len(asked.aims) == 1:
        return {asked.aims[0].metric: ("value", "low", "high")}
    means = columns_beside(FRONT, [aim.metric for aim in asked.aims], METRIC)
    taken = (*FRONT, *means.values())
    ends = columns_beside(
        taken, [f"{column}.{end}" for column in means.values() for end in ("low", "high")], "interval"
    )
    return {metric: (column, ends[f"{column}.low"], ends[f"{column}.high"]) for metric, column in means.items()}


def of_best(asked: Best, search: Search) -> AnswerTable:
    """A row for each finalist: the chosen one (or the front), then those that meet the constraints, then the others."""
    aims = aim_columns(asked)
    fixed = FINAL if len(aims) == 1 else (*FRONT, *(column for columns in aims.values() for column in columns))
    ends = columns_beside(fixed, [constraint.text for constraint in asked.constraints], METRIC)
    columns = columns_beside((*fixed, *ends.values()), list(asked.parameters), PARAMETER)
    rows, evidence = [], Evidence()
    for metric, population in search.populations.items():
        evidence.take_population(metric, population)
    for finalist in search.finalists:
        row: dict[str, Any] = {column: finalist.parameters[name] for name, column in columns.items()}
        for metric, (mean, low, high) in aims.items():
            interval = finalist.intervals.get(metric)
            row[mean] = interval and interval.estimate
            row |= {low: interval and finite(interval.low), high: interval and finite(interval.high)}
            if interval is not None:
                evidence.take(mean_at(metric, finalist.parameters), list(finalist.values[metric]))
        for constraint in asked.constraints:
            bound = finalist.constraints.get(constraint.text)
            row[ends[constraint.text]] = None if bound is None else finite(bound.estimate)
        runs = max(map(len, finalist.values.values()), default=0)
        rows.append({
            **row, "meets": finalist.meets, "open": finalist.open,
            "chosen" if len(aims) == 1 else "on_front": finalist.chosen, "tied": finalist.is_tied,
            "violations": finalist.violations, "runs": runs,
        })  # fmt: skip
    outcome = Outcome.HOLDS if any(finalist.chosen for finalist in search.finalists) else Outcome.VIOLATED
    if outcome is Outcome.VIOLATED and any(finalist.open for finalist in search.finalists):
        outcome = Outcome.UNKNOWN
    settings, replays = tuple(columns.values()), tuple(finalist.replay for finalist in search.finalists)
    return AnswerTable(
        rows, _notes(asked, search), outcome, settings, replays, evidence, search.dependence, search.importance
    )


def _notes(asked: Best, search: Search) -> list[str]:
    stopped = sum(tried.is_stopped for tried in search.tried.values())
    unmeasured = sum(tried.values is None for tried in search.tried.values()) - stopped
    feasible = sum(tried.is_feasible for tried in search.tried.values())
    sure = f"{nominal(asked.confidence)} for all {len(search.finalists)} finalists"
    if len(asked.aims) == 1:
        read = (
            f"value, low, high: mean of {asked.aims[0].metric} and its interval on seeds that the search had not seen, "
            f"{sure} together (Bonferroni). tied: meets the constraints, and its difference to the chosen one, paired "
            "on the same seeds, is not told from 0."
        )
    else:
        read = (
            f"Means and intervals are of seeds that the search had not seen, {sure} and aims together (Bonferroni). "
            "on_front: meets the constraints, and by its means no other that does is as good in every aim and better "
            "in one. tied: not on the front, and by differences on the same seeds not told to be worse in all aims "
            "than one that is."
        )
    as_much = f", short ones among them: as much as {search.cost:,.0f} whole ones" if asked.short else ""
    notes = [
        read,
        f"Looked at: {len(search.tried):,} configurations ({asked.sampler}, in batches of {asked.batch}), {feasible:,} "
        f"of them within the constraints; {search.runs:,} runs in all{as_much}. What lies outside the ranges, or "
        "between the configurations that were tried, was not looked at: a better one may be there.",
        *_untried(asked, search),
    ]
    if search.left:
        why = "the grid has" if asked.sampler == "grid" else "the search found"
        notes.append(
            f"{asked.runs - math.ceil(search.cost):,} of {asked.runs:,} runs were left over: {why} no further "
            "configuration. Raise replications.count to measure each more often, or lower runs."
        )
    if asked.subject_to:
        figure = f"the mean's interval ({ALLOWANCE})"
        if asked.of_runs is not None:
            figure = f"the exact interval (order statistics) of what {100 * asked.of_runs:g} % of runs keep"
        notes.append(
            f"meets: {', '.join(asked.subject_to)}, by that end of {figure} that is nearer to a breach (== in every "
            "run; violations by their share); open: it does not, and more runs may show that it does."
        )
        notes += _exact_lines(asked, search.finalists)
    if asked.short is not None:
        notes.append(_stopped_line(asked.short, list(search.tried.values()), stopped))
    if unmeasured:
        notes.append(f"{unmeasured:,} configurations were not measured, and are no answer: a run failed, or showed no "
                     "finite number, or tested no law.")  # fmt: skip
    for metric, parts in search.importance.items():
        shares = ", ".join(
            f"{name} {100 * share.estimate:.0f} % ({100 * share.low:.0f} to {100 * share.high:.0f})"
            for name, share in parts.items()
        )
        notes.append(
            f"What tells the better tenth of the search by {metric} from the rest (PED-ANOVA; nominal 95 %, by random "
            f"halves of the configurations): {shares}."
        )
    for dependence in search.dependence:
        drawn = "how it depends on each parameter is in answer.json and drawn in the page"
        share = 100 * max(0.0, dependence.explained)
        notes.append(
            f"A smooth model explains {share:.0f} % of the differences in {dependence.metric} between configurations "
            f"that it was not fitted to: {drawn if dependence.effects else 'too little to say what parameters do'}."
        )
    return [*notes, NOMINAL]


def _exact_lines(asked: Best, finalists: Sequence[Finalist]) -> list[str]:
    """What is known of constraints that finalists meet because each run lies at the bound itself."""
    exact = {
        constraint.text: max(map(len, finalist.values.values()))
        for finalist in finalists
        if finalist.meets
        for constraint in asked.constraints
        if finalist.constraints[constraint.text].estimate == constraint.bound
    }
    together = f"{100 * asked.confidence:g} % for all finalists together"
    return [exact_line(text, runs, asked.level(len(finalists)), together) for text, runs in exact.items()]


def _stopped_line(short: Short, tried: Sequence[Tried], stopped: int) -> str:
    """How many were stopped early, and how well a look told the order of those that went on."""
    pairs = [(point.look, point.values[0]) for point in tried if point.look is not None and point.values is not None]
    stops = f"Stopped early: {stopped:,} configurations, after one run of {100 * short.share:g} % of {short.parameter}"
    if len(pairs) < RANKED_MIN:
        return f"{stops}; too few went on to tell how well such a run ranks."
    from scipy import stats

    agreement = stats.spearmanr(*zip(*pairs, strict=True)).statistic
    return (
        f"{stops}. Of the {len(pairs):,} that went on, such a run and whole ones agree in their order by "
        f"{agreement:.2f} (Spearman; 1 is all, 0 none): where it is low, better ones may have been stopped."
    )


def _untried(asked: Best, search: Search) -> list[str]:
    """Listed values that no configuration of the search had."""
    never = []
    for name, axis in asked.parameters.items():
        seen = {tried.parameters[name] for tried in search.tried.values()}
        left = [value for value in (axis.listed() if axis.has_list else ()) if value not in seen]
        if left:
            more = f" and {len(left) - 5} more" if len(left) > 5 else ""
            never.append(f"{name} {', '.join(map(str, left[:5]))}{more}")
    return [f"Never tried: {'; '.join(never)}."] if never else []
