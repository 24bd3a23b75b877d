"""Which configurations a search for the best tries next: evenly spaced ones, random ones, or those of Optuna's TPE.

TPE models each parameter beside the others by densities and is slow to close in where several have to fit together, or
where the best lie at the end of a constraint. A part of each batch is therefore drawn around the best so far, in steps
of every size, and a part anywhere, so that no region is given up.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from orderlab.model.errors import InputError
from orderlab.sim.engine.statistics import Interval
from orderlab.spark_sweeps.questions.aims import Best, Tried, key_of, leading
from orderlab.spark_sweeps.sweep_file.plan import seed_of
from orderlab.spark_sweeps.sweep_file.specification import Axis

STEPS_MAX = 1000
"""Whole ranges of more values are searched as continuous ones, and rounded."""
HALVES = 50
"""Of the configurations, from which the spread of importance is told."""
ASKED_AGAIN = 20
"""So many times as many proposals as a batch holds are asked for, if those that come were run before."""


class Grid:
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
        """The next ``size`` configurations."""
        return [dict(zip(self._names, row, strict=True)) for row in itertools.islice(self._left, size)]

    def tell(self, tried: Mapping[tuple[Any, ...], Tried]) -> None:
        """Learn nothing."""

    def importance(self) -> dict[str, dict[str, Interval]]:
        """Nothing is learned."""
        return {}


TOP = math.nextafter(1.0, 0.0)


def _levels_of(axis: Axis) -> int:
    """How many values an axis has; STEPS_MAX where they are too many to step through."""
    if axis.has_list:
        return len(axis.listed())
    if axis.is_whole and axis.scale == "linear":
        return min(STEPS_MAX, int(axis.high or 0) - int(axis.low or 0) + 1)
    return STEPS_MAX


class Sampler:
    """Optuna's samplers, with a study in memory that is told the batches in their order."""

    def __init__(self, asked: Best, seed: int) -> None:
        try:
            import optuna
        except ImportError:
            raise InputError('question.sampler: the search needs Optuna; pip install "orderlab[best]"') from None
        self._optuna, self._asked, self._seed = optuna, asked, seed
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        directions = optuna.study.StudyDirection
        self._study = optuna.create_study(
            directions=[directions.MINIMIZE if aim.sign == 1 else directions.MAXIMIZE for aim in asked.aims]
        )
        self._axes = {name: _Searched(optuna, axis) for name, axis in asked.parameters.items()}
        self._open: list[tuple[Any, tuple[Any, ...]]] = []
        self._proposed: dict[tuple[Any, ...], Any] = {}

    def batch(self, number: int, size: int, tried: Mapping[tuple[Any, ...], Tried]) -> list[dict[str, Any]]:
        """Up to ``size`` configurations that were not tried; none where the sampler proposes no new one."""
        space = {name: axis.distribution for name, axis in self._axes.items()}
        rng = np.random.default_rng(seed_of(self._seed, f"near-{number}"))
        parents = [] if self._asked.sampler == "random" else self._parents(tried)
        samplers = {at: self._sampler_of(at, number) for at in ("tpe", "random")}
        points: dict[tuple[Any, ...], dict[str, Any]] = {}
        for attempt in range(ASKED_AGAIN * size):
            how = WAYS[attempt % len(WAYS)] if parents else self._asked.sampler
            self._study.sampler = samplers["random" if how == "random" else "tpe"]
            if how == "near":
                parent = parents[rng.integers(len(parents))]
                self._study.enqueue_trial(self._near(parent, rng))
            trial = self._study.ask(space)
            point = {name: axis.value(trial.params[name]) for name, axis in self._axes.items()}
            self._open.append((trial, key_of(point)))
            if key_of(point) not in tried:
                points[key_of(point)] = point
            if len(points) == size:
                break
        return list(points.values())

    def _near(self, parent: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """A step away from ``parent``, in some of its parameters."""
        size = float(np.exp(rng.uniform(*np.log(STEPS))))
        moved = rng.random(len(self._axes)) < MOVED
        moved[rng.integers(len(moved))] = True
        return {
            name: axis.near(parent[name], size, rng) if moves else parent[name]
            for (name, axis), moves in zip(self._axes.items(), moved, strict=True)
        }

    def _parents(self, tried: Mapping[tuple[Any, ...], Tried]) -> list[dict[str, Any]]:
        """What the best so far were proposed as: of one aim the few best, of several those that nothing dominates."""
        return [
            self._proposed[key_of(best.parameters)].params
            for best in leading(self._asked, list(tried.values()), PARENTS)
        ]

    def _sampler_of(self, kind: str, number: int) -> Any:
        seed = seed_of(self._seed, f"batch-{number}" if kind == self._asked.sampler else f"{kind}-{number}")
        if kind == "random":
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
            self._proposed[key] = trial
            trial.set_user_attr("excess", list(result.excess))
            self._study.tell(trial, result.values, state=self._state_of(trial, result))
        self._open = []

    def _state_of(self, trial: Any, result: Tried) -> Any:
        """What to tell of a result without values: stopped after a look at it, or failed."""
        states = self._optuna.trial.TrialState
        if result.is_stopped:
            trial.report(result.look, 0)
            return states.PRUNED
        return states.FAIL if result.values is None else None

    def importance(self) -> dict[str, dict[str, Interval]]:
        """By aim what each parameter has a part in, as shares of 1; empty where too little was measured to say. Ends:
        by how much the shares of random halves of the configurations differ (the delete-half jackknife; Shao, Wu 1989).
        """
        done = [trial for trial in self._study.trials if trial.state.name == "COMPLETE"]
        if len(done) < 4 * len(self._axes):
            return {}
        rng = np.random.default_rng(seed_of(self._seed, "halves"))
        halves = [[done[at] for at in rng.permutation(len(done))[: len(done) // 2]] for _ in range(HALVES)]
        shares: dict[str, dict[str, Interval]] = {}
        for place, aim in enumerate(self._asked.aims):
            values = {trial.values[place] for trial in done}
            whole = self._shares(done, place, aim.sign) if len(values) > 1 else {}
            if not whole:
                continue
            of_halves = [self._shares(half, place, aim.sign) for half in halves]
            reach = {name: 1.96 * float(np.std([half.get(name, 0.0) for half in of_halves])) for name in whole}
            shares[aim.metric] = {
                name: Interval(share, max(0.0, share - reach[name]), min(1.0, share + reach[name]), len(done))
                for name, share in whole.items()
            }
        return shares

    def _shares(self, trials: Sequence[Any], place: int, sign: int) -> dict[str, float]:
        """By PED-ANOVA, of these trials alone."""
        importance = self._optuna.importance
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            by_name = importance.get_param_importances(
                _Part(self._study, trials), evaluator=importance.PedAnovaImportanceEvaluator(),
                target=None if len(self._asked.aims) == 1 else _lower_is_better(place, sign),
            )  # fmt: skip
        return {name: float(share) for name, share in by_name.items() if math.isfinite(share)}


class _Part:
    """A study that tells of some of its trials alone: Optuna's own copies of it take four times as long."""

    def __init__(self, study: Any, trials: Sequence[Any]) -> None:
        self._study, self._trials = study, trials

    def get_trials(self, deepcopy: bool = True, states: Any = None) -> Sequence[Any]:
        """They, all of which came to their end."""
        return self._trials

    def __getattr__(self, name: str) -> Any:
        return getattr(self._study, name)


def _lower_is_better(place: int, sign: int) -> Callable[[Any], float]:
    """What PED-ANOVA takes for the value of a trial, where a study has several."""
    return lambda trial: sign * float(trial.values[place])


def _excess(trial: Any) -> Sequence[float]:
    return trial.user_attrs["excess"]  # type: ignore[no-any-return]


WAYS = ("tpe", "near", "tpe", "near", "tpe", "near", "tpe", "random")
"""Of a batch, once something was measured: from the model, around the best, anywhere."""
PARENTS = 4
STEPS = (0.004, 0.4)
"""Sizes of steps around the best, as shares of a range, each as likely as any in equal ratios."""
MOVED = 0.5
"""Of the parameters in such a step, one at least."""


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

    def near(self, at: Any, size: float, rng: np.random.Generator) -> Any:
        """A value of the distribution about ``size``, a share of its range, away from ``at``; of a choice any."""
        kind = self.distribution
        if hasattr(kind, "choices"):
            return int(rng.integers(len(kind.choices)))
        step = rng.normal(0, size * (kind.high - kind.low))
        if isinstance(at, int):
            whole = round(step) or int(np.copysign(1, step))
            return int(np.clip(at + whole, kind.low, kind.high))
        return float(np.clip(at + step, kind.low, kind.high))
