"""The best configuration: one metric at its least or most, under constraints, found by a search in batches of runs.

Three quarters of the runs search: a sampler proposes a batch, the sweep runs it, the sampler is told. A batch is a
function of the seed and of the results of the batches before it, in their order, so that a search that was stopped goes
on with the same proposals. All configurations of the search have the same seeds, which flatters the ones that win on
them. The last quarter is therefore run on fresh seeds, by the few best alone: only these runs are in the answer. Its
intervals hold for all finalists together (Bonferroni), as the best of them is chosen after they were seen.
"""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.sim.engine.few_runs import NOMINAL, Evidence, mean_at, nominal
from orderlab.sim.engine.statistics import Interval, difference_interval, interval_of
from orderlab.spark_sweeps.questions.asking import (
    AnsweredRun,
    AnswerTable,
    Ask,
    finite,
    insist_on_an_end,
    insist_on_judgement,
    metric_of,
)  # fmt: skip
from orderlab.spark_sweeps.results.rows import METRIC, PARAMETER, columns_beside
from orderlab.spark_sweeps.sweep_file.plan import seed_of
from orderlab.spark_sweeps.sweep_file.specification import Axis

VIOLATIONS = "violations"
"""In a constraint: 1 for a run in which a law broke, 0 for one whose laws held."""
FINALISTS_MAX, FINAL_RUNS_MIN = 10, 5
STEPS_MAX = 1000
"""Whole ranges of more values are searched as continuous ones, and rounded."""
ASKED_AGAIN = 20
"""So many times as many proposals as a batch holds are asked for, if those that come were run before."""
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

    def far_end(self, interval: Interval) -> float:
        """The end of an interval that is nearer to a breach."""
        return interval.low if self.relation[0] == ">" else interval.high

    def near_end(self, interval: Interval) -> float:
        """The other one."""
        return interval.high if self.relation[0] == ">" else interval.low


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


class Best(BaseModel):
    """What is asked: the configuration of ``parameters`` with the least (or greatest) mean of a metric."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: Literal["best"]
    minimise: str | None = None
    maximise: str | None = None
    subject_to: tuple[str, ...] = ()
    runs: int = Field(ge=20, le=1_000_000)
    """All that may be done."""
    parameters: dict[str, Axis] = Field(min_length=1)
    sampler: Literal["tpe", "random", "grid"] = "tpe"
    batch: int = Field(default=16, ge=1, le=10_000)
    """Configurations that are proposed at once; more keep more cores busy, and search less cleverly."""
    confidence: float = Field(default=0.95, gt=0.5, lt=1)

    @model_validator(mode="after")
    def _has_one_aim(self) -> Best:
        if (self.minimise is None) == (self.maximise is None):
            raise ValueError('give either minimise = "METRIC" or maximise = "METRIC"')
        for text in self.subject_to:
            constraint_of(text)
        return self

    @property
    def metric(self) -> str:
        """What is minimised or maximised."""
        return self.minimise or self.maximise or ""

    @property
    def sign(self) -> int:
        """What makes less better."""
        return 1 if self.maximise is None else -1

    @property
    def constraints(self) -> list[Bound]:
        """Those of ``subject_to``."""
        return [constraint_of(text) for text in self.subject_to]

    @property
    def measured(self) -> list[str]:
        """The metrics that runs have to record."""
        names = [self.metric, *(constraint.metric for constraint in self.constraints)]
        return [name for name in dict.fromkeys(names) if name != VIOLATIONS]


@dataclass(frozen=True)
class Tried:
    """A configuration of the search. ``value`` None: one of its runs failed, or showed no number."""

    parameters: Mapping[str, Any]
    value: float | None
    excess: tuple[float, ...] = ()

    @property
    def is_feasible(self) -> bool:
        """Whether its runs met the constraints."""
        return self.value is not None and all(over <= 0 for over in self.excess)


@dataclass(frozen=True)
class Finalist:
    """One of the best of the search on fresh seeds. ``meets``: by the ends of the intervals; ``open``: it may."""

    parameters: Mapping[str, Any]
    values: Sequence[float]
    interval: Interval | None
    constraints: Mapping[str, Interval]
    meets: bool
    open: bool
    replay: str
    violations: int = 0
    """How many of its runs broke a law, whether or not the question forbids it."""
    chosen: bool = False
    difference: Interval | None = None
    """To the chosen one, paired on the same seeds."""

    @property
    def is_tied(self) -> bool:
        """Whether it meets the constraints and is not told from the chosen one."""
        return self.difference is not None and self.difference.low <= 0 <= self.difference.high


@dataclass
class Search:
    """What a search came to, in the order of its proposals."""

    tried: dict[tuple[Any, ...], Tried] = field(default_factory=dict)
    finalists: list[Finalist] = field(default_factory=list)
    importance: Mapping[str, float] = field(default_factory=dict)
    runs: int = 0


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


def best(asked: Best, ask: Ask, replications: int, seed: int) -> Search:
    """Search, then run the finalists. Raises InputError where no run measured anything."""
    final_runs = asked.runs // 4
    search, left = Search(), (asked.runs - final_runs) // replications
    if left < 1:
        raise InputError(f"question.runs: {asked.runs} are too few for replications.count {replications}; raise runs")
    proposals = _Grid(asked, left) if asked.sampler == "grid" else _Sampler(asked, seed)
    number = 0
    while left and (points := proposals.batch(number, min(asked.batch, left), search.tried)):
        answered = ask(f"batch-{number:04d}", points, replications)
        if number == 0 and any(constraint.metric == VIOLATIONS for constraint in asked.constraints):
            insist_on_judgement(answered)
        for place, point in enumerate(points):
            mine = answered[place * replications : (place + 1) * replications]
            search.tried[_key(point)] = _tried(asked, point, mine)
        search.runs += len(answered)
        if number == 0 and all(run.status != "ok" for run in answered):
            insist_on_an_end(answered)
        proposals.tell(search.tried)
        left, number = left - len(points), number + 1
    candidates = [tried for tried in search.tried.values() if tried.value is not None]
    if not candidates:
        raise InputError(
            f"question: not one of {len(search.tried)} configurations was measured: in each a run failed, or "
            f"{' or '.join(asked.measured)} was no finite number; see the rows of batch-0000"
        )
    candidates.sort(key=lambda tried: (sum(max(0.0, over) for over in tried.excess), asked.sign * (tried.value or 0.0)))
    many = max(1, min(FINALISTS_MAX, final_runs // FINAL_RUNS_MIN))
    _run_finalists(asked, search, _candidates(asked, candidates, many), final_runs, ask, seed)
    search.importance = proposals.importance()
    return search


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


def _key(point: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(point.items())


def _tried(asked: Best, point: Mapping[str, Any], runs: Sequence[AnsweredRun]) -> Tried:
    measured = measured_of(asked, runs)
    if measured is None:
        return Tried(point, None)
    over = []
    for constraint in asked.constraints:
        values = measured[constraint.metric]
        exact = constraint.relation == "=="
        over.append(max(map(constraint.excess, values)) if exact else constraint.excess(float(np.mean(values))))
    return Tried(point, float(np.mean(measured[asked.metric])), tuple(over))


def _run_finalists(asked: Best, search: Search, candidates: Sequence[Tried], budget: int, ask: Ask, seed: int) -> None:
    each = budget // len(candidates)
    seeds = [seed_of(seed, f"final-{number}") for number in range(each)]
    rows = [tried.parameters for tried in candidates for _ in seeds]
    answered = ask("final", rows, 1, seeds * len(candidates))
    search.runs += len(answered)
    finalists = [
        _finalist(asked, tried, answered[place * each : (place + 1) * each], len(candidates))
        for place, tried in enumerate(candidates)
    ]
    meeting = [finalist for finalist in finalists if finalist.meets]
    if meeting:
        chosen = min(meeting, key=lambda finalist: asked.sign * float(np.mean(finalist.values)))
        level = 1 - (1 - asked.confidence) / len(candidates)
        for place, finalist in enumerate(finalists):
            if finalist is chosen:
                finalists[place] = Finalist(**{**vars(finalist), "chosen": True})
            elif finalist.meets:
                apart = difference_interval(chosen.values, finalist.values, level)
                finalists[place] = Finalist(**{**vars(finalist), "difference": apart})
    worst = math.inf

    def rank(finalist: Finalist) -> tuple[bool, bool, bool, float]:
        value = worst if finalist.interval is None else asked.sign * finalist.interval.estimate
        return not finalist.chosen, not finalist.meets, not finalist.open, value

    search.finalists = sorted(finalists, key=rank)


def _finalist(asked: Best, tried: Tried, runs: Sequence[AnsweredRun], many: int) -> Finalist:
    measured = measured_of(asked, runs)
    broken = sum(run.outcome == "violated" for run in runs)
    if measured is None:
        return Finalist(tried.parameters, (), None, {}, False, False, runs[0].replay, broken)
    level = 1 - (1 - asked.confidence) / many
    intervals: dict[str, Interval] = {}
    meets = may = True
    for constraint, before in zip(asked.constraints, tried.excess, strict=True):
        values = measured[constraint.metric]
        interval = intervals[constraint.text] = interval_of(values, level)
        if constraint.relation == "==":
            kept = before <= 0 and all(constraint.excess(value) <= 0 for value in values)
            meets, may = meets and kept, may and kept
        else:
            meets &= constraint.excess(constraint.far_end(interval)) <= 0
            may &= constraint.excess(constraint.near_end(interval)) <= 0
    interval = interval_of(measured[asked.metric], level)
    return Finalist(
        tried.parameters, measured[asked.metric], interval, intervals, meets, may and not meets, runs[0].replay, broken
    )


class _Grid:
    """Evenly spaced values of every parameter, as many as the runs allow."""

    def __init__(self, asked: Best, most: int) -> None:
        levels = dict.fromkeys(asked.parameters, 1)
        limits = {name: _levels_of(axis) for name, axis in asked.parameters.items()}
        grew = True
        while grew:
            grew = False
            for name in levels:
                wider = math.prod(levels.values()) // levels[name] * (levels[name] + 1)
                if levels[name] < limits[name] and wider <= most:
                    levels[name] += 1
                    grew = True
        values = [
            dict.fromkeys(axis.at(min((k + 0.5) / levels[name], TOP)) for k in range(levels[name]))
            for name, axis in asked.parameters.items()
        ]
        self._left = itertools.product(*values)
        self._names = list(asked.parameters)

    def batch(self, number: int, size: int, tried: Mapping[tuple[Any, ...], Tried]) -> list[dict[str, Any]]:
        return [dict(zip(self._names, row, strict=True)) for row in itertools.islice(self._left, size)]

    def tell(self, tried: Mapping[tuple[Any, ...], Tried]) -> None:
        """Learn nothing."""

    def importance(self) -> dict[str, float]:
        return {}


TOP = math.nextafter(1.0, 0.0)


def _levels_of(axis: Axis) -> int:
    """How many values an axis has; STEPS_MAX where they are too many to step through."""
    if axis.has_list:
        return len(axis.listed())
    if axis.is_whole and axis.scale == "linear":
        return min(STEPS_MAX, int(axis.high or 0) - int(axis.low or 0) + 1)
    return STEPS_MAX


class _Sampler:
    """Optuna's samplers, with a study in memory that is told the batches in their order."""

    def __init__(self, asked: Best, seed: int) -> None:
        try:
            import optuna
        except ImportError:
            raise InputError('question.sampler: the search needs Optuna; pip install "orderlab[best]"') from None
        self._optuna, self._asked, self._seed = optuna, asked, seed
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(direction="minimize" if asked.sign == 1 else "maximize")
        self._axes = {name: _Searched(optuna, axis) for name, axis in asked.parameters.items()}
        self._open: list[tuple[Any, tuple[Any, ...]]] = []

    def batch(self, number: int, size: int, tried: Mapping[tuple[Any, ...], Tried]) -> list[dict[str, Any]]:
        """Up to ``size`` configurations that were not tried; none where the sampler proposes no new one."""
        space = {name: axis.distribution for name, axis in self._axes.items()}
        self._study.sampler = self._sampler_of(seed_of(self._seed, f"batch-{number}"))
        points: dict[tuple[Any, ...], dict[str, Any]] = {}
        for _ in range(ASKED_AGAIN * size):
            trial = self._study.ask(space)
            point = {name: axis.value(trial.params[name]) for name, axis in self._axes.items()}
            self._open.append((trial, _key(point)))
            if _key(point) not in tried:
                points[_key(point)] = point
            if len(points) == size:
                break
        return list(points.values())

    def _sampler_of(self, seed: int) -> Any:
        if self._asked.sampler == "random":
            return self._optuna.samplers.RandomSampler(seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the options are called experimental
            return self._optuna.samplers.TPESampler(
                seed=seed, multivariate=True, constant_liar=True, n_startup_trials=max(10, 2 * len(self._axes)),
                constraints_func=_excess if self._asked.subject_to else None,
            )  # fmt: skip

    def tell(self, tried: Mapping[tuple[Any, ...], Tried]) -> None:
        """Tell the study what its proposals showed."""
        for trial, key in self._open:
            result = tried[key]
            trial.set_user_attr("excess", list(result.excess))
            failed = result.value is None
            self._study.tell(trial, result.value, state=self._optuna.trial.TrialState.FAIL if failed else None)
        self._open = []

    def importance(self) -> dict[str, float]:
        """What each parameter has a part in, as shares of 1; empty where too little was measured to say."""
        done = [trial for trial in self._study.trials if trial.value is not None]
        if len(done) < 4 * len(self._axes) or len({trial.value for trial in done}) < 2:
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator = self._optuna.importance.PedAnovaImportanceEvaluator()
            shares = self._optuna.importance.get_param_importances(self._study, evaluator=evaluator)
        return {name: float(share) for name, share in shares.items() if math.isfinite(share)}


def _excess(trial: Any) -> Sequence[float]:
    return trial.user_attrs["excess"]  # type: ignore[no-any-return]


class _Searched:
    """An axis as a sampler sees it: an unordered choice, steps, or a share of the way."""

    def __init__(self, optuna: Any, axis: Axis) -> None:
        listed = axis.listed() if axis.has_list else ()
        numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in listed)
        steps = _levels_of(axis)
        self.value: Callable[[Any], Any]
        if listed and not (numbers and list(listed) == sorted(listed)):
            self.distribution = optuna.distributions.CategoricalDistribution(range(len(listed)))
            self.value = lambda place: listed[place]
        elif listed:
            self.distribution = optuna.distributions.IntDistribution(0, len(listed) - 1)
            self.value = lambda place: listed[place]
        elif axis.is_whole and axis.scale == "linear" and steps < STEPS_MAX:
            self.distribution = optuna.distributions.IntDistribution(0, steps - 1)
            self.value = lambda place: int(axis.low or 0) + place
        else:
            self.distribution = optuna.distributions.FloatDistribution(0.0, 1.0)
            self.value = lambda share: axis.at(share)


FINAL = ("value", "low", "high", "meets", "open", "chosen", "tied", "violations", "runs")


def of_best(asked: Best, search: Search, confidence: float | None = None) -> AnswerTable:
    """A row for each finalist: the chosen one, then those that meet the constraints, then the others."""
    names = list(asked.parameters)
    texts = [constraint.text for constraint in asked.constraints]
    ends = columns_beside(FINAL, texts, METRIC)
    columns = columns_beside((*FINAL, *ends.values()), names, PARAMETER)
    rows, evidence = [], Evidence()
    for finalist in search.finalists:
        row: dict[str, Any] = {column: finalist.parameters[name] for name, column in columns.items()}
        value = finalist.interval
        row |= {
            "value": value and value.estimate,
            "low": value and finite(value.low),
            "high": value and finite(value.high),
        }
        for constraint in asked.constraints:
            interval = finalist.constraints.get(constraint.text)
            row[ends[constraint.text]] = None if interval is None else finite(interval.estimate)
        rows.append({
            **row, "meets": finalist.meets, "open": finalist.open, "chosen": finalist.chosen, "tied": finalist.is_tied,
            "violations": finalist.violations, "runs": len(finalist.values),
        })  # fmt: skip
        if finalist.interval is not None:
            evidence.take(mean_at(asked.metric, finalist.parameters), list(finalist.values))
    outcome = Outcome.HOLDS if any(finalist.chosen for finalist in search.finalists) else Outcome.VIOLATED
    if outcome is Outcome.VIOLATED and any(finalist.open for finalist in search.finalists):
        outcome = Outcome.UNKNOWN
    settings, replays = tuple(columns.values()), tuple(finalist.replay for finalist in search.finalists)
    return AnswerTable(rows, _notes(asked, search), outcome, settings, replays, evidence)


def _notes(asked: Best, search: Search) -> list[str]:
    unmeasured = sum(tried.value is None for tried in search.tried.values())
    feasible = sum(tried.is_feasible for tried in search.tried.values())
    notes = [
        f"value, low, high: mean of {asked.metric} and its interval on seeds that the search had not seen, "
        f"{nominal(asked.confidence)} for all {len(search.finalists)} finalists together (Bonferroni). tied: meets the "
        "constraints, and its difference to the chosen one, paired on the same seeds, is not told from 0.",
        f"Looked at: {len(search.tried):,} configurations ({asked.sampler}, in batches of {asked.batch}), {feasible:,} "
        f"of them within the constraints by their means; {search.runs:,} runs in all. What lies outside the ranges, or "
        "between the configurations that were tried, was not looked at: a better one may be there.",
        *_untried(asked, search),
    ]
    if asked.subject_to:
        notes.append(
            f"meets: {', '.join(asked.subject_to)}, by that end of the mean's interval that is nearer to a breach (== "
            "in every run); open: it does not, and more runs may show that it does."
        )
    if unmeasured:
        notes.append(f"{unmeasured:,} configurations were not measured, and are no answer: a run failed, or showed no "
                     "finite number, or put no law to the test.")  # fmt: skip
    if search.importance:
        shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in search.importance.items())
        notes.append(f"What tells the better tenth of the search from the rest (PED-ANOVA, no interval): {shares}.")
    return [*notes, NOMINAL]


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
