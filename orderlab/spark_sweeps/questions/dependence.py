"""What each parameter does to an aim, over the configurations that a search tried: partial dependence (Friedman 2001).

A smooth model (radial basis functions, smoothed) is fitted to what was measured. For each parameter in turn, every
configuration is given each of a few values of it, the others as they were, and the predictions are averaged. How much
of the differences the model explains is measured on configurations that it was not fitted to (cross-validation): where
it explains little, its curves say little.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orderlab.spark_sweeps.questions.aims import Tried
from orderlab.spark_sweeps.sweep_file.specification import Axis

FITTED_MAX = 600
"""Configurations that a model is fitted to, evenly taken from all: its work grows with their cube."""
FITTED_MIN = 30
AVERAGED_MAX = 120
LEVELS = 9
LISTED_MAX = 16
FOLDS = 5
SMOOTHINGS = (0.01, 0.1, 1.0, 10.0)
EXPLAINED_MIN = 0.2
"""Below this share of the variance explained nothing is drawn."""
LOG_FROM = 30.0
"""From this ratio of the greatest to the least value on, the model is one of logarithms."""
Floats = npt.NDArray[np.float64]


class Effect(NamedTuple):
    """At a value of a parameter: the mean prediction, and between which ones eight of ten configurations lie."""

    value: Any
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Dependence:
    """Of one aim. ``explained``: the share of the variance of configurations that the model was not fitted to."""

    metric: str
    explained: float
    effects: Mapping[str, Sequence[Effect]]
    """By parameter; empty where too little is explained."""

    def to_json(self) -> dict[str, Any]:
        """Plain lists."""
        effects = {name: [list(effect) for effect in curve] for name, curve in self.effects.items()}
        return {"metric": self.metric, "explained": round(self.explained, 4), "effects": effects}


def dependence_of(metric: str, place: int, axes: Mapping[str, Axis], tried: Sequence[Tried]) -> Dependence | None:
    """The dependence of aim number ``place``; None where too few configurations were measured to fit a model."""
    measured = [(point.parameters, point.values[place]) for point in tried if point.values is not None]
    if len(measured) < max(FITTED_MIN, 3 * len(axes)):
        return None
    taken = np.unique(np.linspace(0, len(measured) - 1, FITTED_MAX).round().astype(int))
    points = [measured[number][0] for number in taken]
    values = np.array([measured[number][1] for number in taken])
    if np.ptp(values) == 0:
        return None
    is_log = bool(values.min() > 0 and values.max() / values.min() > LOG_FROM)
    model = _Model({name: _Coding(axis) for name, axis in axes.items()}, points, np.log(values) if is_log else values)
    if model.explained < EXPLAINED_MIN:
        return Dependence(metric, model.explained, {})
    some = points[:: -(-len(points) // AVERAGED_MAX)]
    effects = {name: _effects(model, name, axis, some, is_log) for name, axis in axes.items()}
    return Dependence(metric, model.explained, effects)


def _effects(model: _Model, name: str, axis: Axis, points: Sequence[Mapping[str, Any]], is_log: bool) -> list[Effect]:
    effects = []
    for level in _levels(axis):
        predicted = model.predict([{**point, name: level} for point in points])
        mean_and_ends = (float(predicted.mean()), *(float(end) for end in np.quantile(predicted, (0.1, 0.9))))
        effects.append(Effect(level, *(math.exp(value) if is_log else value for value in mean_and_ends)))
    return effects


def _levels(axis: Axis) -> list[Any]:
    """A few values of an axis from end to end."""
    if axis.has_list:
        listed = axis.listed()
        if len(listed) <= LISTED_MAX:
            return list(listed)
        return [listed[round(place)] for place in np.linspace(0, len(listed) - 1, LEVELS)]
    shares = np.linspace(0.0, math.nextafter(1.0, 0.0), LEVELS)
    return list(dict.fromkeys(axis.at(float(share)) for share in shares))


class _Coding:
    """A parameter as coordinates: the share of the way along a range or an ordered list, a corner for each choice."""

    def __init__(self, axis: Axis) -> None:
        listed = axis.listed() if axis.has_list else ()
        numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in listed)
        self._axis = axis
        self._places = {value: place for place, value in enumerate(listed)}
        self._is_choice = bool(listed) and not (numbers and list(listed) == sorted(listed))

    def code(self, value: Any) -> list[float]:
        if self._is_choice:
            return [math.sqrt(0.5) * (self._places[value] == place) for place in range(len(self._places))]
        if self._places:
            return [self._places[value] / max(1, len(self._places) - 1)]
        low, high = float(self._axis.low or 0), float(self._axis.high or 0)
        if self._axis.scale == "log":
            return [math.log(value / low) / math.log(high / low)]
        return [(value - low) / (high - low)]


class _Model:
    """A smooth model of values over points, with the smoothing that predicts best what was left out."""

    def __init__(self, codings: Mapping[str, _Coding], points: Sequence[Mapping[str, Any]], values: Floats) -> None:
        from scipy.interpolate import RBFInterpolator

        self._codings = codings
        self._mean, self._scale = float(values.mean()), float(values.std())
        coded, scaled = self._code(points), (values - self._mean) / self._scale

        def errors(smoothing: float) -> float:
            total = 0.0
            for fold in range(FOLDS):
                left_out = np.arange(len(scaled)) % FOLDS == fold
                fitted = RBFInterpolator(coded[~left_out], scaled[~left_out], kernel="linear", smoothing=smoothing)
                total += float(((fitted(coded[left_out]) - scaled[left_out]) ** 2).sum())
            return total

        errors_by = {smoothing: errors(smoothing) for smoothing in SMOOTHINGS}
        best = min(errors_by, key=errors_by.__getitem__)
        self.explained = 1 - errors_by[best] / len(scaled)
        self._fitted = RBFInterpolator(coded, scaled, kernel="linear", smoothing=best)

    def _code(self, points: Sequence[Mapping[str, Any]]) -> Floats:
        rows = [
            [share for name, coding in self._codings.items() for share in coding.code(point[name])] for point in points
        ]
        return np.array(rows)

    def predict(self, points: Sequence[Mapping[str, Any]]) -> Floats:
        """Of points anywhere on the axes."""
        predicted: Floats = self._fitted(self._code(points)) * self._scale + self._mean
        return predicted
